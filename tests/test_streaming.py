"""Models that stay in their file: the numbers of a model in memory, without the memory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from conftest import ARCHITECTURES, build, prose
from landscape import evaluation
from landscape.config import EvaluateConfig
from landscape.errors import LandscapeError, ModelError, QuantizerError
from landscape.losses import window_losses
from landscape.machine.memory import available
from landscape.models import load_model
from landscape.models.mapped import brought_in, load_mapped, stored_parameters
from landscape.models.references import resolve
from landscape.objective import TokenCrossEntropy, batches
from landscape.quantize import parse, quantize
from landscape.streaming import streamed_losses
from landscape.tokens import WindowReader, Windows
from landscape.weights import Weights

pytestmark = pytest.mark.usefixtures("process")


@pytest.fixture(scope="module")
def windows(tokenizer) -> Windows:
    texts = [prose(n, seed=n) for n in (60, 9, 41, 22, 17)]
    return WindowReader(texts, tokenizer, 32, "documents").take(5)


@pytest.fixture(scope="module")
def calibration(tokenizer) -> Windows:
    return WindowReader([prose(2500, seed=5)], tokenizer, 32).take(40)


def saved(folder: Path, name: str, dtype: torch.dtype, **changes: object) -> Path:
    build(name, **changes).to(dtype).save_pretrained(folder)
    return folder


def objective(model: nn.Module, windows: Windows, dtype: torch.dtype = torch.float32) -> TokenCrossEntropy:
    return TokenCrossEntropy(model, batches(windows, 2), dtype)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_losses_and_reports_are_those_of_a_model_in_memory(
    name: str, windows: Windows, calibration: Windows, tmp_path: Path
):
    checkpoint = resolve(str(saved(tmp_path / "model", name, torch.bfloat16)))
    model, mapped = load_model(checkpoint), load_mapped(checkpoint)
    for dtype in (torch.float32, torch.bfloat16):
        whole, streamed = objective(model, windows, dtype), objective(mapped, windows, dtype)
        theta = streamed_losses(streamed)
        assert np.array_equal(theta.losses.sums, window_losses(whole, Weights.of(model)).sums)
        assert np.array_equal(theta.losses.counts, window_losses(whole, Weights.of(model)).counts)
        assert theta.report is None and theta.quantize_seconds == 0
    for quantizer in ("rtn-w3-g16", "gptq-w3-g16", "awq-w3-g16"):
        hat, report = quantize(parse(quantizer), model, calibration)
        found = streamed_losses(objective(mapped, windows), parse(quantizer), calibration)
        assert np.array_equal(found.losses.sums, window_losses(objective(model, windows), hat).sums)
        assert repr(found.report) == repr(report)  # some entries are NaN
        assert found.quantize_seconds > 0


def test_only_the_ends_are_taken_into_memory(windows: Windows, tmp_path: Path):
    checkpoint = resolve(str(saved(tmp_path / "model", "olmo2", torch.bfloat16)))
    model = load_mapped(checkpoint)
    held = {name: parameter.dtype for name, parameter in model.named_parameters()}
    assert {dtype for name, dtype in held.items() if ".layers." in name} == {torch.bfloat16}
    assert {dtype for name, dtype in held.items() if ".layers." not in name} == {torch.float32}
    before = Weights.of(model).clone()
    seen: list[torch.dtype] = []
    block, other = model.model.layers
    with brought_in(block, "cpu"):
        assert {p.dtype for p in block.parameters()} == {torch.float32}
        assert {p.dtype for p in other.parameters()} == {torch.bfloat16}
    block.mlp.register_forward_pre_hook(lambda *_: seen.append(next(other.parameters()).dtype))
    streamed_losses(objective(model, windows))
    assert set(seen) == {torch.bfloat16}
    with pytest.raises(ZeroDivisionError), brought_in(block, "cpu"):
        _ = 1 / 0
    after = Weights.of(model)
    assert all(
        after[name].dtype == tensor.dtype and torch.equal(after[name], tensor) for name, tensor in before.items()
    )


def test_the_head_is_taken_in_parts(windows: Windows, tmp_path: Path, monkeypatch):
    checkpoint = resolve(str(saved(tmp_path / "model", "llama-tied-gqa", torch.bfloat16)))
    expected = streamed_losses(objective(load_mapped(checkpoint), windows)).losses.sums
    monkeypatch.setattr("landscape.objective._CHUNK", 5_000)
    streamed = objective(load_mapped(checkpoint), windows)
    widest: list[int] = []
    streamed.model.lm_head.register_forward_hook(lambda _, __, output: widest.append(output.numel()))
    assert np.allclose(streamed_losses(streamed).losses.sums, expected, rtol=1e-6)
    assert max(widest) <= 5_000


def test_memory_stays_below_that_of_the_model(tmp_path: Path):
    """In blocks of float32, beside what files stand for; in memory, Θ and Θ̂ would be 24 of them."""
    wide = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 12, "tie_word_embeddings": False}
    folder = saved(tmp_path / "model", "llama-tied-gqa", torch.bfloat16, **wide)
    program = f"""
