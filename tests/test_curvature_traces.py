"""Traces, densities and critical steps against exact values, and their own errors against how often they are wrong."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from landscape.curvature import (
    Budget,
    Hessian,
    LinearOperator,
    LossAlong,
    Matrix,
    Trace,
    critical_step,
    hutch_plus_plus,
    hutchinson,
    spectral_density,
    trace_by_losses,
    xtrace,
)
from landscape.curvature.probes import rademacher
from landscape.errors import CurvatureError

SEEDS = 200
FIXED = Budget(0.0, 40, 40)


class Parts(LinearOperator):
    def __init__(self, matrices: list[Tensor]) -> None:
        super().__init__(len(matrices[0]), matrices[0].dtype, torch.device("cpu"))
        self.terms = [Matrix(matrix) for matrix in matrices]

    def _multiply(self, rows: Tensor) -> Tensor:
        return torch.stack([(term @ rows.T).T for term in self.terms]).sum(0)

    def parts(self) -> list[LinearOperator]:
        return self.terms


class Custom:
    """An objective from a function of x and a batch."""

    def __init__(self, loss: Callable, batches: list) -> None:
        self.loss, self.batches, self.calls = loss, batches, 0

    def __call__(self, weights, batch) -> tuple[Tensor, int]:
        self.calls += 1
        return self.loss(weights["x"], batch), 3


def symmetric(n: int, seed: int = 0) -> Tensor:
    a = torch.from_numpy(np.random.default_rng([5, seed]).standard_normal((n, n)))
    return (a + a.T) / 2 + torch.eye(n)


def rotated(spectrum: np.ndarray, seed: int = 0) -> Tensor:
    q = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(spectrum), len(spectrum))))[0]
    return torch.from_numpy((q * spectrum) @ q.T)


def point(n: int) -> dict[str, Tensor]:
    return {"x": torch.from_numpy(np.random.default_rng(8).standard_normal(n))}


def quadratic(n: int = 16, batches: int = 3) -> tuple[Custom, float]:
    matrices = [symmetric(n, b) for b in range(batches)]
    return Custom(lambda x, a: 0.5 * x @ a @ x, matrices), float(sum(a.trace() for a in matrices)) / (3 * batches)


def coverage(found: list[Trace], exact: float) -> float:
    """How often the 95 % interval holds the exact value."""
    return float(np.mean([abs(t.value - exact) <= 1.96 * t.standard_error for t in found]))


@pytest.mark.parametrize("case", ["whole", "parts", "deflated"])
def test_intervals_hold_the_trace_as_often_as_they_say(case: str):
    matrix = symmetric(24) if case != "deflated" else rotated(np.r_[90, 40, -30, np.linspace(-2, 3, 21)])
    pieces = [0.25 * (matrix + 0.2 * symmetric(24, 10 + b)) for b in range(4)]
    operator = Parts(pieces) if case == "parts" else Matrix(matrix)
    basis = torch.from_numpy(np.linalg.eigh(matrix.numpy())[1][:, [0, -2, -1]].T.copy())
    places = {"a": (slice(0, 7), slice(20, 24)), "b": (slice(7, 20),)}
    extra = {"deflated": {"deflate": basis}, "whole": {"layers": places}, "parts": {}}[case]
    dense = sum(pieces) if case == "parts" else matrix
    found = [hutchinson(operator, FIXED, seed, **extra) for seed in range(SEEDS)]
    assert 0.90 <= coverage(found, float(dense.trace())) <= 0.99
    first = found[0]
    assert first.standard_error == pytest.approx(first.samples.std(ddof=1) / 40**0.5)
    assert first.value == pytest.approx(first.samples.mean())
    assert first.samples.shape == (40,)
    assert not first.reached
    assert first.products == (43 if case == "deflated" else 40)
    if case == "deflated":
        plain = [hutchinson(operator, FIXED, seed).standard_error for seed in range(5)]
        assert first.standard_error < 0.3 * np.mean(plain)
    for name in first.layers:
        exact = float(sum(dense.diagonal()[p].sum() for p in places[name]))
        inside = [abs(t.layers[name][0] - exact) <= 1.96 * t.layers[name][1] for t in found]
        assert 0.90 <= np.mean(inside) <= 0.99


def test_layers_add_up_in_every_round():
    rows: list[np.ndarray] = []
    places = {"a": (slice(0, 7),), "b": (slice(7, 20), slice(20, 24))}
    found = hutchinson(Matrix(symmetric(24)), Budget(0.0, 10, 20), layers=places, on_round=rows.append)
    assert [len(r) for r in rows] == [8, 16, 20]
    assert rows[-1][:, 1:].sum(axis=1) == pytest.approx(rows[-1][:, 0])
    assert rows[-1][:, 0] == pytest.approx(found.samples)
    for i, name in enumerate(places, start=1):
        own = rows[-1][:, i]
        assert found.layers[name] == pytest.approx((own.mean(), own.std(ddof=1) / 20**0.5))
    with pytest.raises(CurvatureError, match="choose one"):
        hutchinson(Matrix(symmetric(24)), layers=places, deflate=torch.eye(24, dtype=torch.float64)[:2])


def test_independent_probes_for_parts_that_are_alike():
    matrix = symmetric(24)
    pieces = [0.25 * (matrix + 0.1 * symmetric(24, 10 + b)) for b in range(4)]
    together, apart = Matrix(sum(pieces)), Parts(pieces)
    budget = Budget(0.0, 10, 10)
    shared = np.var([hutchinson(together, budget, seed).value for seed in range(150)])
    own = np.var([hutchinson(apart, budget, seed).value for seed in range(150)])
    assert own < 0.4 * shared  # a quarter, up to chance
    assert hutchinson(apart, budget).products == 10  # the cost of as many products with the whole


def test_deflation_is_exact_where_it_can_be():
    spectrum = np.r_[90, 40, -30, np.zeros(21)]
    matrix = rotated(spectrum)
    basis = torch.from_numpy(np.linalg.eigh(matrix.numpy())[1][:, [0, -2, -1]].T.copy())
    found = hutchinson(Matrix(matrix), Budget(0.0, 4, 4), deflate=basis)
    assert found.samples == pytest.approx(100, abs=1e-9)
    assert found.method == "hutchinson-deflated"
    full = hutchinson(Matrix(symmetric(24)), Budget(0.0, 4, 4), deflate=torch.eye(24, dtype=torch.float64))
    assert full.value == pytest.approx(float(symmetric(24).trace()))


def test_sampling_stops_at_the_error_asked_for_within_its_numbers():
    matrix = symmetric(24) + 20 * torch.eye(24)
    found = hutchinson(Matrix(matrix), Budget(0.01, 4, 400), block=1)
    assert found.reached
    assert found.standard_error <= 0.01 * found.value
    errors = [found.samples[:m].std(ddof=1) / m**0.5 / found.samples[:m].mean() for m in range(4, found.products)]
    assert min(errors) > 0.01  # not a round more than needed
    assert hutchinson(Matrix(matrix), Budget(0.5, 7, 400), block=1).products == 7
    short = hutchinson(Matrix(matrix), Budget(1e-6, 2, 9))
    assert (short.products, short.reached) == (9, False)
    exact = hutchinson(Matrix(torch.eye(8)), Budget(0.0, 3, 50), block=1)
    assert (exact.products, exact.value, exact.reached) == (3, 8.0, True)
    for wrong in ((-0.1, 10, 20), (0.1, 1, 20), (0.1, 30, 20), (math.nan, 10, 20)):
        with pytest.raises(CurvatureError, match="2 ≤ minimum ≤ maximum"):
            Budget(*wrong)


@pytest.mark.parametrize("deflated", [False, True])
def test_a_sampled_trace_goes_on_where_it_was(deflated: bool):
    rows: list[np.ndarray] = []
    operator = Parts([symmetric(24, b) for b in range(3)])
    basis = torch.eye(24, dtype=torch.float64)[:2] if deflated else None
    whole = hutchinson(operator, FIXED, 3, on_round=rows.append, deflate=basis)
    again = hutchinson(operator, FIXED, 3, known=rows[1], deflate=basis)
    assert again.samples == pytest.approx(whole.samples, rel=1e-12)
    assert again.products == whole.products - 16
    other = hutchinson(operator, FIXED, 3, block=3, deflate=basis)
    assert other.samples == pytest.approx(whole.samples, rel=1e-12)


@pytest.mark.parametrize("method", [hutch_plus_plus, xtrace])
def test_sketched_traces_are_unbiased(method):
    matrix = rotated(np.r_[20.0, -9, 6, 3 * 0.8 ** np.arange(27)])
    found = [method(Matrix(matrix), 24, seed) for seed in range(SEEDS)]
    values = np.array([t.value for t in found])
    assert abs(values.mean() - float(matrix.trace())) < 3 * values.std() / SEEDS**0.5
    assert all(t.products == 24 for t in found)
    # what they say of their error, against what it is
    assert 0.6 < np.mean([t.standard_error for t in found]) / values.std() < 1.7
    # the samples of XTrace are few and not independent: an interval from them is short of its 95 %
    assert 0.70 <= coverage(found, float(matrix.trace())) <= 0.99


@pytest.mark.parametrize("method", [hutch_plus_plus, xtrace])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rank", [0, 1, 5, 7])
def test_a_matrix_within_the_sketch_has_an_exact_trace(method, dtype: torch.dtype, rank: int):
    matrix = rotated(np.r_[np.arange(1.0, rank + 1), np.zeros(40 - rank)]).to(dtype)
    found = method(Matrix(matrix), 24)
    assert found.value == pytest.approx(rank * (rank + 1) / 2, rel=1e-4, abs=1e-6)
    assert found.standard_error < 1e-4 * (rank + 1) ** 2


@pytest.mark.parametrize("method", [hutch_plus_plus, xtrace])
def test_sketches_win_where_the_spectrum_falls_fast(method):
    matrix = rotated(100 * 0.6 ** np.arange(50.0))
    exact = float(matrix.trace())
    sketched = [method(Matrix(matrix), 30, seed).value - exact for seed in range(40)]
    plain = [hutchinson(Matrix(matrix), Budget(0.0, 30, 30), seed).value - exact for seed in range(40)]
    assert np.std(sketched) < 0.1 * np.std(plain)


def test_sketches_that_are_too_small_or_too_large():
    operator = Matrix(symmetric(10))
    with pytest.raises(CurvatureError, match="at least 6"):
        hutch_plus_plus(operator, 5)
    for products in (3, 22):
        with pytest.raises(CurvatureError, match="expected 4 to 20"):
            xtrace(operator, products)
    assert xtrace(operator, 20).value == pytest.approx(float(symmetric(10).trace()), rel=0.5)
    assert hutch_plus_plus(operator, 42).value == pytest.approx(float(symmetric(10).trace()), rel=1e-9)


def test_second_differences_of_a_quadratic_are_hutchinsons_samples():
    objective, exact = quadratic()
    weights = point(16)
    found = trace_by_losses(objective, weights, budget=FIXED, seed=2)
    products = hutchinson(Hessian(objective, weights), FIXED, 2)
    assert found.samples == pytest.approx(products.samples, rel=1e-7)
    assert found.disagreement < 1e-7 * exact
    assert found.products == 0
    all_ = [trace_by_losses(objective, weights, budget=Budget(0.0, 12, 12), seed=seed) for seed in range(SEEDS)]
    assert 0.90 <= coverage(all_, exact) <= 0.99


def test_the_finite_step_is_corrected():
    """Fourth powers: the difference at h is off by 2nh², the same for every probe."""
    n = 12
    matrix, weights = symmetric(n), point(n)
    objective = Custom(lambda x, b: 3 * ((x**4).sum() + b * (0.5 * x @ matrix @ x)), [0.5, 1.5])
    x = weights["x"]
    exact = float(12 * x @ x + matrix.trace())
    rows: list[np.ndarray] = []
    found = trace_by_losses(objective, weights, budget=Budget(0.005, 20, 400), step=0.5, on_round=rows.append)
    bias = 2 * 0.25 * float(x @ x)
    assert found.disagreement == pytest.approx(bias, rel=1e-6)
    assert found.reached
    assert abs(found.value - exact) < 3 * found.standard_error
    assert bias > 5 * found.standard_error  # it would have shown
    assert rows[-1][:, 0] - bias == pytest.approx(found.samples)
    # the correction is known from the first few: later rounds take half the passes
    assert np.isfinite(rows[-1][:4]).all()
    assert np.isnan(rows[-1][4:, 1]).all()
    calls = objective.calls
    again = trace_by_losses(objective, weights, budget=Budget(0.005, 20, 400), step=0.5, known=rows[6])
    assert again.samples == pytest.approx(found.samples, rel=1e-12)
    assert objective.calls - calls == 2 * (1 + 2 * (len(rows) - 7))


def test_second_differences_of_a_real_loss():
    rng = torch.Generator().manual_seed(0)
    data = [(torch.randn(6, 4, generator=rng).double(), torch.randint(3, (6,), generator=rng)) for _ in range(3)]
    weights = {"a": torch.randn(5, 4, generator=rng).double(), "b": torch.randn(3, 5, generator=rng).double()}

    class Network:
        batches = data

        def __call__(self, weights, batch) -> tuple[Tensor, int]:
            scores = torch.tanh(batch[0] @ weights["a"].T) @ weights["b"].T
            return torch.nn.functional.cross_entropy(scores, batch[1], reduction="sum"), len(batch[1])

    for only, n in (("*", 35), ("a", 20)):
        hessian = Hessian(Network(), weights, only)
        exact = float((hessian @ torch.eye(n, dtype=torch.float64)).trace())
        found = trace_by_losses(Network(), weights, only, Budget(0.02, 20, 400))
        assert abs(found.value - exact) < 3 * found.standard_error + found.disagreement
        assert found.standard_error < 0.2 * abs(exact)
    kept = {name: tensor.clone() for name, tensor in weights.items()}
    LossAlong(Network(), weights)(torch.ones(35).double(), 1.0)
    assert all(torch.equal(kept[name], weights[name]) for name in weights)


def test_losses_that_have_no_differences():
    weights = point(4)
    bad = Custom(lambda x, b: x.sum() + b, [0.0, math.inf, 1.0])
    with pytest.raises(CurvatureError, match="loss of batch 1 is inf"):
        trace_by_losses(bad, weights)
    edge = Custom(lambda x, b: torch.where((x == weights["x"]).all(), x.sum(), math.nan), [0])
    with pytest.raises(CurvatureError, match=r"not finite at 1\.0% of"):
        trace_by_losses(edge, weights)
    with pytest.raises(CurvatureError, match="length zero"):
        trace_by_losses(quadratic(4)[0], {"x": torch.zeros(4).double()})


@pytest.mark.parametrize("eigenvalue", [0.02, 3.0, 700.0])
@pytest.mark.parametrize(("guess", "width"), [(1e-4, 0.05), (1.0, 0.01), (300.0, 0.2)])
def test_critical_step_of_a_quadratic(eigenvalue: float, guess: float, width: float):
    scale = torch.tensor([eigenvalue, 5.0, 0.1]).double()
    objective = Custom(lambda x, b: 3 * b * 0.5 * (scale * x * x).sum(), [0.5, 1.5])
    along = LossAlong(objective, {"x": torch.tensor([2.0, 0.0, 0.0]).double()})
    gradient = torch.tensor([2 * eigenvalue, 0.0, 0.0]).double()
    before = objective.calls
    found = critical_step(along, -gradient, guess, width)
    assert abs(found.step - 2 / eigenvalue) <= (found.relative_width / 2 + 1e-6) * found.step
    assert found.relative_width <= width / (1 - width / 2) + 1e-12
    assert found.sharpness == pytest.approx(2 / found.step)
    assert found.passes == (objective.calls - before) / 2
    assert found.passes < 45


def test_critical_steps_that_are_not_there():
    objective = Custom(lambda x, b: 0.5 * (x * x).sum(), [0])
    along = LossAlong(objective, {"x": torch.ones(3).double()})
    uphill = critical_step(along, torch.ones(3).double(), 0.1, limit=2.0**20)
    assert (uphill.step, uphill.sharpness) == (0.0, math.inf)
    linear = LossAlong(Custom(lambda x, b: x.sum(), [0]), {"x": torch.ones(3).double()})
    before = linear.objective.calls
    never = critical_step(linear, -torch.ones(3).double(), 0.1)
    assert (never.step, never.sharpness) == (math.inf, 0.0)
    assert never.passes == linear.objective.calls - before
    # not a number counts as risen
    cliff = Custom(lambda x, b: torch.where(x.sum() < -1, math.nan, x.sum()), [0])
    found = critical_step(LossAlong(cliff, {"x": torch.ones(3).double()}), -torch.ones(3).double(), 0.1, 0.001)
    assert found.step == pytest.approx(4 / 3, rel=0.001)
    for direction, guess in ((torch.zeros(3).double(), 1.0), (torch.ones(3).double(), 0.0)):
        with pytest.raises(CurvatureError, match="expected positive"):
            critical_step(along, direction, guess)


def test_samples_are_quadratic_forms_of_named_probes():
    matrices = [symmetric(24, b) for b in range(3)]
    found = hutchinson(Parts(matrices), Budget(0.0, 5, 5), 7)
    for i in range(5):
        z = [rademacher(24, matrices[0], 7, i, b) for b in range(3)]
        assert found.samples[i] == pytest.approx(sum(float(p @ a @ p) for p, a in zip(z, matrices, strict=True)))


def test_density_weights_and_moments():
    spectrum = np.r_[10, 7, -9.9, -6, np.random.default_rng(9).standard_normal(40)]
    matrix = rotated(spectrum)
    n = len(spectrum)
    density = spectral_density(Matrix(matrix), 8, 50, seed=3)
    assert density.nodes.shape == density.weights.shape == (50, 8)
    assert density.products == 400
    assert (density.weights >= 0).all()
    assert density.weights.sum(axis=1) == pytest.approx(1, abs=1e-12)
    assert density.nodes.min() >= spectrum.min() - 1e-9
    assert density.nodes.max() <= spectrum.max() + 1e-9
    # Hutchinson's estimate from the same probes
    probes = torch.stack([rademacher(n, matrix, 3, i) for i in range(50)])
    quadratic = torch.einsum("kn,nm,km->k", probes, matrix, probes).numpy() / n
    assert (density.weights * density.nodes).sum(axis=1) == pytest.approx(quadratic, abs=1e-10)
    assert density.moment() == pytest.approx((quadratic.mean(), quadratic.std(ddof=1) / 50**0.5))
    for order in (1, 2, 3):
        value, error = density.moment(order)
        assert 0 < error < np.abs(spectrum**order).mean()
        assert abs(value - (spectrum**order).mean()) < 4 * error
    grid = np.linspace(-14, 14, 3001)
    smooth, error = density.smoothed(grid, 0.4)
    assert np.trapezoid(smooth, grid) == pytest.approx(1, abs=1e-3)
    assert np.trapezoid(smooth * grid, grid) == pytest.approx(quadratic.mean(), abs=1e-3)
    assert np.trapezoid((smooth * (grid - quadratic.mean()) ** 2), grid) == pytest.approx(
        density.moment(2)[0] - quadratic.mean() ** 2 + 0.4**2, rel=1e-3
    )
    each = density.weights[:, :, None] * np.exp(-0.5 * ((grid - density.nodes[:, :, None]) / 0.4) ** 2)
    each = each.sum(axis=1) / (0.4 * math.sqrt(2 * math.pi))
    assert error == pytest.approx(each.std(axis=0, ddof=1) / 50**0.5, abs=1e-12)
    many, off = density.above(5.0)
    assert abs(many - 2) < 4 * off
    assert off < 0.5


def test_a_density_is_exact_with_all_steps_and_goes_on_where_it_was():
    spectrum = np.r_[4, 2, np.linspace(-1, 1, 18)]
    operator = Matrix(
        torch.diag(torch.from_numpy(spectrum))
    )  # each sign vector has a share of 1/n in every eigenvector
    density = spectral_density(operator, 20, 2)
    assert density.nodes[1] == pytest.approx(np.sort(spectrum), abs=1e-8)
    assert density.weights == pytest.approx(1 / 20, abs=1e-8)
    assert density.above(1.5)[0] == pytest.approx(2, abs=1e-6)
    assert spectral_density(operator, 99, 1).nodes.shape == (1, 20)
    repeated = spectral_density(Matrix(torch.diag(torch.tensor([3.0, 3.0, 1.0, 1.0])).double()), 4, 2)
    assert repeated.products == 4  # two different eigenvalues
    assert repeated.weights.sum(axis=1) == pytest.approx(1)
    assert repeated.above(2.0)[0] == pytest.approx(2)
    operator = Matrix(rotated(spectrum))  # here probes differ
    kept: list = []
    counted: list = []
    whole = spectral_density(
        operator, 5, 6, on_probe=lambda done: kept.append(list(done)), on_product=lambda *n: counted.append(n)
    )
    assert counted == [(i, 30) for i in range(1, 31)]
    again = spectral_density(operator, 5, 6, known=kept[2])
    assert (again.nodes == whole.nodes).all()
    assert (again.weights == whole.weights).all()
    assert again.products == 15
    for steps, probes in ((0, 1), (1, 0)):
        with pytest.raises(CurvatureError, match="at least one of each"):
            spectral_density(operator, steps, probes)
