"""Curvature along one direction: what the second order says about a step δ, such as Θ̂ − Θ.

L(Θ + δ) − L(Θ) ≈ g·δ + ½ δᵀHδ
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from landscape.curvature import vectors
from landscape.curvature.shared import Operator
from landscape.errors import CurvatureError


@dataclass(frozen=True)
class DirectionCurvature:
    """The quadratic model along δ; L in nats, δ in units of weight space.

    Attributes:
        length: ‖δ‖.
        slope: g·δ.
        quadratic: δᵀHδ.
        layers: per layer, (g·δ, δᵀHδ) of that layer's share of δ: the second is δ_lᵀ(Hδ)_l, which adds up over
            layers and contains half of every cross term.
    """

    length: float
    slope: float
    quadratic: float
    layers: Mapping[str, tuple[float, float]]

    @property
    def predicted(self) -> float:
        """g·δ + ½ δᵀHδ."""
        return self.slope + 0.5 * self.quadratic

    @property
    def curvature(self) -> float:
        """δᵀHδ/‖δ‖²: between the smallest and the largest eigenvalue."""
        return self.quadratic / self.length**2


def along(operator: Operator, step: Tensor) -> DirectionCurvature:
    """The quadratic model of the objective along `step` (n,), by one product.

    Raises:
        CurvatureError: a step of length zero, or of another shape or dtype than the parameters.
    """
    length = vectors.norm(step)
    if not length > 0:
        raise CurvatureError("a step of length zero: there is no direction to measure along")
    product, gradient = operator @ step, operator.gradient()
    slopes = operator.space.per_layer(gradient * step)
    bends = operator.space.per_layer(product * step)
    layers = {name: (slopes[name], bends[name]) for name in slopes}
    return DirectionCurvature(length, vectors.dot(gradient, step), vectors.dot(product, step), layers)