import re, torch
from landscape.models.mapped import load_mapped
from landscape.objective import TokenCrossEntropy, batches
from landscape.quantize import parse
from landscape.models.references import resolve
from landscape.streaming import streamed_losses
from landscape.tokens import Windows

def held(word):  # kB that no file stands for
    return int(re.search(word + r":\\s+(\\d+)", open("/proc/self/status").read())[1])

torch.set_num_threads(1)
model = load_mapped(resolve({str(folder)!r}))
windows = Windows(torch.randint(300, (2, 32)), torch.tensor([32, 32]))
objective = TokenCrossEntropy(model, batches(windows, 2))
blocks = model.model.layers
del blocks[2:]
streamed_losses(objective, parse("rtn-w4-g32"))  # what is loaded and cached once
model = load_mapped(resolve({str(folder)!r}))
objective = TokenCrossEntropy(model, batches(windows, 2))
before, most = held("RssAnon"), [0]
streamed_losses(objective, parse("rtn-w4-g32"), on_progress=lambda *_: most.append(held("RssAnon")))
block = sum(p.numel() * 4 for p in model.model.layers[0].parameters())
print((max(most) - before) * 1024 / block)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(done.stdout.split()[-1]) < 8


def test_every_value_of_the_file_counts_whatever_its_configuration_says(windows: Windows, tmp_path: Path):
    """A file in float32 whose configuration speaks of float16, and one of two kinds."""
    folder = saved(tmp_path / "model", "gpt_neox", torch.float32)
    (folder / "config.json").write_text(
        json.dumps(json.loads((folder / "config.json").read_text()) | {"dtype": "float16", "torch_dtype": "float16"})
    )
    tensors = load_file(folder / "model.safetensors")
    tensors = {name: t + 1e-3 * torch.randn_like(t) for name, t in tensors.items()}  # also of norms, which are one
    mixed = {name: t.bfloat16() if t.ndim > 1 else t.half() for name, t in tensors.items()}
    for stored in (tensors, mixed):
        save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
        checkpoint = resolve(str(folder))
        expected = window_losses(objective(model := load_model(checkpoint), windows), Weights.of(model))
        assert np.array_equal(streamed_losses(objective(load_mapped(checkpoint), windows)).losses.sums, expected.sums)


