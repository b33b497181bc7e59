"""Whole models of every architecture: what is quantized, from which inputs, and what is refused."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import pytest
import torch
import transformers
from torch import Tensor

from conftest import ARCHITECTURES, VOCABULARY, build, prose
from landscape.errors import MissingExtraError, ModelError, QuantizerError
from landscape.quantize import linear_layers, output_error, parse, quantize, round_to_nearest
from landscape.quantize.layers import Layer
from landscape.quantize.sequential import Inputs, quantize_in_order
from landscape.tokens import WindowReader, Windows
from landscape.weights import Weights

METHODS = ("rtn-w3-g16", "gptq-w3-g16", "awq-w3-g16", "smoothquant-w4-g16", "hqq-w3-g16", "int8", "nf4", "fp4-dq")


@pytest.fixture(scope="module")
def calibration(tokenizer) -> Windows:
    return WindowReader([prose(2500, seed=5)], tokenizer, 32).take(40)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_and_the_model_comes_back_bit_for_bit(name: str, calibration: Windows):
    model = build(name)
    before = Weights.of(model).clone()
    embeddings = [model.get_input_embeddings(), model.get_output_embeddings()]
    for quantizer in METHODS:
        rounded, report = quantize(parse(quantizer), model, calibration)
        assert Weights.of(model).equal(before)
        inside = {f"{layer.name}.weight" for layer in report.layers}
        assert len(inside) == len(linear_layers(model)) >= 8
        for key, tensor in rounded.items():
            assert torch.equal(tensor, before[key]) == (key not in inside), key
        for module in embeddings:
            assert all(module.weight is not dict(model.named_parameters()).get(key) for key in inside)
        assert report.quantized_parameters == sum(before[key].numel() for key in inside)
        assert report.total_parameters == before.numel()
        assert report.fallbacks == ()
        if quantizer.startswith("gptq"):
            for layer in report.layers:
                assert layer.output_error < layer.rtn_output_error, layer.name


def test_matrices_of_conv1d_are_grouped_along_their_inputs(calibration: Windows):
    model = build("gpt2")
    rounded, _ = quantize(parse("rtn-w2-channel"), model)
    weight = rounded["transformer.h.0.mlp.c_fc.weight"]  # (inputs, outputs)
    assert max(len(column.unique()) for column in weight.T) <= 4
    assert max(len(row.unique()) for row in weight) > 4


def test_layers_see_the_inputs_of_the_quantized_model(calibration: Windows):
    """The second block's XᵀX must come from the quantized first block: compare with a run that says so."""
    model = build("llama-tied-gqa")
    rounded, report = quantize(parse("gptq-w2-g16"), model, calibration)
    captured: dict[str, Tensor] = {}
    layer = model.model.layers[1].mlp.down_proj
    original = layer.weight.detach().clone()
    hook = layer.register_forward_pre_hook(lambda module, args: captured.update(x=args[0].detach()))
    with torch.no_grad():
        for key, tensor in rounded.items():
            if key != "model.layers.1.mlp.down_proj.weight":
                model.get_parameter(key).copy_(tensor)
        model(input_ids=calibration.ids, use_cache=False)
    hook.remove()
    x = captured["x"].flatten(0, 1)
    expected = output_error(original, rounded["model.layers.1.mlp.down_proj.weight"], x.T @ x)
    row = next(row for row in report.layers if row.name == "model.layers.1.mlp.down_proj")
    assert row.output_error == pytest.approx(expected, rel=1e-4)


def test_the_sums_over_inputs_in_parts_are_those_of_the_whole(calibration: Windows, monkeypatch):
    model = build("llama-tied-gqa")
    whole = quantize(parse("awq-w3-g16-clip"), model, calibration)
    monkeypatch.setattr("landscape.quantize.sequential._COLUMNS", 24)
    monkeypatch.setattr("landscape.quantize.grid._AT_ONCE", 100)
    parts = quantize(parse("awq-w3-g16-clip"), model, calibration)
    assert whole[0].equal(parts[0])
    for one, two in zip(whole[1].layers, parts[1].layers, strict=True):
        for name in ("output_error", "rtn_output_error", "saturation", "misalignment", "excess_kurtosis"):
            assert getattr(one, name) == pytest.approx(getattr(two, name), rel=1e-5), name
        assert one.max_over_median == two.max_over_median and one.saturation > 0


