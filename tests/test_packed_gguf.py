"""GGUF: files written here by the package's writer, with names and layouts as llama.cpp's converter has them."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from conftest import ARCHITECTURES, build
from landscape.packed import is_packed, load_dense
from landscape.weights import Weights
from test_packed import apart, checkpoint, logits, refusal

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
gguf = pytest.importorskip("gguf")

WIDE = {"hidden_size": 64, "intermediate_size": 128}
SHARED = {
    r"^model\.layers\.": "blk.",
    r"self_attn\.(q|k)_norm": r"attn_\1_norm",
    r"self_attn\.(q|k|v)_proj": r"attn_\1",
    r"self_attn\.o_proj": "attn_output",
    r"mlp\.(gate|up|down)_proj": r"ffn_\1",
    r"input_layernorm": "attn_norm",
    r"model\.embed_tokens": "token_embd",
    r"model\.norm": "output_norm",
    r"lm_head": "output",
}
ROTATED = {**SHARED, "post_attention_layernorm": "ffn_norm"}
NAMES = {  # tensors, as llama.cpp's table of names has them
    "llama-tied-gqa": ("llama", ROTATED),
    "olmo": ("olmo", ROTATED),
    "smollm3": ("smollm3", ROTATED),
    "qwen2": ("qwen2", ROTATED),
    "qwen3": ("qwen3", ROTATED),
    "olmo2": (
        "olmo2",
        {**SHARED, "post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"},
    ),
    "gpt2": (
        "gpt2",
        {
            r"transformer\.h\.": "blk.",
            r"attn\.c_attn": "attn_qkv",
            r"attn\.c_proj": "attn_output",
            r"mlp\.c_fc": "ffn_up",
            r"mlp\.c_proj": "ffn_down",
            r"ln_1": "attn_norm",
            r"ln_2": "ffn_norm",
            r"transformer\.wte": "token_embd",
            r"transformer\.wpe": "position_embd",
            r"transformer\.ln_f": "output_norm",
        },
    ),
    "gpt_neox": (
        "gptneox",
        {
            r"gpt_neox\.layers\.": "blk.",
            r"attention\.query_key_value": "attn_qkv",
            r"attention\.dense": "attn_output",
            r"mlp\.dense_h_to_4h": "ffn_up",
            r"mlp\.dense_4h_to_h": "ffn_down",
            r"input_layernorm": "attn_norm",
            r"post_attention_layernorm": "ffn_norm",
            r"gpt_neox\.embed_in": "token_embd",
            r"gpt_neox\.final_layer_norm": "output_norm",
            r"lm_head|embed_out": "output",
        },
    ),
}


def wide(name: str, **changes: object) -> nn.Module:
    return build(name, **{**({"n_embd": 64} if name == "gpt2" else WIDE), **changes})


def renamed(name: str, table: dict[str, str]) -> str:
    for pattern, replacement in table.items():
        name = re.sub(pattern, replacement, name)
    return name


def laid_out(model: nn.Module, name: str, tensor: np.ndarray) -> np.ndarray:
    """A tensor as llama.cpp's converter writes it, row by row."""
    config = model.config
    rows = np.arange(tensor.shape[0])
    if config.model_type in ("llama", "olmo", "smollm3") and re.search("[qk]_proj", name):
        heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
        size = tensor.shape[0] // heads
        # component i of the first half comes before component i of the second half
        order = [
            head * size + half * size // 2 + i for head in range(heads) for i in range(size // 2) for half in (0, 1)
        ]
        return tensor[order]
    if config.model_type == "gpt_neox" and "query_key_value" in name:
        size = tensor.shape[0] // 3 // config.num_attention_heads
        which, head, i = rows // size % 3, rows // size // 3, rows % size
        return tensor[np.lexsort((i, head, which))]
    if config.model_type == "gpt2" and re.search(r"(c_attn|c_proj|c_fc)\.weight", name):
        return np.ascontiguousarray(tensor.T)
    return tensor


