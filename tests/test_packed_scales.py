"""Scales that AWQ and SmoothQuant move between layers: moved back, with the same function, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from conftest import build
from landscape.packed import load_dense
from landscape.weights import Weights
from test_packed import apart, checkpoint, edit, linear_names, logits, matrix, pack_gptq, refusal

BLOCK = {  # norms and what they feed, pairs of layers
    "llama-tied-gqa": (
        {"input_layernorm": "self_attn.{q,k,v}_proj", "post_attention_layernorm": "mlp.{gate,up}_proj"},
        {"mlp.up_proj": "mlp.down_proj"},
        "model.layers",
    ),
    "qwen2": (
        {"input_layernorm": "self_attn.{q,k,v}_proj", "post_attention_layernorm": "mlp.{gate,up}_proj"},
        {"mlp.up_proj": "mlp.down_proj", "self_attn.v_proj": "self_attn.o_proj"},
        "model.layers",
    ),
    "gpt_neox": (
        {"input_layernorm": "attention.query_key_value", "post_attention_layernorm": "mlp.dense_h_to_4h"},
        {},
        "gpt_neox.layers",
    ),
    "gpt2": ({"ln_1": "attn.c_attn", "ln_2": "mlp.c_fc"}, {}, "transformer.h"),
}


def several(pattern: str) -> list[str]:
    """a.{b,c}_d → a.b_d, a.c_d."""
    if "{" not in pattern:
        return [pattern]
    head, rest = pattern.split("{")
    middle, tail = rest.split("}")
    return [f"{head}{part}{tail}" for part in middle.split(",")]


def lively(name: str, **changes: object) -> nn.Module:
    """A model whose norms and biases are not all ones and zeros."""
    model = build(name, **changes)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for tensor in model.parameters():
            if tensor.ndim == 1:
                tensor.copy_(torch.randn(tensor.shape, generator=generator).mul(0.5).exp())
    return model


def move_scales(model: nn.Module, name: str) -> None:
    """What AWQ does to a model before it rounds: the function stays, the weights do not."""
    norms, pairs, prefix = BLOCK[name]
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for block in range(2):

            def module(path: str, block: int = block) -> nn.Module:
                return model.get_submodule(f"{prefix}.{block}.{path}")

            def by_output(path: str) -> Tensor:
                layer = module(path)
                return layer.weight.T if type(layer).__name__ == "Conv1D" else layer.weight

            for norm, fed in norms.items():
                scale = torch.randn(module(norm).weight.shape, generator=generator).mul(0.6).exp()
                for tensor in module(norm).parameters():
                    tensor.div_(scale)
                for path in several(fed):
                    by_output(path).mul_(scale)
            for first, second in pairs.items():
                scale = torch.randn(by_output(first).shape[0], generator=generator).mul(0.6).exp()
                by_output(first).div_(scale[:, None])
                if module(first).bias is not None:
                    module(first).bias.div_(scale)
                by_output(second).mul_(scale)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama-tied-gqa", {}),
        ("gpt_neox", {}),
        ("gpt2", {}),
        ("qwen2", {"num_key_value_heads": 4}),
    ],
)
def test_moved_scales_are_moved_back(name: str, changes: dict[str, object], dtype: torch.dtype, tmp_path: Path):
    model, scaled = lively(name, **changes), lively(name, **changes)
    move_scales(scaled, name)
    assert apart(logits(scaled), logits(model)) < 1e-4
    stored = pack_gptq(tmp_path / "packed", scaled, dtype=dtype)
    packed = {n: stored.get(n, p.detach().to(dtype).float()) for n, p in scaled.named_parameters()}
    theta = Weights.of(model)
    dense, report = load_dense(checkpoint(tmp_path / "packed"), theta, model)
    norms, pairs, prefix = BLOCK[name]
    moved = [f"{path}.weight" for path in norms]
    moved += [f"{path}.weight" for fed in norms.values() for path in several(fed)]
    moved += [f"{path}.weight" for pair in pairs.items() for path in pair]
    assert {f"{prefix}.{block}.{path}" for block in range(2) for path in moved} <= set(report.rescaled)
    # the function is that of the packed checkpoint, and what is left of the distance is rounding
    assert apart(logits(model, dense), logits(model, packed)) < (1e-3 if dtype == torch.float16 else 1e-2)
    for layer in report.layers:
        before = apart(packed[layer.name], theta[layer.name])
        assert layer.weight_error < 0.25
        if layer.name in report.rescaled:
            assert layer.weight_error < before / 2


def test_what_is_moved_back_is_exact_but_for_the_rounding(tmp_path: Path):
    """Against codes of the same grid: Ŵ = Q(W·s)/s for layers behind a norm."""
    model, scaled = lively("llama-tied-gqa"), lively("llama-tied-gqa")
    move_scales(scaled, "llama-tied-gqa")
    stored = pack_gptq(tmp_path / "packed", scaled)
    dense, _ = load_dense(checkpoint(tmp_path / "packed"), Weights.of(model), model)
    norm = "model.layers.0.input_layernorm"
    ratio = scaled.get_submodule(norm).weight.detach().half().float() / model.get_submodule(norm).weight.detach()
    name = "model.layers.0.self_attn.q_proj.weight"
    assert torch.allclose(dense[name], stored[name] * ratio, rtol=1e-6)
    assert torch.equal(dense[f"{norm}.weight"], model.get_submodule(norm).weight.detach())


def test_a_norm_whose_layers_were_not_scaled_is_refused(tmp_path: Path):
    model, scaled = lively("llama-tied-gqa"), lively("llama-tied-gqa")
    with torch.no_grad():
        scaled.model.layers[0].input_layernorm.weight.mul_(torch.linspace(0.5, 2, 32))
    pack_gptq(tmp_path / "packed", scaled)
    assert "model.layers.0.input_layernorm.weight" in refusal(tmp_path / "packed", model)


def test_a_small_change_is_not_taken_for_a_scale(tmp_path: Path):
    """By chance, half of these bring the layer behind the norm nearer."""
    model = build("gpt_neox")
    pack_gptq(tmp_path / "packed", model)
    name = "gpt_neox.layers.1.input_layernorm.weight"
    for entry in range(12):

        def plant(tensors: dict[str, Tensor], entry: int = entry) -> None:
            tensors[name] = torch.ones(32, dtype=torch.float16)
            tensors[name][entry] = 1.004

        edit(tmp_path / "packed", plant)
        assert f"{name} is not quantized" in refusal(tmp_path / "packed", model)


def test_a_norm_that_feeds_a_float_layer_is_refused(tmp_path: Path):
    """The layer has the scales, too, but not the grid: its rounding cannot be told from another checkpoint."""
    model, scaled = lively("llama-tied-gqa"), lively("llama-tied-gqa")
    move_scales(scaled, "llama-tied-gqa")
    pack_gptq(tmp_path / "packed", scaled, but="model.layers.1.self_attn.v_proj")
    assert "model.layers.1.self_attn.v_proj.weight is not quantized" in refusal(tmp_path / "packed", model)


def test_a_norm_that_goes_elsewhere_too_is_refused(tmp_path: Path):
    """The layers behind it come nearer, but what else it feeds does not know of the scales: another function."""
    model, scaled = lively("llama-tied-gqa"), lively("llama-tied-gqa")
    move_scales(scaled, "llama-tied-gqa")
    pack_gptq(tmp_path / "packed", scaled)
    load_dense(checkpoint(tmp_path / "packed"), Weights.of(model), model)
    model.model.layers[1].mlp.register_forward_hook(lambda module, inputs, output: output + inputs[0])
    assert "model.layers.0.input_layernorm.weight" in refusal(tmp_path / "packed", model)


def test_a_norm_of_which_one_layer_knows_nothing_is_refused(tmp_path: Path):
    """Two of three layers behind it are scaled."""
    model, scaled = lively("llama-tied-gqa"), lively("llama-tied-gqa")
    scale = torch.linspace(0.2, 5, 32)
    with torch.no_grad():
        scaled.model.layers[0].input_layernorm.weight.div_(scale)
        for layer in (scaled.model.layers[0].self_attn.q_proj, scaled.model.layers[0].self_attn.k_proj):
            layer.weight.mul_(scale)
    pack_gptq(tmp_path / "packed", scaled)
    assert "model.layers.0.input_layernorm.weight" in refusal(tmp_path / "packed", model)


def test_nothing_is_moved_in_an_honest_checkpoint(tmp_path: Path):
    model = lively("llama-tied-gqa")
    pack_gptq(tmp_path / "packed", model)
    dense, report = load_dense(checkpoint(tmp_path / "packed"), Weights.of(model), model)
    assert report.rescaled == ()
    assert all(
        layer.weight_error == pytest.approx(apart(dense[layer.name], matrix(model, name)))
        for layer, name in zip(report.layers, linear_names(model), strict=True)
    )
