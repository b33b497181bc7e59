"""Columns of a table along runs, as panels: a row for each column, a column for each group of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from analyses.drawn.figure import INK, Dash, Panel, Scale, Series
from analyses.read.known import Known
from analyses.read.tables import Row, Table, is_number

MILLIONS, BILLIONS, STEPS = "tokens (millions)", "tokens (billions)", "step"
_UNITS = {MILLIONS: ("tokens", 1e-6), BILLIONS: ("tokens", 1e-9), STEPS: ("step", 1.0)}


@dataclass(frozen=True)
class Line:
    """Rows of a run, given a quantizer, and how they are drawn."""

    rows: Callable[[str], Sequence[Row]]
    label: str = ""
    colour: str = INK
    dash: Dash = "solid"
    marker: str = "circle"


@dataclass(frozen=True)
class Measure:
    """A column as it stands on an axis: factor · number + shift.

    Attributes:
        quantizer: whose rows; None for a column that is the same under all.
        focus: how far above the lowest number the axis goes, where that leaves something out.
    """

    column: str
    title: str
    quantizer: str | None = None
    factor: float = 1.0
    shift: float = 0.0
    scale: Scale = "linear"
    focus: float | None = None


@dataclass(frozen=True)
class Side:
    """Lines that stand in one column of panels."""

    title: str
    lines: tuple[Line, ...]
    marks: tuple[float, ...] = ()


LOSS = Measure("loss", "loss, nats", focus=1.0)


def errors(quantizers: Iterable[str]) -> list[Measure]:
    """ΔQ in percent under each quantizer."""
    return [Measure("delta_q", f"ΔQ, %  {each}", each, 100.0) for each in quantizers]


def stacked(
    table: Table, sides: Sequence[Side], measures: Sequence[Measure], below: str = MILLIONS
) -> tuple[tuple[Panel, ...], ...]:
    """A panel for each measure and side; measures without a number are left out."""
    rows: list[tuple[Panel, ...]] = []
    for measure in measures:
        quantizer = measure.quantizer or table.quantizers[0]
        drawn = [[along(table, line, quantizer, measure, below) for line in side.lines] for side in sides]
        if not any(each.x for own in drawn for each in own):
            continue
        limits = _focus([each for own in drawn for each in own], measure.focus)
        rows.append(
            tuple(
                Panel(
                    tuple(own),
                    below,
                    measure.title,
                    side.title if not rows else "",
                    y_scale=measure.scale,
                    y_limits=limits,
                    marks=side.marks,
                )
                for side, own in zip(sides, drawn, strict=True)
            )
        )
    return tuple(rows)


def along(table: Table, line: Line, quantizer: str, measure: Measure, below: str = MILLIONS) -> Series:
    """A column along a run, with 95 % intervals where it has errors; rows without a number are left out."""
    x, scale = _UNITS[below]
    rows = [row for row in line.rows(quantizer) if is_number(row[measure.column]) and is_number(row[x])]
    found = [Known.of(table, row, measure.column).scaled(measure.factor).plus(measure.shift).interval for row in rows]
    shows_error = measure.column not in ("loss", "loss_hat")  # windows move the losses of all checkpoints together
    return Series(
        [scale * row[x] for row in rows],
        [each.value for each in found],
        line.label,
        line.colour,
        [each.low for each in found] if shows_error else (),
        [each.high for each in found] if shows_error else (),
        line.dash,
        line.marker,
        [f"{row['run']} {row['checkpoint']}" for row in rows],
    )


def _focus(series: Sequence[Series], above: float | None) -> tuple[float, float] | None:
    values = [y for each in series for y in each.y]
    if above is None or not values:
        return None
    return min(values) - 0.05 * above, min(min(values) + above, max(values) + 0.05 * above)
