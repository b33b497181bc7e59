"""The tables of a page: the named points, what the slice says, the quantizer's report."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

import numpy as np

from landscape.viewer.described.describe import Description
from landscape.viewer.described.labels import label_html, text_html
from landscape.viewer.described.points import QUANTIZED
from landscape.viewer.described.words import number, percent, shortened

_SYMBOLS = "●■◆✚"
_LEFT = ' class="words"'
_IN_WORDS = ("Point", "What it is", "Quantizer", "Layer", "Along")
_LAYERS = {
    "quantizer": "Quantizer",
    "name": "Layer",
    "inputs": "Inputs",
    "parameters": "Weights",
    "bits": "Bits",
    "group_size": "Group size",
    "bits_per_weight": "Bits per weight, stored",
    "step_norm": "Step ‖δ‖",
    "weight_error": "Weight error",
    "output_error": "Output error",
    "rtn_output_error": "Output error, rounding to nearest",
    "saturation": "Saturation",
    "misalignment": "Misalignment with the grid",
    "excess_kurtosis": "Excess kurtosis",
    "max_over_median": "Max / median",
    "kept_inputs": "Kept inputs",
    "damping": "Damping",
    "retries": "Retries",
    "dead_inputs": "Dead inputs",
    "redundant_inputs": "Redundant inputs",
    "fallback": "Fallback",
}


def points_table(described: Description) -> str:
    """Every named point with its losses and distances."""
    origin, digits = label_html(described.origin.label), f".{described.decimals}f"
    off_plane = any(point.below is not None for point in described.points)
    several = len(described.points) > 1
    head = ["Point", "What it is", "Loss", "Perplexity"]
    head += [f"ΔL = L − L({origin})", "ΔL / L"] if several else []
    head += ["α"] if described.is_line else ["α", "β"]
    head += (["Distance", "Off the line" if described.is_line else "Out of plane"]) if several else []
    head += ["Loss of the picture there"] if off_plane else []
    rows = []
    for point in described.points:
        symbol = f'<span class="symbol{" hat" if point.role == QUANTIZED else ""}">{_SYMBOLS[point.sign]}</span>'
        relative = percent(point.relative)
        cells = [number(point.loss, ".6f"), number(point.perplexity, "#.6g")]
        if several:
            cells += [
                number(point.change, "+.6f"),
                f"ΔQ = {relative}" if point.role == QUANTIZED else relative,
            ]
        cells += [_length(point.alpha, digits)] + ([] if described.is_line else [_length(point.beta, digits)])
        if several:
            cells += [_length(point.distance, digits), _residual(point.residual, point.below is not None, digits)]
        cells += [number(point.below, ".6f")] if off_plane else []
        rows.append(
            f'<tr data-point="{html.escape(point.name)}"><td class="words label">{symbol}{label_html(point.label)}</td>'
            f'<td class="words">{breakable(point.what)}</td>' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
        )
    return _table(head, rows)


def points_note(described: Description) -> str:
    """How to read that table."""
    origin = label_html(described.origin.label)
    what = "line" if described.is_line else "plane"
    out = "off the line" if described.is_line else "out of plane"
    note = "Losses in nats per token, evaluated at the points themselves; perplexity = exp(loss). "
    if any(point.role == QUANTIZED for point in described.points):
        note += f"ΔL / L is relative to {origin} and is the quantization error ΔQ for quantized weights. "
    if len(described.points) == 1:
        return note
    note += (
        f"Distances from {origin} in weight space (<span data-unit>L2 distance</span>), “{out}” being the part that "
        f"the {what} does not show."
    )
    return note


def findings_tables(described: Description) -> str:
    """What the slice says: what has directions, and what has none."""
    said, labels = described.findings, described.labels
    rows = []
    for row in said.rows:
        cells = "".join(f"<td>{'<br>'.join(map(html.escape, cell))}</td>" for cell in row.cells)
        unit = f'<br><span class="unit">{html.escape(row.unit)}</span>'
        rows.append(f"<tr><td{_LEFT}>{text_html(row.name, labels)}{unit}</td>{cells}</tr>")
    head = ["Along", *(text_html(direction, labels) for direction in said.directions)]
    others = "".join(
        f"<div><dt>{text_html(name, labels)}</dt><dd>{html.escape(value)}</dd></div>" for name, value in said.others
    )
    directed = f'<div class="scroll">{_table(head, rows)}</div>' if rows else ""
    return f'<div class="said">{directed}<dl class="others">{others}</dl></div>'


def layers_table(columns: dict[str, np.ndarray]) -> str:
    """The quantizer's report, folded away."""
    if not columns:
        return ""
    names = [name for name in _LAYERS if name in columns] + [name for name in columns if name not in _LAYERS]
    rows = []
    for values in zip(*(columns[name].tolist() for name in names), strict=True):
        rows.append(f"<tr>{''.join(map(_cell, values))}</tr>")
    head = [html.escape(_LAYERS.get(name, name.replace("_", " "))) for name in names]
    count = f"{len(rows):,} layer" + ("" if len(rows) == 1 else "s")
    return (
        f"<details><summary>The quantizer's report, {count}</summary>"
        f'<div class="scroll">{_table(head, rows)}</div></details>'
    )


def breakable(reference: str) -> str:
    """`reference` as HTML that may be broken after its separators, but not within a number."""
    return re.sub(r"[/@:_]|\.(?!\d)", r"\g<0><wbr>", html.escape(shortened(reference)))


def _length(length: float, digits: str) -> str:
    """A distance, which the page's script writes again in another unit."""
    return f'<span data-distance="{length!r}">{number(length, digits)}</span>'


def _residual(residual: float, matters: bool, digits: str) -> str:
    return _length(residual, digits) if matters else number(residual, ".1e" if residual else ".0f")


def _cell(value: object) -> str:
    if isinstance(value, str):
        return f"<td{_LEFT}>{breakable(value)}</td>"
    if isinstance(value, bool):
        return f"<td>{'yes' if value else 'no'}</td>"
    return f"<td>{number(value, '.4g') if isinstance(value, float) else value}</td>"


def _table(head: Sequence[str], rows: Sequence[str]) -> str:
    cells = "".join(f"<th{_LEFT if name in _IN_WORDS else ''}>{name}</th>" for name in head)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
