"""The sentences of a page: what one sees, for a reader who does not know the subject, and what to beware of."""

from __future__ import annotations

import math

from landscape.slices.stored import StoredSlice
from landscape.viewer.described.colours import ColourRange
from landscape.viewer.described.facts import share_of_weights
from landscape.viewer.described.points import CHECKPOINT, QUANTIZED, PointRow
from landscape.viewer.described.words import LOSS_UNIT, MISSING, listed, number, percent, text

_PLANE = (
    "Every place on this plane is one setting of the model's weights, and its colour is the loss the model has with "
    "it: the darker, the better."
)
_LINE = (
    "Every place on this line is one setting of the model's weights, and the curve is the loss the model has with it: "
    "the lower, the better."
)


def caption(stored: StoredSlice, points: tuple[PointRow, ...]) -> tuple[str, ...]:
    """What one sees, in a few sentences."""
    through = f"It runs through {listed([point.label for point in points])}."
    sentences = [_LINE if stored.is_line else _PLANE, text(stored.attributes.get("about"), through)]
    sentences += [_quantization(stored, points[0], point) for point in points if point.role == QUANTIZED]
    checkpoints = [point for point in points if point.role == CHECKPOINT]
    if len(checkpoints) > 2:
        sentences.append(_run(checkpoints))
    else:
        sentences += [_checkpoint(points[0], point) for point in checkpoints]
    return tuple(filter(None, sentences))


def notices(
    stored: StoredSlice, points: tuple[PointRow, ...], colours: ColourRange | None, non_finite: int
) -> tuple[str, ...]:
    """What a reader must know of the picture besides where its losses come from."""
    found = []
    if non_finite:
        one, many = ("place has", "places have") if stored.is_line else ("cell has", "cells have")
        grey = "left out of the curve" if stored.is_line else "drawn in grey"
        found.append(f"{non_finite:,} {one if non_finite == 1 else many} a non-finite loss (NaN or infinite), {grey}.")
    if colours and colours.cells_above:
        found.append(_cut_off(stored.is_line, colours))
    outside = [point for point in points if not point.inside]
    if len(outside) > 2:
        found.append(f"{listed([point.label for point in outside])} lie outside the rectangle.")
    else:
        rectangle = "line's ends" if stored.is_line else "rectangle"
        for point in outside:
            beta = "" if stored.is_line else f", β = {number(point.beta, '.4g')}"
            found.append(f"{point.label} lies outside the {rectangle}, at α = {number(point.alpha, '.4g')}{beta}.")
    return tuple(found)


def _cut_off(is_line: bool, colours: ColourRange) -> str:
    n = colours.cells_above
    if is_line:
        what, rest = "The axis ends", f"{n:,} place{' is' if n == 1 else 's are'} above it; a double click shows all."
    else:
        rest = f"{n:,} {'cell above it shares' if n == 1 else 'cells above it share'} the last colour. "
        what, rest = "Colours and heights end", rest + "Hovering shows the true loss."
    return (
        f"{what} at a loss of {colours.high:.4g}, so that the neighbourhood of the named points stays readable: {rest}"
    )


def _quantization(stored: StoredSlice, origin: PointRow, quantized: PointRow) -> str:
    share = share_of_weights(quantized.distance, stored)
    length = f"{quantized.distance:.4g}" + (f" ({share} of their length)" if share != MISSING else "")
    quantizer = "Quantization" if quantized.what == MISSING else f"Quantization with {quantized.what}"
    return f"{quantizer} moves the weights by {length}{_effect(origin, quantized)}."


def _effect(origin: PointRow, quantized: PointRow) -> str:
    if quantized.change is None or not math.isfinite(quantized.change):
        return ""
    verb = "raises" if quantized.change >= 0 else "lowers"
    return (
        f" and {verb} the loss from {number(origin.loss, '.4f')} to {number(quantized.loss, '.4f')} {LOSS_UNIT}: "
        f"the quantization error ΔQ is {percent(quantized.relative)}"
    )


def _checkpoint(origin: PointRow, point: PointRow) -> str:
    if point.change is None or not math.isfinite(point.change):
        return ""
    compared = "higher" if point.change >= 0 else "lower"
    return (
        f"{point.label} lies {point.distance:.4g} away, where the loss is {abs(point.change):.4f} {compared} than at "
        f"{origin.label}."
    )


def _run(checkpoints: list[PointRow]) -> str:
    near, far = (choose(checkpoints, key=lambda point: point.distance) for choose in (min, max))
    return (
        f"The {len(checkpoints)} checkpoints reach from {near.label}, {near.distance:.4g} away with a loss of "
        f"{number(near.loss, '.4f')}, to {far.label}, {far.distance:.4g} away with {number(far.loss, '.4f')}."
    )
