"""What a person sees of a training run and of an average."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from landscape.terminal.progress import shown

if TYPE_CHECKING:
    from landscape.averaging import Averaged
    from landscape.pretraining import Trained

_ROWS = 12


def print_trained(console: Console, trained: Trained, notes: list[str], seconds: float) -> None:
    """Some rows of the log, the last one among them, and where the run lies."""
    facts, rows = trained.facts, trained.rows
    console.print()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("step", "tokens", "learning rate", "loss", "gradient norm", "‖Θ‖"):
        table.add_column(heading, justify="right")
    apart = max(1, -(-len(rows) // _ROWS))
    for row in rows[:-1][apart - 1 :: apart] + rows[-1:]:
        table.add_row(
            f"{row['step']:,}",
            f"{row['tokens']:,}",
            f"{row['learning_rate']:.2e}",
            f"{row['loss']:.4f}",
            f"{row['grad_norm']:.3f}",
            f"{row['weight_norm']:.2f}",
        )
    console.print(table)
    epochs = rows[-1]["tokens"] / facts["tokens"]
    console.print(
        Text(
            f"{facts['parameters']:,} parameters; {facts['tokens']:,} tokens of {facts['text']}, read {epochs:.1f} "
            f"times; loss of the training batches in nats, mean since the row of the log before; {seconds:.0f} s"
        )
    )
    for note in notes:
        console.print(Text.assemble(("note    ", "yellow"), note))
    console.print(Text.assemble((f"{'run':<8}", "bold green"), shown(trained.run.folder)), soft_wrap=True)


def print_averaged(console: Console, averaged: list[Averaged], notes: list[str]) -> None:
    """What was averaged, and where the result lies."""
    console.print()
    for each in averaged:
        console.print(Text(f"{shown(each.folder)}: the mean of {', '.join(each.members)}"), soft_wrap=True)
    for note in notes:
        console.print(Text.assemble(("note    ", "yellow"), note))
