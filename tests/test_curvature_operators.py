"""Operators against dense float64 matrices, formulas by hand and other packages; what they refuse; their algebra."""

from __future__ import annotations

import dataclasses
import math

import oracles
import pytest
import torch
from oracles import NAMES, block, case, close, objective_of, single
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from landscape.curvature import DifferenceHessian, GaussNewton, Hessian, Matrix, ParameterSpace, Preconditioned, along
from landscape.curvature import vectors as vec
from landscape.curvature.adam import diagonal_from_gradients, diagonal_from_state
from landscape.curvature.memory import available, graph_bytes
from landscape.errors import CurvatureError
from landscape.objective import Batch
from landscape.tokens import Windows
from landscape.weights import Weights

EXACT = 1e-13  # what float64 leaves of a product, relative to its length
DIFFERENCES = 1e-7  # what two step sizes leave: the fourth power of a step
SINGLE = 3e-6  # float32
REVERSE = [{"keep": keep, "workers": workers} for keep in (True, False) for workers in (1, 2)]
EVERY = [(Hessian, {}), (Hessian, {"keep": False}), (Hessian, {"product": "forward"}), (GaussNewton, {})]
KINDS = pytest.mark.parametrize(("kind", "options"), EVERY, ids=["kept", "rebuilt", "forward", "gauss-newton"])
MODELS = pytest.mark.parametrize("name", NAMES)


def operator(kind, name: str, size: int = 2, **options):
    return kind(case(name).objective(size), case(name).weights, **options)


def dense(kind, name: str) -> torch.Tensor:
    return case(name).gauss_newton if kind is GaussNewton else case(name).hessian


