"""bitsandbytes, compressed-tensors and torchao: checkpoints made by the real packages, against what transformers does.

Dense weights are compared with the weights that the package itself unpacks in a model that transformers loaded, and the
logits with those of that model: to float32 where it runs on unpacked weights, and otherwise as told at each place.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

from conftest import build
from landscape.packed import PackedReport, is_packed, load_dense
from landscape.weights import Weights
from test_packed import apart, checkpoint, edit, linear_names, logits, matrix, refusal

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]

WIDE = {"hidden_size": 64, "intermediate_size": 128}  # bitsandbytes' kernel for the CPU takes whole blocks of 64


def wide(name: str = "llama-tied-gqa") -> nn.Module:
    return build(name, **({"n_embd": 64} if name == "gpt2" else WIDE))


def quantized(folder: Path, model: nn.Module, config: Any, dtype: torch.dtype = torch.float32) -> Path:
    """`model` loaded with a quantization of transformers', and saved."""
    from transformers import AutoModelForCausalLM

    model.save_pretrained(folder / "float")
    other = AutoModelForCausalLM.from_pretrained(folder / "float", quantization_config=config, dtype=dtype)
    other.eval().save_pretrained(folder / "packed")
    return folder / "packed"


def loaded(folder: Path, **options: Any) -> nn.Module:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options).eval()


def dense_of(folder: Path, model: nn.Module) -> tuple[Weights, PackedReport]:
    dense, report = load_dense(checkpoint(folder), Weights.of(model), model)
    assert list(dense) == [name for name, _ in model.named_parameters()]
    assert set(report.quantized) == {f"{layer}.weight" for layer in linear_names(model)}
    assert report.rest_difference == 0
    return dense, report


def furthest(dense: Weights, other: nn.Module) -> float:
    """Largest distance of a tensor from that of a dense model, relative to its norm."""
    return max(apart(dense[name], parameter.detach()) for name, parameter in other.named_parameters())


class TestBitsAndBytes:
    @pytest.fixture(autouse=True)
    def needed(self) -> None:
        pytest.importorskip("bitsandbytes")
        pytest.importorskip("accelerate")

    @staticmethod
    def config(kind: str, double: bool = False) -> Any:
        from transformers import BitsAndBytesConfig

        if kind == "int8":
            return BitsAndBytesConfig(load_in_8bit=True)
        return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=double)

    @pytest.mark.parametrize("name", ["llama-tied-gqa", "gpt_neox", "gpt2"])
    @pytest.mark.parametrize(("kind", "double"), [("nf4", False), ("nf4", True), ("fp4", False), ("int8", False)])
    def test_weights_are_those_that_transformers_unpacks(self, name: str, kind: str, double: bool, tmp_path: Path):
        model = wide(name)
        folder = quantized(tmp_path, model, self.config(kind, double))
        assert is_packed(checkpoint(folder)) == "bitsandbytes"
        dense, report = dense_of(folder, model)
        assert report.bits == ((8,) if kind == "int8" else (4,))
        assert report.weight_half == (kind == "int8")
        other = loaded(folder).dequantize()
        for layer in linear_names(model):
            weight = dense[f"{layer}.weight"]  # transformers unpacks GPT-2's `Conv1D` into linear layers
            assert apart(weight.T if name == "gpt2" else weight, other.get_submodule(layer).weight.detach()) < 1e-6
        assert apart(logits(model, dense), logits(other)) < 1e-5

    @pytest.mark.parametrize("kind", ["nf4", "fp4"])
    def test_logits_are_those_of_the_packed_model(self, kind: str, tmp_path: Path):
        """Its kernel for the CPU keeps scales in bfloat16: 3 % of what quantization changes."""
        model = wide()
        folder = quantized(tmp_path, model, self.config(kind))
        dense, _ = dense_of(folder, model)
        packed = logits(loaded(folder))
        assert apart(logits(model, dense), packed) < 0.1 * apart(logits(model), packed)

    def test_closed_form_of_int8(self, tmp_path: Path):
        model = wide()
        dense, _ = dense_of(quantized(tmp_path, model, self.config("int8")), model)
        for layer in linear_names(model):
            weight = matrix(model, layer)
            step = weight.abs().amax(1, keepdim=True) / 127
            # LLM.int8 rounds in half precision: some codes fall on the other side
            assert float(((dense[f"{layer}.weight"] - weight).abs() / step).max()) < 0.6

    def test_half_precision_stays_on_the_grid(self, tmp_path: Path):
        """Sixteen levels per block: the products are not rounded to the dtype that the model was saved in."""
        model = wide()
        folder = quantized(tmp_path, model, self.config("nf4"), torch.bfloat16)
        dense, report = load_dense(checkpoint(folder), Weights.of(model), model)
        assert report.rest_dtypes == ("bfloat16",)
        assert 0 < report.rest_difference < 2**-8
        weight = dense["model.layers.0.self_attn.q_proj.weight"].reshape(-1, 64)
        levels = weight / weight.abs().amax(1, keepdim=True)
        assert len(levels.mul(1e5).round().unique()) <= 18  # nf4 has 16 levels; ±1 belong to a block's largest entry

    def test_a_changed_norm(self, tmp_path: Path):
        model = wide()
        folder = quantized(tmp_path, model, self.config("nf4"))
        edit(folder, lambda tensors: tensors["model.norm.weight"].mul_(1.01))
        assert "model.norm.weight is not quantized, yet differs" in refusal(folder, model)

    def test_the_layout_of_a_gpu(self, tmp_path: Path):
        model = wide()
        folder = quantized(tmp_path, model, self.config("int8"))
        edit(folder, lambda tensors: tensors["model.layers.0.mlp.up_proj.weight_format"].fill_(2))
        assert "in the layout of a GPU" in refusal(folder, model)

    def test_a_damaged_state(self, tmp_path: Path):
        model = wide()
        folder = quantized(tmp_path, model, self.config("nf4"))
        edit(folder, lambda tensors: tensors.pop("model.layers.0.mlp.up_proj.weight.quant_map"))
        assert "model.layers.0.mlp.up_proj" in refusal(folder, model)


