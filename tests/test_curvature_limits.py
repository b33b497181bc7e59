"""Limits of an operator: the graphs it holds and their memory, what it leaves as it was, and what it refuses."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import nn

import oracles
from landscape.curvature import DifferenceHessian, GaussNewton, Hessian
from landscape.curvature.memory import sized
from landscape.errors import CurvatureError
from landscape.machine.memory import available
from landscape.objective import Batch
from landscape.weights import Weights
from operators import DIFFERENCES, EVERY, KINDS, operator
from oracles import block, case, close, objective_of, single

pytestmark = pytest.mark.usefixtures("process")


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


def test_memory():
    H, data = operator(Hessian, "gpt2"), case("gpt2").data
    cut = [Batch(data.ids[:size], data.lengths[:size]) for size in (1, 2, 4)]
    sizes = [sized(lambda batch=batch: H._differentiate(batch))[1] for batch in cut]
    assert 0 < sizes[0] < sizes[1] < sizes[2] < 4.1 * sizes[0]
    assert available(torch.device("cpu")) > 0


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
