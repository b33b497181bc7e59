"""Second derivatives of an objective: operators, and estimators on operators.

An operator is a symmetric matrix known by its products; an estimator is a function on an operator that returns a frozen
result with its uncertainty. Nothing here knows what a language model is.
"""

from typing import TYPE_CHECKING

from landscape.lazily import lazily

if TYPE_CHECKING:
    from landscape.curvature.adam import diagonal_from_gradients, diagonal_from_state
    from landscape.curvature.density import Density, spectral_density
    from landscape.curvature.difference import DifferenceHessian
    from landscape.curvature.direction import DirectionCurvature, along
    from landscape.curvature.gauss_newton import GaussNewton
    from landscape.curvature.hessian import Hessian
    from landscape.curvature.lanczos import Eigenvalues, Krylov, StopRule, eigenvalues
    from landscape.curvature.loss_differences import CriticalStep, LossAlong, critical_step, trace_by_losses
    from landscape.curvature.operators import LinearOperator, Matrix, Preconditioned, Scaled
    from landscape.curvature.parameters import ParameterSpace
    from landscape.curvature.power import PowerResult, power_iteration
    from landscape.curvature.refine import refine
    from landscape.curvature.shared import Operator, Shared, over
    from landscape.curvature.sketched_trace import hutch_plus_plus, xtrace
    from landscape.curvature.start import draft, noisy
    from landscape.curvature.trace import Budget, Trace, hutchinson

__all__ = [
    "Budget",
    "CriticalStep",
    "Density",
    "DifferenceHessian",
    "DirectionCurvature",
    "Eigenvalues",
    "GaussNewton",
    "Hessian",
    "Krylov",
    "LinearOperator",
    "LossAlong",
    "Matrix",
    "Operator",
    "ParameterSpace",
    "PowerResult",
    "Preconditioned",
    "Scaled",
    "Shared",
    "StopRule",
    "Trace",
    "along",
    "critical_step",
    "diagonal_from_gradients",
    "diagonal_from_state",
    "draft",
    "eigenvalues",
    "hutch_plus_plus",
    "hutchinson",
    "noisy",
    "over",
    "power_iteration",
    "refine",
    "spectral_density",
    "trace_by_losses",
    "xtrace",
]

__getattr__ = lazily(
    __name__,
    {
        "adam": ("diagonal_from_gradients", "diagonal_from_state"),
        "density": ("Density", "spectral_density"),
        "difference": ("DifferenceHessian",),
        "direction": ("DirectionCurvature", "along"),
        "gauss_newton": ("GaussNewton",),
        "hessian": ("Hessian",),
        "lanczos": ("Eigenvalues", "Krylov", "StopRule", "eigenvalues"),
        "loss_differences": ("CriticalStep", "LossAlong", "critical_step", "trace_by_losses"),
        "operators": ("LinearOperator", "Matrix", "Preconditioned", "Scaled"),
        "parameters": ("ParameterSpace",),
        "power": ("PowerResult", "power_iteration"),
        "refine": ("refine",),
        "shared": ("Operator", "Shared", "over"),
        "sketched_trace": ("hutch_plus_plus", "xtrace"),
        "start": ("draft", "noisy"),
        "trace": ("Budget", "Trace", "hutchinson"),
    },
)
