"""Packed checkpoints: what is recognized, what is refused and in which words, what is reported."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.func import functional_call

from conftest import ARCHITECTURES, build
from landscape.errors import MissingExtraError, ModelError
from landscape.models.checkpoint import Checkpoint
from landscape.packed import FORMATS, is_packed, load_dense
from landscape.weights import Weights

IDS = torch.randint(300, (2, 32), generator=torch.Generator().manual_seed(1))


def checkpoint(folder: Path) -> Checkpoint:
    return Checkpoint(folder.name, None, "sha256:0", folder, folder)


def logits(model: nn.Module, weights: Mapping[str, Tensor] | None = None) -> Tensor:
    with torch.no_grad():
        return functional_call(model, dict(weights or {}), (), {"input_ids": IDS}).logits


def apart(a: Tensor, b: Tensor) -> float:
    """‖a − b‖ / ‖b‖."""
    return float((a - b).double().norm() / b.double().norm())


def linear_names(model: nn.Module) -> list[str]:
    """The layers that quantizers round: all linear ones but the output head."""
    kinds = ("Linear", "Conv1D")
    return [
        n for n, m in model.named_modules() if type(m).__name__ in kinds and not n.endswith(("lm_head", "embed_out"))
    ]


def matrix(model: nn.Module, name: str) -> Tensor:
    """The weights of a layer as (outputs, inputs)."""
    module = model.get_submodule(name)
    return (module.weight.T if type(module).__name__ == "Conv1D" else module.weight).detach()


def words(codes: Tensor, bits: int) -> Tensor:
    """(rows, n) codes → (rows, ⌈n·bits/32⌉) int32: one long number per row, cut into words of 32 bits."""
    rows = []
    for row in codes.tolist():
        number = sum(code << bits * place for place, code in enumerate(row))
        cut = [number >> 32 * k & 0xFFFFFFFF for k in range(math.ceil(len(row) * bits / 32))]
        rows.append([word - (1 << 32) if word >= 1 << 31 else word for word in cut])
    return torch.tensor(rows, dtype=torch.int32)


def rounded(weight: Tensor, bits: int, g_idx: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Codes (outputs, inputs), zero points and scales (outputs, groups), and the values that they stand for.

    Asymmetric round-to-nearest in the groups that `g_idx` gives to the inputs; scales in half precision.
    """
    groups, top = int(g_idx.max()) + 1, 2**bits - 1
    low = torch.stack([weight[:, g_idx == g].amin(1).clamp(max=0) for g in range(groups)], 1)
    high = torch.stack([weight[:, g_idx == g].amax(1).clamp(min=0) for g in range(groups)], 1)
    scales = ((high - low) / top).half().float()
    zeros = (-low / scales).round().clamp(1, top).int()  # at least one, since GPTQ's first version stores one less
    codes, values = torch.empty_like(weight, dtype=torch.int32), torch.empty_like(weight)
    for column, group in enumerate(g_idx.tolist()):
        s, z = scales[:, group], zeros[:, group]
        codes[:, column] = (weight[:, column] / s + z).round().clamp(0, top).int()
        values[:, column] = (codes[:, column] - z) * s
    return codes, zeros, scales, values


def gptq_parts(weight: Tensor, bits: int, g_idx: Tensor, one_less: bool = True) -> tuple[dict[str, Tensor], Tensor]:
    """A layer as GPTQ stores it, and the values that it stands for."""
    codes, zeros, scales, values = rounded(weight, bits, g_idx)
    parts = {
        "qweight": words(codes, bits).T.contiguous(),
        "qzeros": words(zeros.T - int(one_less), bits),
        "scales": scales.T.half().contiguous(),
        "g_idx": g_idx.int(),
    }
    return parts, values


def save_packed(
    folder: Path,
    model: nn.Module,
    parts: Mapping[str, Mapping[str, Tensor]],
    settings: Mapping[str, object],
    dtype: torch.dtype = torch.float16,
) -> None:
    """A checkpoint in which the layers named in `parts` are stored so, and the rest in `dtype`."""
    model.save_pretrained(folder)  # which also gives tensors the names that they have in files
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": dict(settings)}))
    tensors = {name: tensor.to(dtype) for name, tensor in load_file(folder / "model.safetensors").items()}
    for layer, own in parts.items():
        del tensors[f"{layer}.weight"]
        tensors |= {f"{layer}.{part}": tensor.clone() for part, tensor in own.items()}
    save_file(tensors, folder / "model.safetensors")


