"""Blocks that recompute give the same derivatives, first and second, and hold less."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.func import functional_call

from landscape.curvature import GaussNewton, Hessian
from landscape.decoder.recompute import recomputing
from landscape.errors import CurvatureError
from landscape.objective import TokenCrossEntropy
from landscape.weights import Weights
from oracles import block, close, double, objective_of, tiny, tiny_data

pytestmark = pytest.mark.usefixtures("process")
MODELS = pytest.mark.parametrize("name", ["gpt_neox", "llama", "gpt2"])
LAYERS = {"gpt_neox": "num_hidden_layers", "llama": "num_hidden_layers", "gpt2": "n_layer"}


def pair(name: str, dtype: torch.dtype = torch.float64) -> tuple[Weights, TokenCrossEntropy, TokenCrossEntropy]:
    """Weights of a model of three blocks, its objective, and the one that recomputes."""
    model = tiny(name, **{LAYERS[name]: 3})
    model = double(model) if dtype == torch.float64 else model
    plain = objective_of(model, tiny_data(name), 2, dtype)
    assert isinstance(plain, TokenCrossEntropy)
    return Weights.of(model), plain, replace(plain, recomputes=True)


@MODELS
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("kind", [Hessian, GaussNewton])
def test_products_are_the_same(name, kind, keep):
    weights, plain, lean = pair(name)
    expected, found = kind(plain, weights), kind(lean, weights, keep=keep)
    v = block(expected.n, 3)
    for _ in range(2):  # the second time from kept graphs
        assert close(found @ v, expected @ v) < 1e-13
    assert close(found.gradient(), expected.gradient()) < 1e-14
    assert found.loss() == pytest.approx(expected.loss(), rel=1e-15)


@MODELS
def test_over_some_of_the_parameters(name):
    """The first block without a parameter to differentiate, and blocks with some."""
    weights, plain, lean = pair(name)
    for only in (["*.2.*"], ["*.1.*weight", "!*norm*"], ["*norm*", "*ln_*"]):
        expected, found = Hessian(plain, weights, only), Hessian(lean, weights, only)
        v = block(expected.n, 2)
        assert close(found @ v, expected @ v) < 1e-13


@MODELS
def test_autocast_is_remembered(name):
    """A block that is run again outside of the forward pass must round as it did the first time."""
    weights, plain, lean = pair(name, torch.bfloat16)
    v = block(Hessian(plain, weights).n, 1, torch.float32)[:, 0]
    expected, found = Hessian(plain, weights) @ v, Hessian(lean, weights) @ v
    exact = Hessian(replace(plain, dtype=torch.float32), weights) @ v
    assert close(found, expected) < 0.3 * close(expected, exact)


def test_a_graph_holds_the_inputs_of_blocks_and_little_else():
    _, plain, lean = pair("llama")
    deep = tiny("llama", num_hidden_layers=12)
    sizes = {}
    for depth, model in ((3, plain.model), (12, double(deep))):
        for objective in (plain, lean):
            operator = Hessian(replace(objective, model=model), Weights.of(model))
            sizes[depth, objective.recomputes] = operator.graph_bytes()
    per_block = {recomputes: (sizes[12, recomputes] - sizes[3, recomputes]) / 9 for recomputes in (False, True)}
    inputs = 8 * plain.batches[0].ids.numel() * 8  # float64, 8 channels
    assert per_block[True] < 4 * inputs < 0.1 * per_block[False]


def test_losses_need_no_graph():
    weights, plain, lean = pair("gpt_neox")
    with torch.no_grad():
        assert torch.equal(lean(weights, lean.batches[0])[0], plain(weights, plain.batches[0])[0])


class Odd(nn.Module):
    """A block with a keyword, a tuple in, a dictionary out, and an output that is no tensor to differentiate."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("scale", torch.tensor(0.7))

    def forward(self, x, pair, *, gain, flag=True):
        y = torch.tanh(self.linear(x) * pair[0]) + pair[1] * self.scale
        return {"y": y * gain, "index": y.argmax(-1), "note": "kept", "x": x if flag else None}


def test_blocks_of_any_signature():
    torch.manual_seed(0)
    odd = Odd().double()
    x, a, b, gain = (torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(4))
    leaves = [x, a, b, gain, *odd.parameters()]
    directions = [torch.randn_like(leaf) for leaf in leaves]

    def second() -> list[torch.Tensor]:
        out = functional_call(odd, dict(odd.named_parameters()), (x, (a, b)), {"gain": gain})
        assert out["note"] == "kept" and out["index"].dtype == torch.int64
        first = torch.autograd.grad((out["y"] ** 3 + out["x"]).sum(), leaves, create_graph=True)
        assert all(part.requires_grad for part in first)
        return [*first, *torch.autograd.grad(first, leaves, directions)]

    expected = second()
    with recomputing([odd]):
        found = second()
    assert "forward" not in vars(odd)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-13, atol=1e-13)


def test_a_forward_product_is_refused():
    weights, _, lean = pair("gpt_neox")
    with pytest.raises(CurvatureError, match=r"forward product.*recomputes.*reverse"):
        Hessian(lean, weights, product="forward")
