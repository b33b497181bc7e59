"""A reconstructed slice: the loss at any place of the rectangle, from polynomials and, where those fail, grid cells.

A surface is a tree. Its leaves are polynomials or patches of evaluated cells; a seam joins two of them that overlap by
passing smoothly from one to the other, so that the whole is continuous whatever the leaves are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from landscape.errors import OptionError
from landscape.slices.axes import Bounds
from landscape.slices.polynomial import Polynomial


@dataclass(frozen=True)
class Patch:
    """Evaluated cells: exact on them, bilinear between them.

    Attributes:
        alpha, beta: grid lines; loss: (alpha, beta) nats, NaN and infinity included.
    """

    alpha: np.ndarray
    beta: np.ndarray
    loss: np.ndarray

    def __call__(self, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
        """Values at places given as two arrays of one shape; beyond the cells those of the nearest."""
        i, s = _between(self.alpha, alpha)
        j, t = _between(self.beta, beta)
        corners = ((i, j, (1 - s) * (1 - t)), (i + 1, j, s * (1 - t)), (i, j + 1, (1 - s) * t), (i + 1, j + 1, s * t))
        last = np.array(self.loss.shape) - 1
        value = np.zeros(np.shape(alpha))
        for row, column, weight in corners:
            cell = self.loss[np.minimum(row, last[0]), np.minimum(column, last[1])]
            value += np.multiply(weight, cell, out=np.zeros_like(value), where=weight > 0)  # infinite cells stay there
        return value


@dataclass(frozen=True)
class Seam:
    """Two surfaces side by side along an axis.

    Attributes:
        axis: 0 for α, 1 for β.
        start, end: up to `start` it is `low` alone, from `end` on `high` alone; both reach over what lies between.
    """

    axis: int
    start: float
    end: float
    low: Surface
    high: Surface

    def share(self, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
        """Share of `high` at places given as two arrays of one shape; that of `low` is the rest."""
        way = np.clip(((alpha, beta)[self.axis] - self.start) / (self.end - self.start), 0.0, 1.0)
        return np.asarray(way**2 * (3 - 2 * way))

    def __call__(self, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
        """Values at places given as two arrays of one shape."""
        share = self.share(alpha, beta)
        value = np.zeros(np.shape(alpha))
        for part, weight in ((self.low, 1 - share), (self.high, share)):
            used = weight > 0
            if used.any():
                value[used] += weight[used] * part(alpha[used], beta[used])
        return value


Surface = Polynomial | Patch | Seam


def on_grid(surface: Surface, alpha: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """(alpha, beta) the values of `surface` where these grid lines cross."""
    a, b = np.meshgrid(alpha, beta, indexing="ij")
    return surface(a, b)


def to_plain(surface: Surface) -> dict[str, Any]:
    """`surface` as dictionaries, lists and numbers; `from_plain` takes it back without loss."""
    if isinstance(surface, Polynomial):
        b = surface.bounds
        return {"bounds": [*b.alpha, *b.beta], "coefficients": surface.coefficients.tolist()}
    if isinstance(surface, Patch):
        return {"alpha": surface.alpha.tolist(), "beta": surface.beta.tolist(), "loss": surface.loss.tolist()}
    seam = {"axis": surface.axis, "start": surface.start, "end": surface.end}
    return {**seam, "low": to_plain(surface.low), "high": to_plain(surface.high)}


def patches(surface: Surface) -> Iterator[Patch]:
    """Every patch of evaluated cells that it is made of."""
    if isinstance(surface, Seam):
        yield from patches(surface.low)
        yield from patches(surface.high)
    elif isinstance(surface, Patch):
        yield surface


def from_plain(plain: dict[str, Any]) -> Surface:
    """What `to_plain` made of a surface.

    Raises:
        ValueError: parts that do not fit together; KeyError: one that is missing.
    """
    if "coefficients" in plain:
        a, b, c, d = plain["bounds"]
        coefficients = np.array(plain["coefficients"], dtype=np.float64)
        if coefficients.ndim != 2 or not coefficients.size:
            raise ValueError(f"a polynomial with coefficients of shape {coefficients.shape}")
        try:
            return Polynomial(Bounds((a, b), (c, d)), coefficients)
        except OptionError as error:  # here nobody chose them
            raise ValueError(str(error)) from error
    if "loss" in plain:
        patch = Patch(*(np.array(plain[name], dtype=np.float64) for name in ("alpha", "beta", "loss")))
        if patch.loss.shape != (*patch.alpha.shape, *patch.beta.shape) or patch.loss.ndim != 2 or not patch.loss.size:
            raise ValueError(f"a patch of losses of shape {patch.loss.shape}")
        return patch
    if plain["axis"] not in (0, 1) or not plain["start"] < plain["end"]:
        raise ValueError("a seam without an axis or a width")
    low, high = from_plain(plain["low"]), from_plain(plain["high"])
    return Seam(plain["axis"], plain["start"], plain["end"], low, high)


def _between(lines: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index of the line below each place, and the share of the way to the next."""
    if len(lines) == 1:
        return np.zeros(np.shape(places), dtype=int), np.zeros(np.shape(places))
    below = np.clip(np.searchsorted(lines, places, side="right") - 1, 0, len(lines) - 2)
    share = (places - lines[below]) / (lines[below + 1] - lines[below])
    return below, np.clip(share, 0.0, 1.0)
