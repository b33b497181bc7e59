"""The figures of the experiments: ΔQ and loss over tokens, by peak rate, and averages beside decay."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analyses.lab import experiments as lab
from analyses.lab.measured import Interval, Measured
from analyses.lab.plan import Lawa, Planned
from landscape.storage.files import write_whole
from landscape.viewer.printed.write import STYLE

_RATES = ("#440154", "#31688e", "#35b779", "#d8a000")  # viridis, its last one darkened to stand on white
_STABLE, _COOLED = "#555555", "#c1440e"


def draw(measured: Measured, letters: str, quantizers: Sequence[str], folder: Path, size: str) -> list[Path]:
    """Write the figures of these experiments; returns where they are."""
    makers = {"A": (budgets, "budgets"), "B": (peaks, "peaks"), "C": (averaging, "averaging")}
    paths = []
    with matplotlib.rc_context(STYLE):
        for letter in letters:
            if letter in makers:
                make, name = makers[letter]
                path = folder / f"lab-{size}-{name}.png"
                memory = io.BytesIO()
                make(measured, quantizers).savefig(memory, format="png", dpi=160)
                write_whole(path, memory.getvalue())
                paths.append(path)
    return paths


def budgets(measured: Measured, quantizers: Sequence[str]) -> Figure:
    """A: the stable run and the cooldowns from it; one row for the loss, one for each quantizer; a column a seed."""
    plan = measured.plan
    figure, axes = _panels(len(plan.seeds), len(quantizers), "tokens (millions)")
    for column, seed in enumerate(plan.seeds):
        stable = plan.runs[f"stable-{lab.PEAK:g}-s{seed}"]
        cooled = [plan.runs[f"decay-{lab.PEAK:g}-s{seed}-from{max(plan.at(s), plan.warmup())}"] for s in lab.STARTS]
        for row, quantizer in enumerate((None, *quantizers)):
            axis = axes[row][column]
            for run in cooled:
                _line(axis, measured, run, quantizer, _COOLED, "cooldown" if run is cooled[0] else "", stable)
            _line(axis, measured, stable, quantizer, _STABLE, "constant rate")
        _focus(axes[0][column])
        axes[0][column].set_title(f"seed {seed}", fontsize=8.5)
    axes[0][0].legend(frameon=False, fontsize=7)
    _label_outer(axes)
    return figure


def peaks(measured: Measured, quantizers: Sequence[str]) -> Figure:
    """B: a stable phase and a cooldown for each peak rate."""
    plan = measured.plan
    figure, axes = _panels(len(plan.seeds), len(quantizers), "tokens (millions)")
    for column, seed in enumerate(plan.seeds):
        for peak, colour in zip(lab.PEAKS, _RATES, strict=True):
            stable = plan.runs[f"stable-{peak:g}-s{seed}"]
            cooled = plan.runs[f"decay-{peak:g}-s{seed}-from{plan.at((1 - lab.LONG) * plan.peaks_until)}"]
            for row, quantizer in enumerate((None, *quantizers)):
                _line(axes[row][column], measured, stable, quantizer, colour, f"{peak:g}", until=cooled.begun)
                _line(axes[row][column], measured, cooled, quantizer, colour, "", stable, "--")
        _focus(axes[0][column])
        axes[0][column].set_title(f"seed {seed}; dashed: cooldown", fontsize=8.5)
    axes[0][0].legend(title="peak rate", frameon=False, fontsize=7, title_fontsize=7)
    _label_outer(axes)
    return figure


def averaging(measured: Measured, quantizers: Sequence[str]) -> Figure:
    """C: losses before and after quantization of averages of the stable run, and of the decayed runs."""
    plan = measured.plan
    figure = Figure(figsize=(3.4 * len(plan.seeds), 3.0), layout="constrained")
    for column, seed in enumerate(plan.seeds):
        axis = figure.add_subplot(1, len(plan.seeds), column + 1)
        rows: list[tuple[str, str, str]] = []
        stable = f"stable-{lab.PEAK:g}-s{seed}"
        rows.append(("constant rate", stable, f"step{plan.at(1.0)}"))
        for every, window in lab.LAWAS:
            lawa = Lawa(plan.at(1.0), max(1, plan.at(every)), window)
            rows.append((f"mean of {window}, {lawa.every} apart", stable, f"{lawa}-at{lawa.end}"))
        decayed = f"decay-{lab.PEAK:g}-s{seed}-from{plan.at(1 - lab.LONG)}"
        rows.append(("decay", decayed, f"step{plan.at(1.0)}"))
        for place, (_, run, checkpoint) in enumerate(rows):
            theta = measured.losses(run, checkpoint, quantizers[0])[0][0]
            axis.plot(theta, -place, "o", color=_STABLE, label="Θ" if not place else None)
            for mark, quantizer in zip("^v", quantizers, strict=False):
                hat = measured.losses(run, checkpoint, quantizer)[1][0]
                axis.plot(hat, -place, mark, color=_COOLED, label=quantizer if not place else None)
        axis.set_yticks([-place for place in range(len(rows))], [label for label, *_ in rows] if not column else [])
        axis.set_xlabel("loss, nats per token")
        axis.set_title(f"seed {seed}", fontsize=8.5)
        axis.grid(axis="y", linewidth=0.3)
        if not column:
            figure.legend(frameon=False, fontsize=7, loc="outside lower center", ncols=3)
    return figure


def _panels(columns: int, quantizers: int, below: str) -> tuple[Figure, list[list[Axes]]]:
    figure = Figure(figsize=(3.4 * columns, 1.7 * (1 + quantizers)), layout="constrained")
    grid = figure.subplots(1 + quantizers, columns, sharex=True, sharey="row", squeeze=False)
    for axis in grid[-1]:
        axis.set_xlabel(below)
    return figure, [list(row) for row in grid]


def _label_outer(axes: list[list[Axes]]) -> None:
    for row in axes:
        for axis in row:
            axis.label_outer()


def _line(
    axis: Axes,
    measured: Measured,
    run: Planned,
    quantizer: str | None,
    colour: str,
    label: str,
    after: Planned | None = None,
    dash: str = "-",
    until: int | None = None,
) -> None:
    """The loss, or ΔQ in percent with its interval; a cooldown begins at the stable run's checkpoint, if measured."""
    points = [(run.name, step) for step in sorted(run.measured) if until is None or step <= until]
    if after is not None and run.begun in after.measured:
        points.insert(0, (after.name, run.begun))
    tokens = measured.plan.base.batch_size * measured.plan.base.seq_len / 1e6
    x = [step * tokens for _, step in points]
    some = next(iter(measured.quantizers))
    if quantizer is None:
        y = [float(measured.losses(name, f"step{step}", some)[0][0]) for name, step in points]
        axis.plot(x, y, dash, color=colour, label=label or None, marker=".", markersize=3, linewidth=0.9)
        axis.set_ylabel("loss, nats")
        return
    found = [Interval.of(100 * measured.error(name, f"step{step}", quantizer)) for name, step in points]
    axis.plot(x, [each.value for each in found], dash, color=colour, marker=".", markersize=3, linewidth=0.9)
    axis.fill_between(
        x, [each.low for each in found], [each.high for each in found], color=colour, alpha=0.15, linewidth=0
    )
    axis.set_ylabel(f"ΔQ, %  {quantizer}")


def _focus(axis: Axes) -> None:
    """Leave out the first steep fall of the loss."""
    low = min(float(np.min(line.get_ydata())) for line in axis.lines)
    axis.set_ylim(low - 0.05, low + 1.0)
