"""What a person sees of a study and of correlations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from landscape.terminal import shown

if TYPE_CHECKING:
    from landscape.correlations import Correlated
    from landscape.study import Study

_ROWS = 24
_COLUMNS = (
    ("loss", "loss", ".4f"),
    ("ΔQ", "delta_q", "+.2%"),
    ("trace", "trace", ".4g"),
    ("λ_max", "lambda_max", ".4g"),
)
_MORE = (("g·δ+½δᵀHδ", "predicted", "+.4f"), ("ΔL", "change", "+.4f"))


def print_study(console: Console, study: Study, notes: Sequence[str], seconds: float) -> None:
    """Rows spread over the study, what was skipped, and where the tables are."""
    console.print()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("checkpoint", "quantizer"):
        table.add_column(heading, overflow="fold")
    columns = [each for each in (*_COLUMNS, *_MORE) if any(row.get(each[1]) is not None for row in study.rows)]
    for heading, *_ in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    apart = max(1, -(-len(study.rows) // _ROWS))
    for row in study.rows[::-1][::apart][::-1]:
        name = "@".join(filter(None, (row["run"], row["checkpoint"])))
        cells = ["" if row.get(column) is None else format(row[column], form) for _, column, form in columns]
        table.add_row(
            name if row["kind"] == "checkpoint" else f"{row['kind']} at {name}", row.get("quantizer", ""), *cells
        )
    console.print(table)
    if apart > 1:
        console.print(f"every {apart}th of {len(study.rows)} rows")
    for task, why in study.skipped:
        console.print(Text.assemble(("skipped ", "yellow"), f"{task}: {why}"))
    for note in notes:
        console.print(Text.assemble(("note    ", "yellow"), note))
    console.print(f"{len(study.rows)} rows, {seconds:.0f} s; what hangs together: landscape correlate {study.folder}")
    for name in ("study.parquet", "study.csv", "layers.parquet"):
        console.print(Text.assemble((f"{'table':<8}", "bold green"), shown(study.folder / name)), soft_wrap=True)


def print_correlations(console: Console, found: Sequence[Correlated], logarithms: bool) -> None:
    """For every quantizer and column three coefficients, each raw, differenced, partial and lagged."""
    ways = list(dict.fromkeys(each.way for each in found))
    whys = []
    for quantizer in dict.fromkeys(each.quantizer for each in found):
        own = [each for each in found if each.quantizer == quantizer]
        console.print()
        console.print(Text.assemble((str(quantizer), "bold"), f"   {own[0].y} against"))
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("column", overflow="fold")
        table.add_column("")
        for way in ways:
            table.add_column(way, justify="right", no_wrap=True)
        for x in dict.fromkeys(each.x for each in own):
            by_way = {each.way: each for each in own if each.x == x}
            whys += [f"{x}, {each.way}: {each.why}" for each in by_way.values() if each.why]
            kinds = next((list(each.coefficients) for each in by_way.values() if each.coefficients), [])
            for place, kind in enumerate(kinds):
                table.add_row("" if place else x, kind, *(_cell(by_way[way], kind) for way in ways))
        console.print(table)
    rows = max((c.rows for each in found for c in each.coefficients.values()), default=0)
    console.print(
        f"\n95 % intervals from resampled blocks of neighbouring checkpoints, up to {rows} rows; "
        + ("Pearson's r of logarithms where all numbers are positive; " if logarithms else "")
        + "differenced: changes from one checkpoint to the next; partial: with step and loss (or --given) taken out"
    )
    for why in dict.fromkeys(whys):
        console.print(Text.assemble(("note    ", "yellow"), why))


def _cell(each: Correlated, kind: str) -> str:
    found = each.coefficients.get(kind)
    if found is None or math.isnan(found.value):
        return "–"
    return f"{found.value:+.2f} [{found.low:+.2f}, {found.high:+.2f}]".replace("[", "\\[")
