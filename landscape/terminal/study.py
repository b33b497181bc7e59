"""What a person sees of a study and of correlations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from landscape.terminal.evaluation import shared_start
from landscape.terminal.progress import shown

if TYPE_CHECKING:
    from landscape.allocation import Allocation
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
    """Checkpoints spread over the study, what was skipped, and where the tables are."""
    console.print()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("checkpoint", "quantizer"):
        table.add_column(heading, overflow="fold")
    columns = [each for each in (*_COLUMNS, *_MORE) if any(row.get(each[1]) is not None for row in study.rows)]
    for heading, *_ in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    named = [(name, list(rows)) for name, rows in groupby(study.rows, _name)]
    apart = max(1, -(-len(study.rows) // _ROWS))
    for name, rows in named[::-1][::apart][::-1]:
        for row, words in zip(rows, [name] + [""] * len(rows), strict=False):
            cells = ["" if row.get(column) is None else format(row[column], form) for _, column, form in columns]
            table.add_row(words, row.get("quantizer", ""), *cells)
    console.print(table)
    if apart > 1 and len(named) > 1:
        console.print(f"one in {apart} of {len(named)} checkpoints")
    for task, why in study.skipped:
        console.print(Text.assemble(("skipped ", "yellow"), f"{task}: {why}"))
    for note in notes:
        console.print(Text.assemble(("note    ", "yellow"), note))
    console.print(f"{len(study.rows)} rows, {seconds:.0f} s; what hangs together: landscape correlate {study.folder}")
    for name in ("study.parquet", "study.csv", "layers.parquet", "tensors.parquet"):
        console.print(Text.assemble((f"{'table':<8}", "bold green"), shown(study.folder / name)), soft_wrap=True)


def print_allocation(console: Console, found: Allocation, notes: Sequence[str], seconds: float) -> None:
    """Bits by layer, then the choice beside all layers alike: predicted and real."""
    console.print()
    shared = shared_start(list(found.bits))
    for bits in sorted(set(found.bits.values()), reverse=True):
        own = ", ".join(name.removeprefix(shared) for name, each in found.bits.items() if each == bits)
        console.print(Text.assemble((f"{bits} bits  ", "bold"), own))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("quantizer", overflow="fold")
    for heading in ("bits", "predicted ΔL", "ΔL", "ΔQ"):
        table.add_column(heading, justify="right", no_wrap=True)
    for result, (name, predicted) in zip(found.results, found.predicted.items(), strict=True):
        change = result.comparison.change
        table.add_row(
            "these bits" if name == found.quantizer else name,
            f"{result.report['bits_per_weight']:.2f}",
            f"{predicted:.4f}",
            f"{change.value:+.4f} ± {change.standard_error:.4f}",
            f"{result.comparison.relative.value:+.2%}",
        )
    console.print(table)
    for note in notes:
        console.print(Text.assemble(("note    ", "yellow"), note))
    console.print(Text.assemble(("name    ", "bold green"), found.quantizer), soft_wrap=True)
    console.print(f"{seconds:.0f} s")


def print_correlations(console: Console, found: Sequence[Correlated], logarithms: bool) -> None:
    """For every quantizer and column three coefficients, each raw, differenced, partial and lagged."""
    kinds = list(dict.fromkeys(kind for each in found for kind in each.coefficients))
    whys = []
    for quantizer in dict.fromkeys(each.quantizer for each in found):
        own = [each for each in found if each.quantizer == quantizer]
        console.print()
        console.print(Text.assemble((str(quantizer), "bold"), f"   {own[0].y} against"))
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for heading in ("", ""):
            table.add_column(heading, no_wrap=True)
        for kind in kinds:
            table.add_column(kind, justify="right", no_wrap=True)
        last = None
        for each in own:
            table.add_row(each.x if each.x != last else "", each.way, *(_cell(each, kind) for kind in kinds))
            whys += [f"{each.x}, {each.way}: {each.why}"] if each.why else []
            last = each.x
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
    return f"{_short(found.value)} {_short(found.low)}…{_short(found.high)}"


def _short(value: float) -> str:
    return f"{value:+.2f}".replace("0.", ".")


def _name(row: Mapping[str, Any]) -> str:
    name = "@".join(filter(None, (row["run"], row["checkpoint"])))
    return name if row["kind"] == "checkpoint" else f"{row['kind']} at {name}"