def test_what_feeds_layers_over_all_batches(calibration: Windows):
    """XᵀX, mean |x| and max |x| of every group of layers, against what a hook sees in one pass over the whole text."""
    model = build("llama-tied-gqa")
    layers, windows = linear_layers(model), ragged(calibration)
    found: dict[str, tuple[list[str], Inputs]] = {}

    def look(some: Sequence[Layer], inputs: Inputs | None) -> list[Tensor]:
        names = [layer.name.removeprefix("model.layers.") for layer in some]
        found[names[0]] = (names, inputs)
        return [layer.weight.detach() for layer in some]

    for feeds_on in (False, True):  # nothing is rounded, so that both see the same
        found.clear()
        quantize_in_order(model, layers, windows, look, lambda *_: None, batch_size=3, feeds_on=feeds_on)
        projections = ("self_attn.q_proj self_attn.k_proj self_attn.v_proj", "self_attn.o_proj")
        groups = [*projections, "mlp.gate_proj mlp.up_proj", "mlp.down_proj"]
        expected = [[f"{block}.{name}" for name in group.split()] for block in (0, 1) for group in groups]
        assert [names for names, _ in found.values()] == expected
        for first, (_, inputs) in found.items():
            seen: list[Tensor] = []
            hook = model.get_submodule(f"model.layers.{first}").register_forward_pre_hook(
                lambda _, args, seen=seen: seen.append(args[0])
            )
            with torch.no_grad():
                model(input_ids=windows.ids, use_cache=False)
            hook.remove()
            x = seen[0][torch.arange(32) < windows.lengths[:, None]]
            gram = (x.T @ x).double() / len(x)
            assert float((inputs.gram - gram).abs().max()) < 1e-5 * float(gram.diagonal().max())
            assert torch.allclose(inputs.mean_abs, x.abs().mean(0), rtol=1e-4)
            assert torch.allclose(inputs.max_abs, x.abs().amax(0), rtol=1e-4)
            assert inputs.after_norm is first.endswith(("q_proj", "gate_proj"))


def test_padding_is_no_calibration_data(tokenizer):
    texts = [prose(n, seed=n) for n in (30, 4, 18, 9)]
    ragged = WindowReader(texts, tokenizer, 48, "documents").take(10)
    changed = Windows(ragged.ids.clone(), ragged.lengths)
    for row, length in zip(changed.ids, changed.lengths.tolist(), strict=True):
        row[length:] = 123
    model = build("gpt_neox")
    one, _ = quantize(parse("gptq-w3-g16"), model, ragged)
    two, _ = quantize(parse("gptq-w3-g16"), model, changed)
    assert one.equal(two)


def test_is_deterministic_and_independent_of_the_batch_size(calibration: Windows):
    model = build("gpt_neox")
    one, two = (quantize(parse("gptq-w4-g16"), model, calibration)[0] for _ in range(2))
    assert one.equal(two)
    other, _ = quantize(parse("gptq-w4-g16"), model, calibration, batch_size=3)
    assert (other - one).norm() < 0.05 * (one - Weights.of(model)).norm()


