"""What a slice shows, before anything is drawn: points, colours, sentences, in plain text.

Losses are in nats per token; α, β and distances are L2 distances in weight space.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from landscape.slices.stored import StoredPoint, StoredSlice
from landscape.viewer.words import LOSS_UNIT, MISSING, facts, number, percent, share_of_weights, text

_ORIGIN, _PREVIOUS, QUANTIZED = "theta", "theta_prev", "theta_hat"
# Cells more than _FAR times as far above the lowest loss as the highest named point is make the colours end at _RANGE
# times as far.
_RANGE, _FAR = 4.0, 6.0
_LINES = 14  # about as many contour lines as can be told apart
_SAME_SCALE = 3.0  # sides that differ by more than this factor are not drawn to one scale


@dataclass(frozen=True)
class PointRow:
    """One named point.

    Attributes:
        what: the model reference or the quantizer behind the point.
        sign: which marker it has: 0 for Θ_K, 1 for Θ_{K−1}, 2 for Θ̂_K, 3 for any other.
        loss, perplexity: at the point itself, not at the nearest cell.
        change, relative: L − L(Θ_K), and L/L(Θ_K) − 1, which is ΔQ at Θ̂_K; None at Θ_K itself.
        share: where it lies on the rectangle, from (0, 0) at its lower left to (1, 1).
    """

    name: str
    label: str
    what: str
    sign: int
    loss: float
    perplexity: float
    change: float | None
    relative: float | None
    alpha: float
    beta: float
    distance: float
    residual: float
    share: tuple[float, float]

    @property
    def inside(self) -> bool:
        """Whether the point lies on the slice's rectangle, give or take a rounding."""
        return all(-1e-6 <= share <= 1 + 1e-6 for share in self.share)


@dataclass(frozen=True)
class ColourRange:
    """The losses the colours stretch over, the step between contour lines, and how many cells lie above."""

    low: float
    high: float
    step: float
    cells_above: int

    @property
    def lines(self) -> np.ndarray:
        """The losses at which contour lines are drawn: multiples of `step`."""
        return multiples(self.step, self.low, self.high)

    @property
    def ticks(self) -> np.ndarray:
        """The losses at which a colour bar or an axis has its ticks: every second line or so."""
        return multiples(nice_step((self.high - self.low) / 7), self.low, self.high)

    @property
    def tick_digits(self) -> int:
        """Digits after the point that tell the ticks apart."""
        step = nice_step((self.high - self.low) / 7)
        return next(digits for digits in range(20) if math.isclose(round(step, digits), step, rel_tol=1e-6))


@dataclass(frozen=True)
class Description:
    """Everything a drawing of one slice needs besides the grid lines and the profile.

    Attributes:
        facts: (name, value) of what the slice was made from.
        caption: sentences for a reader who does not know the subject.
        notices: what a reader must know before trusting the picture.
        profile_line: α and β of the two ends of the profile.
        alpha_title, beta_title: of the axes.
        decimals: digits after the point that a coordinate is worth.
        to_one_scale: whether α and β are drawn to one scale.
        shape: width over height of the rectangle as it is drawn.
        colours: None where no cell has a finite loss.
        finite: (alpha, beta) the losses, NaN where there is none or it is not a finite number.
        non_finite: (alpha, beta) where a cell was evaluated and came out as NaN or infinite.
        evaluated: number of cells evaluated, finite or not.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    caption: tuple[str, ...]
    notices: tuple[str, ...]
    points: tuple[PointRow, ...]
    profile_line: tuple[np.ndarray, np.ndarray]
    alpha_title: str
    beta_title: str
    decimals: int
    to_one_scale: bool
    shape: float
    colours: ColourRange | None
    finite: np.ndarray
    non_finite: np.ndarray
    evaluated: int

    @property
    def origin(self) -> PointRow:
        """Θ_K, at t = 0 of the profile."""
        return self.points[0]

    @property
    def last(self) -> PointRow:
        """The point at t = 1 of the profile."""
        return self.points[-1]

    @property
    def labels(self) -> list[str]:
        """The points' labels."""
        return [point.label for point in self.points]


