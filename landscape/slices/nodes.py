"""Where to evaluate: nodes that suit polynomials, one block after another, and places to check what came out.

Nodes are discrete Leja points (Bos, De Marchi, Sommariva, Vianello 2010, "Computing multivariate Fekete and Leja points
by numerical linear algebra"): each block of new basis functions gets as many new nodes, there where what the old nodes
leave undetermined is largest. So every node is kept when the degree grows, one axis may grow alone, and places that
are evaluated already can serve as nodes.
"""

from __future__ import annotations

import numpy as np

from landscape.slices.polynomial import Degrees, basis

_SIDE = 49  # candidates along an axis
_ALMOST = 0.5  # a place already evaluated is taken when it is this good compared with the best
_TIE = 1e-9  # mirror images are equally good up to rounding: the first is taken, on every machine
_TRIES = 40
_APART = 0.15  # radians on the half circle, below which two places tell much the same


def candidates(axes: int) -> np.ndarray:
    """Chebyshev-Lobatto points of the unit square (n, 2), or of its first axis alone."""
    line = np.cos(np.pi * np.arange(_SIDE)[::-1] / (_SIDE - 1))
    line[_SIDE // 2] = 0.0
    if axes == 1:
        fine = np.cos(np.pi * np.arange(4 * _SIDE)[::-1] / (4 * _SIDE - 1))
        return np.stack([fine, np.zeros_like(fine)], axis=1)
    return np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)


class Nodes:
    """A growing choice among places of the unit square, of which the first `known` are evaluated already."""

    def __init__(self, known: np.ndarray, axes: int) -> None:
        """`known` (n, 2) in the unit square."""
        self._places = np.concatenate([known, candidates(axes)])
        self._known = len(known)
        self._chosen: list[int] = []
        self._degrees: list[tuple[int, int]] = []

    @property
    def places(self) -> np.ndarray:
        """The nodes (n, 2), in the order they were chosen."""
        return self._places[self._chosen]

    @property
    def reused(self) -> np.ndarray:
        """For each node its index among the known places, or −1."""
        chosen = np.array(self._chosen, dtype=int)
        return np.where(chosen < self._known, chosen, -1)

    def grow(self, degrees: Degrees) -> None:
        """As many nodes as there are `degrees`, which must contain those asked for before."""
        had = set(self._degrees)
        new = [pair for pair in degrees if pair not in had]
        undetermined = basis(self._places, new)
        if self._chosen:
            old = basis(self._places, self._degrees)
            undetermined = undetermined - old @ np.linalg.solve(old[self._chosen], undetermined[self._chosen])
        size = np.einsum("ij,ij->i", undetermined, undetermined)
        directions = np.empty((0, len(new)))
        for _ in new:  # Gram-Schmidt on the rows that are chosen: of the others only the lengths are kept
            best = self._best(size)
            self._chosen.append(best)
            left = undetermined[best]
            for _ in range(2):  # once leaves the directions as orthogonal as `left` is long
                left = left - (directions @ left) @ directions
            directions = np.vstack([directions, left / np.linalg.norm(left)])
            size = size - (undetermined @ directions[-1]) ** 2
        self._degrees += new

    def _best(self, size: np.ndarray) -> int:
        most = size.max()
        known = size[: self._known]
        if self._known and known.max() >= _ALMOST**2 * most:
            most, size = known.max(), known
        return int(np.flatnonzero(size >= (1 - _TIE) * most)[0])


def check_places(
    rng: np.random.Generator, taken: np.ndarray, suspects: np.ndarray, suspicion: np.ndarray, count: int, axes: int
) -> np.ndarray:
    """`count` places (count, 2) to compare a reconstruction with the truth, away from the places `taken`.

    Half are random, of several tries the one farthest from everything else; half (none, where nothing is suspected)
    are where two levels of the reconstruction differ most. Distances are on the half circle, where Chebyshev points
    are equally dense, so that edges and corners, where polynomials err most, are looked at.

    Args:
        rng: of the random half.
        taken: (n, 2) places of the unit square that are evaluated already.
        suspects: (m, 2) places that may be chosen for what is suspected there.
        suspicion: (m,) how much.
        count: how many.
        axes: 1 or 2.
    """
    angles = _angles(taken)
    suspect_angles = _angles(suspects)
    chosen: list[np.ndarray] = []
    aimed = count // 2 if suspicion.any() else 0
    for _ in range(count - aimed):
        tries = rng.uniform(0, np.pi, (_TRIES, 2))
        if axes == 1:
            tries[:, 1] = np.pi / 2
        farthest = tries[_distance(tries, angles).argmax()]
        place = np.cos(farthest)
        chosen.append(np.array([place[0], 0.0]) if axes == 1 else place)
        angles = np.vstack([angles, farthest])
    distance = _distance(suspect_angles, angles)
    for _ in range(aimed):
        worst = int((suspicion * np.minimum(1.0, distance / _APART)).argmax())
        chosen.append(suspects[worst])
        distance = np.minimum(distance, _distance(suspect_angles, suspect_angles[worst : worst + 1]))
    return np.array(chosen).reshape(-1, 2)


def _angles(places: np.ndarray) -> np.ndarray:
    return np.asarray(np.arccos(np.clip(places, -1, 1)))


def _distance(places: np.ndarray, others: np.ndarray) -> np.ndarray:
    """From each of `places` to the nearest of `others`, both as angles; far where there are none."""
    if not len(others):
        return np.full(len(places), np.inf)
    apart = np.subtract.outer(places[:, 0], others[:, 0]) ** 2 + np.subtract.outer(places[:, 1], others[:, 1]) ** 2
    return np.asarray(np.sqrt(apart.min(1)))