class TestCompressedTensors:
    @pytest.fixture(autouse=True)
    def needed(self) -> None:
        pytest.importorskip("compressed_tensors")
        pytest.importorskip("transformers", minversion="5.0")  # older ones do not load what this version writes

    @staticmethod
    def pack(folder: Path, model: nn.Module, bits: int, group: int | None, symmetric: bool, activations: bool) -> None:
        """Quantize `model` by the extremes of its weights and save it, by the package's own means."""
        from compressed_tensors import quantization as ct
        from compressed_tensors.compressors import ModelCompressor
        from compressed_tensors.quantization.utils import calculate_qparams

        strategy = "group" if group else "channel"
        weights = ct.QuantizationArgs(num_bits=bits, symmetric=symmetric, strategy=strategy, group_size=group)
        inputs = ct.QuantizationArgs(num_bits=8, strategy="token", dynamic=True) if activations else None
        scheme = ct.QuantizationScheme(targets=["Linear"], weights=weights, input_activations=inputs)
        ct.apply_quantization_config(
            model, ct.QuantizationConfig(config_groups={"group_0": scheme}, ignore=["lm_head"])
        )
        for module in model.modules():
            if hasattr(module, "weight_scale"):
                groups = module.weight.detach().unflatten(1, (-1, group or module.weight.shape[1]))
                scale, zero = calculate_qparams(groups.amin(-1), groups.amax(-1), weights)
                module.weight_scale.data.copy_(scale)
                if hasattr(module, "weight_zero_point"):
                    module.weight_zero_point.data.copy_(zero)
                module.quantization_status = ct.QuantizationStatus.FROZEN
        compressor = ModelCompressor.from_pretrained_model(model)
        compressor.compress_model(model)
        model.save_pretrained(folder)
        compressor.update_config(folder)

    @pytest.mark.parametrize(
        ("bits", "group", "symmetric", "activations", "form"),
        [
            (4, 16, True, False, "pack-quantized"),
            (4, 16, False, False, "pack-quantized"),
            (4, None, True, False, "pack-quantized"),
            (3, 16, False, False, "pack-quantized"),
            (8, None, True, False, "pack-quantized"),
            (8, None, True, True, "int-quantized"),
            (8, None, False, True, "int-quantized"),
        ],
    )
    def test_weights_are_those_that_transformers_unpacks(
        self, bits: int, group: int | None, symmetric: bool, activations: bool, form: str, tmp_path: Path
    ):
        from transformers import CompressedTensorsConfig

        model = wide()
        self.pack(tmp_path / "packed", wide(), bits, group, symmetric, activations)
        assert f'"format": "{form}"' in (tmp_path / "packed" / "config.json").read_text()
        dense, report = dense_of(tmp_path / "packed", model)
        assert (report.format, report.bits, report.weight_half) == ("compressed-tensors", (bits,), activations)
        other = loaded(tmp_path / "packed", quantization_config=CompressedTensorsConfig(dequantize=True))
        assert furthest(dense, other) < 1e-6
        assert apart(logits(model, dense), logits(other)) < 1e-5
        weight = model.model.layers[0].mlp.up_proj.weight.detach()
        spread = weight.abs().amax(1) if group is None else weight.unflatten(1, (-1, group)).abs().amax((1, 2))
        step = 2 * spread[:, None] / (2**bits - 1)
        assert float(((dense["model.layers.0.mlp.up_proj.weight"] - weight).abs() / step).max()) < 1.01

    def test_half_precision_stays_on_the_grid(self, tmp_path: Path):
        model = wide()
        self.pack(tmp_path / "packed", wide().bfloat16(), 4, 16, True, False)
        dense, report = load_dense(checkpoint(tmp_path / "packed"), Weights.of(model), model)
        assert report.rest_dtypes == ("bfloat16",)
        with safe_open(tmp_path / "packed" / "model.safetensors", "pt") as file:
            scale = file.get_tensor("model.layers.0.mlp.up_proj.weight_scale").float()
        codes = dense["model.layers.0.mlp.up_proj.weight"].unflatten(1, (-1, 16)) / scale[:, :, None]
        assert float((codes - codes.round()).abs().max()) < 1e-5

    @pytest.mark.parametrize("symmetric", [True, False])
    def test_an_activation_order(self, symmetric: bool, tmp_path: Path):
        """As llm-compressor wrote it with `actorder: group`: columns permuted so that groups are scattered."""
        import json

        model = wide()
        self.pack(tmp_path / "packed", wide(), 4, 16, symmetric, False)
        straight, _ = dense_of(tmp_path / "packed", model)
        layer = "model.layers.0.mlp.up_proj"
        order = torch.randperm(64, generator=torch.Generator().manual_seed(0))

        def permute(tensors: dict[str, Tensor]) -> None:
            from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32, unpack_from_int32

            codes = unpack_from_int32(tensors[f"{layer}.weight_packed"], 4, torch.Size((128, 64)))
            tensors[f"{layer}.weight_packed"] = pack_to_int32(codes[:, order].contiguous(), 4)
            tensors[f"{layer}.weight_g_idx"] = (order // 16).int()

        edit(tmp_path / "packed", permute)
        path = tmp_path / "packed" / "config.json"
        config = json.loads(path.read_text())
        config["quantization_config"]["config_groups"]["group_0"]["weights"]["actorder"] = "group"
        path.write_text(json.dumps(config))
        with torch.no_grad():
            model.model.layers[0].mlp.up_proj.weight.copy_(model.model.layers[0].mlp.up_proj.weight[:, order])
        dense, _ = dense_of(tmp_path / "packed", model)
        assert torch.equal(dense[f"{layer}.weight"], straight[f"{layer}.weight"][:, order])

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"format": "nvfp4-pack-quantized"}, "in the format nvfp4-pack-quantized; expected pack-quantized"),
            ({"transform_config": {"config_groups": {"u": {}}}}, "its weights are rotated"),
            ({"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparse weights"),
            ({"targets": ["re:.*q_proj"]}, "no group of the configuration says how"),
        ],
    )
    def test_other_formats_are_refused(self, settings: dict[str, Any], message: str, tmp_path: Path):
        import json

        self.pack(tmp_path / "packed", wide(), 4, 16, True, False)
        path = tmp_path / "packed" / "config.json"
        config = json.loads(path.read_text())
        group = config["quantization_config"]["config_groups"]["group_0"]
        (group if set(settings) & set(group) else config["quantization_config"]).update(settings)
        path.write_text(json.dumps(config))
        assert message in refusal(tmp_path / "packed", wide())

    def test_codes_with_gaps_are_refused(self, tmp_path: Path):
        self.pack(tmp_path / "packed", wide(), 3, 16, True, False)
        name = "model.layers.0.mlp.up_proj.weight_packed"
        edit(tmp_path / "packed", lambda t: t.update({name: torch.zeros(128, 7, dtype=torch.int32)}))
        assert "3-bit codes with gaps" in refusal(tmp_path / "packed", wide())

    def test_a_changed_norm_and_another_architecture(self, tmp_path: Path):
        self.pack(tmp_path / "packed", wide(), 4, 16, True, False)
        assert "a llama, and Θ is of a gpt_neox" in refusal(tmp_path / "packed", wide("gpt_neox"))
        assert "has shape" in refusal(
            tmp_path / "packed", build("llama-tied-gqa", hidden_size=64, intermediate_size=96)
        )
        edit(tmp_path / "packed", lambda tensors: tensors["model.norm.weight"].mul_(1.01))
        assert "model.norm.weight is not quantized, yet differs" in refusal(tmp_path / "packed", wide())


