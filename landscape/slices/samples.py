"""The losses a reconstruction is made from: each place evaluated once, whoever asks for it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from landscape.slices.axes import Bounds

NODE, CHECK, CELL = "node", "check", "cell"
ROUNDING = 1e-7  # of a loss, computed in float32

Place = tuple[float, float]
Evaluate = Callable[[str, Sequence[Place]], Sequence[float]]


class Samples:
    """Evaluations by place, and what they say of the scale: the range of the losses, the noise of one of them.

    Where the scan computes in lower precision than float32, a node and a check at one place are two evaluations, and
    their differences tell the noise.
    """

    def __init__(self, evaluate: Evaluate, tolerance: tuple[float, float], scale: float, noisy: bool) -> None:
        """Nothing is evaluated yet.

        Args:
            evaluate: (kind, places) → nats; checks in float32, nodes and cells in the arithmetic of the scan.
            tolerance: of the error, as a share of the range of the losses and as a share of `scale`.
            scale: the loss that counts, that of the origin.
            noisy: whether that arithmetic is less precise than float32.
        """
        self._evaluate = evaluate
        self._tolerance = tolerance
        self._scale = abs(scale)
        self.noisy = noisy
        self._losses: dict[Place, float] = {}
        self._exact: dict[Place, float] = {} if noisy else self._losses
        self.check_places: list[Place] = []
        self.evaluations = 0

    @property
    def spread(self) -> float:
        """Range of the finite losses known, nats."""
        finite = [loss for loss in self._losses.values() if np.isfinite(loss)]
        return max(finite) - min(finite) if finite else 0.0

    @property
    def target(self) -> float:
        """The error asked for, nats: it must be below both tolerances."""
        of_range, of_loss = self._tolerance
        return min(of_range * self.spread, of_loss * self._scale)

    @property
    def noise(self) -> float:
        """Standard deviation of one evaluation, nats: from nodes beside checks, and never below float32 rounding."""
        rounding = ROUNDING * self._scale
        if not self.noisy:
            return rounding
        pairs = [self._losses[place] - exact for place, exact in self._exact.items() if place in self._losses]
        finite = [difference for difference in pairs if np.isfinite(difference)]
        return max(rounding, float(np.sqrt(np.mean(np.square(finite))))) if finite else rounding

    def add(self, losses: Mapping[Place, float]) -> None:
        """float32 losses that are known already, such as those of named points."""
        self._exact.update(losses)

    def inside(self, bounds: Bounds) -> np.ndarray:
        """(n, 2) the places in `bounds` that need no evaluation to be nodes."""
        (a, b), (c, d) = bounds.alpha, bounds.beta
        return np.array([p for p in self._losses if a <= p[0] <= b and c <= p[1] <= d]).reshape(-1, 2)

    def nodes(self, places: np.ndarray, kind: str = NODE) -> np.ndarray:
        """(n,) losses at `places` (n, 2), in the arithmetic of the scan."""
        return self._at(self._losses, kind, places)

    def checks(self, places: np.ndarray) -> np.ndarray:
        """(n,) losses at `places` (n, 2) in float32; in lower precision as well where the scan is."""
        if self.noisy:
            self.nodes(places)
        values = self._at(self._exact, CHECK, places)
        self.check_places += [place for place in map(tuple, places.tolist()) if place not in self.check_places]
        return values

    def _at(self, losses: dict[Place, float], kind: str, places: np.ndarray) -> np.ndarray:
        asked: list[Place] = [(a, b) for a, b in places.tolist()]
        missing = list(dict.fromkeys(place for place in asked if place not in losses))
        if missing:
            losses.update(zip(missing, self._evaluate(kind, missing), strict=True))
            self.evaluations += len(missing)
        return np.array([losses[place] for place in asked])
