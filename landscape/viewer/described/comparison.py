"""Several slices beside each other: what differs between them, which survives its quantization best, and why.

The loss at Θ̂ = Θ + δ is, to second order, L + g·δ + ½ κ ‖δ‖², where κ is the curvature along δ. So a checkpoint is safe
where its step is short or where the loss is flat along it; both are read off the slices, and the sentences say which it
is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from landscape.slices.stored import StoredSlice
from landscape.viewer.described.describe import Description, describe
from landscape.viewer.described.facts import share_of_weights
from landscape.viewer.described.points import QUANTIZED, PointRow
from landscape.viewer.described.words import LOSS_UNIT, finite, listed, number, percent, text

_FAR = 4.0  # colours end so many times as far above Θ as the worst of the quantized weights lie
_ALIKE = 1.15  # factors below this make no difference worth a sentence
_PARTS = re.compile(r"[\d.]+e-\d+|[^\s,@/_:-]+|[\s,@/_:-]+")
_NUMBER = re.compile(r"[\d.]+(e-?\d+)?")
_BITS = re.compile(r"(?:\bw|\bint|\bnf|\bfp)(\d+)")


@dataclass(frozen=True)
class Entry:
    """One of the slices compared.

    Attributes:
        name: what tells it from the others, short.
        address: of its own page; empty for none.
        quantized: its last quantized point; None where it has none.
        slope: gᵀδ/‖δ‖ at the origin, nats per distance; None where it is not known.
        curvature: δᵀHδ/‖δ‖² at the origin, nats per distance²; likewise.
    """

    name: str
    address: str
    stored: StoredSlice
    described: Description
    quantized: PointRow | None
    slope: float | None
    curvature: float | None

    @property
    def error(self) -> float | None:
        """ΔQ; None where nothing is quantized or a loss is not finite."""
        return finite(self.quantized.relative) if self.quantized else None

    @property
    def predicted(self) -> float | None:
        """g·δ + ½ δᵀHδ, nats."""
        if self.quantized is None or self.slope is None or self.curvature is None:
            return None
        return self.slope * self.quantized.distance + self.curvature * self.quantized.distance**2 / 2


@dataclass(frozen=True)
class Comparison:
    """Several slices.

    Attributes:
        verdict: sentences that say which is safest, and why; empty where nothing is quantized.
        caption: sentences that say what one sees.
        notices: what keeps the slices from being compared.
        bounds: α and β around all of them.
        high: where colours end, as L/L(Θ) − 1.
    """

    title: str
    entries: tuple[Entry, ...]
    verdict: tuple[str, ...]
    caption: tuple[str, ...]
    notices: tuple[str, ...]
    bounds: tuple[float, float, float, float]
    high: float

    @property
    def labels(self) -> list[str]:
        """Labels of all points, each once."""
        return list(dict.fromkeys(label for entry in self.entries for label in entry.described.labels))


def compare(title: str, slices: Sequence[tuple[str, StoredSlice, str]]) -> Comparison:
    """What `slices`, as (name, slice, address of its page), say together; they are put in natural order."""
    entries = [_entry(*each) for each in slices]
    names = _distinct([entry.name for entry in entries])
    entries = [replace(entry, name=name) for entry, name in zip(entries, names, strict=True)]
    entries.sort(key=lambda entry: natural(entry.name))
    ends = np.array([[*entry.stored.bounds.alpha, *entry.stored.bounds.beta] for entry in entries])
    low, high = ends.min(axis=0), ends.max(axis=0)
    return Comparison(
        title,
        tuple(entries),
        _verdict(entries),
        _caption(entries),
        _notices(entries),
        (float(low[0]), float(high[1]), float(low[2]), float(high[3])),
        _high(entries),
    )


def natural(name: str) -> list[tuple[int, float, str]]:
    """A key that sorts numbers in a name by their size.

    >>> sorted(["rate 0.01", "rate 0.003", "rate 1e-4"], key=natural)
    ['rate 1e-4', 'rate 0.003', 'rate 0.01']
    """
    parts = re.split(r"(\d+(?:\.\d+)?(?:e[-+]?\d+)?)", name)
    return [(0, float(part), "") if i % 2 else (1, 0.0, part) for i, part in enumerate(parts) if part]


def _entry(name: str, stored: StoredSlice, address: str) -> Entry:
    described = describe(stored)
    quantized = [point for point in described.points if point.role == QUANTIZED]
    last = quantized[-1] if quantized else None
    known = last is not None and last.name == described.last.name
    slope, curvature = (
        finite(stored.reading.get(which)) if known else None for which in ("gradient_delta", "hessian_delta_delta")
    )
    return Entry(name, address, stored, described, last, slope, curvature)


def _distinct(names: Sequence[str]) -> list[str]:
    """The words in which names differ, a number with the word before it; of names built differently, all from there on.

    >>> _distinct(["decay-0.003-s1@9000, gptq-w3", "decay-0.01-s1@9000, gptq-w3"])
    ['decay-0.003', 'decay-0.01']
    >>> _distinct(["run@step80, gptq-w3", "run@step90, nf4"])
    ['step80, gptq-w3', 'step90, nf4']
    """
    split = [_PARTS.findall(name) for name in names]
    if len(names) < 2:
        return list(names)
    if len({len(parts) for parts in split}) > 1:
        common = next(i for i in range(max(map(len, split))) if len({tuple(parts[: i + 1]) for parts in split}) > 1)
        return ["".join(parts[_whole(parts, common) :]) for parts in split]
    differing = [place for place, words in enumerate(zip(*split, strict=True)) if len(set(words)) > 1]
    numbers = {place for place in differing if all(_NUMBER.fullmatch(parts[place]) for parts in split)}
    begins = {place: max(0, place - 2) if place in numbers else place for place in differing}
    short = [", ".join("".join(parts[begins[place] : place + 1]) for place in differing) for parts in split]
    return short if differing and len(set(short)) == len(names) else list(names)


def _whole(parts: Sequence[str], place: int) -> int:
    """`place`, or that of the word before where it is a separator or a number."""
    while place and not (parts[place][0].isalpha() and (place < 2 or parts[place - 1] != "-")):
        place -= 1
    return place


def _high(entries: Sequence[Entry]) -> float:
    errors = [entry.error for entry in entries if entry.error is not None and entry.error > 0]
    if errors:
        return _FAR * max(errors)
    ends = [
        entry.described.colours.high / entry.described.origin.loss - 1 for entry in entries if entry.described.colours
    ]
    return max([end for end in ends if math.isfinite(end)], default=1.0)


def _caption(entries: Sequence[Entry]) -> tuple[str, ...]:
    origin = entries[0].described.origin.label
    sentences = [
        f"Each panel is the neighbourhood of one trained model: its middle, {origin}, is the model as it was trained, "
        "every other place the same model with its weights moved, and the colour says by how much the loss is higher "
        "there. All panels have the same axes and the same colours, so that they can be compared by eye."
    ]
    if any(entry.quantized for entry in entries):
        sentences.append(
            "Quantization rounds the weights and so moves the model from the circle to the orange diamond: the darker "
            "the colour under the diamond, the less it costs. A wide dark basin forgives a long step; in a narrow one "
            "a short step is already expensive."
        )
    return tuple(sentences)


def _verdict(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Of those under one quantizer, for each that several are under; then of all."""
    groups: dict[str, list[Entry]] = {}
    judged = [entry for entry in entries if entry.error is not None]
    for entry in judged:
        assert entry.quantized
        groups.setdefault(entry.quantized.what, []).append(entry)
    if len(judged) < 2:
        return ()
    sentences = []
    for quantizer, group in groups.items():
        if len(group) > 1:
            sentences += _judged(f"The safest under {_with_bits(quantizer)}", group)
    if len(groups) > 1:
        sentences += _judged("The safest of all" if sentences else "The safest", judged)
    best = min(judged, key=lambda entry: entry.quantized.loss if entry.quantized else math.inf)
    assert best.quantized
    return (
        *sentences,
        f"What counts in use is the loss that is left after quantization: the lowest is that of {best.name}, "
        f"{number(best.quantized.loss, '.4f')} {LOSS_UNIT}.",
    )


