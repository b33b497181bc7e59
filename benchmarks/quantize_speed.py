"""Sections `time`, `memory` and `evaluation`: what quantizing and evaluating take."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from landscape.losses import window_losses
from landscape.objective import TokenCrossEntropy, batches
from landscape.quantize import parse, quantize
from landscape.tokens import Windows
from landscape.weights import Weights

_SHAPE = {"hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 2048}
_WINDOWS, _SEQ_LEN, _VOCABULARY = 32, 256, 4096
_METHODS = (
    "rtn-w4-g128",
    "rtn-w4-g128-clip",
    "rtn-w4-channel-rot",
    "hqq-w4-g128",
    "nf4",
    "int8",
    "smoothquant-w8-channel",
    "awq-w4-g128",
    "awq-w4-g128-asym-clip",
    "gptq-w4-g128",
    "gptq-w4-g128-static",
)


def _model(device: str = "cpu") -> nn.Module:
    torch.manual_seed(0)
    config = AutoConfig.for_model("gpt_neox", **_SHAPE, vocab_size=_VOCABULARY, max_position_embeddings=_SEQ_LEN)
    return AutoModelForCausalLM.from_config(config).eval().to(device)


def _windows() -> Windows:
    ids = torch.randint(_VOCABULARY, (_WINDOWS, _SEQ_LEN), generator=torch.Generator().manual_seed(0))
    return Windows(ids, torch.full((_WINDOWS,), _SEQ_LEN))


def time_section(args: argparse.Namespace) -> None:
    """Every method on the same model, two rounds over all of them, the least time of each."""
    model, windows = _model(args.device), _windows()
    seconds: dict[str, float] = {}
    for _ in range(2):
        for name in _METHODS:
            began = time.perf_counter()
            _, report = quantize(parse(name), model, windows)
            seconds[name] = min(seconds.get(name, float("inf")), time.perf_counter() - began)
    millions = report.quantized_parameters / 1e6
    print(
        f"time: {millions:.1f} million parameters in linear layers, {windows.n_tokens:,} calibration tokens, "
        f"{torch.get_num_threads()} threads\n"
    )
    print("| method | seconds | per million parameters |\n|---|---|---|")
    for name in _METHODS:
        print(f"| `{name}` | {seconds[name]:.2f} | {seconds[name] / millions:.3f} |")
    print()


def race_section(args: argparse.Namespace) -> None:
    """GPTQ beside the engine that is installed here, in turn, on blocks of a Llama as wide as those in use."""
    engine = next((name for name in ("llmcompressor", "gptqmodel") if importlib.util.find_spec(name)), None)
    if engine is None:
        raise SystemExit("race: neither llmcompressor nor gptqmodel is installed here")
    print(f"race: GPTQ by {engine} {version(engine)} and here, {torch.get_num_threads()} threads\n")
    print(
        "| blocks | inputs | million parameters | calibration tokens | theirs, s | ours, s | ratio |\n"
        + "|---" * 7
        + "|"
    )
    for blocks, width in ((4, 512), (1, 1024), (1, 2048)):
        shape = {"hidden_size": width, "intermediate_size": 11 * width // 4, "num_hidden_layers": blocks}
        heads = {"num_attention_heads": width // 64, "num_key_value_heads": width // 64}
        config = AutoConfig.for_model(
            "llama", **shape, **heads, vocab_size=_VOCABULARY, max_position_embeddings=_SEQ_LEN
        )
        torch.manual_seed(0)
        model, windows = _with_a_tokenizer(AutoModelForCausalLM.from_config(config)).to(args.device), _windows()
        seconds: dict[str, list[float]] = {"gptq-w4-g128-noact": [], f"gptq-w4-g128-noact@{engine}": []}
        for _ in range(2):
            for name, taken in seconds.items():
                began = time.perf_counter()
                _, report = quantize(parse(name), model, windows)
                taken.append(time.perf_counter() - began)
        ours, theirs = (min(taken) for taken in seconds.values())
        millions = report.quantized_parameters / 1e6
        inputs = f"{width} and {shape['intermediate_size']}"
        print(f"| {blocks} | {inputs} | {millions:.1f} | {theirs:.1f} | {ours:.1f} | {ours / theirs:.2f} |", flush=True)
    print()


def _with_a_tokenizer(model: nn.Module) -> nn.Module:
    """The model as one that comes from a folder, beside a tokenizer: the engines look for it, and never use it."""
    tokenizer = Path(__file__).parents[1] / "data" / "reference" / "mini-pythia" / "step8000"
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        for path in tokenizer.glob("tokenizer*"):
            shutil.copy(path, folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    model.name_or_path = model.config._name_or_path = str(tokenizer)
    return model


def memory_section(args: argparse.Namespace) -> None:
    """Peaks of fresh processes, in MiB over one that only loads the model."""
    print("memory: peaks over that of a process that only loads the model\n")
    base = _in_a_fresh_process("nothing")
    rows = _in_a_fresh_process("sizes")
    print(f"the model is {rows >> 20} MiB; one block's activations and the largest XᵀX {_extra() >> 20} MiB\n")
    print("| method | MiB more |\n|---|---|")
    for name in ("rtn-w4-g128", "awq-w4-g128", "gptq-w4-g128"):
        print(f"| `{name}` | {(_in_a_fresh_process(name) - base) >> 20} |")
    print()


def _extra() -> int:
    activations = 4 * _WINDOWS * _SEQ_LEN * _SHAPE["hidden_size"]
    return activations + 8 * _SHAPE["intermediate_size"] ** 2


def _in_a_fresh_process(way: str) -> int:
    command = [sys.executable, str(Path(__file__)), way]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def _measured(way: str) -> int:
    model = _model()
    if way == "sizes":
        return 4 * Weights.of(model).numel()
    if way != "nothing":
        quantize(parse(way), model, _windows())
    return _peak()


def _peak() -> int:
    """Of this program: what getrusage says, a process that is started inherits from the one that starts it."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def evaluation_section(args: argparse.Namespace) -> None:
    """Losses by window over bare forward passes that make the logits and nothing else, batch by batch in turn."""
    model, windows = _model(args.device), _windows()
    cut, theta = batches(windows, 8, args.device), Weights.of(model)
    objectives = [TokenCrossEntropy(model, [batch]) for batch in cut]
    for objective in objectives:
        window_losses(objective, theta)  # the model is taken apart once, whatever the number of evaluations
    ratios = []
    for _ in range(15):
        ours = bare = 0.0
        for batch, objective in zip(cut, objectives, strict=True):
            began = time.perf_counter()
            window_losses(objective, theta)
            middle = time.perf_counter()
            with torch.no_grad():
                logits = model(input_ids=batch.ids, use_cache=False).logits
                nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), batch.ids[:, 1:].flatten())
            ours, bare = ours + middle - began, bare + time.perf_counter() - middle
        ratios.append(ours / bare)
    print(
        f"evaluation: {statistics.median(ratios):.3f} of forward passes with a mean loss "
        f"({min(ratios):.3f} to {max(ratios):.3f})\n"
    )


if __name__ == "__main__":
    print(_measured(sys.argv[1]))