def write(
    folder: Path, model: nn.Module, name: str, kind: str = "Q8_0", extra: dict[str, np.ndarray] | None = None
) -> None:
    """`model` as a GGUF file, its matrices in blocks of `kind`."""
    architecture, table = NAMES[name]
    folder.mkdir(parents=True, exist_ok=True)
    writer, config = gguf.GGUFWriter(folder / "tiny.gguf", architecture), model.config
    writer.add_name("tiny")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(getattr(config, "intermediate_size", 4 * config.hidden_size))
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(getattr(config, "num_key_value_heads", config.num_attention_heads))
    writer.add_vocab_size(config.vocab_size)
    if hasattr(config, "rms_norm_eps"):
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_freq_base(1e4)
    else:
        writer.add_layer_norm_eps(getattr(config, "layer_norm_epsilon", 1e-5))
    for own, parameter in model.named_parameters():
        tensor = laid_out(model, own, parameter.detach().numpy())
        if tensor.ndim == 1:
            writer.add_tensor(renamed(own, table), tensor)
        else:
            block = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(renamed(own, table), gguf.quantize(tensor, block), raw_dtype=block)
    for other, tensor in (extra or {}).items():
        writer.add_tensor(other, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def blockwise(model: nn.Module, kind: str) -> dict[str, Tensor]:
    """Every matrix through the package's quantizer and back, without leaving the layout of transformers."""
    block, values = gguf.GGMLQuantizationType[kind], {}
    for name, parameter in model.named_parameters():
        tensor = parameter.detach()
        flip = type(model.get_submodule(name.rpartition(".")[0])).__name__ == "Conv1D"
        if tensor.ndim == 2:
            matrix = (tensor.T if flip else tensor).contiguous().numpy()
            tensor = torch.from_numpy(gguf.dequantize(gguf.quantize(matrix, block), block))
            tensor = tensor.T if flip else tensor
        values[name] = tensor
    return values


@pytest.mark.parametrize("name", NAMES)
def test_every_architecture_comes_back_in_its_own_layout(name: str, tmp_path: Path):
    model = wide(name)
    write(tmp_path, model, name)
    assert is_packed(checkpoint(tmp_path)) == "gguf"
    theta, expected = Weights.of(model), blockwise(model, "Q8_0")
    dense, report = load_dense(checkpoint(tmp_path), theta, model)
    assert list(dense) == list(theta)
    assert all(torch.equal(dense[n], expected[n]) for n in theta)
    assert report.quantized == tuple(n for n in theta if theta[n].ndim == 2)  # embeddings and output head as well
    assert (report.bits, report.weight_half, report.rest_difference) == ((8,), False, 0.0)
    assert report.layers[0].bits_per_weight == 8.5
    assert apart(logits(model, dense), logits(model)) < 0.1


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"])
def test_the_dense_model_is_the_one_that_transformers_makes(kind: str, tmp_path: Path):
    from transformers import AutoModelForCausalLM

    model = wide("llama-tied-gqa")
    write(tmp_path, model, "llama-tied-gqa", kind)
    dense, report = load_dense(checkpoint(tmp_path), Weights.of(model), model)
    assert report.bits == (int(re.search(r"\d", kind)[0]),)
    other = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="tiny.gguf", dtype=torch.float32).eval()
    assert dense.equal(Weights.of(other))
    assert apart(logits(model, dense), logits(other)) < 1e-5 < apart(logits(model), logits(other))


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "gpt2"])
def test_other_architectures_that_transformers_reads(name: str, tmp_path: Path):
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    model = wide(name)
    write(tmp_path, model, name, "Q4_0")
    dense, _ = load_dense(checkpoint(tmp_path), Weights.of(model), model)
    other = load_gguf_checkpoint(tmp_path / "tiny.gguf", return_tensors=True, model_to_load=model)["tensors"]
    assert all(torch.equal(dense[n], other[n]) for n in dense)