def test_shards_are_counted_once(tmp_path: Path):
    model = build("gpt_neox")
    model.save_pretrained(tmp_path / "whole")
    model.save_pretrained(tmp_path / "shards", max_shard_size="40kB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 3
    n = Weights.of(model).numel()
    tensors = load_file(tmp_path / "whole" / "model.safetensors")
    save_file(tensors | {"mask": torch.ones(7, dtype=torch.bool)}, tmp_path / "whole" / "model.safetensors")
    assert stored_parameters(resolve(str(tmp_path / "whole"))) == n
    assert stored_parameters(resolve(str(tmp_path / "shards"))) == n


def test_what_cannot_be_streamed(tmp_path: Path, monkeypatch):
    folder = saved(tmp_path / "model", "gpt_neox", torch.float32)
    pickled = tmp_path / "pickled"
    shutil.copytree(folder, pickled)
    torch.save(load_file(pickled / "model.safetensors"), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="no safetensors, so that its blocks cannot stay in the file"):
        load_mapped(resolve(str(pickled)))
    assert stored_parameters(resolve(str(pickled))) == 0
    checkpoint = resolve(str(folder))
    damaged = (folder / "model.safetensors").read_bytes()[:-100]
    (folder / "model.safetensors").write_bytes(damaged)
    with pytest.raises(ModelError, match="unreadable weights"):
        stored_parameters(checkpoint)


def test_constants_computed_in_a_short_dtype_are_refused(tmp_path: Path, monkeypatch):
    from transformers.models.gpt_neox import modeling_gpt_neox

    checkpoint = resolve(str(saved(tmp_path / "model", "gpt_neox", torch.bfloat16)))
    made = modeling_gpt_neox.GPTNeoXModel.__init__

    def with_a_table(self, config):
        made(self, config)
        self.register_buffer("table", torch.arange(3) / 3, persistent=False)

    monkeypatch.setattr(modeling_gpt_neox.GPTNeoXModel, "__init__", with_a_table)
    with pytest.raises(ModelError, match="computes table in bfloat16 as its file has it"):
        load_mapped(checkpoint)


def test_an_error_on_the_way_leaves_the_model_usable(windows: Windows, tmp_path: Path):
    model = load_mapped(resolve(str(saved(tmp_path / "model", "gpt_neox", torch.bfloat16))))
    expected = streamed_losses(objective(model, windows)).losses.sums
    with pytest.raises(QuantizerError, match="needs calibration text"):
        streamed_losses(objective(model, windows), parse("gptq-w4-g16"))
    model.gpt_neox.layers[1].attention.dense.weight.data[0, 0] = torch.nan  # a copy on write, not the file
    with pytest.raises(QuantizerError, match=r"layers.1.attention.dense: its weights are not finite"):
        streamed_losses(objective(model, windows), parse("rtn-w4-g16"))
    model.gpt_neox.layers[1].attention.dense.weight.data[0, 0] = 0
    assert {p.dtype for p in model.gpt_neox.layers.parameters()} == {torch.bfloat16}
    assert np.allclose(streamed_losses(objective(model, windows)).losses.sums, expected, rtol=0.1)


def evaluate(run: Path, text: Path, out: Path, **options: object) -> list[evaluation.Evaluated]:
    quant = "none,gptq-w3-g16,rtn-w4-g16"
    return evaluation.evaluate_model(
        EvaluateConfig(model=f"{run}@step30", text=str(text), tokens=640, quant=quant, out=out, **options)
    )


def test_the_job_gives_the_same_results_and_finds_them_again(run: Path, text_file: Path, tmp_path: Path):
    whole = evaluate(run, text_file, tmp_path / "whole", stream="never")
    streamed = evaluate(run, text_file, tmp_path / "streamed", stream="always")
    for one, two in zip(whole, streamed, strict=True):
        assert one.path.name == two.path.name
        assert one.comparison == two.comparison and one.bits == two.bits
        assert one.facts["windows"] == two.facts["windows"]
        assert repr(one.report) == repr(two.report)
        assert two.facts["quantize_seconds"] > 0 or two.quantizer == "none"
    written = [result.path.stat().st_mtime_ns for result in streamed]
    again = evaluate(run, text_file, tmp_path / "streamed", stream="never")
    assert [result.path.stat().st_mtime_ns for result in again] == written


def test_streams_by_itself_where_memory_is_short(run: Path, text_file: Path, tmp_path: Path, monkeypatch, landscape):
    parameters = stored_parameters(resolve(f"{run}@step30"))
    command = ("evaluate", f"{run}@step30", "--text", text_file, "--tokens", 640, "--out")
    for free, quant, streams in ((11, "rtn-w4-g16", False), (9, "rtn-w4-g16", True), (9, "none", False)):
        monkeypatch.setattr("landscape.inputs.available", lambda device, free=free: free * parameters)
        code, out, _ = landscape(*command, tmp_path / f"{free}{quant}", "--quant", quant)
        assert code == 0 and ("streamed block by block" in out) is streams


def test_the_whole_model_is_asked_for_only_where_it_can_be(run: Path, text_file: Path, tmp_path: Path, landscape):
    command = ("evaluate", f"{run}@step30", "--text", text_file, "--tokens", 640, "--out", tmp_path)
    for extra, message in (
        (("--packed", run), "--stream always with --packed"),
        (("--tasks", "sciq"), "--stream always with --tasks"),
        (("--quant", "gptq-w4-g32@gptqmodel"), "needs the whole model in memory; use --stream never"),
    ):
        code, _, err = landscape(*command, "--stream", "always", *extra)
        assert code == 2 and message in " ".join(err.split()) and "Traceback" not in err
    with pytest.raises(LandscapeError, match="--stream often: expected one of auto, always, never"):
        EvaluateConfig(model="m", stream="often")


def test_free_memory_is_that_of_the_tightest_group(tmp_path: Path, monkeypatch):
    """Groups of both versions as the kernel shows them, nested; what caches files is given up under pressure."""
    import landscape.machine.memory as memory

    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    old = tmp_path / "memory" / "job"
    old.mkdir(parents=True)

    def group(folder: Path, limit: str, used: int, cached: int) -> None:
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 1\nfile {cached}\n")

    own = Path("/proc/self/cgroup")
    lines = ["0::/outer/inner"]
    read = Path.read_text
    monkeypatch.setattr(memory, "_GROUPS", tmp_path)
    monkeypatch.setattr(Path, "read_text", lambda path, *a: "\n".join(lines) if path == own else read(path, *a))
    system = available("cpu")
    assert system > 10_000
    group(inner, "9000", 3000, 1000)
    assert available("cpu") == 7000
    group(tmp_path / "outer", "5000", 4500, 1500)
    assert available("cpu") == 2000
    group(tmp_path / "outer", "max", 4500, 1500)
    assert available("cpu") == 7000
    lines[:] = ["7:cpu,memory:/job"]
    for name, value in (("limit_in_bytes", 600), ("usage_in_bytes", 500)):
        (old / f"memory.{name}").write_text(f"{value}\n")
    (old / "memory.stat").write_text("cache 7\ntotal_cache 250\n")
    assert available("cpu") == 350
    (old / "memory.usage_in_bytes").write_text("900\n")
    assert available("cpu") == 0
