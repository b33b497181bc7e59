"""Losses over a plane that are known everywhere: what reconstructions are tested and calibrated on.

They live on the square [−1, 1]². `smooth` ones are what planes through trained weights look like; `rough` ones carry
one feature that polynomials dislike. Every surface follows from its seed, and the kinds take turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

Shape = Callable[[np.ndarray], np.ndarray]  # (n, 2) places → (n,) values

LEVEL = 3.0  # nats, about which the losses lie


@dataclass(frozen=True)
class Truth:
    """A loss known everywhere: `shape` maps places (n, 2) to nats (n,); `kind` is what it is called."""

    kind: str
    shape: Shape

    def __call__(self, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
        """Nats at places given as two arrays of one shape."""
        alpha, beta = np.asarray(alpha, dtype=np.float64), np.asarray(beta, dtype=np.float64)
        return self.shape(np.stack([alpha.ravel(), beta.ravel()], axis=1)).reshape(alpha.shape)

    def on_grid(self, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
        """Nats where the grid lines cross: (alpha, beta)."""
        return self(*np.meshgrid(alpha, beta, indexing="ij"))

    def plus(self, shape: Shape, kind: str) -> Truth:
        """This loss with `shape` added, named `kind`."""
        return Truth(kind, lambda places: self.shape(places) + shape(places))


@dataclass
class Asked:
    """Evaluates a truth as a scan would, and remembers.

    Attributes:
        truth: what is evaluated.
        noise: standard deviation, in nats, of white noise on everything but checks.
        seed: of the noise.
        calls: how often it was asked, by whether it was a check, and place.
        kinds: how often, by kind.
        answers: what it said last at a place.
    """

    truth: Truth
    noise: float = 0.0
    seed: int = 0
    calls: Counter[tuple[bool, float, float]] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    answers: dict[tuple[float, float], float] = field(default_factory=dict)

    def __call__(self, kind: str, places: Sequence[tuple[float, float]]) -> list[float]:
        """Nats at some places."""
        return [self._at(kind, *place) for place in places]

    def _at(self, kind: str, alpha: float, beta: float) -> float:
        place = np.array([[alpha, beta]])
        self.calls[kind == "check", alpha, beta] += 1
        self.kinds[kind] += 1
        loss = self.truth.shape(place)
        if self.noise and kind != "check":
            loss = loss + self.noise * white(self.seed)(place)
        self.answers[alpha, beta] = float(loss[0])
        return float(loss[0])

    def on_grid(self, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
        """(alpha, beta) what it said where the grid lines cross, NaN where it was not asked."""
        return np.array([[self.answers.get((a, b), np.nan) for b in beta.tolist()] for a in alpha.tolist()])


def smooth(seed: int) -> Truth:
    """A quadratic, log-cosh, small network, wells, rational or oscillating loss, turned, stretched and scaled."""
    kind = list(SMOOTH)[seed % len(SMOOTH)]
    rng = np.random.default_rng([seed, 1])
    return _scaled(kind, SMOOTH[kind](rng), rng)


def rough(seed: int) -> Truth:
    """A smooth loss with a kink, hinge, step, bump, wave or cone tip on it, of 0.3 % to 100 % of its range."""
    kind = list(ROUGH)[seed % len(ROUGH)]
    rng = np.random.default_rng([seed, 2])
    base = smooth(int(rng.integers(2**31)))
    range_of_base = np.ptp(base.shape(rng.uniform(-1, 1, (200, 2))))
    height, feature = range_of_base * 10 ** rng.uniform(-2.5, 0), ROUGH[kind](rng)
    return base.plus(lambda places: height * feature(places), kind)


def white(seed: int) -> Shape:
    """Gaussian noise of standard deviation 1 that is the same whenever a place is asked for."""

    def shape(places: np.ndarray) -> np.ndarray:
        bits = np.ascontiguousarray(places, dtype=np.float64).view(np.uint64)
        state = _mixed(_mixed(bits[:, 0] + np.uint64(seed)) ^ bits[:, 1])
        halves = np.stack([state >> np.uint64(32), state & np.uint64(2**32 - 1)]).astype(np.float64)
        u, v = (halves + 0.5) / 2**32
        return np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)  # Box and Muller

    return shape


def only_noise(seed: int) -> Truth:
    """A loss that is different everywhere, of range about 1 nat."""
    noise = white(seed)
    return Truth("noise", lambda places: LEVEL + 0.15 * noise(places))


def checkerboard(lines: np.ndarray) -> Truth:
    """Fields of 0 and 1 nat around the crossings of `lines`: neighbouring cells differ by the whole range."""
    step = lines[1] - lines[0]

    def shape(places: np.ndarray) -> np.ndarray:
        return LEVEL + np.rint((places - lines[0]) / step).sum(1) % 2

    return Truth("checkerboard", shape)


def with_hole(truth: Truth, value: float, middle: tuple[float, float], radius: float) -> Truth:
    """`truth`, but `value`, such as NaN, nearer than `radius` to `middle`."""

    def shape(places: np.ndarray) -> np.ndarray:
        return np.where(np.hypot(*(places - middle).T) < radius, value, truth.shape(places))

    return Truth("hole", shape)


def largest_difference(shown: np.ndarray, truth: np.ndarray) -> float:
    """Largest |shown − truth|; infinite if one of them is finite where the other is not."""
    finite = np.isfinite(truth)
    if not np.array_equal(finite, np.isfinite(shown)):
        return float("inf")
    return float(np.abs(shown[finite] - truth[finite]).max(initial=0.0))


def _quadratic(rng: np.random.Generator) -> Shape:
    view = _view(rng, -2, 1.5)
    sign = rng.choice([-1.0, 1.0], p=[0.25, 0.75])  # a bowl, more rarely a saddle
    return lambda places: view(places) ** 2 @ np.array([1.0, sign])


def _log_cosh(rng: np.random.Generator) -> Shape:
    view, weight = _view(rng, -2, 1.5), rng.uniform(0, 1)
    return lambda places: np.log(2 * np.cosh(view(places))) @ np.array([1.0, weight])


def _network(rng: np.random.Generator) -> Shape:
    """Softplus of a tanh network with 20 hidden units, on a shallow bowl."""
    view = _view(rng, -2, 1)
    inner, bias, outer = rng.normal(size=(2, 20)), rng.normal(size=20), 0.75 * rng.normal(size=20)

    def shape(places: np.ndarray) -> np.ndarray:
        z = view(places)
        return np.logaddexp(0, np.tanh(z @ inner + bias) @ outer) + 0.1 * (z**2).sum(1)

    return shape


def _wells(rng: np.random.Generator) -> Shape:
    """One to three Gaussian wells that are at least 0.4 wide, on a shallow bowl."""
    count = rng.integers(1, 4)
    middles, widths = rng.uniform(-1, 1, (count, 2)), np.exp(rng.uniform(np.log(0.4), np.log(3), count))
    depths, bowl = rng.uniform(0.2, 1, count), _view(rng, -2, 0)

    def shape(places: np.ndarray) -> np.ndarray:
        apart = ((places[:, None] - middles) ** 2).sum(-1)
        return 0.1 * (bowl(places) ** 2).sum(1) - np.exp(-apart / widths**2) @ depths

    return shape


def _rational(rng: np.random.Generator) -> Shape:
    view, cubic = _view(rng, -2, 1), rng.uniform(0, 0.1)

    def shape(places: np.ndarray) -> np.ndarray:
        z = view(places)
        size = (z**2).sum(1)
        return size / (1 + 0.5 * size) + cubic * z[:, 0] ** 3

    return shape


def _oscillating(rng: np.random.Generator) -> Shape:
    view, frequency, height = _view(rng, -1, 1), rng.uniform(1, 4), rng.uniform(0.02, 0.15)

    def shape(places: np.ndarray) -> np.ndarray:
        z = view(places)
        return (z**2).sum(1) + height * (np.sin(frequency * z[:, 0] + 1) + 0.5 * np.cos(frequency * z[:, 1]))

    return shape


def _kink(rng: np.random.Generator) -> Shape:
    along = _along(rng)
    return lambda places: np.abs(along(places))


def _hinge(rng: np.random.Generator) -> Shape:
    along = _along(rng)
    return lambda places: np.maximum(0.0, along(places))


def _step(rng: np.random.Generator) -> Shape:
    along, width = _along(rng), rng.uniform(0.04, 0.3)
    return lambda places: np.tanh(along(places) / width)


def _bump(rng: np.random.Generator) -> Shape:
    middle, width = rng.uniform(-1, 1, 2), rng.uniform(0.15, 0.5)
    return lambda places: np.exp(-((places - middle) ** 2).sum(1) / width**2)


def _wave(rng: np.random.Generator) -> Shape:
    along, frequency = _along(rng), rng.uniform(5, 15)
    return lambda places: np.sin(frequency * along(places))


def _cone(rng: np.random.Generator) -> Shape:
    tip = rng.uniform(-1, 1, 2)
    return lambda places: np.hypot(*(places - tip).T)


SMOOTH = {
    "quadratic": _quadratic,
    "log-cosh": _log_cosh,
    "network": _network,
    "wells": _wells,
    "rational": _rational,
    "oscillating": _oscillating,
}
ROUGH = {"kink": _kink, "hinge": _hinge, "step": _step, "bump": _bump, "wave": _wave, "cone": _cone}


def _view(rng: np.random.Generator, low: float, high: float) -> Shape:
    """Places turned, shifted, and stretched along two axes by e^low to e^high: (n, 2) → (n, 2)."""
    turned, middle = _rotation(rng), rng.uniform(-1, 1, 2)
    stretched = np.exp(rng.uniform(low, high, (2, 1))) * turned
    return lambda places: (places - middle) @ stretched.T


def _along(rng: np.random.Generator) -> Shape:
    """Signed distance from a random line that passes within 0.7 of the origin."""
    direction, offset = _rotation(rng)[0], rng.uniform(-0.7, 0.7)
    return lambda places: places @ direction - offset


def _rotation(rng: np.random.Generator) -> np.ndarray:
    angle = rng.uniform(0, 2 * np.pi)
    return np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])


def _scaled(kind: str, shape: Shape, rng: np.random.Generator) -> Truth:
    amplitude = 10 ** rng.uniform(-2, 0.5)
    return Truth(kind, lambda places: LEVEL + amplitude * shape(places))


def _mixed(state: np.ndarray) -> np.ndarray:
    """Every bit of 64 depends on every other (splitmix64); sums and products wrap around."""
    state = (state + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