def _judged(which: str, group: Sequence[Entry]) -> list[str]:
    by_error = sorted(group, key=lambda entry: entry.error or 0.0)
    safest, worst = by_error[0], by_error[-1]
    return [
        f"{which} is {safest.name}: quantization {_raises(safest.error)}. "
        f"The most fragile is {worst.name}: there it {_raises(worst.error)}.",
        *_why(safest, worst),
    ]


def _with_bits(quantizer: str) -> str:
    """The name of a quantizer, and its bits in plain words."""
    found = _BITS.search(quantizer)
    return f"{quantizer} ({found[1]} bits a weight)" if found else quantizer


def _why(safest: Entry, worst: Entry) -> list[str]:
    """The rise of the loss is about half the curvature along the step times its squared length: which of the two?"""
    a, b = safest.quantized, worst.quantized
    if a is None or b is None or not (safest.curvature and worst.curvature):
        return []
    if min(safest.curvature, worst.curvature, a.distance, b.distance) <= 0 or not (a.change and b.change):
        return []
    flat, length = worst.curvature / safest.curvature, a.distance / b.distance
    squared = f" ({_times(length**2)} in the square that counts)"
    if flat >= _ALIKE and length >= _ALIKE:
        why = (
            f"rounding moves the weights of {safest.name} {_times(length)} as far{squared}, but in that direction its "
            f"loss bends {_times(flat)} less: the flatter basin outweighs the longer step."
        )
    elif flat >= _ALIKE:
        why = f"in the direction of rounding the loss of {safest.name} bends {_times(flat)} less"
        why += (
            f", and {worst.name} moves {_times(1 / length)} as far." if length < 1 / _ALIKE else "; both move as far."
        )
    elif length <= 1 / _ALIKE:
        why = f"rounding moves the weights of {worst.name} {_times(1 / length)} as far"
        why += ", though its loss bends less in that direction." if flat < 1 / _ALIKE else "; their losses bend alike."
    else:
        return ["Neither the length of the step nor the curvature along it tells the two apart by much."]
    rule = (
        "The loss rises by about half the curvature along the step times the squared length of the step; for these two "
        f"that makes {number(safest.predicted, '.3f')} and {number(worst.predicted, '.3f')} nats, where "
        f"{number(a.change, '.3f')} and {number(b.change, '.3f')} were evaluated."
    )
    return [f"Why: {why}", rule]