class TestTorchAO:
    @pytest.fixture(autouse=True)
    def needed(self) -> None:
        pytest.importorskip("torchao")
        pytest.importorskip("transformers", minversion="5.0")  # older ones do not write safetensors of it

    @staticmethod
    def config(kind: str) -> Any:
        from torchao import quantization as ao
        from torchao.quantization.granularity import PerGroup

        configs: dict[str, Any] = {
            "int8": lambda: ao.Int8WeightOnlyConfig(),
            "int4": lambda: ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(16)),
            "int3": lambda: ao.IntxWeightOnlyConfig(weight_dtype=torch.int3, granularity=PerGroup(16)),
            "int8-dynamic": lambda: ao.Int8DynamicActivationInt8WeightConfig(),
            "float8": lambda: ao.Float8WeightOnlyConfig(),
        }
        return configs[kind]()

    def make(self, folder: Path, model: nn.Module, kind: str, dtype: torch.dtype = torch.float32) -> Path:
        from transformers import TorchAoConfig

        return quantized(folder, model, TorchAoConfig(self.config(kind)), dtype)

    @pytest.mark.parametrize("name", ["llama-tied-gqa", "gpt_neox"])
    @pytest.mark.parametrize(
        ("kind", "bits"), [("int8", 8), ("int4", 4), ("int3", 3), ("int8-dynamic", 8), ("float8", 8)]
    )
    def test_weights_are_those_that_transformers_unpacks(self, name: str, kind: str, bits: int, tmp_path: Path):
        model = wide(name)
        folder = self.make(tmp_path, model, kind)
        dense, report = dense_of(folder, model)
        assert (report.format, report.bits, report.weight_half) == ("torchao", (bits,), kind == "int8-dynamic")
        other = loaded(folder)
        for layer in linear_names(model):
            assert apart(dense[f"{layer}.weight"], other.get_submodule(layer).weight.dequantize()) < 1e-6
        if kind != "int8-dynamic":  # its activations are rounded as well
            assert apart(logits(model, dense), logits(other)) < 1e-5 < 1e-3 < apart(logits(model), logits(other))

    def test_half_precision_stays_on_the_grid(self, tmp_path: Path):
        model = wide()
        for kind in ("int8", "int4"):
            folder = self.make(tmp_path / kind, model, kind, torch.bfloat16)
            dense, report = load_dense(checkpoint(folder), Weights.of(model), model)
            assert report.rest_dtypes == ("bfloat16",)
            with safe_open(folder / "model.safetensors", "pt") as file:
                scale = file.get_tensor("model.layers.0.mlp.up_proj._weight_scale").float()
            codes = dense["model.layers.0.mlp.up_proj.weight"].unflatten(1, (scale.shape[1], -1)) / scale[:, :, None]
            assert float((codes - codes.round()).abs().max()) < 1e-4

    @pytest.mark.parametrize("kind", ["int8", "int4"])
    def test_pickled_ones_are_the_same(self, kind: str, tmp_path: Path):
        model = wide()
        folder = self.make(tmp_path, model, kind)
        dense, _ = dense_of(folder, model)
        state = {n: p for n, p in loaded(folder).state_dict().items() if n != "lm_head.weight"}
        (folder / "model.safetensors").unlink()
        torch.save(state, folder / "pytorch_model.bin")
        assert dense_of(folder, model)[0].equal(dense)

    def test_a_changed_norm(self, tmp_path: Path):
        from safetensors.torch import load_file, save_file

        model = wide()
        folder = self.make(tmp_path, model, "int8")
        with safe_open(folder / "model.safetensors", "pt") as file:
            metadata = file.metadata()
        tensors = load_file(folder / "model.safetensors")
        tensors["model.norm.weight"] *= 1.01
        save_file(tensors, folder / "model.safetensors", metadata)
        assert "model.norm.weight is not quantized, yet differs" in refusal(folder, model)

    def test_a_tensor_that_only_a_gpu_unpacks(self, tmp_path: Path):
        from torchao.quantization import Int4Tensor

        model = wide()
        folder = self.make(tmp_path, model, "int8")
        state = {n: p for n, p in loaded(folder).state_dict().items() if n != "lm_head.weight"}
        name = "model.layers.0.mlp.up_proj.weight"
        half, scale = torch.zeros(128, 32, dtype=torch.int8), torch.ones(4, 128)
        state[name] = Int4Tensor(half, scale, torch.zeros_like(scale), [1, 16], torch.Size((128, 64)))
        (folder / "model.safetensors").unlink()
        torch.save(state, folder / "pytorch_model.bin")
        assert f"tensor {name}: a torchao Int4Tensor; expected one of Int8Tensor" in refusal(folder, model)