def test_what_cannot_be_quantized(calibration: Windows):
    model = build("gpt_neox")
    with pytest.raises(QuantizerError, match="group size 100: does not divide the 32 inputs"):
        quantize(parse("rtn-w4-g100"), model)
    with pytest.raises(QuantizerError, match="needs calibration text"):
        quantize(parse("gptq-w4-g16"), model)
    with pytest.raises(ModelError, match="no stack of blocks"):
        quantize(parse("rtn-w4-g16"), torch.nn.Linear(16, 16))
    before = Weights.of(model).clone()
    broken = build("gpt_neox")
    with torch.no_grad():
        broken.gpt_neox.layers[1].mlp.dense_h_to_4h.weight.fill_(1e38)
    kept = Weights.of(broken).clone()
    with pytest.raises(QuantizerError, match="non-finite activations"):
        quantize(parse("gptq-w4-g16"), broken, calibration)
    with torch.no_grad():
        broken.gpt_neox.layers[1].mlp.dense_h_to_4h.weight[3, 3] = math.nan
    with pytest.raises(QuantizerError, match="dense_h_to_4h: its weights are not finite"):
        quantize(parse("rtn-w4-g16"), broken)
    broken.gpt_neox.layers[1].mlp.dense_h_to_4h.weight.data[3, 3] = 1e38
    assert Weights.of(broken).equal(kept), "an error must leave the model as it was"
    assert Weights.of(model).equal(before)


def test_methods_that_look_at_activations_see_those_of_the_float_model(calibration: Windows):
    """AWQ's error on the second block must be that on the inputs of Θ, unlike GPTQ's above."""
    model = build("llama-tied-gqa")
    rounded, report = quantize(parse("awq-w2-g16"), model, calibration)
    captured: dict[str, Tensor] = {}
    layer = model.model.layers[1].mlp.down_proj
    hook = layer.register_forward_pre_hook(lambda module, args: captured.update(x=args[0].detach()))
    with torch.no_grad():
        model(input_ids=calibration.ids, use_cache=False)
    hook.remove()
    x = captured["x"].flatten(0, 1)
    expected = output_error(layer.weight.detach(), rounded["model.layers.1.mlp.down_proj.weight"], x.T @ x)
    row = next(row for row in report.layers if row.name == "model.layers.1.mlp.down_proj")
    assert row.output_error == pytest.approx(expected, rel=1e-4)


def test_smoothquant_migrates_into_norms_only(calibration: Windows):
    model = build("llama-tied-gqa")
    before = Weights.of(model)
    rounded, _ = quantize(parse("smoothquant-w3-channel"), model, calibration)
    for name in ("self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj"):
        weight = before[f"model.layers.0.{name}.weight"]
        plain = torch.equal(
            rounded[f"model.layers.0.{name}.weight"], round_to_nearest(weight, 3, weight.shape[1]).weight
        )
        assert plain is (name in ("self_attn.o_proj", "mlp.down_proj")), name


def test_a_rotated_model_computes_the_same(calibration: Windows):
    """X Wᵀ = (X R)(W R)ᵀ: with every layer's inputs and weights rotated, the logits are those of the float model."""
    from landscape.quantize import Rotation

    model = build("llama-tied-gqa")
    with torch.no_grad():
        before = model(input_ids=calibration.ids[:4], use_cache=False).logits
        for layer in linear_layers(model):
            turned = Rotation.random(layer.inputs)
            layer.weight.copy_(turned.apply(layer.weight))
            layer.module.register_forward_pre_hook(lambda _, args, turned=turned: (turned.apply(args[0]),))
        after = model(input_ids=calibration.ids[:4], use_cache=False).logits
    assert float((after - before).abs().max()) < 1e-5 * float(before.abs().max())


