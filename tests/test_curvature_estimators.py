"""Lanczos and power iteration on operators whose spectrum is known.

What `Eigenvalues` says about itself is a theorem, so it is tested as one: residuals and `unseen` bound what they bound
at every step, for every eigenvector, and a stop is never wrong beyond what they leave open.
"""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from conftest import build
from landscape.curvature import (
    Hessian,
    Krylov,
    LinearOperator,
    Matrix,
    StopRule,
    eigenvalues,
    hutchinson,
    noisy,
    power_iteration,
    spectral_density,
)
from landscape.curvature.lanczos import MARGIN
from landscape.curvature.probes import gaussian
from landscape.curvature.trace import Budget
from landscape.errors import CurvatureError
from landscape.objective import TokenCrossEntropy, batches
from landscape.tokens import Windows
from landscape.weights import Weights

TIGHT = StopRule(1e-10, 1e-12)
_bulk = np.random.default_rng(9).standard_normal(400)
SPECTRA = {
    "top in steps of 4 %": np.r_[10 * 0.96 ** np.arange(6), 0.1 * _bulk[:54]],
    "as far down as up": np.r_[10, 7, -9.9, -6, _bulk[:40]],
    "a bulk near zero": np.r_[5, 3, -2, 1e-3 * _bulk[:50]],
    "spread evenly": np.linspace(-1, 3, 40),
    "all negative": -np.linspace(1, 8, 40),
}


class Diagonal(LinearOperator):
    def __init__(self, diagonal: Tensor) -> None:
        super().__init__(len(diagonal), diagonal.dtype, torch.device("cpu"))
        self.diagonal = diagonal

    def _multiply(self, rows: Tensor) -> Tensor:
        return rows * self.diagonal