def pack_gptq(
    folder: Path, model: nn.Module, dtype: torch.dtype = torch.float16, but: str = "nothing"
) -> dict[str, Tensor]:
    """Every layer of `model` as GPTQ stores it in 4 bits; the values of the packed tensors by their names in Θ."""
    parts, values = {}, {}
    for layer in linear_names(model):
        if layer == but:
            continue
        weight = matrix(model, layer)
        parts[layer], value = gptq_parts(weight, 4, torch.arange(weight.shape[1]) // 16)
        transposed = type(model.get_submodule(layer)).__name__ == "Conv1D"
        values[f"{layer}.weight"] = value.T if transposed else value
    save_packed(folder, model, parts, {"quant_method": "gptq", "bits": 4, "group_size": 16}, dtype)
    return values


def edit(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Change the tensors of a checkpoint in its file."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return build("llama-tied-gqa")


@pytest.fixture
def packed(model: nn.Module, tmp_path: Path) -> Path:
    pack_gptq(tmp_path / "packed", model)
    return tmp_path / "packed"


def refusal(folder: Path, model: nn.Module, kind: type[Exception] = ModelError) -> str:
    """The one line that `load_dense` refuses a checkpoint with."""
    with pytest.raises(kind) as error:
        load_dense(checkpoint(folder), Weights.of(model), model)
    assert "\n" not in str(error.value)
    assert str(folder.parent) not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_dense_weights_are_what_the_codes_stand_for(name: str, tmp_path: Path):
    model = build(name)
    theta = Weights.of(model)
    values = pack_gptq(tmp_path / "packed", model)
    dense, report = load_dense(checkpoint(tmp_path / "packed"), theta, model)
    assert list(dense) == list(theta)
    assert {tensor.dtype for tensor in dense.values()} == {torch.float32}
    expected = {n: values.get(n, p.detach().half().float()) for n, p in model.named_parameters()}
    assert max(float((dense[n] - expected[n]).abs().max()) for n in theta) < 1e-6
    assert (
        apart(logits(model, dense), logits(model, expected)) < 1e-5 < 1e-2 < apart(logits(model), logits(model, dense))
    )
    assert report.quantized == tuple(n for n in theta if n in values)
    assert report.total_parameters == theta.numel()
    assert report.quantized_parameters == sum(v.numel() for v in values.values())


def test_the_report_has_a_row_per_layer(model: nn.Module, packed: Path):
    theta = Weights.of(model)
    dense, report = load_dense(checkpoint(packed), theta, model)
    assert (report.format, report.bits, report.weight_half, report.rescaled) == ("gptq", (4,), False, ())
    layer = report.layers[3]
    step, weight = (dense[layer.name] - theta[layer.name]).double(), theta[layer.name].double()
    assert layer.step_norm == pytest.approx(float(step.norm()), rel=1e-9)
    assert layer.weight_error == pytest.approx(float(step.norm() / weight.norm()), rel=1e-9)
    # 4-bit codes, per group of 16 a scale in 16 bits and a zero point in 4, an index of 32 bits per input
    assert layer.bits_per_weight == pytest.approx(4 + (16 + 4) / 16 + 32 / weight.shape[0])


def test_what_is_not_quantized_may_be_rounded_and_no_more(model: nn.Module, packed: Path):
    theta = Weights.of(model)
    _, report = load_dense(checkpoint(packed), theta, model)
    names = [n for n in theta if n not in report.quantized]
    expected = max(float((theta[n].half() - theta[n]).abs().max() / theta[n].abs().max()) for n in names)
    assert report.rest_difference == pytest.approx(expected)
    assert 0 < report.rest_difference < 2**-11
    assert report.rest_dtypes == ("float16",)


def test_rounding_on_the_way_is_rounding_too(model: nn.Module, packed: Path):
    name = "model.embed_tokens.weight"
    embedding = dict(model.named_parameters())[name].detach()
    edit(packed, lambda tensors: tensors.update({name: embedding.bfloat16().half()}))
    _, report = load_dense(checkpoint(packed), Weights.of(model), model)
    assert 2**-11 < report.rest_difference < 2**-8


@pytest.mark.parametrize("change", [1.5, 1.01, 1 + 2**-9])
def test_a_changed_norm_is_another_checkpoint(model: nn.Module, packed: Path, change: float):
    name = "model.layers.1.input_layernorm.weight"
    relative = float(torch.tensor(change).half()) - 1

    def plant(tensors: dict[str, Tensor]) -> None:
        tensors[name][3] *= change

    edit(packed, plant)
    message = refusal(packed, model)
    assert f"{name} is not quantized, yet differs from Θ's by {relative:.1e} of its largest entry" in message
    assert "more than rounding to float16 explains" in message


def test_a_norm_changed_as_a_whole_is_another_checkpoint(model: nn.Module, packed: Path):
    name = "model.layers.1.input_layernorm.weight"
    edit(packed, lambda tensors: tensors[name].mul_(torch.linspace(0.5, 2, 32)))
    assert name in refusal(packed, model)


def test_a_float_of_eight_bits_is_no_rounding(model: nn.Module, packed: Path):
    name = "model.layers.1.input_layernorm.weight"
    edit(packed, lambda tensors: tensors.update({name: tensors[name].to(torch.float8_e4m3fn)}))
    assert f"{name} is not quantized, yet differs" in refusal(packed, model)


def test_layers_of_another_checkpoint_are_noticed_by_their_distance(model: nn.Module, packed: Path):
    def swap(tensors: dict[str, Tensor]) -> None:
        for part in ("qweight", "qzeros", "scales"):
            a, b = f"model.layers.0.mlp.up_proj.{part}", f"model.layers.1.mlp.up_proj.{part}"
            tensors[a], tensors[b] = tensors[b], tensors[a]

    edit(packed, swap)
    assert "model.layers.0.mlp.up_proj.weight lies 1.4" in refusal(packed, model)


def test_another_architecture(packed: Path):
    assert "a llama, and Θ is of a gpt_neox" in refusal(packed, build("gpt_neox"))


def test_another_shape(packed: Path):
    message = refusal(packed, build("llama-tied-gqa", intermediate_size=96))
    assert "down_proj.weight has shape (32, 64) in the packed checkpoint and (32, 96) in the float model" in message


def test_another_depth(packed: Path):
    assert "model.layers.1." in refusal(packed, build("llama-tied-gqa", num_hidden_layers=1))
    assert "tensors of Θ are not in the files (model.layers.2." in refusal(
        packed, build("llama-tied-gqa", num_hidden_layers=3)
    )


def test_a_missing_part(model: nn.Module, packed: Path):
    edit(packed, lambda tensors: tensors.pop("model.layers.0.mlp.up_proj.scales"))
    assert "layer model.layers.0.mlp.up_proj: its scales is not in the files" in refusal(packed, model)


def test_a_bias_that_the_layer_has_not(model: nn.Module, packed: Path):
    name = "model.layers.0.mlp.up_proj.bias"
    edit(packed, lambda tensors: tensors.update({name: torch.zeros(64)}))
    load_dense(checkpoint(packed), Weights.of(model), model)  # AutoGPTQ writes one of zeros
    edit(packed, lambda tensors: tensors[name].fill_(0.1))
    assert f"tensor {name} is not in the float model" in refusal(packed, model)


def test_buffers_of_older_versions_are_left_out(model: nn.Module, packed: Path):
    edit(packed, lambda tensors: tensors.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}))
    load_dense(checkpoint(packed), Weights.of(model), model)


