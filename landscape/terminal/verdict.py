"""What a person sees of a check: a line for each number, what was not computed again, and the verdict."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from landscape.verifying import Item, Verdict

_WIDEST = 12  # characters of a word


def print_verdict(console: Console, verdict: Verdict, notes: list[str], seconds: float) -> None:
    """Each item with what is stored, what came out, the difference and how large it may be; last the verdict."""
    console.print()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", ratio=1, overflow="fold")
    for heading in ("stored", "here", "difference", "allowed"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for item in verdict.items:
        mark = Text("true", style="green") if item.holds else Text("NOT TRUE", style="bold red")
        table.add_row(item.what, _shown(item.stored), _shown(item.found), _off(item), _allowed(item), mark)
    console.print(table)
    for why in dict.fromkeys(item.why for item in verdict.items if item.why):
        console.print(Text.assemble(("allowed ", "bold"), why))
    for skipped in verdict.skipped:
        console.print(Text.assemble(("not computed again ", "yellow"), skipped))
    for note in notes:
        console.print(Text.assemble(("note ", "yellow"), note))
    console.print(f"taken by chance with --seed {verdict.seed}; {seconds:.0f} s")
    count, lies = len(verdict.items), verdict.lies
    if not lies:
        console.print(
            Text(f"{verdict.path.name} tells the truth: {count} of {count}", style="bold green"), soft_wrap=True
        )
        return
    names = "; ".join(item.what for item in lies)
    words = f"{verdict.path.name} does not tell the truth: {count - len(lies)} of {count}; not so: {names}"
    console.print(Text(words, style="bold red"), soft_wrap=True)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.9g}"
    text = str(value)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _off(item: Item) -> str:
    if not math.isfinite(item.difference):
        return "another"
    return f"{item.difference:.1e}" if item.difference else "0"


def _allowed(item: Item) -> str:
    if item.at_most:
        return "at most"
    return f"{item.tolerance:.1e}" if item.tolerance else "0"