def rotated(spectrum: np.ndarray, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A matrix with this spectrum, and its eigenvectors as rows."""
    rng = np.random.default_rng(seed)
    q = np.linalg.qr(rng.standard_normal((len(spectrum), len(spectrum))))[0]
    return torch.from_numpy((q * spectrum) @ q.T), torch.from_numpy(q.T.copy())


def vector(n: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng([77, seed]).standard_normal(n))


@pytest.mark.parametrize("which", ["top", "bottom"])
@pytest.mark.parametrize("name", SPECTRA)
def test_outer_eigenvalues_to_the_last_digits(name: str, which: str):
    spectrum = SPECTRA[name]
    matrix, _ = rotated(spectrum)
    found = eigenvalues(Matrix(matrix), vector(len(matrix)), 3, which, TIGHT)
    exact = np.linalg.eigh(matrix.numpy())[0]
    exact = exact[::-1][:3] if which == "top" else exact[:3]
    assert found.converged.all()
    assert found.which == which
    assert found.values == pytest.approx(exact, abs=1e-8 * np.abs(spectrum).max())
    assert (found.vectors @ found.vectors.T).numpy() == pytest.approx(np.eye(3), abs=1e-10)
    rayleigh = torch.einsum("kn,nm,km->k", found.vectors, matrix, found.vectors)
    assert found.values == pytest.approx(rayleigh.numpy(), abs=1e-9)


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("max_basis", [None, 8])
def test_residuals_are_those_of_the_vectors_and_bound_the_error(name: str, max_basis: int | None):
    matrix, _ = rotated(SPECTRA[name], 1)
    for products in (2, 4, 9, 14):
        found = eigenvalues(
            Matrix(matrix), vector(len(matrix)), 2, "top", StopRule(0, 0), products, max_basis=max_basis
        )
        assert not found.converged.any()
        assert found.products == products
        truth = (found.vectors @ matrix - torch.tensor(found.values.copy())[:, None] * found.vectors).norm(dim=1)
        assert found.residuals == pytest.approx(truth.numpy(), rel=1e-6, abs=1e-9)
        nearest = np.abs(SPECTRA[name][None] - found.values[:, None]).min(axis=1)
        assert (nearest <= found.residuals + 1e-12).all()


def test_one_copy_of_a_multiple_eigenvalue_and_the_next():
    """What a Krylov space can see: the projection of the start on each eigenspace."""
    spectrum = np.r_[5, 5, 5, 4, 4, 2, np.zeros(34)]
    matrix, _ = rotated(spectrum)
    found = eigenvalues(Matrix(matrix), vector(40), 3, rule=TIGHT)
    assert found.values == pytest.approx([5, 4, 2], abs=1e-8)
    assert found.products == 4  # four different eigenvalues


@pytest.mark.parametrize("which", ["top", "bottom"])
@pytest.mark.parametrize("max_basis", [6, 9, 15])
def test_thick_restart_agrees(which: str, max_basis: int):
    matrix, _ = rotated(SPECTRA["as far down as up"], 2)
    whole = eigenvalues(Matrix(matrix), vector(len(matrix)), 2, which, TIGHT, 400)
    sizes = []
    short = eigenvalues(
        Matrix(matrix),
        vector(len(matrix)),
        2,
        which,
        TIGHT,
        400,
        max_basis,
        on_product=lambda krylov: sizes.append(krylov.size),
    )
    assert short.converged.all()
    assert max(sizes) == max_basis
    assert short.values == pytest.approx(whole.values, abs=1e-8)
    assert (short.vectors * whole.vectors).sum(1).abs().numpy() == pytest.approx(1, abs=1e-8)
    # it goes on with the best, and knows what it has seen: not a start from nothing every few products
    assert short.products <= 2 * whole.products
    with pytest.raises(CurvatureError, match="need at least 5"):
        eigenvalues(Matrix(matrix), vector(len(matrix)), 2, max_basis=4)


def test_float32_vectors_lose_no_digits_to_their_length():
    rng = np.random.default_rng(3)
    diagonal = torch.from_numpy(np.r_[30, 28, 20, 9, -14, rng.standard_normal(19_995)]).float()
    seen = []

    def overlap(krylov: Krylov) -> None:
        basis = krylov.basis.double()
        seen.append(float((basis @ basis.T - torch.eye(krylov.size, dtype=torch.float64)).abs().max()))

    found = eigenvalues(
        Diagonal(diagonal), gaussian(20_000, diagonal, 0), 2, rule=StopRule(1e-5, 1e-10), on_product=overlap
    )
    assert found.converged.all()
    assert found.values == pytest.approx([30, 28], rel=1e-6)
    assert max(seen) < 1e-6


@pytest.mark.parametrize(("dtype", "allowed"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
def test_the_basis_stays_orthonormal(dtype: torch.dtype, allowed: float):
    """A spectrum away from zero: every product is mostly what is already there, so that errors would grow each step."""
    operator = Diagonal(-torch.linspace(1, 8, 400, dtype=dtype))
    krylov = Krylov.begin(gaussian(400, operator.diagonal, 0))
    for _ in range(60):
        krylov.extend(operator)
    basis = krylov.basis.double()
    assert float((basis @ basis.T - torch.eye(60, dtype=torch.float64)).abs().max()) < allowed
    values, _, _ = krylov.ritz()
    assert -8.00001 < values[-1] < values[0] < -0.99999
    assert krylov.projected == pytest.approx(
        (basis @ torch.diag(operator.diagonal).double() @ basis.T).numpy(), abs=1e-5
    )


def test_a_warm_start_is_cheap():
    matrix, rows = rotated(SPECTRA["top in steps of 4 %"])
    near = rows[0] + 1e-3 * vector(len(matrix)) / len(matrix) ** 0.5
    found = eigenvalues(Matrix(matrix), near)
    assert found.converged.all()
    assert found.products <= 3
    assert found.values[0] == pytest.approx(10, rel=1e-5)


@pytest.mark.parametrize("after", [1, 3, 10])
@pytest.mark.parametrize("max_basis", [None, 7])
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(after: int, max_basis: int | None):
    matrix, _ = rotated(SPECTRA["top in steps of 4 %"])
    saved: list[Krylov] = []

    def save(krylov: Krylov) -> None:
        saved.append(copy.deepcopy(krylov))

    whole = eigenvalues(Matrix(matrix), vector(60), rule=StopRule(1e-8, 1e-8), max_basis=max_basis, on_product=save)
    again = eigenvalues(
        Matrix(matrix), vector(60, 5), rule=StopRule(1e-8, 1e-8), max_basis=max_basis, krylov=saved[after - 1]
    )
    assert again.products == whole.products - after
    assert again.values == pytest.approx(whole.values, rel=1e-14)
    assert again.unseen == pytest.approx(whole.unseen, rel=1e-6)
    assert torch.allclose(again.vectors, whole.vectors, atol=1e-13)


def test_an_exhausted_space_ends_the_run():
    matrix, rows = rotated(SPECTRA["spread evenly"])
    alone = eigenvalues(Matrix(matrix), rows[7])
    assert (alone.products, alone.unseen) == (1, 0.0)
    assert alone.values[0] == pytest.approx(SPECTRA["spread evenly"][7])
    unit = eigenvalues(Matrix(2 * torch.eye(30)), gaussian(30, torch.empty(0), 0))
    assert (unit.products, unit.values[0]) == (1, pytest.approx(2))
    nothing = eigenvalues(Matrix(torch.zeros(30, 30)), gaussian(30, torch.empty(0), 0), 1)
    assert (nothing.products, nothing.values[0], bool(nothing.converged[0])) == (1, 0.0, True)
    small = torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    both = eigenvalues(Matrix(small), vector(2), 2, rule=StopRule(0, 0))
    assert both.values == pytest.approx([3, 1])
    assert both.converged.all()
    # a bulk narrower than a millionth of the whole is taken for one eigenvalue
    matrix, _ = rotated(np.r_[5, 3, -2, 1e-7 * _bulk[:50]])
    narrow = eigenvalues(Matrix(matrix), vector(53), 3, rule=TIGHT)
    assert narrow.products <= 5
    assert narrow.values == pytest.approx([5, 3, 0], abs=1e-6)
    one = eigenvalues(Matrix(torch.tensor([[-4.0]])), torch.ones(1))
    assert (one.values[0], one.residuals[0], one.products) == (-4.0, 0.0, 1)


def test_what_cannot_be_begun():
    operator = Matrix(torch.eye(5))
    for start in (torch.zeros(5), torch.full((5,), math.inf), torch.full((5,), math.nan)):
        with pytest.raises(CurvatureError, match="neither zero nor infinite"):
            eigenvalues(operator, start)
    for k in (0, 6, -1):
        with pytest.raises(CurvatureError, match="expected 1 to 5"):
            eigenvalues(operator, torch.ones(5), k)
    with pytest.raises(CurvatureError, match="non-finite"):
        eigenvalues(Matrix(torch.full((5, 5), math.nan)), torch.ones(5))


@pytest.mark.parametrize("which", ["top", "bottom"])
@pytest.mark.parametrize("max_basis", [None, 9])
def test_no_eigenvector_holds_more_of_the_start_than_unseen_says(which: str, max_basis: int | None):
    checked, tightest = 0, 0.0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        spectrum = np.r_[rng.standard_normal(30), 3, 4, 4.3]
        spectrum = spectrum if which == "top" else -spectrum
        matrix, rows = rotated(spectrum, seed)
        x = vector(33, seed)
        if seed % 2:  # hardly anything of the outliers in the start: they stay unseen for longer
            x = x - 0.9999 * (x @ rows[-3:].T) @ rows[-3:]
        shares = ((rows @ x) ** 2 / (x @ x)).numpy()

        def look(krylov: Krylov, spectrum=spectrum, shares=shares) -> None:
            nonlocal checked, tightest
            values, _, _ = krylov.ritz()
            margin = MARGIN * np.abs(values).max()
            out = spectrum > values[0] + margin if which == "top" else spectrum < values[-1] - margin
            for at, share in zip(spectrum[out], shares[out], strict=True):
                bound = krylov.unseen(at)
                assert share <= bound * (1 + 1e-9)
                checked, tightest = checked + 1, max(tightest, share / bound)

        eigenvalues(Matrix(matrix), x, 1, which, StopRule(0, 0), 25, max_basis, on_product=look)
    assert checked > 100
    assert tightest > 0.5  # a bound that is met, not one that is merely large


@pytest.mark.parametrize("angle", [0.1, 0.7, 1.3])
def test_unseen_is_the_share_itself_where_one_vector_is_left(angle: float):
    krylov = Krylov.begin(torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64))
    krylov.extend(Diagonal(torch.tensor([3.0, -1.0], dtype=torch.float64)))
    assert krylov.unseen(3.0) == pytest.approx(math.cos(angle) ** 2)
    assert krylov.unseen(-1.0) == pytest.approx(math.sin(angle) ** 2)


def test_a_hidden_eigenvector_keeps_the_run_going_unless_the_start_lacks_it():
    spectrum = np.r_[10, 6, 3, np.linspace(-1, 1, 47)]
    matrix, rows = rotated(spectrum)
    rest = vector(50) - (vector(50) @ rows[0]) * rows[0]
    x = rest / rest.norm() + 1e-5 * rows[0]  # a share of 1e-10
    flagged, patient = eigenvalues(Matrix(matrix), x), eigenvalues(Matrix(matrix), x, rule=StopRule(1e-2, 1e-11))
    # the run that allows for 1e-3 takes the second for the first, and says what it allowed for
    assert flagged.converged[0]
    assert flagged.values[0] == pytest.approx(6, rel=1e-3)
    assert 1e-10 < flagged.unseen <= 1e-3
    assert patient.converged[0]
    assert patient.values[0] == pytest.approx(10, rel=1e-3)
    # a start without it: no Krylov method can tell, and the statement is true all the same
    spectrum = torch.from_numpy(spectrum)
    blind = eigenvalues(Diagonal(spectrum), torch.cat([torch.zeros(1), torch.ones(49)]).double(), rule=TIGHT)
    assert blind.converged[0]
    assert blind.values[0] == pytest.approx(6, abs=1e-8)
    assert blind.unseen <= 1e-12


def outliers() -> list[np.ndarray]:
    spectra = [np.r_[10 * (1 - gap) ** np.arange(8), 0.3 * _bulk[:392]] for gap in (0.04, 0.1, 0.2, 0.4)]
    return [*spectra, np.r_[10, 9.6, 9.2, 5, 3, -9.5, -6, 2, 0.3 * _bulk[:392]]]


@pytest.mark.parametrize("held", [0.0, 0.3])
def test_a_stop_is_wrong_only_by_what_the_rule_leaves_open(held: float):
    """Spectra like a language model's: a few outliers, a bulk. `held` is the outliers' share of the start."""
    off, wrong = [], 0
    for spectrum in outliers():
        operator = Diagonal(torch.from_numpy(spectrum))
        for seed in range(100):
            x = np.random.default_rng([seed, 1]).standard_normal(400)
            x /= np.linalg.norm(x)
            x[:8] = math.sqrt(1 - held) * x[:8] + math.sqrt(held / 8) * np.sign(x[:8])
            found = eigenvalues(operator, torch.from_numpy(x))
            assert found.converged[0]
            assert found.products < 40
            error = 1 - found.values[0] / 10
            off.append(error)
            # beyond the margin only where the start holds no more of the top than the rule allowed for
            wrong += error > MARGIN and x[0] ** 2 / (x @ x) > found.unseen
            assert found.unseen <= 1e-3
    assert wrong == 0
    if held:
        assert max(off) < 0.01
    assert np.mean(np.array(off) > 0.01) < 0.05


def test_power_iteration_finds_the_largest_magnitude():
    matrix, rows = rotated(np.r_[5, 2, -9, 1, np.linspace(-0.5, 0.5, 36)])
    operator = Matrix(matrix)
    found = power_iteration(operator, 3, tolerance=1e-13, max_products=400)
    assert found.values == pytest.approx([-9, 5, 2], abs=1e-6)
    assert found.converged.all()
    assert found.products == operator.products
    assert (found.vectors @ rows[[2, 0, 1]].T).abs().numpy() == pytest.approx(np.eye(3), abs=1e-4)
    truth = (found.vectors @ matrix - torch.tensor(found.values.copy())[:, None] * found.vectors).norm(dim=1)
    assert found.residuals == pytest.approx(truth.numpy(), rel=1e-6, abs=1e-9)
    with pytest.raises(CurvatureError, match="expected another start"):
        power_iteration(operator, start=torch.zeros(40, dtype=torch.float64))


def test_power_iteration_stops_too_early_where_lanczos_does_not():
    """A pair 2 % apart, and a start that leans to the second: small changes long before the right value."""
    spectrum = np.r_[10.0, 9.0, np.linspace(-2, 2, 58)]
    matrix, rows = rotated(spectrum)
    start = rows[1] + 0.03 * rows[0] + 0.1 * vector(60) / 60**0.5
    power = power_iteration(Matrix(matrix), tolerance=1e-3, start=start)
    assert power.converged[0]
    assert power.values[0] < 9.1
    lanczos = eigenvalues(Matrix(matrix), start, rule=StopRule(1e-3, 1e-4))
    assert lanczos.converged[0]
    assert lanczos.values[0] == pytest.approx(10, rel=1e-3)


def tiny() -> tuple[TokenCrossEntropy, Weights]:
    model = build("gpt_neox", hidden_size=16, num_hidden_layers=1, intermediate_size=16, vocab_size=40).double()
    ids = torch.randint(40, (6, 10), generator=torch.Generator().manual_seed(0))
    return TokenCrossEntropy(model, batches(Windows(ids, torch.full((6,), 10)), 2)), Weights.of(model)


def test_the_hessian_of_a_language_model():
    objective, weights = tiny()
    hessian = Hessian(objective, weights, "*attention.dense*")
    dense = (hessian @ torch.eye(hessian.n, dtype=torch.float64)).numpy()
    exact = np.linalg.eigh((dense + dense.T) / 2)[0]
    for which, wanted in (("top", exact[::-1][:2]), ("bottom", exact[:2])):
        found = eigenvalues(hessian, noisy(hessian.gradient(), 0), 2, which, StopRule(1e-8, 1e-8), 200)
        assert found.converged.all()
        assert found.values == pytest.approx(wanted, rel=1e-7)
    quick = eigenvalues(hessian, noisy(hessian.gradient(), 0))
    assert quick.values[0] == pytest.approx(exact[-1], rel=0.01)
    trace = hutchinson(hessian, Budget(0.0, 24, 24))
    assert abs(trace.value - np.trace(dense)) < 4 * trace.standard_error
    value, error = spectral_density(hessian, 10, 12).moment(1)
    assert abs(value - np.trace(dense) / hessian.n) < 4 * error