def six_bits(values: np.ndarray, top: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Non-negative values of the sub-blocks of a super-block → a half-precision unit, and multiples of it up to 63."""
    unit = (top / 63).astype(np.float16)
    return unit, np.clip(np.rint(values / np.maximum(unit.astype(np.float32), 1e-8)[..., None]), 0, 63).astype(np.uint8)


def q4_k(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of type q4_k and the values they stand for: 256 weights, d·s_j·q − m·t_j in eight sub-blocks of 32."""
    sub = weight.reshape(*weight.shape[:-1], -1, 8, 32)
    low = np.maximum(-sub.min(-1), 0)
    d, s = six_bits((sub.max(-1) + low) / 15, ((sub.max(-1) + low) / 15).max(-1))
    m, t = six_bits(low, low.max(-1))
    step = (d.astype(np.float32)[..., None] * s)[..., None]
    shift = (m.astype(np.float32)[..., None] * t)[..., None]
    q = np.clip(np.rint((sub + shift) / np.maximum(step, 1e-8)), 0, 15).astype(np.uint8)
    # s and t, six bits each: those of the first four sub-blocks whole, the high bits of the other four on top of them
    first = np.concatenate([s[..., :4] | s[..., 4:] >> 4 << 6, t[..., :4] | t[..., 4:] >> 4 << 6], -1)
    packed = np.concatenate([first, s[..., 4:] & 15 | (t[..., 4:] & 15) << 4], -1)
    pairs = q.reshape(*q.shape[:-2], 4, 2, 32)  # two sub-blocks share bytes
    codes = (pairs[..., 0, :] | pairs[..., 1, :] << 4).reshape(*q.shape[:-2], 128)
    head = np.stack([d, m], -1).view(np.uint8)
    block = np.concatenate([head, packed, codes], -1)
    return block.reshape(*weight.shape[:-1], -1), (step * q - shift).reshape(weight.shape)


def q6_k(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of type q6_k and the values they stand for: 256 weights, d·s_j·(q − 32) in sixteen sub-blocks of 16."""
    sub = weight.reshape(*weight.shape[:-1], -1, 16, 16)
    want = np.abs(sub).max(-1) / 31
    d = (want.max(-1) / 127).astype(np.float16)
    s = np.rint(want / d.astype(np.float32)[..., None]).astype(np.int8)
    step = (d.astype(np.float32)[..., None] * s)[..., None]
    q = np.clip(np.rint(sub / np.maximum(step, 1e-8)) + 32, 0, 63).astype(np.uint8)
    quarter = q.reshape(*q.shape[:-2], 2, 4, 32)  # of each half: 32 weights, and again, and again
    low = np.concatenate(
        [
            quarter[..., 0, :] & 15 | (quarter[..., 2, :] & 15) << 4,
            quarter[..., 1, :] & 15 | (quarter[..., 3, :] & 15) << 4,
        ],
        -1,
    )
    high = sum(quarter[..., k, :] >> 4 << 2 * k for k in range(4)).astype(np.uint8)
    parts = [low.reshape(*d.shape, 128), high.reshape(*d.shape, 64), s.view(np.uint8), d[..., None].view(np.uint8)]
    return np.concatenate(parts, -1).reshape(*weight.shape[:-1], -1), (step * (q.astype(np.float32) - 32)).reshape(
        weight.shape
    )


@pytest.mark.parametrize(("kind", "encode", "bits"), [("Q4_K", q4_k, 4.5), ("Q6_K", q6_k, 6.5625)])
def test_k_quants(kind: str, encode: Any, bits: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The package unpacks these but does not make them: blocks written here, after the comments of ggml's headers."""
    from transformers import AutoModelForCausalLM

    model = wide("llama-tied-gqa", hidden_size=256, intermediate_size=256, num_hidden_layers=1)
    monkeypatch.setattr(gguf, "quantize", lambda tensor, block: encode(np.ascontiguousarray(tensor))[0])
    write(tmp_path, model, "llama-tied-gqa", kind)
    theta = Weights.of(model)
    dense, report = load_dense(checkpoint(tmp_path), theta, model)
    assert (report.bits, report.layers[0].bits_per_weight) == ((int(kind[1]),), bits)
    for layer in report.layers:
        expected = encode(theta[layer.name].numpy())[1]
        assert np.abs(dense[layer.name].numpy() - expected).max() < 1e-6 * np.abs(expected).max()
        assert layer.weight_error < (0.1 if kind == "Q4_K" else 0.03)
    other = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file="tiny.gguf", dtype=torch.float32).eval()
    assert dense.equal(Weights.of(other))


@pytest.mark.parametrize(("kind", "dtype"), [("F16", torch.float16), ("BF16", torch.bfloat16), ("F32", torch.float32)])
def test_a_file_of_floats_is_the_model_rounded(kind: str, dtype: torch.dtype, tmp_path: Path):
    model = wide("gpt2")
    write(tmp_path, model, "gpt2", kind)
    theta = Weights.of(model)
    dense, report = load_dense(checkpoint(tmp_path), theta, model)
    assert report.layers == ()
    assert all(torch.equal(dense[n], theta[n].to(dtype).float()) for n in theta if theta[n].ndim == 2)
    assert str(dtype).removeprefix("torch.") in report.rest_dtypes


def test_factors_of_the_rotary_embedding_are_no_weights(tmp_path: Path):
    model = wide("llama-tied-gqa")
    write(tmp_path, model, "llama-tied-gqa", extra={"rope_freqs.weight": np.ones(8, np.float32)})
    load_dense(checkpoint(tmp_path), Weights.of(model), model)


def test_a_tensor_without_a_place(tmp_path: Path):
    model = wide("llama-tied-gqa")
    write(tmp_path, model, "llama-tied-gqa", extra={"blk.0.attn_sinks.weight": np.ones(8, np.float32)})
    assert "blk.0.attn_sinks.weight is not in the float model" in refusal(tmp_path, model)


def test_a_changed_norm(tmp_path: Path):
    model, other = wide("llama-tied-gqa"), wide("llama-tied-gqa")
    with torch.no_grad():
        other.model.norm.weight.mul_(1.01)
    write(tmp_path, other, "llama-tied-gqa")
    assert "model.norm.weight is not quantized, yet differs" in refusal(tmp_path, model)


def test_what_does_not_fit_is_refused(tmp_path: Path):
    write(tmp_path / "one", wide("llama-tied-gqa"), "llama-tied-gqa")
    assert "GGUF file of a llama, Θ of a gpt_neox" in refusal(tmp_path / "one", wide("gpt_neox"))
    assert "has shape" in refusal(tmp_path / "one", wide("llama-tied-gqa", intermediate_size=192))
    (tmp_path / "one" / "second.gguf").write_bytes((tmp_path / "one" / "tiny.gguf").read_bytes())
    assert "2 GGUF files, as second.gguf" in refusal(tmp_path / "one", wide("llama-tied-gqa"))
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "tiny.gguf").write_bytes((tmp_path / "one" / "tiny.gguf").read_bytes()[:3000])
    assert "cannot be unpacked" in refusal(tmp_path / "damaged", wide("llama-tied-gqa"))


def test_an_architecture_that_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(NAMES, "qwen2", ("mamba", ROTATED))
    write(tmp_path, wide("qwen2"), "qwen2")
    assert "GGUF file of a mamba: expected one of llama, olmo" in refusal(tmp_path, wide("qwen2"))


def test_the_table_covers_the_architectures_of_the_suite():
    assert set(NAMES) == set(ARCHITECTURES) - {"apertus"}  # its activation's parameters are metadata in GGUF


def test_a_length_beyond_the_end_of_the_file_is_not_believed(tmp_path: Path):
    model = wide("qwen2")
    write(tmp_path, model, "qwen2")
    key, kind, count = b"tokens", 9, 1 << 60  # an array of 2⁶⁰ bytes
    head = struct.pack("<IIQQ", 0x46554747, 3, 0, 1) + struct.pack("<Q", len(key)) + key
    (tmp_path / "tiny.gguf").write_bytes(head + struct.pack("<IIQ", kind, 0, count) + bytes(64))
    assert "ends before what its lengths say" in refusal(tmp_path, model)
