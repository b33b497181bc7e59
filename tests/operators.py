"""What tests of operators share: the kinds there are, how one is made for a case of `oracles`, how exact it is."""

from __future__ import annotations

import pytest

from landscape.curvature import GaussNewton, Hessian
from oracles import case

EXACT = 1e-13  # what float64 leaves of a product, relative to its length
DIFFERENCES = 1e-10  # what two step sizes leave: the fourth power of a step, and rounding over the step
EVERY = [(Hessian, {}), (Hessian, {"keep": False}), (Hessian, {"product": "forward"}), (GaussNewton, {})]
KINDS = pytest.mark.parametrize(("kind", "options"), EVERY, ids=["kept", "rebuilt", "forward", "gauss-newton"])


def operator(kind, name: str, size: int = 2, **options):
    return kind(case(name).objective(size), case(name).weights, **options)
