"""A model run block by block: what it gives, and models that cannot be run so."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from conftest import ARCHITECTURES, VOCABULARY, build
from landscape.decoder.blocks import Walk, decoder_blocks
from landscape.errors import ModelError

pytestmark = pytest.mark.usefixtures("process")


def ids(*shape: int) -> Tensor:
    return torch.randint(VOCABULARY, shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_block_by_block_is_the_model_to_the_bit(name: str):
    model, batches = build(name), [ids(3, 20), ids(2, 7)]
    walk = Walk(model, batches)
    with torch.no_grad():
        expected = [model(input_ids=some, use_cache=False).logits for some in batches]
        for index in range(len(walk.blocks)):
            walk.step(index)
        for i, some in enumerate(batches):
            with walk.finished(i):
                assert torch.equal(model(input_ids=some, use_cache=False).logits, expected[i])
        assert torch.equal(model(input_ids=batches[0], use_cache=False).logits, expected[0])  # as it was


def test_only_the_block_that_runs_has_to_be_there():
    model, batches = build("olmo2", num_hidden_layers=4), [ids(3, 20)]
    with torch.no_grad():
        expected = model(input_ids=batches[0], use_cache=False).logits
    walk = Walk(model, batches)
    kept = [block.state_dict() for block in walk.blocks]
    walk.blocks.to("meta")
    for index, block in enumerate(walk.blocks):
        block.to_empty(device="cpu").load_state_dict(kept[index])
        with torch.no_grad():
            walk.step(index)
        block.to("meta")
    with torch.no_grad(), walk.finished(0):
        assert torch.equal(model(input_ids=batches[0], use_cache=False).logits, expected)


def test_a_block_can_be_run_without_moving_on():
    model = build("gpt2")
    walk = Walk(model, [ids(2, 9)])
    calls: list[str] = []
    for index, block in enumerate(walk.blocks):
        block.attn.register_forward_hook(lambda *_, index=index: calls.append(f"block {index}"))
    model.transformer.ln_f.register_forward_hook(lambda *_: calls.append("norm"))
    with torch.no_grad():
        one, two = walk.run(0, 0), walk.run(0, 0)
        assert torch.equal(one, two)
        walk.step(0)
        assert not torch.equal(walk.run(1, 0), one)
    assert calls == ["block 0"] * 3 + ["block 1"], "no other block computes, nor what comes after"


def test_an_error_inside_leaves_the_model_as_it_was():
    model, some = build("gpt_neox"), ids(2, 9)
    expected = model(input_ids=some, use_cache=False).logits
    walk = Walk(model, [some])
    hook = walk.blocks[0].attention.register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        walk.step(0)
    hook.remove()
    assert torch.equal(model(input_ids=some, use_cache=False).logits, expected)
    assert not any("forward" in vars(block) for block in walk.blocks) and not model._forward_pre_hooks


class Decoder(nn.Module):
    """Blocks called in `order`, with something in between; what they put out is a tensor, or `several` things."""

    def __init__(self, order: tuple[int, ...] = (0, 1, 2), between: float = 1.0, several: type | None = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.layers = nn.ModuleList(Block(several) for _ in range(3))
        self.order, self.between = order, between

    def forward(self, input_ids: Tensor, use_cache: bool) -> Tensor:
        hidden, most = self.embedding(input_ids), torch.zeros(())
        for index in self.order:
            output = self.layers[index](hidden_states=hidden, most=most)
            hidden, most = (output, most) if isinstance(output, Tensor) else output
            hidden = hidden if self.between == 1.0 else hidden * self.between
        return hidden


class Block(nn.Module):
    """The second of several things depends on the batch, and the next block needs it."""

    def __init__(self, several: type | None) -> None:
        super().__init__()
        self.linear, self.several = nn.Linear(8, 8), several

    def forward(self, hidden_states: Tensor, most: Tensor) -> Tensor | tuple[Tensor, Tensor] | list[Tensor]:
        output = hidden_states + (self.linear(hidden_states) + most).tanh()
        return output if self.several is None else self.several((output, most + output.max()))


def walked(model: nn.Module) -> list[Tensor]:
    batches = [ids(2, 9), ids(3, 4)]
    walk, found = Walk(model, batches), []
    with torch.no_grad():
        for index in range(len(walk.blocks)):
            walk.step(index)
        for batch, some in enumerate(batches):
            with walk.finished(batch):
                found.append(model(some, use_cache=False))
    return found


@pytest.mark.parametrize("several", [None, tuple, list])
def test_what_blocks_put_out_beside_hidden_states_goes_on_with_its_batch(several: type | None):
    model = Decoder(several=several)
    with torch.no_grad():
        expected = [model(some, use_cache=False) for some in (ids(2, 9), ids(3, 4))]
    assert all(torch.equal(one, two) for one, two in zip(walked(model), expected, strict=True))


@pytest.mark.parametrize(
    ("order", "between", "message"),
    [
        ((0, 2, 1), 1.0, "block 1 does not take what the block before it puts out"),
        ((1, 2), 1.0, "block 0 does not run"),
        ((0, 1), 1.0, "block 2 does not run"),
        ((0, 1, 1, 2), 1.0, "block 1 does not take"),
        ((0, 1, 2, 2), 1.0, "block 2 does not take"),
        ((0, 1, 2, 0, 1, 2), 1.0, "block 0 does not take"),
        ((0, 1, 2), 1.5, "block 1 does not take"),
    ],
)
def test_what_cannot_be_run_block_by_block_is_refused(order: tuple[int, ...], between: float, message: str):
    with pytest.raises(ModelError, match=f"Decoder: {message}.*cannot be run block by block"):
        walked(Decoder(order, between))


def test_the_stack_is_the_list_with_the_most_parameters():
    model = Decoder()
    model.small = nn.ModuleList([nn.Linear(2, 2)])
    assert decoder_blocks(model) == ("layers", model.layers)
    with pytest.raises(ModelError, match="no stack of blocks"):
        decoder_blocks(nn.Linear(2, 2))
