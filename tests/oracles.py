"""Small models with dense matrices in real float64, by a route of their own.

Nothing here calls the operators or the objective of the package: losses are written by hand from a model's logits,
differentiated with respect to the model's own parameters, and differentiated again one element at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from landscape.objective import TokenCrossEntropy, batches
from landscape.tokens import Windows
from landscape.weights import Weights

VOCABULARY = 14
_LENGTHS = (6, 3, 5, 2, 4)
_COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 8,
    "bos_token_id": None,
    "eos_token_id": None,
    "attn_implementation": "sdpa",
}
_CONFIGS = {
    "gpt_neox": {**_COMMON, "tie_word_embeddings": False},
    # a tied head, and two query heads per key
    "llama": {**_COMMON, "num_key_value_heads": 1, "tie_word_embeddings": True},
    "gpt2": {
        "n_embd": 8,
        "n_layer": 1,
        "n_head": 2,
        "n_positions": 8,
        "vocab_size": VOCABULARY,
        "bos_token_id": None,
        "eos_token_id": None,
        "attn_implementation": "sdpa",
    },
}
LANGUAGE = tuple(_CONFIGS)
NAMES = ("mlp", *LANGUAGE)


def double(model: nn.Module) -> nn.Module:
    """`model` in float64 throughout: transformers' RMS norms go through float32 whatever their dtype."""
    for module in model.double().modules():
        if type(module).__name__.endswith("RMSNorm"):
            eps = next(getattr(module, name) for name in ("variance_epsilon", "eps") if hasattr(module, name))
            module.forward = partial(_rms_norm, module, eps)
    return model


