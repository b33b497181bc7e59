"""The loss from parts of the logits: equal to that of the whole, for any head, without the memory of the whole."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from landscape.decoder.head import split
from landscape.objective import Batch, TokenCrossEntropy
from landscape.weights import Weights

pytestmark = pytest.mark.usefixtures("process")

VOCABULARY = 300
LENGTHS = (24, 7, 1, 18)
CHUNKS = {"windows": 15_000, "tokens": 5_000}  # two windows of 24 at a time; 16 tokens of one; both above any weight

_COMMON = {"vocab_size": VOCABULARY, "max_position_embeddings": 32, "bos_token_id": None, "eos_token_id": None}
_WIDE = {**_COMMON, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
_GROUPED = {**_WIDE, "num_key_value_heads": 2}
# what each does to its logits after the projection, and the value with which it would do nothing
AFTERWARDS = {
    "gemma2": {"final_logit_softcapping": (2.0, None)},
    "granite": {"logits_scaling": (3.0, 1.0)},
    "cohere": {"logit_scale": (0.25, 1.0)},
}
CONFIGS = {
    "gpt_neox": {**_WIDE, "tie_word_embeddings": False},
    "llama": {**_GROUPED, "tie_word_embeddings": False},
    "llama-tied": {**_GROUPED, "tie_word_embeddings": True},
    "gpt2": {**_COMMON, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 32},
    # its model's forward is never run: the language model goes to the decoder inside
    "opt": {**_WIDE, "ffn_dim": 32, "word_embed_proj_dim": 8},
    "gemma2": {**_GROUPED, "head_dim": 4},
    "granite": _GROUPED,
    "cohere": _GROUPED,
}
MODELS = pytest.mark.parametrize("name", CONFIGS)
HOW = pytest.mark.parametrize("how", CHUNKS)


def tiny(name: str, seed: int = 0, **changes) -> nn.Module:
    special = {key: with_it for key, (with_it, _) in AFTERWARDS.get(name, {}).items()}
    config = AutoConfig.for_model(name.split("-")[0], **{**CONFIGS[name], **special, **changes})
    return enlarged(AutoModelForCausalLM.from_config(config), seed)


def enlarged(model: nn.Module, seed: int = 0) -> nn.Module:
    """Seeded weights with which every token's loss is far from that of any other."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(0.5 * noise if parameter.ndim >= 2 else parameter + 0.1 * noise)
    return model.eval()