def _times(factor: float) -> str:
    return f"{number(factor, '.2g' if factor < 100 else '.0f')} times"


def _raises(fraction: float | None) -> str:
    verb = "raises" if (fraction or 0) >= 0 else "lowers"
    return f"{verb} the loss by {percent(fraction).lstrip('+−')}"


def _notices(entries: Sequence[Entry]) -> tuple[str, ...]:
    """What keeps the slices from being compared."""
    found = []
    for name, words in (("text", "on different texts"), ("eval_tokens", "on different numbers of tokens")):
        if len({text(entry.stored.attributes.get(name)) for entry in entries}) > 1:
            found.append(f"The slices were evaluated {words}: levels cannot be compared, shapes can.")
    planes = {text(entry.stored.attributes.get("plane")) for entry in entries}
    if len(planes) > 1:
        found.append(f"The planes are of different kinds ({listed(sorted(planes))}): their axes mean different things.")
    unfinished = [entry.name for entry in entries if not entry.stored.complete]
    if unfinished:
        found.append(f"Not finished yet: {listed(unfinished)}.")
    return tuple(found)


def step_words(entry: Entry) -> str:
    """Length of the step, absolute and as a share of the weights."""
    if entry.quantized is None:
        return ""
    return f"{entry.quantized.distance:.4g} ({share_of_weights(entry.quantized.distance, entry.stored)})"