def test_tied_tensors_are_stored_once_or_twice_but_are_one(model: nn.Module, packed: Path):
    def copy(tensors: dict[str, Tensor]) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    edit(packed, copy)
    dense, _ = load_dense(checkpoint(packed), Weights.of(model), model)
    assert "lm_head.weight" not in dense
    edit(packed, lambda tensors: tensors["lm_head.weight"].mul_(2))
    assert "model.embed_tokens.weight and lm_head.weight are one in the float model" in refusal(packed, model).replace(
        "lm_head.weight and model.embed_tokens.weight", "model.embed_tokens.weight and lm_head.weight"
    )


def test_a_checkpoint_of_the_bare_decoder(model: nn.Module, packed: Path):
    edit(packed, lambda tensors: [tensors.update({n.removeprefix("model."): tensors.pop(n)}) for n in list(tensors)])
    load_dense(checkpoint(packed), Weights.of(model), model)


def test_several_files_and_pickles(model: nn.Module, packed: Path):
    dense, _ = load_dense(checkpoint(packed), Weights.of(model), model)
    tensors = load_file(packed / "model.safetensors")
    (packed / "model.safetensors").unlink()
    half = len(tensors) // 2
    shards = {"model-1.safetensors": list(tensors)[:half], "model-2.safetensors": list(tensors)[half:]}
    for file, names in shards.items():
        save_file({name: tensors[name] for name in names}, packed / file)
    index = {"weight_map": {name: file for file, names in shards.items() for name in names}}
    (packed / "model.safetensors.index.json").write_text(json.dumps(index))
    assert load_dense(checkpoint(packed), Weights.of(model), model)[0].equal(dense)
    for file in (*shards, "model.safetensors.index.json"):
        (packed / file).unlink()
    torch.save(tensors, packed / "pytorch_model.bin")
    assert load_dense(checkpoint(packed), Weights.of(model), model)[0].equal(dense)
    (packed / "pytorch_model.bin").write_bytes(b"no pickle")
    assert "pytorch_model.bin cannot be read" in refusal(packed, model)
    (packed / "pytorch_model.bin").unlink()
    assert "no model.safetensors" in refusal(packed, model)