def _rms_norm(module: nn.Module, eps: float, x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * module.weight


@dataclass(frozen=True)
class Classifier:
    """Cross-entropy of a module's outputs over batches (x, y): an objective that is not of a language model."""

    model: nn.Module
    batches: list[tuple[Tensor, Tensor]]

    def __call__(self, weights: Mapping[str, Tensor], batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
        return self.loss(self.outputs(weights, batch), batch)

    def outputs(self, weights: Mapping[str, Tensor], batch: tuple[Tensor, Tensor]) -> Tensor:
        return functional_call(self.model, dict(weights), (batch[0],))

    def loss(self, outputs: Tensor, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
        return nn.functional.cross_entropy(outputs, batch[1], reduction="sum"), len(batch[1])


@dataclass(frozen=True)
class Quadratic:
    """Σ ½ (θ − c_i)ᵀ A (θ − c_i) over the rows of a batch; its Hessian is A everywhere."""

    matrix: Tensor
    batches: list[Tensor]

    def __call__(self, weights: Mapping[str, Tensor], batch: Tensor) -> tuple[Tensor, int]:
        theta = torch.cat([tensor.reshape(-1) for tensor in weights.values()])
        return 0.5 * ((theta - batch) @ self.matrix * (theta - batch)).sum(), len(batch)


@dataclass(frozen=True)
class Case:
    """A float64 model with what is known of it: the mean loss, its gradient, Hessian and Gauss-Newton matrix."""

    model: nn.Module
    loss: float
    gradient: Tensor
    hessian: Tensor
    gauss_newton: Tensor
    data: Windows | tuple[Tensor, Tensor]

    @property
    def weights(self) -> Weights:
        return Weights.of(self.model)

    def objective(self, size: int = 2, dtype: torch.dtype = torch.float64) -> Classifier | TokenCrossEntropy:
        """The package's view of the same data, `size` examples or windows at a time."""
        return objective_of(self.model, self.data, size, dtype)


def objective_of(model: nn.Module, data, size: int, dtype: torch.dtype) -> Classifier | TokenCrossEntropy:
    if isinstance(data, Windows):
        return TokenCrossEntropy(model, batches(data, size), dtype)
    return Classifier(model, list(zip(data[0].split(size), data[1].split(size), strict=True)))


def tiny(name: str, **changes: object) -> nn.Module:
    """A float32 model in evaluation mode, its weights large enough that no part of the Hessian is negligible."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    if name == "mlp":
        model = nn.Sequential(nn.Linear(7, 10), nn.LayerNorm(10), nn.Tanh(), nn.Linear(10, 8), nn.GELU(), Head(8, 5))
    else:
        config = AutoConfig.for_model(name, **{**_CONFIGS[name], **changes})
        model = AutoModelForCausalLM.from_config(config).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(0.4 * noise if parameter.ndim >= 2 else parameter + 0.2 * noise)
    return model


class Head(nn.Linear):
    """A last layer under a name of its own."""


def tiny_data(name: str, dtype: torch.dtype = torch.float64) -> Windows | tuple[Tensor, Tensor]:
    """Ragged windows in which token 0 is a token and padding is token 0 too; for the MLP, points and classes."""
    generator = torch.Generator().manual_seed(2)
    if name == "mlp":
        return torch.randn(11, 7, generator=generator).to(dtype), torch.randint(5, (11,), generator=generator)
    ids = torch.randint(VOCABULARY, (len(_LENGTHS), max(_LENGTHS)), generator=generator)
    ids[:, 1] = 0
    lengths = torch.tensor(_LENGTHS)
    return Windows(ids.masked_fill(torch.arange(max(_LENGTHS)) >= lengths[:, None], 0), lengths)


@cache
def case(name: str) -> Case:
    """The case called `name`, computed once; its model is not to be changed."""
    model, data = double(tiny(name)), tiny_data(name)
    parameters = list(model.parameters())
    with sdpa_kernel(SDPBackend.MATH):
        logits, targets = outputs_and_targets(model, data)
        logs = logits - logits.logsumexp(-1, keepdim=True)
        loss = -logs[torch.arange(len(targets)), targets].sum() / len(targets)
        gradient = _flat(torch.autograd.grad(loss, parameters, create_graph=True))
        hessian = torch.stack([_row(element, parameters) for element in gradient])
        jacobian = torch.stack([_row(element, parameters) for element in logits.flatten()])
    jacobian = jacobian.view(*logits.shape, -1)  # (targets, classes, n)
    p = logs.detach().exp()
    bent = p[..., None] * jacobian - p[..., None] * torch.einsum("tc,tcn->tn", p, jacobian)[:, None]
    gauss_newton = torch.einsum("tcm,tcn->mn", jacobian, bent) / len(targets)
    return Case(model, loss.item(), gradient.detach(), hessian, gauss_newton, data)


def outputs_and_targets(model: nn.Module, data: Windows | tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Logits (targets, classes) and targets: all of the data in one batch, padding taken out by hand."""
    if not isinstance(data, Windows):
        return model(data[0]), data[1]
    real = torch.arange(1, data.ids.shape[1]) < data.lengths[:, None]
    return model(input_ids=data.ids, use_cache=False).logits[:, :-1][real], data.ids[:, 1:][real]


def _flat(tensors) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _row(element: Tensor, parameters: list[Tensor]) -> Tensor:
    return _flat(torch.autograd.grad(element, parameters, retain_graph=True, materialize_grads=True))


def close(found: Tensor, expected: Tensor) -> float:
    """‖found − expected‖/‖expected‖."""
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def block(n: int, k: int = 3, dtype: torch.dtype = torch.float64, seed: int = 3) -> Tensor:
    """A random block (n, k)."""
    return torch.randn(k, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype).T


def single(name: str) -> tuple[nn.Module, Windows | tuple[Tensor, Tensor]]:
    """The float32 model of a case as transformers gives it, and its data."""
    return copy.deepcopy(tiny(name)), tiny_data(name, torch.float32)


def padded() -> TokenCrossEntropy:
    """A tied Llama whose padding token, 0, is a token of the data as well."""
    model = double(tiny("llama", pad_token_id=0))
    assert any(getattr(module, "padding_idx", None) == 0 for module in model.modules())
    return objective_of(model, tiny_data("llama"), 2, torch.float64)


def trained() -> tuple[nn.Module, Windows]:
    """A float32 GPT-NeoX after a few steps of training, and what it was trained on."""
    model, data = single("gpt_neox")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(30):
        model(input_ids=data.ids, labels=data.ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, data


class OutOfMemory:
    """An objective that finds no memory."""

    batches = (0,)

    def __call__(self, weights, batch):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


class Flat(nn.Module):
    """A language model as a classifier of tokens."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(input_ids=ids, use_cache=False).logits[:, :-1].flatten(0, 1)


class Flash(nn.Module):
    """A model that insists on a kernel which is differentiable once."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs):
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return self.model(**inputs)


class Square(torch.autograd.Function):
    """x², differentiable once."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, slope):
        return 2 * ctx.saved_tensors[0] * slope


class Squared(nn.Linear):
    """Linear, then `Square`."""

    def forward(self, x):
        return Square.apply(super().forward(x))
