"""Updates against formulas worked out here, in float64: who decays and by how much, who is Muon's, and the ascent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from conftest import build as model_of
from landscape.errors import OptionError
from landscape.training import optimizers
from landscape.training.optimizers import SETTINGS, Updater, ascended, build, check

PEAK, DECAY = 1e-2, 0.3
RATES = [PEAK / 3, PEAK, PEAK, 7e-3, 1e-4, 2e-3]
# what a step takes from Θ first, of (λ, η, η_max)
SHRINKS: dict[str, Callable[[float, float, float], float]] = {
    "adamw": lambda decay, rate, peak: rate * decay,
    "adamlh": lambda decay, rate, peak: rate * decay / peak,
    "adamc": lambda decay, rate, peak: rate**2 * decay / peak,
}
pytestmark = pytest.mark.usefixtures("process")
KINDS = tuple(SETTINGS)
MODELS = ("gpt_neox", "llama-tied-gqa", "gpt2")


def double(name: str = "gpt_neox") -> nn.Module:
    """A small real model in float64, whose norms and biases are no longer 1 and 0."""
    model = model_of(name).double()
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            if parameter.ndim < 2:
                parameter += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index))
    return model


def parameters_of(updater: Updater) -> list[nn.Parameter]:
    return [parameter for part in updater.parts for group in part.param_groups for parameter in group["params"]]


def copied(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def gradients(model: nn.Module, step: int) -> dict[str, torch.Tensor]:
    """Random ones, put into the model as well; of very different sizes, some of them zero."""
    generator = torch.Generator().manual_seed(step)
    found = {}
    for name, parameter in model.named_parameters():
        size = 10.0 ** torch.randint(-6, 3, parameter.shape, generator=generator)
        found[name] = torch.randn(parameter.shape, generator=generator).to(parameter.dtype) * size
        found[name][torch.rand(parameter.shape, generator=generator) < 0.1] = 0
        parameter.grad = found[name].clone()
    return found


def close(found: torch.Tensor, expected: np.ndarray) -> bool:
    return np.allclose(found.detach().numpy(), expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", SHRINKS)
def test_adam_shrinks_the_matrices_by_its_own_rule_and_then_takes_adams_step(kind: str, fused: bool):
    model = double()
    settings = {"kind": kind, "peak": PEAK, "weight_decay": DECAY, "betas": [0.8, 0.9], "eps": 1e-4, "fused": fused}
    updater = build(model, settings)
    assert [part.defaults["fused"] for part in updater.parts] == [True if fused else None]
    weights = {name: each.numpy() for name, each in copied(model).items()}
    first = {name: np.zeros_like(each) for name, each in weights.items()}
    second = {name: np.zeros_like(each) for name, each in weights.items()}
    for step, rate in enumerate(RATES, start=1):
        for name, gradient in gradients(model, step).items():
            g = gradient.numpy()
            if g.ndim == 2:
                weights[name] = (1 - SHRINKS[kind](DECAY, rate, PEAK)) * weights[name]
            first[name] = 0.8 * first[name] + 0.2 * g
            second[name] = 0.9 * second[name] + 0.1 * g * g
            root = np.sqrt(second[name] / (1 - 0.9**step))
            weights[name] = weights[name] - rate * first[name] / (1 - 0.8**step) / (root + 1e-4)
        updater.step(rate)
        for name, parameter in model.named_parameters():
            assert close(parameter, weights[name]), (step, name)


def test_the_decay_as_torch_takes_it_follows_the_rate_as_each_rule_says():
    decays = {kind: build(double(), {"kind": kind, "peak": 0.5, "weight_decay": 0.2}).decay for kind in SHRINKS}
    assert [decay(0.5) for decay in decays.values()] == pytest.approx([0.2, 0.4, 0.2])
    assert [decay(0.25) for decay in decays.values()] == pytest.approx([0.2, 0.4, 0.1])


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("momentum", [0.9, 0.5])
def test_sgd_sums_its_gradients(momentum: float, nesterov: bool):
    model = double()
    own = {"kind": "sgd", "peak": 0.1, "weight_decay": DECAY, "momentum": momentum, "nesterov": nesterov}
    updater = build(model, own)
    weights = {name: each.numpy() for name, each in copied(model).items()}
    sums = {name: np.zeros_like(each) for name, each in weights.items()}
    for step, rate in enumerate(RATES):
        for name, gradient in gradients(model, step).items():
            g = gradient.numpy() + (DECAY * weights[name] if gradient.ndim == 2 else 0)
            sums[name] = momentum * sums[name] + g
            weights[name] = weights[name] - rate * (g + momentum * sums[name] if nesterov else sums[name])
        updater.step(rate)
    for name, parameter in model.named_parameters():
        assert close(parameter, weights[name]), name


def test_sgd_of_a_constant_gradient_in_closed_form():
    model = double()
    before, n = copied(model), 7
    updater = build(model, {"kind": "sgd", "peak": 0.1, "momentum": 0.5})
    for _ in range(n):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 3.0)
        updater.step(0.01)
    moved = 0.01 * 3 * sum(2 - 0.5**k for k in range(n))  # Σₖ (1 − μᵏ⁺¹)/(1 − μ)
    for name, parameter in model.named_parameters():
        assert close(parameter, before[name].numpy() - moved), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_without_gradient_matrices_shrink_and_norms_and_biases_stay_to_the_bit(kind: str, name: str):
    model = double(name)
    updater = build(model, {"kind": kind, "peak": PEAK, "weight_decay": DECAY})
    before = copied(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    updater.step(PEAK / 2)
    shrink = SHRINKS.get(kind, SHRINKS["adamw"])(DECAY, PEAK / 2, PEAK)
    plain = 0
    for key, parameter in model.named_parameters():
        if parameter.ndim == 2:
            assert close(parameter, (1 - shrink) * before[key].numpy()), key
        else:
            plain += 1
            assert torch.equal(parameter, before[key]), key
    assert plain >= 5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_is_held_once_and_moved(kind: str, name: str):
    model = double(name)
    updater = build(model, {"kind": kind, "peak": PEAK, "weight_decay": 0.0})
    held = parameters_of(updater)
    assert {id(parameter) for parameter in held} == {id(parameter) for parameter in model.parameters()}
    assert len(held) == len(list(model.parameters()))
    before = copied(model)
    ids = torch.arange(40)[None]
    model(input_ids=ids, labels=ids).loss.backward()
    updater.step(PEAK)
    for key, parameter in model.named_parameters():
        assert not torch.equal(parameter, before[key]), key


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_gone_after_a_step(kind: str):
    model = double()
    updater = build(model, {"kind": kind})
    gradients(model, 0)
    updater.step(1e-3)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_frozen_is_not_held(kind: str):
    model = double()
    frozen = [model.get_input_embeddings().weight, model.gpt_neox.layers[0].mlp.dense_h_to_4h.weight]
    for parameter in frozen:
        parameter.requires_grad = False
    held = {id(parameter) for parameter in parameters_of(build(model, {"kind": kind}))}
    assert held == {id(parameter) for parameter in model.parameters() if parameter.requires_grad}


class TestMuon:
    @staticmethod
    def parts(model: nn.Module, **own: Any) -> dict[str, set[str]]:
        updater = build(model, {"kind": "muon", **own})
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        return {
            type(part).__name__: {names[id(p)] for group in part.param_groups for p in group["params"]}
            for part in updater.parts
        }

    def test_it_takes_the_matrices_between_the_ends(self):
        model = double()
        expected = {
            f"gpt_neox.layers.{layer}.{name}.weight"
            for layer in (0, 1)
            for name in ("attention.query_key_value", "attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h")
        }
        rest = {name for name, _ in model.named_parameters()} - expected
        assert sum(model.get_parameter(name).ndim == 2 for name in rest) == 2  # the embedding and the head
        assert self.parts(model) == {"AdamW": rest, "Muon": expected}

    def test_a_tied_embedding_is_an_end_once(self):
        parts = self.parts(double("llama-tied-gqa"))
        assert {name for name in parts["AdamW"] if "norm" not in name} == {"model.embed_tokens.weight"}
        assert all(name.endswith("proj.weight") for name in parts["Muon"]) and len(parts["Muon"]) == 14

    def test_an_embedding_of_places_is_no_hidden_matrix(self):
        parts = self.parts(double("gpt2"))
        assert {"transformer.wte.weight", "transformer.wpe.weight"} <= parts["AdamW"]
        assert len(parts["Muon"]) == 8 and all(".h." in name for name in parts["Muon"])

    def test_its_steps_are_near_orthogonal_and_of_adams_size(self):
        model = model_of("gpt_neox")
        updater = build(model, {"kind": "muon", "weight_decay": 0.0, "momentum": 0.5})
        before = copied(model)
        for seed, parameter in enumerate(model.parameters()):
            parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)) * 1e-3
        updater.step(1e-2)
        hidden = [name for name in before if ".layers." in name and before[name].ndim == 2]
        for name, parameter in model.named_parameters():
            moved = (parameter.detach() - before[name]) / 1e-2
            if name not in hidden:
                assert moved.abs().max().item() == pytest.approx(1, rel=1e-3)  # Adam's first step: the sign
                continue
            values = torch.linalg.svdvals(moved)
            assert values.max() / values.min() < 2.5
            assert moved.pow(2).mean().sqrt().item() == pytest.approx(0.2, rel=0.2), name

    def test_it_keeps_a_momentum(self):
        finals = []
        for momentum in (0.0, 0.95):
            model = model_of("gpt_neox")
            updater = build(model, {"kind": "muon", "momentum": momentum})
            for step in range(3):
                gradients(model, step)
                updater.step(1e-2)
            finals.append(copied(model))
        assert not torch.equal(*(each["gpt_neox.layers.0.attention.dense.weight"] for each in finals))
        assert torch.equal(*(each["gpt_neox.embed_in.weight"] for each in finals))

    def test_a_torch_without_it_is_one_line(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.delattr(torch.optim, "Muon")
        with pytest.raises(optimizers.TrainingError, match=r"optimizer muon: torch .* has none; expected 2.9 or newer"):
            build(double(), {"kind": "muon"})


class TestAscended:
    """On ½ Σ aᵢ θᵢ², whose gradient is aθ."""

    CURVATURES = (torch.tensor([1.0, 2.0, 5.0]).double(), torch.tensor([[3.0], [0.1]]).double())

    def bowl(self) -> tuple[list[nn.Parameter], Callable[[], None]]:
        generator = torch.Generator().manual_seed(3)
        thetas = [nn.Parameter(torch.randn(a.shape, generator=generator).double()) for a in self.CURVATURES]

        def backward() -> None:
            sum((a * theta**2).sum() / 2 for a, theta in zip(self.CURVATURES, thetas, strict=True)).backward()

        return thetas, backward

    def test_the_gradient_within_is_that_uphill_and_theta_comes_back_to_the_bit(self):
        thetas, backward = self.bowl()
        before = [theta.detach().clone() for theta in thetas]
        slopes = [a * theta for a, theta in zip(self.CURVATURES, before, strict=True)]
        norm = torch.cat([slope.flatten() for slope in slopes]).norm()
        backward()
        with ascended(thetas, 0.7):
            assert all(theta.grad is None for theta in thetas)
            moved = torch.cat([(theta - old).flatten() for theta, old in zip(thetas, before, strict=True)])
            assert moved.norm().item() == pytest.approx(0.7)
            backward()
        for a, theta, old, slope in zip(self.CURVATURES, thetas, before, slopes, strict=True):
            torch.testing.assert_close(theta.grad, a * (old + 0.7 * slope / norm), rtol=1e-10, atol=0)
            assert torch.equal(theta, old)

    def test_theta_comes_back_after_an_exception(self):
        thetas, backward = self.bowl()
        before = [theta.detach().clone() for theta in thetas]
        backward()
        with pytest.raises(KeyError), ascended(thetas, 0.7):
            assert not torch.equal(thetas[0], before[0])
            raise KeyError
        assert all(torch.equal(theta, old) for theta, old in zip(thetas, before, strict=True))

    def test_a_model_comes_back_to_the_bit(self):
        model = model_of("gpt_neox")
        before = copied(model)
        ids = torch.arange(40)[None]
        model(input_ids=ids, labels=ids).loss.backward()
        with ascended(list(model.parameters()), 0.3):
            inside = copied(model)
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
        moved = sum(((inside[name] - before[name]).double() ** 2).sum() for name in before).sqrt().item()
        assert moved == pytest.approx(0.3, rel=1e-3)
        assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
        assert all(parameter.grad is not None for parameter in model.parameters())

    def test_what_has_no_gradient_stays_and_no_slope_is_no_move(self):
        thetas, _ = self.bowl()
        before = [theta.detach().clone() for theta in thetas]
        thetas[0].grad = torch.zeros_like(thetas[0])
        with ascended(thetas, 0.7):
            assert all(torch.equal(theta, old) for theta, old in zip(thetas, before, strict=True))
        thetas[0].grad = torch.ones_like(thetas[0])
        with ascended(thetas, 0.7):
            assert torch.equal(thetas[1], before[1])
            torch.testing.assert_close(thetas[0].detach(), before[0] + 0.7 / 3**0.5)


class TestCheck:
    def test_what_is_left_out_has_the_default_of_its_kind(self):
        adam = {"peak": 3e-3, "weight_decay": 0.1, "betas": [0.9, 0.95], "eps": 1e-8, "fused": True}
        for kind in ("adamw", "adamlh", "adamc"):
            assert check({"kind": kind}) == {"kind": kind, **adam}
        assert check({"kind": "muon", "eps": 1e-6}) == {"kind": "muon", **adam, "eps": 1e-6, "momentum": 0.95}
        sgd = {"peak": 0.1, "weight_decay": 0.0, "momentum": 0.9, "nesterov": False}
        assert check({"kind": "sgd", "peak": 1}) == {"kind": "sgd", **sgd, "peak": 1}

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"kind": "adam"}, "optimizer adam: expected one of adamw, adamlh, adamc, sgd, muon"),
            ({"kind": None}, "optimizer None: expected one of adamw"),
            ({"kind": ["adamw"]}, "['adamw']: expected one of adamw"),
            ({"kind": "adamw", "momentum": 0.9}, "optimizer adamw: has no momentum; expected some of peak"),
            ({"kind": "sgd", "betas": [0.9, 0.9]}, "optimizer sgd: has no betas; expected some of peak, weight_decay"),
            ({"kind": "adamw", "lr": 1}, "has no lr"),
            ({"kind": "adamw", 3: 1}, "has no 3"),
            ({"kind": "adamw", "peak": 0}, "peak=0; expected a number above 0"),
            ({"kind": "adamw", "peak": -1e-3}, "peak=-0.001; expected a number above 0"),
            ({"kind": "adamw", "peak": "fast"}, "peak=fast; expected a number above 0"),
            ({"kind": "adamw", "peak": True}, "peak=True; expected a number above 0"),
            ({"kind": "adamw", "peak": None}, "peak=None; expected a number above 0"),
            ({"kind": "adamw", "peak": float("nan")}, "peak=nan; expected a number above 0"),
            ({"kind": "adamw", "peak": float("inf")}, "peak=inf; expected a number above 0"),
            ({"kind": "adamw", "peak": 10**400}, "expected a number above 0"),
            ({"kind": "adamc", "eps": 0}, "eps=0; expected a number above 0"),
            ({"kind": "adamlh", "weight_decay": -0.1}, "weight_decay=-0.1; expected a number of at least 0"),
            ({"kind": "sgd", "weight_decay": float("inf")}, "weight_decay=inf; expected a number of at least 0"),
            ({"kind": "adamw", "betas": 0.9}, "betas=0.9; expected two numbers from 0 to below 1"),
            ({"kind": "adamw", "betas": [0.9]}, "betas=[0.9]; expected two numbers"),
            ({"kind": "adamw", "betas": [0.9, 1]}, "betas=[0.9, 1]; expected two numbers"),
            ({"kind": "adamw", "betas": [0.9, float("nan")]}, "expected two numbers"),
            ({"kind": "adamw", "betas": [True, 0.9]}, "betas=[True, 0.9]; expected two numbers"),
            ({"kind": "sgd", "momentum": 1}, "momentum=1; expected a number from 0 to below 1"),
            ({"kind": "muon", "momentum": -0.5}, "momentum=-0.5; expected a number from 0 to below 1"),
            ({"kind": "adamw", "fused": 1}, "fused=1; expected true or false"),
            ({"kind": "sgd", "nesterov": "yes"}, "nesterov=yes; expected true or false"),
            ({"kind": "sgd", "nesterov": True, "momentum": 0}, "momentum=0; expected"),
        ],
    )
    def test_what_cannot_be_is_one_line(self, settings: dict[Any, Any], message: str):
        with pytest.raises(OptionError) as error:
            check(settings)
        assert message in str(error.value) and "\n" not in str(error.value)

    @pytest.mark.parametrize(
        "settings",
        [
            {"kind": "adamw", "betas": [0, 0.95], "eps": 1, "peak": 1, "weight_decay": 0},
            {"kind": "adamc", "betas": (0, 0)},
            {"kind": "sgd", "momentum": 0},
            {"kind": "muon", "momentum": 0, "fused": False},
        ],
    )
    def test_what_passes_can_be_built(self, settings: dict[str, Any]):
        model = double()
        updater = build(model, settings)
        assert isinstance(updater, Updater)
        gradients(model, 0)
        updater.step(1e-3)