def test_mixed_precision_by_name(calibration: Windows):
    model = build("llama-tied-gqa")
    before = Weights.of(model).clone()
    for method in ("rtn", "gptq"):
        name = f"{method}-w2-g16+down_proj=w8-channel+layers.1.self_attn=float"
        rounded, report = quantize(parse(name), model, calibration)
        assert report.quantizer == name
        rows = {row.name: row for row in report.layers}
        assert len(rows) == 14 - 4
        assert not any(row.startswith("model.layers.1.self_attn") for row in rows)
        assert torch.equal(
            rounded["model.layers.1.self_attn.q_proj.weight"], before["model.layers.1.self_attn.q_proj.weight"]
        )
        assert rows["model.layers.0.mlp.down_proj"].quantizer == f"{method}-w8-channel"
        assert (rows["model.layers.0.mlp.down_proj"].bits, rows["model.layers.0.mlp.up_proj"].bits) == (8, 2)
        assert report.quantized_parameters == sum(before[f"{row}.weight"].numel() for row in rows)
    model_after, _ = quantize(parse("rtn-w2-g16+down_proj=w8"), model)
    plain, _ = quantize(parse("rtn-w8-g16"), model)
    assert torch.equal(model_after["model.layers.0.mlp.down_proj.weight"], plain["model.layers.0.mlp.down_proj.weight"])


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("lm_head=w8", "lm_head=w8 is about lm_head; only linear layers inside the decoder blocks"),
        ("embed_tokens=w8", "is about model.embed_tokens; only linear layers"),
        ("nowhere=w8", "nowhere fits no layer; expected parts of a name such as model.layers.0.self_attn.q_proj"),
        ("layers=float", "leaves every layer in float"),
        ("self_attn=g48", "group size 48: does not divide the 32 inputs"),
    ],
)
def test_overrides_of_what_is_not_there(override: str, complaint: str):
    with pytest.raises(QuantizerError) as error:
        quantize(parse(f"rtn-w4-g16+{override}"), build("llama-tied-gqa"))
    assert complaint in str(error.value)


def test_too_little_calibration_text_says_how_much(calibration: Windows):
    few = Windows(calibration.ids[:1], calibration.lengths[:1])
    with pytest.raises(QuantizerError, match=r"32 calibration tokens for the 128 inputs of .*dense_4h_to_h"):
        quantize(parse("gptq-w4-g16"), build("gpt_neox", intermediate_size=128), few)
    _, report = quantize(parse("awq-w4-g16"), build("gpt_neox", intermediate_size=128), few)  # needs no inverse
    assert all(row.redundant_inputs >= row.inputs - 33 for row in report.layers)


def test_a_planted_singular_layer_is_reported(calibration: Windows):
    """Two inputs of one layer are copies of each other, and another is dead."""
    model = build("llama-tied-gqa")
    with torch.no_grad():
        mlp = model.model.layers[1].mlp
        for projection in (mlp.gate_proj, mlp.up_proj):
            projection.weight[5] = projection.weight[9]
            projection.weight[3] = 0
    _, report = quantize(parse("gptq-w4-g16"), model, calibration)
    rows = {row.name: row for row in report.layers}
    row = rows["model.layers.1.mlp.down_proj"]
    assert (row.dead_inputs, row.redundant_inputs) == (1, 1)
    assert "model.layers.1.mlp.down_proj" in report.singular
    assert "model.layers.0.mlp.down_proj" not in report.singular


@pytest.mark.parametrize("engine", ["gptqmodel", "llmcompressor"])
def test_another_engine_that_is_not_installed_names_its_extra(calibration: Windows, engine: str, monkeypatch):
    monkeypatch.setitem(sys.modules, engine, None)  # as if it were not there
    with pytest.raises(MissingExtraError, match=rf"pip install 'landscape\[{engine}\]'"):
        quantize(parse(f"gptq-w4-g16-static@{engine}"), build("llama-tied-gqa"), calibration)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("rtn-w4-g16@gptqmodel", "gptqmodel is asked for symmetric gptq only"),
        ("gptq-w4-g16-asym@gptqmodel", "gptqmodel is asked for symmetric gptq only"),
        ("gptq-w4-g16+down_proj=w8@llmcompressor", "llmcompressor is asked for symmetric gptq only"),
        ("gptq-w4-g16@llmcompressor", "add -static or -noact"),
    ],
)
def test_what_other_engines_are_not_asked_for(calibration: Windows, name: str, complaint: str):
    with pytest.raises(QuantizerError, match=complaint):
        quantize(parse(name), build("llama-tied-gqa"), calibration)


def other(kind: str, **settings: object) -> torch.nn.Module:
    from transformers import AutoConfig, AutoModelForCausalLM

    wide = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": VOCABULARY}
    ids = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **wide, **ids, **settings)).eval()


def ragged(calibration: Windows) -> Windows:
    lengths = calibration.lengths.clone()
    lengths[::3] = 20
    return Windows(calibration.ids, lengths)


