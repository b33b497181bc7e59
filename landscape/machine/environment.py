"""What a number was computed with beyond its inputs: stored in every result, and in no key.

Two environments that differ give numbers that differ by rounding; a key names what would make another number. Names of
processors and packages are told, names of machines, users and places are not.
"""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

# Packages beside those of `landscape.reporting.versions`, and entries that may decide the last bits.
_READ = ("tokenizers", "safetensors", "scipy", "datasets", "accelerate", "lm_eval", "pyarrow")
_QUANTIZE = ("gptqmodel", "llmcompressor", "bitsandbytes", "compressed-tensors", "torchao", "gguf")
_PROCESSOR = ("machine", "cpu", "cpu_capability", "torch_build", "threads", "attention")
_ACCELERATOR = ("device_name", "cuda", "cudnn", "float32", "tf32")


def environment(device: str = "cpu", attention: str = "", ranks: int = 1) -> dict[str, Any]:
    """The environment of this process, as it goes into a result.

    Args:
        device: what was computed on.
        attention: transformers' name of the attention kernel, where a model ran.
        ranks: processes that did it together.
    """
    found: dict[str, Any] = {
        "commit": _commit(),
        "packages": _packages(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cpu": _processor(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "torch_build": (torch.version.git_version or "")[:12],
        "threads": torch.get_num_threads(),
        "attention": attention,
        "float32": _precision(),
        "tf32": bool(torch.backends.cudnn.allow_tf32),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "ranks": ranks,
    }
    if torch.device(device).type == "cuda":
        found["device_name"] = torch.cuda.get_device_name(device)
        found["cuda"], found["cudnn"] = torch.version.cuda, torch.backends.cudnn.version()
    return found


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """In words, the entries in which two environments differ so that bits may."""
    return [
        f"{name.replace('_', ' ')} {one.get(name, 'none')} and {other.get(name, 'none')}"
        for name in (*_PROCESSOR, *_ACCELERATOR)
        if one.get(name) != other.get(name)
    ]


def attention_of(model: Any) -> str:
    """The kernel that a transformers model computes attention with."""
    return str(getattr(model.config, "_attn_implementation", None) or "")


@cache
def _packages() -> dict[str, str]:
    found = {}
    for name in (*_READ, *_QUANTIZE):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@cache
def _commit() -> str:
    """The commit this package runs from, with a + where files have changed since; empty outside of a checkout."""
    folder = Path(__file__).parents[1]
    if not (folder.parent / ".git").exists():
        return ""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return commit + ("+" if _git(folder, "status", "--porcelain", "--untracked-files=no", ".") else "")
    except (OSError, subprocess.SubprocessError):  # no git, or it refuses: the version is told anyway
        return ""


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


@cache
def _processor() -> str:
    """The processor's name, as Linux tells it, or else as Python does."""
    try:
        told = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        told = None
    return told[1].strip() if told else platform.processor()


def _precision() -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # set through torch's two interfaces at once: it can no longer tell
        return "unknown"
