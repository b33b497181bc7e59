"""What a computation costs, found by running it without numbers.

On torch's meta device a tensor has a shape and no content. The model's own code runs there in seconds, whatever its
size and architecture, and every operation says what it would compute and how long what it made would stay: operations
and bytes are counted, not estimated. Attention is counted as whole matrices where there are gradients, which need them,
and as a kernel that avoids them where there are none.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from landscape.decoder.blocks import decoder_blocks
from landscape.errors import ModelError
from landscape.models import first_line
from landscape.models.references import resolve
from landscape.objective import Batch, TokenCrossEntropy
from landscape.weights import Weights

T = TypeVar("T")
_ATTENDED = ("query", "key", "value")


@dataclass(frozen=True)
class Cost:
    """Of one computation.

    Attributes:
        flops: floating-point operations of matrix products and attention.
        peak: bytes of new tensors at the worst moment.
        held: bytes of new tensors that stay.
    """

    flops: float
    peak: int
    held: int


@dataclass(frozen=True)
class Costs:
    """Of a model and one batch.

    Attributes:
        parameters: n.
        largest_block: parameters of the largest decoder block; 0 where there are none.
        outside: parameters that are in no block.
        width: of the hidden states.
        loss: without gradients.
        forward: what a backward pass will need.
        gradient: with what it makes on the way.
        graph: of the gradient, kept for products; None where second derivatives were not asked for.
        product: one vector pulled through that graph.
    """

    parameters: int
    largest_block: int
    outside: int
    width: int
    loss: Cost
    forward: Cost
    gradient: Cost
    graph: Cost | None = None
    product: Cost | None = None


def without_numbers(reference: str, remote_code: bool = False) -> nn.Module:
    """The architecture of a model on the meta device: of its configuration alone, here or on the Hub.

    Raises:
        ModelError: no configuration that makes a model.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    place, revision = _configured(reference)
    try:
        config = AutoConfig.from_pretrained(place, revision=revision, trust_remote_code=remote_code)
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(
                config, dtype=torch.float32, attn_implementation="sdpa", trust_remote_code=remote_code
            ).eval()
    except Exception as error:  # transformers raises many kinds; each means that this makes no model
        raise ModelError(f"model {reference}: no configuration to plan with ({first_line(error)})") from error


def _configured(reference: str) -> tuple[str | Path, str | None]:
    """Where the configuration of a model lies: a directory, or a Hub id and its revision. Weights need not be there."""
    if (Path(reference) / "config.json").is_file():
        return reference, None
    name, _, revision = reference.partition("@")
    if Path(name).exists() or name.count("/") > 1 or name.startswith((".", "/", "~")):
        return resolve(reference).folder, None  # a checkpoint of a training run, or why there is none
    return name, revision or None


def costs(model: nn.Module, windows: int, tokens: int, second_order: bool = False, recomputes: bool = False) -> Costs:
    """What a batch of `windows` × `tokens` costs `model`, which is on the meta device.

    Raises:
        ModelError: what the model does depends on numbers, such as the choice of experts.
    """
    batch = Batch(torch.zeros(windows, tokens, dtype=torch.long, device="meta"), torch.full((windows,), tokens))
    objective, weights = TokenCrossEntropy(model, [batch], recomputes=recomputes), Weights.of(model)
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in weights.items()}
    inputs = list(leaves.values())

    def loss() -> Tensor:
        with torch.no_grad():
            return objective(weights, batch)[0]

    def gradient(keep: bool) -> Sequence[Tensor]:
        return torch.autograd.grad(objective(leaves, batch)[0], inputs, create_graph=keep, materialize_grads=True)

    _ = objective.in_two  # decided on six tokens of its own, which are not to count
    vector = [torch.empty_like(each) for each in inputs] if second_order else []
    counter = _Counter([*inputs, *model.buffers(), *vector, batch.ids])
    try:
        with _Fused(counter):
            of_loss = counter.cost(loss)[1]
        with sdpa_kernel(SDPBackend.MATH):
            of_forward = counter.cost(lambda: objective(leaves, batch)[0])[1]
            of_gradient = counter.cost(lambda: gradient(False))[1]
            graph = product = None
            if second_order:
                made, graph = counter.cost(lambda: gradient(True))
                product = counter.cost(lambda: _pulled(made, inputs, vector))[1]
    except (RuntimeError, NotImplementedError) as error:
        raise ModelError(
            f"{type(model).__name__}: cannot be planned without its numbers ({first_line(error)}); measure a small one"
        ) from error
    blocks = [sum(p.numel() for p in block.parameters()) for block in decoder_blocks(model)[1]]
    width = int(model.get_input_embeddings().weight.shape[1])  # type: ignore[operator, union-attr, arg-type]
    outside = weights.numel() - sum(blocks)
    return Costs(weights.numel(), max(blocks), outside, width, of_loss, of_forward, of_gradient, graph, product)


def _pulled(made: Sequence[Tensor], inputs: Sequence[Tensor], vector: Sequence[Tensor]) -> Sequence[Tensor]:
    live = [i for i, part in enumerate(made) if part.requires_grad]
    chosen = [made[i] for i in live]
    return torch.autograd.grad(chosen, inputs, [vector[i] for i in live], retain_graph=True, materialize_grads=True)


class _Fused(TorchFunctionMode):
    """Attention as a kernel does it that never holds (tokens × tokens): the same operations, its result alone."""

    def __init__(self, counter: _Counter) -> None:
        super().__init__()
        self._counter = counter

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        query, key, value = (args[i] if i < len(args) else kwargs[name] for i, name in enumerate(_ATTENDED))
        self._counter.flops += 2 * query[..., 0].numel() * key.shape[-2] * (key.shape[-1] + value.shape[-1])
        return query.new_empty(*query.shape[:-1], value.shape[-1])


class _Counter(TorchDispatchMode):
    """Floating-point operations, and bytes of the storages made that were not `there` before: now, and at most."""

    def __init__(self, there: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = self.live = self.peak = 0
        self._there = there  # as long as they live, no other storage has their keys
        self._known = {tensor.untyped_storage()._cdata for tensor in there}

    def cost(self, run: Callable[[], T]) -> tuple[T, Cost]:
        """What `run()` returns, and its cost."""
        before, self.peak, self.flops = self.live, self.live, 0
        with self:
            result = run()
        return result, Cost(self.flops, self.peak - before, self.live - before)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            return True  # a question about content, such as whether all positions follow each other: the usual answer
        made = func(*args, **(kwargs or {}))
        if (flops := flop_registry.get(func.overloadpacket)) is not None:
            self.flops += flops(*args, **(kwargs or {}), out_val=made)
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                self._note(tensor.untyped_storage())
        return made

    def _note(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self._known:
            self._known.add(key)
            self.live += size
            self.peak = max(self.peak, self.live)
            weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size