def ragged() -> Batch:
    """Four windows; their padding is a token of the data."""
    ids = torch.randint(VOCABULARY, (len(LENGTHS), max(LENGTHS)), generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor(LENGTHS)
    return Batch(ids.masked_fill(torch.arange(ids.shape[1]) >= lengths[:, None], int(ids[0, 0])), lengths)


def plain(model: nn.Module) -> torch.Tensor:
    """Σ of the losses, each window on its own, by transformers."""
    total, batch = torch.zeros(()), ragged()
    for row, length in zip(batch.ids, LENGTHS, strict=True):
        if length > 1:
            alone = row[None, :length]
            total = total + model(input_ids=alone, labels=alone).loss * (length - 1)
    return total


@pytest.fixture
def bound(monkeypatch):
    """Sets the number of logits that may exist."""
    return partial(monkeypatch.setattr, "landscape.objective._CHUNK")


def heads(model: nn.Module) -> list[int]:
    """Will hold the number of logits of each run of the output embeddings."""
    runs: list[int] = []
    model.get_output_embeddings().register_forward_hook(lambda module, inputs, output: runs.append(output.numel()))
    return runs


@HOW
@MODELS
@torch.no_grad()
def test_parts_have_the_loss_of_the_whole(name, how, bound):
    model, other, batch = tiny(name), tiny(name, seed=1), ragged()
    objective, weights = TokenCrossEntropy(model, [batch]), Weights.of(other)
    whole, count = objective(weights, batch)
    bound(CHUNKS[how])
    runs = heads(model)
    parts, same_count = objective(weights, batch)
    assert len(runs) == {"windows": 2, "tokens": 2 + 1 + 0 + 2}[how]
    assert max(runs) <= CHUNKS[how] < batch.ids.numel() * VOCABULARY
    assert parts.dtype == torch.float64 and count == same_count == sum(LENGTHS) - 4
    assert parts.item() == pytest.approx(whole.item(), rel=1e-6)
    assert parts.item() == pytest.approx(plain(other).item(), rel=1e-5)


@pytest.mark.parametrize("name", AFTERWARDS)
@torch.no_grad()
def test_those_heads_do_something_to_their_logits(name):
    without = {key: nothing for key, (_, nothing) in AFTERWARDS[name].items()}
    assert plain(tiny(name)).item() != pytest.approx(plain(tiny(name, **without)).item(), rel=0.1)


@HOW
@MODELS
@torch.no_grad()
def test_autocast_reaches_the_parts(name, how, bound):
    model, batch = tiny(name), ragged()
    exact, rough = TokenCrossEntropy(model, [batch]), TokenCrossEntropy(model, [batch], torch.bfloat16)
    weights = Weights.of(model)
    error = rough(weights, batch)[0] - exact(weights, batch)[0]
    bound(CHUNKS[how])
    in_parts = rough(weights, batch)[0] - exact(weights, batch)[0]
    assert abs(error) > 1e-3
    assert in_parts.item() == pytest.approx(error.item(), rel=0.1)


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that any operation gives."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        output = function(*args, **(kwargs or {}))
        self.numel = max([self.numel, *(t.numel() for t in tree_leaves(output) if isinstance(t, torch.Tensor))])
        return output


@HOW
@pytest.mark.parametrize("name", ["gpt_neox", "llama-tied"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.no_grad()
def test_no_tensor_is_larger_than_the_bound(name, how, dtype, bound):
    model, batch = tiny(name), ragged()
    objective, weights = TokenCrossEntropy(model, [batch], dtype), Weights.of(model)
    with Largest() as largest:
        objective(weights, batch)
    assert largest.numel == batch.ids.numel() * VOCABULARY
    bound(CHUNKS[how])
    with Largest() as largest:
        objective(weights, batch)
    assert 0.5 * CHUNKS[how] < largest.numel <= CHUNKS[how]


@torch.no_grad()
def test_the_body_runs_once_and_the_model_is_taken_apart_once(bound):
    model, batch = tiny("llama"), ragged()
    objective, weights = TokenCrossEntropy(model, [batch]), Weights.of(model)
    bound(CHUNKS["tokens"])
    objective(weights, batch)
    runs: list[nn.Module] = []
    model.model.layers[0].register_forward_hook(lambda module, inputs, output: runs.append(module))
    for _ in range(3):
        objective(weights, batch)
    assert len(runs) == 3


def test_gradients_are_those_of_the_whole(bound):
    model, batch = tiny("llama-tied"), ragged()
    weights = {name: tensor.requires_grad_() for name, tensor in Weights.of(model).items()}
    expected = torch.autograd.grad(plain(model), list(model.parameters()))
    bound(CHUNKS["tokens"])
    runs = heads(model)
    found = torch.autograd.grad(TokenCrossEntropy(model, [batch])(weights, batch)[0], list(weights.values()))
    assert runs == [batch.ids.numel() * VOCABULARY]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["gpt_neox", "llama-tied"])
def test_transforms_where_gradients_are_off(name, bound):
    """Forward mode and batches of weights take the parts; reverse mode turns gradients on, and takes the whole."""
    model, batch = tiny(name), ragged()
    theta = {key: tensor.detach() for key, tensor in Weights.of(model).items()}
    v = {key: torch.randn_like(tensor) for key, tensor in theta.items()}

    def loss(weights):
        return TokenCrossEntropy(model, [batch])(weights, batch)[0]

    def everything():
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            value, slope = torch.func.jvp(loss, (theta,), (v,))
            gradient = torch.func.grad(loss)(theta)
            both = torch.vmap(loss)({key: torch.stack([t, t + 0.1 * v[key]]) for key, t in theta.items()})
        return torch.stack([value, slope, sum((gradient[key] * v[key]).sum() for key in v), *both])

    expected = everything()
    bound(CHUNKS["tokens"])
    runs = heads(model)
    found = everything()
    assert runs.count(batch.ids.numel() * VOCABULARY) == 1 and len(runs) > 3
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)
    assert expected[1] == pytest.approx(expected[2].item(), rel=1e-4)


class Llama(LlamaForCausalLM):
    """Does something of its own to its logits."""

    def forward(self, input_ids, **kwargs):
        output = super().forward(input_ids, **kwargs)
        output.logits = self.afterwards(output.logits, input_ids)
        return output

    @staticmethod
    def of_earlier_tokens(logits, ids):
        return logits.cumsum(1)

    @staticmethod
    def of_other_windows(logits, ids):
        return logits - 0.5 * logits.mean(0, keepdim=True)

    @staticmethod
    def of_its_place(logits, ids):
        return logits * torch.arange(1, ids.shape[1] + 1)[:, None]

    @staticmethod
    def of_its_place_and_infinite(logits, ids):
        return Llama.minus_infinity(Llama.of_its_place(logits, ids), ids)

    @staticmethod
    def of_the_token(logits, ids):
        return logits.scatter_add(2, ids[..., None], torch.full_like(logits[..., :1], -5.0))

    @staticmethod
    def minus_infinity(logits, ids):
        return logits.masked_fill(torch.arange(VOCABULARY) >= VOCABULARY - 3, -torch.inf)


@HOW
@pytest.mark.parametrize(
    ("afterwards", "can_be_split"),
    [
        ("of_earlier_tokens", False),
        ("of_other_windows", False),
        ("of_its_place", False),
        ("of_its_place_and_infinite", False),
        ("of_the_token", True),
        ("minus_infinity", True),
    ],
)
@torch.no_grad()
def test_a_head_of_any_kind_is_right(afterwards, can_be_split, how, bound):
    model, batch = enlarged(Llama(LlamaConfig(**CONFIGS["llama"]))), ragged()
    batch = Batch(batch.ids % (VOCABULARY - 3), batch.lengths)
    model.afterwards = getattr(Llama, afterwards)
    objective, weights = TokenCrossEntropy(model, [batch]), Weights.of(model)
    whole = objective(weights, batch)[0].item()
    bound(CHUNKS[how])
    runs = heads(model)
    assert objective(weights, batch)[0].item() == pytest.approx(whole, rel=1e-6)
    assert (len(runs) > 1) == can_be_split == (split(model) is not None)


class Wrapped(nn.Module):
    """A language model inside of another module."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, **inputs):
        return self.inner(**inputs)


@torch.no_grad()
def test_a_wrapped_model_is_taken_apart_within(bound):
    inner, batch = tiny("llama"), ragged()
    model = Wrapped(inner)
    bound(CHUNKS["tokens"])
    with Largest() as largest:
        found = TokenCrossEntropy(model, [batch])(Weights.of(model), batch)[0]
    assert largest.numel <= CHUNKS["tokens"]
    assert found.item() == pytest.approx(plain(inner).item(), rel=1e-5)


@torch.no_grad()
def test_a_model_that_cannot_be_tried_is_evaluated_whole(bound):
    model = tiny("llama", vocab_size=4)
    batch = Batch(ragged().ids % 4, ragged().lengths)
    objective, weights = TokenCrossEntropy(model, [batch]), Weights.of(model)
    whole = objective(weights, batch)[0]
    bound(50)
    assert split(model) is None
    assert torch.isfinite(whole)
    assert objective(weights, batch)[0].item() == pytest.approx(whole.item(), rel=1e-6)


@pytest.mark.parametrize("own_forward", [False, True])
@torch.no_grad()
def test_the_model_is_left_as_it_was(own_forward, bound):
    """Also after an error, and also if someone has put a forward of their own onto the body."""
    model, batch = tiny("llama"), ragged()
    if own_forward:
        model.model.forward = partial(type(model.model).forward, model.model)
    before = [dict(vars(module)) for module in model.modules()]
    objective, weights = TokenCrossEntropy(model, [batch]), dict(Weights.of(model))
    bound(CHUNKS["tokens"])
    objective(weights, batch)
    runs = heads(model)
    for name in ("model.norm.weight", "lm_head.weight"):
        with pytest.raises(RuntimeError, match="size"):
            objective({**weights, name: torch.zeros(VOCABULARY, 5)}, batch)
    assert runs == []  # the first error was before the head, the second in it
    model.get_output_embeddings()._forward_hooks.clear()
    for module, variables in zip(model.modules(), before, strict=True):
        assert vars(module) == variables