def describe(stored: StoredSlice) -> Description:
    """What `stored` shows; works for slices that are still being filled and for files that leave things out."""
    points = tuple(_row(stored, point) for point in stored.points)
    quantized = next((point for point in points if point.name == QUANTIZED), None)
    is_finite = stored.done & np.isfinite(stored.loss)
    finite, non_finite = np.where(is_finite, stored.loss, np.nan), stored.done & ~is_finite
    colours = _colour_range(stored.loss[is_finite], [point.loss for point in points])
    sides = float(np.ptp(stored.alpha)), float(np.ptp(stored.beta))
    to_one_scale = max(sides) <= _SAME_SCALE * min(sides)
    return Description(
        title=text(stored.attributes.get("title"), "Loss slice"),
        facts=facts(stored, quantized.distance if quantized else None),
        caption=_caption(stored, points),
        notices=_notices(stored, points, colours, int(non_finite.sum())),
        points=points,
        profile_line=_profile_line(stored),
        alpha_title=f"α: distance along {_first_direction(stored, points)}",
        beta_title="β: quantization step, part orthogonal to α",
        decimals=_decimals(stored),
        to_one_scale=to_one_scale,
        shape=sides[0] / sides[1] if to_one_scale else 1.2,
        colours=colours,
        finite=finite,
        non_finite=non_finite,
        evaluated=int(stored.done.sum()),
    )


def nice_step(rough: float) -> float:
    """The smallest of …, 0.1, 0.2, 0.25, 0.5, 1, … that is at least `rough`.

    >>> nice_step(0.012), nice_step(0.3)
    (0.02, 0.5)
    """
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0, 20.0) if factor * power >= rough * (1 - 1e-9))


def multiples(step: float, low: float, high: float) -> np.ndarray:
    """The multiples of `step` from `low` to `high`."""
    return np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1) * step


def grey_area(described: Description) -> np.ndarray:
    """(alpha, beta) the non-finite cells and the finite ones beside them, where colours end at the cell's centre."""
    padded = np.pad(described.non_finite, 1)
    rows, columns = described.non_finite.shape
    near = np.any([padded[i : i + rows, j : j + columns] for i in range(3) for j in range(3)], axis=0)
    return np.asarray(described.non_finite | (near & np.isfinite(described.finite)))


def _row(stored: StoredSlice, point: StoredPoint) -> PointRow:
    a, origin = stored.attributes, stored.points[0]
    what, sign = {_ORIGIN: ("model", 0), _PREVIOUS: ("previous", 1), QUANTIZED: ("quantizer", 2)}.get(
        point.name, ("", 3)
    )
    with np.errstate(all="ignore"):  # a loss above 709 has no perplexity that a float can hold
        perplexity, relative = float(np.exp(point.loss)), float(np.float64(point.loss) / origin.loss - 1)
    return PointRow(
        name=point.name,
        label=point.label,
        what=text(a.get(what)),
        sign=sign,
        loss=point.loss,
        perplexity=perplexity,
        change=None if point is origin else point.loss - origin.loss,
        relative=None if point is origin else relative,
        alpha=point.alpha,
        beta=point.beta,
        distance=point.distance,
        residual=point.residual,
        share=(_share(point.alpha, stored.alpha), _share(point.beta, stored.beta)),
    )


def _share(at: float, line: np.ndarray) -> float:
    return float((at - line[0]) / (line[-1] - line[0]))


def _profile_line(stored: StoredSlice) -> tuple[np.ndarray, np.ndarray]:
    first, last, t = stored.points[0], stored.points[-1], stored.profile[0]
    ends = np.array([t.min(), t.max()]) if t.size else np.array([0.0, 1.0])
    return first.alpha + ends * (last.alpha - first.alpha), first.beta + ends * (last.beta - first.beta)


def _decimals(stored: StoredSlice) -> int:
    spacing = min(float(np.diff(line).min()) for line in (stored.alpha, stored.beta))
    return max(0, 2 - math.floor(math.log10(spacing)))