def test_formats_are_recognized_without_loading(tmp_path: Path):
    def settings(folder: str, **content: object) -> Checkpoint:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text(json.dumps(content))
        return checkpoint(tmp_path / folder)

    for method in (*FORMATS[:-1], "fp8", "hqq", "vptq"):
        assert is_packed(settings(method, quantization_config={"quant_method": method})) == method
    assert is_packed(settings("float")) is None
    assert is_packed(settings("old-bnb", quantization_config={"load_in_4bit": True})) == "bitsandbytes"
    assert (
        is_packed(settings("old-ct", compression_config={"quant_method": "compressed-tensors"})) == "compressed-tensors"
    )
    assert is_packed(settings("unpacked", quantization_config={"quant_method": "gguf"})) is None
    with pytest.raises(ModelError, match=r"model odd: quantization_config .* is no mapping"):
        is_packed(settings("odd", quantization_config=["gptq"]))
    for file, method in (("quantize_config.json", "gptq"), ("quant_config.json", "awq")):
        settings(file)
        (tmp_path / file / file).write_text(json.dumps({"bits": 4}))
        assert is_packed(checkpoint(tmp_path / file)) == method


def test_a_gguf_file_is_recognized_alone_or_in_a_directory(tmp_path: Path):
    path = tmp_path / "tiny-q4_0.gguf"
    path.write_bytes(b"GGUF")
    assert is_packed(checkpoint(path)) == is_packed(checkpoint(tmp_path)) == "gguf"
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert is_packed(checkpoint(tmp_path)) is None


def test_a_damaged_configuration(tmp_path: Path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config\.json is damaged"):
        is_packed(checkpoint(tmp_path))


@pytest.mark.parametrize("method", ["fp8", "hqq", "vptq"])
def test_other_formats_are_named_beside_those_that_are_read(model: nn.Module, packed: Path, method: str):
    path = packed / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": {"quant_method": method}}))
    assert f"packed in the format {method}; expected a checkpoint in one of {', '.join(FORMATS)}" in refusal(
        packed, model
    )


def test_a_float_checkpoint_is_not_packed(model: nn.Module, tmp_path: Path):
    model.save_pretrained(tmp_path / "float")
    assert "float: not packed; expected a checkpoint in one of gptq, awq" in refusal(tmp_path / "float", model)


@pytest.mark.parametrize(
    ("method", "package"),
    [
        ("bitsandbytes", "bitsandbytes"),
        ("compressed-tensors", "compressed-tensors"),
        ("torchao", "torchao"),
        ("gguf", "gguf"),
    ],
)
def test_a_missing_package_names_the_extra(
    method: str, package: str, model: nn.Module, packed: Path, monkeypatch: pytest.MonkeyPatch
):
    path = packed / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": {"quant_method": method}}))
    if method == "gguf":
        (packed / "model.safetensors").rename(packed / "model.gguf")
    module = package.replace("-", "_")
    for name in {module, *(name for name in sys.modules if name.startswith(f"{module}."))}:
        monkeypatch.setitem(sys.modules, name, None)
    message = refusal(packed, model, MissingExtraError)
    assert message.endswith(f"needs the package {package}: pip install 'landscape[quant]'")
