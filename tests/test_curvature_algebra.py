"""What is made of products: models along a direction, preconditioning, Adam's diagonal; and the algebra of vectors."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import oracles
from landscape.curvature import Budget, Hessian, Matrix, ParameterSpace, Preconditioned, Scaled, along, hutchinson
from landscape.curvature import vectors as vec
from landscape.curvature.adam import diagonal_from_gradients, diagonal_from_state
from landscape.errors import CurvatureError
from landscape.weights import Weights
from operators import EXACT, operator
from oracles import block, case, close, single

pytestmark = pytest.mark.usefixtures("process")


def test_along_a_direction():
    known, H = case("llama"), operator(Hessian, "llama")
    step = block(H.n, 1)[:, 0]
    found, bends, slopes = along(H, step), known.hessian @ step * step, known.gradient * step
    assert found.slope == pytest.approx(float(slopes.sum()), rel=1e-12)
    assert found.quadratic == pytest.approx(float(bends.sum()), rel=1e-12)
    assert found.curvature == pytest.approx(float(bends.sum() / step.norm() ** 2), rel=1e-12)
    for name, places in H.space.layers().items():
        expected = [sum(float(part[place].sum()) for place in places) for part in (slopes, bends)]
        assert found.layers[name] == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert sum(bend for _, bend in found.layers.values()) == pytest.approx(found.quadratic, rel=1e-11)
    with pytest.raises(CurvatureError, match="length zero"):
        along(H, 0 * step)


def test_the_prediction_along_a_direction_is_exact_for_a_quadratic():
    root, centers = block(5, 5), block(5, 7, seed=1).T
    objective = oracles.Quadratic(root @ root.T, list(centers.split(3)))
    theta, step = block(5, 2, seed=4).T
    at = [sum(float(objective({"t": t}, b)[0]) for b in objective.batches) / 7 for t in (theta, theta + step)]
    assert along(Hessian(objective, {"t": theta}), step).predicted == pytest.approx(at[1] - at[0], rel=1e-12)


def test_preconditioning():
    diagonal = torch.rand(233, dtype=torch.float64) + 0.01
    expected = case("mlp").hessian / (diagonal[:, None] * diagonal[None, :]).sqrt() @ block(233)
    for inner in (operator(Hessian, "mlp"), Matrix(case("mlp").hessian)):
        P = Preconditioned(inner, diagonal)
        assert close(P @ block(233), expected) < EXACT
        assert len(P.parts()) == len(inner.parts())
        assert close(sum(part @ block(233) for part in P.parts()), expected) < EXACT
    for bad in (0.0, -1.0, math.nan, math.inf):
        diagonal[3] = bad
        with pytest.raises(CurvatureError, match="1 elements that are not positive"):
            Preconditioned(inner, diagonal)
    with pytest.raises(CurvatureError, match=r"shape \(5,\)"):
        Preconditioned(inner, torch.ones(5))


def test_scaling():
    scale = torch.randn(233, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    scale[::7] = 0
    expected = scale[:, None] * (case("mlp").hessian @ (scale[:, None] * block(233)))
    for inner in (operator(Hessian, "mlp"), Matrix(case("mlp").hessian)):
        scaled = Scaled(inner, scale)
        assert close(scaled @ block(233), expected) < EXACT
        assert close(sum(part @ block(233) for part in scaled.parts()), expected) < EXACT
        found = hutchinson(scaled, Budget(0.0, 200, 200))
        assert abs(found.value - float(case("mlp").hessian.diagonal() @ scale**2)) < 4 * found.standard_error
    with pytest.raises(CurvatureError, match=r"shape \(5,\)"):
        Scaled(inner, torch.ones(5))


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_adams_diagonal_from_its_state(kind):
    model, (x, y) = single("mlp")
    named, seen = dict(model.named_parameters()), []
    order = sorted(named, key=lambda name: "bias" in name)  # two groups: weights, then biases
    group = [[named[n] for n in order if ("bias" in n) is late] for late in (False, True)]
    first, second = {"betas": (0.9, 0.95), "eps": 1e-4}, {"betas": (0.9, 0.99), "eps": 1e-3}
    optimizer = kind([{"params": group[0], **first}, {"params": group[1], **second}], lr=1e-2)
    for _ in range(4):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        seen.append({name: parameter.grad.double() for name, parameter in named.items()})
        optimizer.step()
    space = ParameterSpace.select(Weights.of(model), ["*", "!3.*"])
    for name, diagonal in space.unflatten(diagonal_from_state(optimizer.state_dict(), order, space)).items():
        beta, eps = (0.99, 1e-3) if "bias" in name else (0.95, 1e-4)
        moments = sum((1 - beta) * beta ** (3 - t) * gradients[name] ** 2 for t, gradients in enumerate(seen))
        assert close(diagonal, (moments / (1 - beta**4)).sqrt() + eps) < 1e-5
    with pytest.raises(CurvatureError, match="no second moments of shape"):
        diagonal_from_state(optimizer.state_dict(), list(named), space)  # the model's order, not the optimizer's


def test_adams_diagonal_from_gradients():
    known, squares = case("mlp"), 0.0
    for x, y in known.objective(4).batches:
        loss = nn.functional.cross_entropy(known.model(x), y)
        squares += torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(known.model.parameters()))]) ** 2
    space = ParameterSpace.select(known.weights, "3.*")
    place = slice(ParameterSpace.select(known.weights).where()["3.weight"].start, None)
    found = diagonal_from_gradients(known.objective(4), known.weights, space, eps=1e-3)
    assert close(found, ((squares / 3).sqrt() + 1e-3)[place][: space.n]) < EXACT


def test_reductions_over_long_vectors():
    generator, n = torch.Generator().manual_seed(0), 5_000_123  # not a multiple of a block
    rows = torch.stack([torch.rand(n, generator=generator) + 0.5, torch.randn(n, generator=generator) + 0.1])
    exact = rows.double() @ rows.double().T
    found = vec.coefficients(rows, rows[1])
    assert found.dtype == torch.float64
    assert found.tolist() == pytest.approx(exact[1].tolist(), rel=3e-6)  # 1e-7 with blocks of 1024 in `vectors`
    assert vec.dot(rows[0], rows[1]) == pytest.approx(float(exact[0, 1]), rel=1e-7)
    for scale in (1.0, 1e-25, 1e25):  # whose squares float32 does not hold
        assert vec.norm(scale * rows[1]) == pytest.approx(scale * float(exact[1, 1].sqrt()), rel=1e-7)


def test_orthogonalization():
    rows = block(1000, 6, torch.float32).T.contiguous()
    rows[2], rows[4] = rows[0] - 3 * rows[1], 0.0
    basis = vec.orthonormal(rows)
    assert basis.shape == (4, 1000)
    assert (basis @ basis.T - torch.eye(4)).abs().max() < 1e-6
    assert close(rows @ basis.T @ basis, rows) < 1e-5
    for rest in (rows[3] + 100 * basis[0], basis[1] + 1e-4 * torch.ones(1000)):  # the second is nearly all in it
        before = rest.clone()
        found = vec.remove(rest, basis)
        assert (basis @ rest).abs().max() < 1e-6 * rest.norm()
        assert close(rest + found.float() @ basis, before) < 1e-5