def _colour_range(losses: np.ndarray, named: list[float]) -> ColourRange | None:
    """From the lowest loss to the highest, or less far where some cells tower above the named points."""
    if not losses.size:
        return None
    low, highest = float(losses.min()), float(losses.max())
    # The lower quartile keeps most of a slice from being saturated where all named points are about equally good.
    level = max([float(np.quantile(losses, 0.25)), *(loss for loss in named if math.isfinite(loss))])
    high = low + _RANGE * (level - low) if highest - low > _FAR * (level - low) else highest
    if not high > low:  # the same loss everywhere
        low, high = low - 1e-6 * max(1.0, abs(low)), low + 1e-6 * max(1.0, abs(low))
    return ColourRange(low, high, nice_step((high - low) / _LINES), int((losses > high).sum()))


def _first_direction(stored: StoredSlice, points: tuple[PointRow, ...]) -> str:
    previous = next((point.label for point in points if point.name == _PREVIOUS), None)
    is_random = stored.attributes.get("first_axis") == "random" or previous is None
    return "a random direction" if is_random else f"{points[0].label} → {previous}"


def _caption(stored: StoredSlice, points: tuple[PointRow, ...]) -> tuple[str, ...]:
    by_name = {point.name: point for point in points}
    origin, previous, quantized = points[0], by_name.get(_PREVIOUS), by_name.get(QUANTIZED)
    through = [f"the final weights {origin.label}"]
    through += [f"an earlier checkpoint {previous.label}"] if previous else []
    through += [f"the quantized weights {quantized.label}"] if quantized else []
    first = "" if previous else "; its first direction is random"
    sentences = [
        "Every place on this plane is one setting of all the model's weights, and its colour is the loss the model has "
        f"with it: the darker, the better. The plane runs through {_listed(through)}{first}."
    ]
    if quantized:
        share = share_of_weights(quantized.distance, stored)
        length = f"{quantized.distance:.4g}" + (f" ({share} of their length)" if share != MISSING else "")
        quantizer = "quantization" if quantized.what == MISSING else f"quantization with {quantized.what}"
        sentences.append(
            f"{quantizer[0].upper()}{quantizer[1:]} moves the weights by {length}{_effect(origin, quantized)}."
        )
    if previous and previous.change is not None and math.isfinite(previous.change):
        compared = "higher" if previous.change >= 0 else "lower"
        sentences.append(
            f"The earlier checkpoint lies {previous.distance:.4g} away, where the loss is "
            f"{abs(previous.change):.4f} {compared} than at {origin.label}."
        )
    return tuple(sentences)


def _effect(origin: PointRow, quantized: PointRow) -> str:
    if quantized.change is None or not math.isfinite(quantized.change):
        return ""
    verb = "raises" if quantized.change >= 0 else "lowers"
    return (
        f" and {verb} the loss from {number(origin.loss, '.4f')} to {number(quantized.loss, '.4f')} {LOSS_UNIT}: "
        f"the quantization error ΔQ is {percent(quantized.relative)}"
    )


def _listed(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _notices(
    stored: StoredSlice, points: tuple[PointRow, ...], colours: ColourRange | None, non_finite: int
) -> tuple[str, ...]:
    notices = []
    cells, evaluated = stored.done.size, int(stored.done.sum())
    if evaluated < cells:
        notices.append(f"{evaluated:,} of {cells:,} cells evaluated so far; the others are left blank.")
    if non_finite:
        noun = "cell has" if non_finite == 1 else "cells have"
        notices.append(f"{non_finite:,} evaluated {noun} a non-finite loss (NaN or infinite), drawn in grey.")
    if colours and colours.cells_above:
        noun = "cell above it shares" if colours.cells_above == 1 else "cells above it share"
        notices.append(
            f"Colours and heights end at a loss of {colours.high:.4g}, so that the neighbourhood of the named points "
            f"stays readable: {colours.cells_above:,} {noun} the last colour. Hovering shows the true loss."
        )
    notices += [
        f"{point.label} lies outside the rectangle, at α = {number(point.alpha, '.4g')}, "
        f"β = {number(point.beta, '.4g')}."
        for point in points
        if not point.inside
    ]
    return tuple(notices)
