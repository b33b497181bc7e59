"""What a person sees of a slice."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from landscape.terminal.progress import shown

if TYPE_CHECKING:
    from landscape.basin import SliceResult
    from landscape.slices import StoredPoint, StoredSlice
    from landscape.viewer.described.findings import Findings

_FEW = 3  # checkpoints that get a line each


def print_summary(console: Console, result: SliceResult, notes: list[str], seconds: float) -> None:
    """The named points, their losses and distances, what they were measured on, what the slice says, the files."""
    from landscape.viewer.described.findings import findings  # a viewer takes a while to open
    from landscape.viewer.described.trust import trust

    stored = result.slice
    facts, trusted, said = stored.attributes, trust(stored), findings(stored)
    console.print()
    for label, what in _who(stored):
        console.print(Text.assemble((f"{label}  ", "bold"), what))
    console.print(_points(stored))
    cells = f"{len(stored.alpha)} places" if stored.is_line else f"grid {len(stored.alpha)}×{len(stored.beta)}"
    lines = [
        *_quantization(stored),
        f"losses in nats on {facts['eval_tokens']:,} tokens of {facts['text']} ({facts['eval_windows']} windows), "
        f"{facts['dtype']}",
        "; ".join(filter(None, (f"{cells} {trusted.words}", trusted.noise, f"{seconds:.0f} s"))),
    ]
    for line in lines:
        console.print(Text(line))
    if said.rows:
        console.print(_said(said))
    for name, value in said.others:
        if name.startswith(("Area", "Barrier", "Highest")):
            console.print(Text(f"{name}: {value}"))
    for note in [*notes, *observations(stored)]:
        console.print(Text.assemble(("note    ", "yellow"), note))
    for what, path in (("data", result.path), ("figure", result.figures[0]), ("page", result.page)):
        console.print(Text.assemble((f"{what:<8}", "bold green"), shown(path)), soft_wrap=True)


def observations(stored: StoredSlice) -> list[str]:
    """What the numbers themselves give reason to say."""
    from landscape.viewer.described.trust import trust

    notes = [
        f"the loss at {point.label} is {point.loss}: kept as it is"
        for point in stored.points
        if not math.isfinite(point.loss)
    ]
    notes += [f"{notice[0].lower()}{notice[1:].rstrip('.')}" for notice in trust(stored).notices]
    odd = int((~np.isfinite(stored.loss) & stored.done).sum())
    if odd:
        noun = "places" if stored.is_line else "cells"
        notes.append(f"{odd} of {stored.loss.size} {noun} have a non-finite loss: kept as they are, marked in the page")
    origin, uniform = stored.points[0], math.log(stored.attributes["vocabulary"])
    if origin.loss > uniform:
        notes.append(
            f"the loss at {origin.label} is above that of guessing (ln V = {uniform:.3f}): is this its tokenizer?"
        )
    return notes + _about_layers(stored.tables.get("layers", {}))


def _who(stored: StoredSlice) -> list[tuple[str, str]]:
    """(label, what it is) of the points; the checkpoints of a run in one line."""
    run = [point for point in stored.points if point.role == "checkpoint"]
    alone = [point for point in stored.points if len(run) <= _FEW or point not in run]
    lines = [(point.label, point.what) for point in alone]
    if len(run) > _FEW:
        lines.append((f"{run[0].label} … {run[-1].label}", f"{len(run)} checkpoints, {run[0].what} … {run[-1].what}"))
    return lines


def _points(stored: StoredSlice) -> Table:
    origin, farthest = stored.points[0], max(point.distance for point in stored.points)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("")
    for heading in ("loss", "perplexity", "ΔL", "ΔL/L", "α", "β", "distance"):
        if not (stored.is_line and heading == "β"):
            table.add_column(heading, justify="right")
    for point in stored.points:
        places = (point.alpha,) if stored.is_line else (point.alpha, point.beta)
        table.add_row(
            Text(point.label, style="bold"),
            _number(point.loss, ".4f"),
            _number(_exp(point.loss), ".3f"),
            "" if point is origin else _number(point.loss - origin.loss, "+.4f"),
            "" if point is origin else _number(_relative_change(point, origin), "+.2%"),
            *(f"{value:.4g}" if abs(value) > 1e-6 * farthest else "0" for value in places),
            f"{point.distance:.4g}",
        )
    return table


def _said(said: Findings) -> Table:
    """What the slice says along every direction."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("along")
    for direction in said.directions:
        table.add_column(direction, no_wrap=True)
    for row in said.rows:
        cells = ("\n".join(cell).replace("the rectangle", "edge") for cell in row.cells)  # to fit 80 columns
        table.add_row(Text(row.name), *map(Text, cells))
    return table


def _quantization(stored: StoredSlice) -> list[str]:
    """What quantization did to the loss and to the weights."""
    facts, origin = stored.attributes, stored.points[0]
    quantized = [point for point in stored.points if point.role == "quantized"]
    lines = []
    for point in quantized:
        which = "L(Θ̂)/L(Θ)" if len(quantized) == 1 else f"L({point.label})/L({origin.label})"
        lines.append(
            f"ΔQ = {which} − 1 = {_number(_relative_change(point, origin), '.3%')}, ‖δ‖ = {point.distance:.4g} = "
            f"{point.distance / facts['weight_norm']:.2%} of ‖Θ‖"
        )
    if facts["quantized_parameters"]:
        calibrated = f", calibrated on {facts['calibration_tokens']:,} tokens" if facts["calibration_tokens"] else ""
        half = ": the weight half alone, activations are not rounded" if facts.get("weight_half") else ""
        lines.append(
            f"{facts['quantized_parameters']:,} of {facts['total_parameters']:,} parameters quantized{calibrated}{half}"
        )
    return lines


def _about_layers(layers: dict[str, np.ndarray]) -> list[str]:
    if not layers:
        return []
    notes = []
    if ragged := _ragged(layers):
        notes.append(ragged)
    if retries := int(layers["retries"].sum()):
        notes.append(f"{retries} factorizations needed more damping; see the layers in the page")
    if fallen := [str(name) for name in layers["name"][layers["fallback"]]]:
        notes.append(f"GPTQ failed on {len(fallen)} layers, which are rounded to nearest: {', '.join(fallen[:4])}")
    return notes


def _ragged(layers: dict[str, np.ndarray]) -> str:
    """Layers whose last group is shorter. Blocks of a 4-bit code run across rows; one scale a matrix is no group."""
    inputs, size = layers["inputs"], layers["group_size"]
    codes = [str(name).startswith(("nf4", "fp4")) for name in layers["quantizer"]] if "quantizer" in layers else False
    shorter = (size <= inputs) & (inputs % size > 0) & ~np.asarray(codes)
    if not shorter.any():
        return ""
    return (
        f"groups of {size[shorter][0]} do not divide {shorter.sum()} of {len(shorter)} layers "
        f"({inputs[shorter][0]} inputs): their last group is shorter"
    )


def _relative_change(point: StoredPoint, origin: StoredPoint) -> float:
    return point.loss / origin.loss - 1 if origin.loss else math.nan


def _number(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else str(value)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