def test_layers_that_see_windows_as_one_row_of_tokens(calibration: Windows):
    """OPT flattens windows before its linear layers; padding is found there too."""
    model = other("opt", ffn_dim=64, word_embed_proj_dim=32, max_position_embeddings=64)
    one = ragged(calibration)
    two = Windows(one.ids.masked_fill(torch.arange(32) >= one.lengths[:, None], 7), one.lengths)
    results = [quantize(parse("gptq-w3-g16"), model, windows)[0] for windows in (one, two)]
    assert results[0].equal(results[1])
    assert not results[0].equal(quantize(parse("gptq-w3-g16"), model, calibration)[0])
    rows = quantize(parse("gptq-w3-g16"), model, one)[1].layers
    assert {row.name.rsplit(".", 1)[1] for row in rows} >= {"fc1", "fc2", "out_proj"}
    assert all(row.output_error < row.rtn_output_error for row in rows)


class Expert(torch.nn.Module):
    """Sends the tokens whose first feature is positive through one layer, in falling order of that feature."""

    def __init__(self, reached: bool) -> None:
        super().__init__()
        self.expert, self.reached = torch.nn.Linear(32, 32), reached

    def forward(self, hidden: Tensor) -> Tensor:
        tokens = hidden.flatten(0, 1)
        if not self.reached:
            return torch.zeros_like(hidden)
        busy = tokens[:, 0].argsort(descending=True)[: int((tokens[:, 0] > 0).sum())]
        output = torch.zeros_like(tokens)
        output[busy] = self.expert(tokens[busy])
        return output.view(hidden.shape)


def test_experts_that_see_some_of_the_tokens(calibration: Windows):
    model = build("llama-tied-gqa")
    model.model.layers[0].mlp = Expert(reached=True)
    seen: list[Tensor] = []
    hook = model.model.layers[0].mlp.expert.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.no_grad():
        for some in calibration.ids.split(8):
            model(input_ids=some, use_cache=False)
    hook.remove()
    x = torch.cat(seen)
    assert 0 < len(x) < calibration.n_tokens
    hat, report = quantize(parse("awq-w3-g16"), model, calibration)
    row = next(row for row in report.layers if row.name.endswith("mlp.expert"))
    name = "model.layers.0.mlp.expert.weight"
    expected = output_error(model.get_parameter(name).detach(), hat[name], x.T @ x)
    assert row.output_error == pytest.approx(expected, rel=1e-4)
    with pytest.raises(QuantizerError, match=r"mlp.expert: takes tokens in an order of its own, padding among them"):
        quantize(parse("awq-w3-g16"), model, ragged(calibration))


def test_a_layer_that_no_token_reaches_is_not_passed_over(calibration: Windows):
    model = build("llama-tied-gqa")
    model.model.layers[1].mlp = Expert(reached=False)
    before = Weights.of(model).clone()
    with pytest.raises(QuantizerError, match=r"model.layers.1.mlp.expert: no calibration token reaches it") as error:
        quantize(parse("gptq-w3-g16"), model, calibration)
    assert Weights.of(model).equal(before)
    remedy = str(error.value).rsplit("with ", 1)[1]
    _, report = quantize(parse(f"gptq-w3-g16{remedy}"), model, calibration)
    assert not any("expert" in row.name for row in report.layers)


@pytest.mark.skipif(transformers.__version__ < "5", reason="transformers 4 has experts as linear layers")
def test_parameters_of_blocks_that_are_in_no_linear_layer_are_told_of():
    model = other(
        "mixtral", intermediate_size=64, num_key_value_heads=2, num_local_experts=4, max_position_embeddings=64
    )
    hat, report = quantize(parse("rtn-w4-g16"), model)
    fused = [name for name, tensor in hat.items() if ".experts." in name and tensor.dim() == 3]
    assert fused and report.not_linear >= sum(hat[name].numel() for name in fused)
    share = report.not_linear / report.total_parameters
    assert f"{share:.0%} of the parameters lie in blocks but in no linear layer" in " ".join(report.notes)
    assert quantize(parse("rtn-w4-g16"), build("llama-tied-gqa"))[1].not_linear == 0
