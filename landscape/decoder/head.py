"""A language model in two: a body that mixes tokens, and a head that makes a token's logits from its state alone.

The logits of a batch, (windows, tokens, vocabulary), are by far the largest tensor of a forward pass. Where no gradient
asks for them, the body can run once, and the head on one part of the batch after another.

No architecture is named. The body is the largest module that does not give logits yet. What comes after it (a norm, the
projection, scaling, soft-capping) is left to the model's own forward pass over a part, in which the body answers with
the states it had there. Whether that gives the model's own logits is tried on six tokens before anything relies on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

Part = tuple[slice, slice]  # some windows, some tokens of each


@dataclass(frozen=True)
class Split:
    """A model whose logits can be had part by part: logits(ids)[part] = logits(states(ids), ids, part)."""

    model: nn.Module
    body: nn.Module
    vocabulary: int

    def states(self, ids: Tensor) -> Any:
        """What the body says of `ids` (windows, tokens), whatever its form; the head does not run."""
        forward = self.body.forward

        def stop(*args: Any, **kwargs: Any) -> Any:
            raise _BodyDone(forward(*args, **kwargs))

        with answering(self.body, stop):
            try:
                self.model(input_ids=ids, use_cache=False)
            except _BodyDone as done:
                return done.output
        raise RuntimeError(f"{type(self.model).__name__} did not run its {type(self.body).__name__}")

    def logits(self, states: Any, ids: Tensor, part: Part) -> Tensor:
        """Logits (windows, tokens, vocabulary) of a part of `ids`, from the states of all of it."""

        def cut(value: Any) -> Any:
            return value[part] if _belongs_to(ids, value) else value

        answer = tree_map(cut, states)
        with answering(self.body, lambda *args, **kwargs: answer):
            return self.model(input_ids=ids[part], use_cache=False).logits


def split(model: nn.Module) -> Split | None:
    """`model` in two, or None where parts of a batch do not get the logits they get in the whole.

    That is so where something after the body looks at other tokens, or at a token's place. It is decided on six tokens,
    with the model's own weights.
    """
    try:
        with torch.no_grad():
            return _tried(model)
    except Exception:  # of any kind: it can be evaluated whole, and if it cannot, that will say why
        return None


def _tried(model: nn.Module) -> Split | None:
    ids = torch.tensor([[4, 5, 5], [5, 4, 5]], device=next(model.parameters()).device)  # below, some is padding
    whole, calls = _watched(model, ids)
    vocabulary = whole.shape[-1]
    before_the_head = [module for module, output in calls if _is_states(output, ids, vocabulary)]
    body = max(before_the_head, key=lambda module: sum(p.numel() for p in module.parameters()), default=None)
    if body is None:
        return None
    found = Split(model, body, vocabulary)
    states = found.states(ids)
    scale = 1e-3 * float(whole.abs().median())  # a median, since some models give −∞ to what is no token
    for part in ((slice(0, 1), slice(0, 3)), (slice(1, 2), slice(1, 3))):
        if not torch.allclose(found.logits(states, ids, part), whole[part], rtol=1e-3, atol=scale):
            return None
    return found


def _watched(model: nn.Module, ids: Tensor) -> tuple[Tensor, list[tuple[nn.Module, Any]]]:
    """The logits of `ids`, and what each module within the model gave on the way there."""
    calls: list[tuple[nn.Module, Any]] = []
    inner = [module for module in model.modules() if module is not model]
    hooks = [module.register_forward_hook(lambda m, _, output: calls.append((m, output))) for module in inner]
    try:
        return model(input_ids=ids, use_cache=False).logits, calls
    finally:
        for hook in hooks:
            hook.remove()


def _is_states(output: Any, ids: Tensor, vocabulary: int) -> bool:
    tensors = [value for value in tree_leaves(output) if isinstance(value, Tensor)]
    return any(_belongs_to(ids, t) for t in tensors) and all(t.shape[-1:] != (vocabulary,) for t in tensors)


def _belongs_to(ids: Tensor, value: Any) -> bool:
    """Whether a value has an entry for every token of `ids`."""
    return isinstance(value, Tensor) and value.shape[:2] == ids.shape


class _BodyDone(Exception):
    """On the way out of a forward pass, before the head."""

    def __init__(self, output: Any) -> None:
        self.output = output


@contextmanager
def answering(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """`module` runs `forward` within."""
    own = vars(module).get("forward")  # set by tools that place modules on devices; otherwise the class's is behind it
    module.forward = forward
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own
