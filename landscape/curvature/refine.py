"""Eigenvalues found with a rough operator, made exact with few products of the exact one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from landscape.curvature import vectors
from landscape.curvature.lanczos import Eigenvalues, StopRule
from landscape.curvature.operators import LinearOperator


def refine(operator: LinearOperator, rough: Eigenvalues, rule: StopRule = StopRule()) -> Eigenvalues:
    """Rayleigh and Ritz in the span of the vectors found with an operator near this one: k products.

    A direction that is off by ε gives a value that is off by ε² (Parlett 1998, §11.4), so the same Hessian in bfloat16
    is a good place to look. The values and residuals are those of `operator`. That nothing further out was missed is
    carried over: it was found with the rough operator, and holds for the exact one as far as the residuals, which show
    the difference between the two, are small. What does not meet the rule is marked; then go on from the vectors.

    Args:
        operator: the exact one.
        rough: eigenvalues of the other, with their vectors.
        rule: its tolerance is applied to the residuals.
    """
    basis = rough.vectors
    images = (operator @ basis.T).T
    projected = torch.stack([vectors.coefficients(basis, image) for image in images]).numpy()
    values, columns = np.linalg.eigh((projected + projected.T) / 2)
    if rough.which == "top":
        values, columns = values[::-1].copy(), columns[:, ::-1].copy()
    mix = torch.from_numpy(columns.T.copy())
    rows = vectors.combine(basis, mix)
    rest = vectors.combine(images, mix)
    residuals = np.array([vectors.norm(r - value * y) for r, y, value in zip(rest, rows, values, strict=True)])
    met = rough.converged.all() & rule.small(values, residuals, rough.scale)
    products = rough.products + len(basis)
    return replace(rough, values=values, residuals=residuals, converged=met, products=products, vectors=rows)