@pytest.fixture(autouse=True)
def process():
    """One thread, as matrices this small wait for a second one; attention kernels are those of the whole process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.backends.cuda.enable_flash_sdp(True)
    torch.backends.cuda.enable_mem_efficient_sdp(True)


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
def test_differences_reach_seven_digits(name):
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


@pytest.mark.parametrize(("only", "chosen"), SUBSETS, ids=str)
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


def test_kept_graphs_rebuilt_ones_and_release_agree():
    v = block(len(case("llama").gradient))
    for kind in (Hessian, GaussNewton):
        kept, rebuilt = operator(kind, "llama", keep=True), operator(kind, "llama", keep=False)
        first = kept @ v
        assert torch.equal(kept @ v, first) and torch.equal(rebuilt @ v, first)
        assert kept._kept and not rebuilt._kept
        kept.release()
        assert kept._kept is None
        assert torch.equal(kept @ v, first)
        assert operator(kind, "llama").keeps  # so small that it fits


@pytest.mark.parametrize("only", ["*", "*h.0.mlp*"])
def test_training_on_does_not_disturb_an_operator(only):
    model = oracles.double(oracles.tiny("gpt2"))
    objective = objective_of(model, case("gpt2").data, 2, torch.float64)
    made = [kind(objective, Weights.of(model), only, **o) for kind, o in [*EVERY, (DifferenceHessian, {})]]
    v = block(made[0].n)
    before = [A @ v for A in made]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    for A, product in zip(made, before, strict=True):
        assert close(A @ v, product) < DIFFERENCES


def test_attention_kernels_and_threads_are_as_before():
    H, threads = operator(Hessian, "mlp", workers=2), torch.get_num_threads()
    for _ in range(15):
        H @ block(H.n, 40)
    assert torch.get_num_threads() == threads
    assert torch.backends.cuda.flash_sdp_enabled() and torch.backends.cuda.mem_efficient_sdp_enabled()


NAN = pytest.param(torch.full((233,), math.nan).double(), "finite")


@pytest.mark.parametrize(
    ("vector", "words"),
    [
        (torch.zeros(7).double(), r"shape \(7,\).*expected \(233,\)"),
        (torch.zeros(3, 233).double(), r"shape \(3, 233\)"),
        (torch.zeros(233), "float32.*expected torch.float64"),
        NAN,
    ],
)
def test_vectors_that_do_not_fit(vector, words):
    with pytest.raises(CurvatureError, match=words):
        operator(Hessian, "mlp") @ vector


@pytest.mark.parametrize(("kind", "options"), [*EVERY, (DifferenceHessian, {})], ids=str)
def test_points_without_a_finite_loss(kind, options):
    objective, weights = case("mlp").objective(), case("mlp").weights
    with pytest.raises(CurvatureError, match=r"(loss|gradient) of batch 0 is (nan|not finite)"):
        kind(objective, weights * math.nan, **options) @ block(233)
    x, y = objective.batches[2]
    objective.batches[2] = (x * math.inf, y)
    with pytest.raises(CurvatureError, match="of batch 2 is"):
        kind(objective, weights, **options) @ block(233)


@pytest.mark.parametrize("kind", [Hessian, GaussNewton, DifferenceHessian])
def test_selections_that_make_no_operator(kind):
    objective, weights = objective_of(*single("gpt2"), 2, torch.float32), Weights.of(single("gpt2")[0])
    with pytest.raises(CurvatureError, match=r"nothing\*.*match none.*transformer\.wte"):
        kind(objective, weights, "nothing*")
    with pytest.raises(CurvatureError, match=r"wte.weight is bfloat16.*float32 or float64"):
        kind(objective, Weights({name: tensor.bfloat16() for name, tensor in weights.items()}))
    with pytest.raises(CurvatureError, match=r"(without batches|no target)"):
        kind(dataclasses.replace(objective, batches=[]), weights)
    with pytest.raises(CurvatureError, match="product sideways"):
        Hessian(objective, weights, product="sideways")


ALL = [Hessian, GaussNewton, DifferenceHessian]


@pytest.mark.parametrize("kind", ALL)
def test_dropout_is_refused(kind):
    model, data = single("gpt2")
    with pytest.raises(CurvatureError, match=r"random.*evaluation mode"):
        kind(objective_of(model.train(), data, 2, torch.float32), Weights.of(model))


@pytest.mark.parametrize("kind", ALL)
def test_out_of_memory_is_explained(kind):
    with pytest.raises(CurvatureError, match=r"out of memory.*lower the batch size"):
        kind(oracles.OutOfMemory(), case("mlp").weights)


def test_a_compiled_model_is_explained_and_differences_work():
    known = case("gpt2")
    objective = dataclasses.replace(known.objective(), model=torch.compile(known.model, backend="aot_eager"))
    weights, v = Weights.of(objective.model), block(len(known.gradient), 1)
    with pytest.raises(CurvatureError, match=r"before torch\.compile.*difference"):
        Hessian(objective, weights) @ v
    assert close(DifferenceHessian(objective, weights) @ v, known.hessian @ v) < DIFFERENCES


@KINDS
def test_a_kernel_without_second_derivative_is_explained(kind, options):
    model = oracles.Flash(oracles.tiny("gpt2"))
    A = kind(objective_of(model, case("gpt2").data, 2, torch.float32), Weights.of(model), **options)
    with pytest.raises(CurvatureError, match=r"no second derivative.*attention"):
        A @ torch.ones(A.n)


@pytest.mark.parametrize("kind", [Hessian, GaussNewton])
def test_a_function_that_is_differentiable_once_is_refused(kind):
    model = nn.Sequential(nn.Linear(7, 6), oracles.Squared(6, 5)).double()
    with pytest.raises(CurvatureError, match="second derivative"):
        A = kind(objective_of(model, case("mlp").data, 4, torch.float64), Weights.of(model))
        A @ block(A.n)


@pytest.mark.parametrize(("kind", "options"), [*EVERY, (DifferenceHessian, {})], ids=str)
def test_parameters_the_loss_does_not_depend_on_have_no_curvature(kind, options):
    model = nn.Linear(7, 5).double()
    model.register_parameter("idle", nn.Parameter(torch.ones(3).double()))
    A = kind(objective_of(model, case("mlp").data, 4, torch.float64), Weights.of(model), "idle", **options)
    assert not (A @ block(3)).any()


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


def test_memory():
    H, data = operator(Hessian, "gpt2"), case("gpt2").data
    cut = [Batch(data.ids[:size], data.lengths[:size]) for size in (1, 2, 4)]
    sizes = [graph_bytes(lambda batch=batch: H._differentiate(batch)) for batch in cut]
    assert 0 < sizes[0] < sizes[1] < sizes[2] < 4.1 * sizes[0]
    assert available(torch.device("cpu")) > 0


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
