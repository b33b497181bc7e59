"""Files to damage: what the jobs of the suite leave of a tiny model, and packed checkpoints of it."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from landscape.averaging import average_checkpoints
from landscape.basin import render_slice
from landscape.config import (
    AverageConfig,
    EvaluateConfig,
    SharpnessConfig,
    SliceConfig,
    StudyConfig,
    TrainConfig,
    ViewConfig,
)
from landscape.curvature.ledger import Ledger
from landscape.evaluation import evaluate_model
from landscape.pretraining import train_model
from landscape.reporting import Silent
from landscape.sharpness import measure_sharpness
from landscape.study import run_study
from landscape.viewing import view_results

WORDS = ["the", "cat", "and", "a", "dog", "sat", "on", "one", "mat", "while", "it", "rained", "over", "green", "hills"]
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
SHORT = {"tokens": 256, "seq_len": 16, "device": "cpu"}


def model_of(kind: str = "gpt_neox", **fields: Any) -> nn.Module:
    """A random model of some 10,000 weights."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, vocab_size=270, max_position_embeddings=64, **{**SMALL, **fields})
    return AutoModelForCausalLM.from_config(config).eval()


def make(folder: Path) -> None:
    """All seeds, below `folder`; some 20 seconds."""
    text = folder / "prose.txt"
    text.write_text(" ".join(np.random.default_rng(0).choice(WORDS, 4000)), encoding="utf-8")
    recipe = folder / "recipe.yaml"
    recipe.write_text(
        f"model: {{type: gpt_neox, {', '.join(f'{name}: {value}' for name, value in SMALL.items())}}}\n"
        f"text: {text}\nvocabulary: 270\nseq_len: 16\nbatch_size: 4\nsteps: 20\nkeep: [10]\nkeep_state: [10]\n"
        "schedule: {kind: wsd, cooldown: 0.2}\noptimizer: {kind: adamw, peak: 3e-3}\n"
    )
    run = folder / "run"
    train_model(TrainConfig(str(recipe), out=run, data=folder / "tokens", device="cpu"))
    model, shared = str(run / "step20"), {"text": str(text), **SHORT}
    small: dict[str, Any] = {"prev": str(run / "step10"), "quant": "rtn-w3-g16", **shared}
    render_slice(SliceConfig(model, dense=True, grid="9x7", out=folder / "dense.h5", **small))
    render_slice(SliceConfig(model, grid="15x15", out=folder / "adaptive.h5", **small))
    with contextlib.suppress(InterruptedError):
        render_slice(SliceConfig(model, dense=True, grid="9x7", out=folder / "half.h5", **small), _Stop())
    measured = {"density_steps": 4, "density_probes": 2, "max_probes": 10, "trace_error": 0.5, **shared}
    measure_sharpness(
        SharpnessConfig(model, layers=True, vectors=True, quant="rtn-w3-g16", out=folder / "sharpness.h5", **measured)
    )
    evaluate_model(EvaluateConfig(model, quant="rtn-w3-g16", second_order=True, out=folder / "evaluations", **shared))
    study = StudyConfig(str(run), quant=["rtn-w3-g16"], max_probes=10, out=folder / "study", **shared)
    run_study(study)
    view_results(ViewConfig([str(folder / "study")], out=folder / "pages"))
    average_checkpoints(AverageConfig([str(run / "step10"), model], out=folder / "mean", kind="soup"))
    _ledger(folder / "ledger")
    sharded(run / "step20", folder / "sharded")
    _packed(folder / "packed")
    _pickled(run / "step20", folder / "pickled")


class _Stop(Silent):
    """Interrupts a job once it has evaluated some cells."""

    def stage(self, name: str) -> Callable[[int, int], None]:
        def update(done: int, total: int) -> None:
            if done > 20 and "evaluat" in name:
                raise InterruptedError

        return update


def _ledger(folder: Path) -> None:
    ledger, vectors = Ledger(folder, "key"), torch.randn(4, 30)
    from landscape.curvature.lanczos import Krylov

    ledger.save_krylov("top", Krylov(vectors[:3], np.eye(3), vectors[3], 0.5, [], 3))
    ledger.save("trace", samples=np.arange(8.0), rounds=np.array(2))


def sharded(whole: Path, folder: Path) -> None:
    """The checkpoint with its weights in two files."""
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("state.safetensors"))
    AutoModelForCausalLM.from_pretrained(whole).save_pretrained(folder, max_shard_size="40KB")
    (folder / "model.safetensors").unlink(missing_ok=True)


def _pickled(whole: Path, folder: Path) -> None:
    """The checkpoint as older ones are."""
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("*.safetensors", "SHA256SUMS"))
    torch.save(load_file(whole / "model.safetensors"), folder / "pytorch_model.bin")


def _packed(folder: Path) -> None:
    """Zeros in the layouts of GPTQ and AWQ, and a GGUF file, beside a float model of zeros."""
    model = model_of("llama", tie_word_embeddings=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    model.save_pretrained(folder / "float")
    names = {f"{n}.weight" for n, m in model.named_modules() if isinstance(m, nn.Linear) and "head" not in n}
    for method in ("gptq", "awq"):
        tensors = {name: tensor.clone() for name, tensor in model.state_dict().items() if name not in names}
        for name in sorted(names):
            rows, columns = model.get_parameter(name).shape
            words = (columns // 8, rows) if method == "gptq" else (columns, rows // 8)
            layer = name.removesuffix(".weight")
            tensors[f"{layer}.qweight"] = torch.zeros(words, dtype=torch.int32)
            tensors[f"{layer}.qzeros"] = torch.zeros(columns // 16, rows // 8, dtype=torch.int32)
            tensors[f"{layer}.scales"] = torch.zeros(columns // 16, rows, dtype=torch.float16)
            if method == "gptq":
                tensors[f"{layer}.g_idx"] = torch.arange(columns, dtype=torch.int32) // 16
        (folder / method).mkdir(parents=True)
        save_file(tensors, folder / method / "model.safetensors", {"format": "pt"})
        own = {"quant_method": method, "bits": 4, "group_size": 16, "version": "gemm"}
        config = {**json.loads((folder / "float" / "config.json").read_text()), "quantization_config": own}
        (folder / method / "config.json").write_text(json.dumps(config))
    _gguf(folder / "gguf", model)


def _gguf(folder: Path, model: nn.Module) -> None:
    import gguf

    folder.mkdir()
    writer = gguf.GGUFWriter(folder / "tiny.gguf", "llama")
    writer.add_block_count(SMALL["num_hidden_layers"])
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, SMALL["num_hidden_layers"])
    for name, parameter in model.named_parameters():
        writer.add_tensor(table.get_name(name, (".weight", ".bias")), parameter.detach().numpy().astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
