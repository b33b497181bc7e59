"""Products of operators against dense float64 matrices, a formula by hand and other packages."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import oracles
from landscape.curvature import DifferenceHessian, GaussNewton, Hessian, ParameterSpace
from landscape.errors import CurvatureError
from landscape.objective import Batch
from landscape.tokens import Windows
from landscape.weights import Weights
from operators import DIFFERENCES, EVERY, EXACT, KINDS, operator
from oracles import NAMES, block, case, close, objective_of, single

pytestmark = pytest.mark.usefixtures("process")

SINGLE = 3e-6  # float32
REVERSE = [{"keep": keep, "workers": workers} for keep in (True, False) for workers in (1, 2)]
MODELS = pytest.mark.parametrize("name", NAMES)


def dense(kind, name: str) -> torch.Tensor:
    return case(name).gauss_newton if kind is GaussNewton else case(name).hessian


@MODELS
def test_the_dense_matrices_are_what_they_should_be(name):
    known = case(name)
    for matrix in (known.hessian, known.gauss_newton):
        assert close(matrix.T, matrix) < EXACT  # float32 anywhere would leave 1e-7
    assert torch.linalg.eigvalsh(known.gauss_newton).min() > -1e-12
    assert close(known.gauss_newton, known.hessian) > 0.1
    assert len(known.gradient) == ParameterSpace.select(known.weights).n  # a tied head once


@pytest.mark.parametrize(
    ("kind", "options"),
    [(kind, options) for kind in (Hessian, GaussNewton) for options in REVERSE] + [(Hessian, {"product": "forward"})],
    ids=str,
)
@MODELS
def test_products_equal_the_dense_ones(name, kind, options):
    A, v = operator(kind, name, **options), block(len(case(name).gradient), 5)
    assert close(A @ v, dense(kind, name) @ v) < EXACT
    assert close(A @ v[:, 0], dense(kind, name) @ v[:, 0]) < EXACT  # one vector takes another path than a block
    assert A.products == 6


@MODELS
def test_differences_reach_ten_digits(name):
    H, v = operator(DifferenceHessian, name), block(len(case(name).gradient), 4)
    assert close(H @ v, case(name).hessian @ v) < DIFFERENCES
    assert 0 < H.disagreement < 1e-3
    assert close(H.gradient(), case(name).gradient) < EXACT
    assert not (H @ torch.zeros(H.n, dtype=H.dtype)).any()


def test_softmax_regression_has_a_closed_form():
    torch.manual_seed(0)
    x, y, eye = torch.randn(9, 4, dtype=torch.float64), torch.randint(3, (9,)), torch.eye(12, dtype=torch.float64)
    model = nn.Linear(4, 3, bias=False).double()
    p = (x @ model.weight.T).softmax(-1).detach()
    s = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    expected = torch.einsum("ncd,ni,nj->cidj", s, x, x).reshape(12, 12) / 9
    objective = objective_of(model, (x, y), 4, torch.float64)
    for kind, options in EVERY:
        assert close(kind(objective, Weights.of(model), **options) @ eye, expected) < EXACT
    assert close(DifferenceHessian(objective, Weights.of(model)) @ eye, expected) < DIFFERENCES


@KINDS
@MODELS
def test_float32_products_have_six_digits_and_leave_the_model_alone(name, kind, options):
    (model, data), v = single(name), block(len(case(name).gradient), dtype=torch.float32)
    before = Weights.of(model).fingerprint()
    product = kind(objective_of(model, data, 2, torch.float32), Weights.of(model), **options) @ v
    assert product.dtype == torch.float32
    assert close(product, dense(kind, name) @ v.double()) < SINGLE
    assert Weights.of(model).fingerprint() == before
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("name", oracles.LANGUAGE)
def test_bfloat16_products_are_close_and_float32(name):
    (model, data), v = single(name), block(len(case(name).gradient), dtype=torch.float32)
    objective = objective_of(model, data, 2, torch.bfloat16)
    found = Hessian(objective, Weights.of(model)) @ v
    assert found.dtype == torch.float32
    assert 1e-4 < close(found, case(name).hessian @ v.double()) < 0.08
    with pytest.raises(CurvatureError, match=r"autocast.*reverse"):
        Hessian(objective, Weights.of(model), product="forward") @ v


@KINDS
@pytest.mark.parametrize("name", ["mlp", "llama"])
def test_blocks_symmetry_and_linearity(name, kind, options):
    A, v = operator(kind, name, **options), block(len(case(name).gradient), 3)
    product = A @ v
    assert product.shape == v.shape and product.T.is_contiguous()
    assert close(torch.stack([A @ column for column in v.T], 1), product) < EXACT
    inner = v.T @ product
    assert (inner - inner.T).abs().max() < 1e-12 * inner.abs().max()
    assert close(A @ (v[:, 0] - 2 * v[:, 1]), product[:, 0] - 2 * product[:, 1]) < EXACT
    for length in (1e-3, 1.0, 1e3):
        assert close(A @ (length * v), length * product) < EXACT


def test_differences_do_not_depend_on_the_length_of_the_vector():
    model, data = oracles.trained()
    objective, weights = objective_of(model, data, 2, torch.float32), Weights.of(model)
    exact, v = Hessian(objective, weights), block(weights.numel(), 1, torch.float32)[:, 0]
    for u in (v, exact @ (exact @ (exact @ (exact @ v)))):  # a random direction, and a sharp one
        expected = exact @ (u / u.norm())
        for length in (1e-3, 1.0, 1e3):
            product = DifferenceHessian(objective, weights) @ (length * u / u.norm())
            assert close(product / length, expected) < 5e-3


@KINDS
@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("name", ["mlp", "gpt_neox"])
def test_batches_and_parts(name, size, kind, options):
    known, A = case(name), operator(kind, name, size, **options)
    v = block(A.n)
    assert close(A @ v, dense(kind, name) @ v) < EXACT
    parts = A.parts()
    assert len(parts) == len(A.objective.batches)
    assert close(sum(part @ v for part in parts), dense(kind, name) @ v) < EXACT
    for asked in (A, operator(kind, name, size, **options)):  # after a product, and before any
        assert asked.loss() == pytest.approx(known.loss, rel=1e-13)
        assert close(asked.gradient(), known.gradient) < EXACT
        assert asked.count() == (11 if name == "mlp" else 15)


@KINDS
def test_a_batch_without_targets_adds_nothing(kind, options):
    whole, weights, v = case("gpt2").objective(), case("gpt2").weights, block(len(case("gpt2").gradient))
    empty = Batch(whole.batches[0].ids[:, :1], torch.tensor([1, 1]))
    more = dataclasses.replace(whole, batches=[empty, *whole.batches])
    assert close(kind(more, weights, **options) @ v, dense(kind, "gpt2") @ v) < EXACT
    with pytest.raises(CurvatureError, match="no target"):
        kind(dataclasses.replace(whole, batches=[empty]), weights, **options) @ v


SUBSETS = [
    ("*mlp*", lambda name: "mlp" in name),
    (["!*embed*", "!*norm*"], lambda name: "embed" not in name and "norm" not in name),
    (["*.bias", "*proj*", "!*up*"], lambda name: name.endswith(".bias") or ("proj" in name and "up" not in name)),
]


@pytest.mark.parametrize(("only", "chosen"), SUBSETS, ids=["mlp", "inner", "biases and projections"])
@pytest.mark.parametrize("name", ["llama", "gpt_neox"])
def test_subsets_are_blocks_of_the_whole(name, only, chosen):
    known = case(name)
    mask = torch.cat([torch.full((p.numel(),), chosen(key)) for key, p in known.model.named_parameters()])
    v = block(int(mask.sum()))
    assert 0 < len(v) < len(mask)
    for kind, options in EVERY:
        A = operator(kind, name, only=only, **options)
        assert close(A @ v, dense(kind, name)[mask][:, mask] @ v) < EXACT
        assert close(A.gradient(), known.gradient[mask]) < EXACT
    assert close(operator(DifferenceHessian, name, only=only) @ v, known.hessian[mask][:, mask] @ v) < DIFFERENCES


@pytest.mark.parametrize(("kind", "options"), [(Hessian, {"product": "forward"}), (DifferenceHessian, {})])
def test_a_padding_token_in_the_data_is_the_same_in_every_product(kind, options):
    objective = oracles.padded()
    weights, v = Weights.of(objective.model), block(len(case("llama").gradient))
    product = Hessian(objective, weights) @ v
    assert (v.T @ product - product.T @ v).abs().max() < 1e-12 * (v.T @ product).abs().max()
    assert close(kind(objective, weights, **options) @ v, product) < DIFFERENCES


@pytest.mark.parametrize(("kind", "options"), [*EVERY, (DifferenceHessian, {})], ids=str)
def test_parameters_the_loss_does_not_depend_on_have_no_curvature(kind, options):
    model = nn.Linear(7, 5).double()
    model.register_parameter("idle", nn.Parameter(torch.ones(3).double()))
    A = kind(objective_of(model, case("mlp").data, 4, torch.float64), Weights.of(model), "idle", **options)
    assert not (A @ block(3)).any()


@pytest.mark.oracle
@pytest.mark.parametrize("name", ["mlp", "gpt2"])
def test_curvlinops_has_the_same_products(name):
    curvlinops = pytest.importorskip("curvlinops")
    known = case(name)
    model, ours, v = known.model, known.objective(4), block(len(known.gradient), 1)[:, 0]
    data = ours.batches
    if name == "gpt2":  # it knows no padding: windows of one length
        windows = Windows(known.data.ids, torch.full_like(known.data.lengths, known.data.ids.shape[1]))
        model, data = oracles.Flat(model), [(windows.ids, windows.ids[:, 1:].flatten())]
        ours = objective_of(known.model, windows, 2, torch.float64)
    for kind, theirs in ((Hessian, "HessianLinearOperator"), (GaussNewton, "GGNLinearOperator")):
        A = kind(ours, known.weights)
        with sdpa_kernel(SDPBackend.MATH):
            op = getattr(curvlinops, theirs)(model, nn.CrossEntropyLoss(), list(model.parameters()), data)
            product, expected = A.space.unflatten(A @ v), A.space.unflatten(op @ v)
        for key in product:
            # curvlinops 3.0.1 takes jvp of jacrev, which is wrong for the weights of layer norms in torch 2.13
            if kind is GaussNewton or not ("ln_" in key or key.startswith("1.")):
                assert close(product[key], expected[key]) < 1e-10


@pytest.mark.oracle
def test_pyhessian_has_the_same_top_eigenvalue():
    pyhessian = pytest.importorskip("pyhessian")
    model, data = single("mlp")
    A = Hessian(objective_of(model, data, 4, torch.float32), Weights.of(model))
    values = torch.linalg.eigvalsh((A @ torch.eye(A.n)).double())
    torch.manual_seed(0)
    theirs = pyhessian.hessian(model, nn.CrossEntropyLoss(), data=data, cuda=False).eigenvalues(2000, 1e-7)[0][0]
    assert theirs == pytest.approx(float(values[values.abs().argmax()]), rel=1e-4)


@pytest.mark.oracle
def test_hessian_eigenthings_has_the_same_products():
    theirs = pytest.importorskip("hessian_eigenthings")
    model, batches, loss, v = case("mlp").model, [case("mlp").data], nn.CrossEntropyLoss(), block(233, 1)[:, 0]
    hessian = theirs.HessianOperator(model, batches, theirs.supervised_loss(loss)) @ v
    assert close(operator(Hessian, "mlp") @ v, hessian) < 1e-10
    of_output = theirs.supervised_loss_of_output(loss)
    gauss_newton = theirs.GGNOperator(model, batches, theirs.supervised_forward, of_output) @ v
    assert close(operator(GaussNewton, "mlp") @ v, gauss_newton.detach()) < 1e-10
