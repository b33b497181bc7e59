"""Models in scratch space beside the same ones in memory, and programs under a real limit of memory."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from conftest import VOCABULARY, build
from landscape.models import load_model
from landscape.models.mapped import load_mapped, masters
from landscape.models.references import resolve
from landscape.objective import TokenCrossEntropy, batches
from landscape.storage.scratch import Scratch
from landscape.streaming import StreamedCrossEntropy
from landscape.tokens import Windows
from landscape.weights import Weights


@dataclass
class Both:
    """One checkpoint, in memory and in scratch space."""

    held: TokenCrossEntropy
    theta: Weights
    streamed: StreamedCrossEntropy
    masters: Weights
    scratch: Scratch


def windows() -> Windows:
    """Ragged ones, in three batches of two."""
    lengths = torch.tensor([16, 16, 11, 16, 7, 16])
    ids = torch.randint(VOCABULARY, (6, 16), generator=torch.Generator().manual_seed(0))
    return Windows(ids, lengths)


def both(folder: Path, name: str, scale: float = 0.3, **changes: object) -> Both:
    """A model of bfloat16 whose losses are smooth enough for differences."""
    model = build(name, **changes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale).add_(0.02 * torch.randn_like(parameter))  # biases and norms that are not 0 and 1
    model.bfloat16().save_pretrained(folder)
    checkpoint = resolve(str(folder))
    held, mapped, scratch = load_model(checkpoint), load_mapped(checkpoint), Scratch(folder)
    return Both(
        TokenCrossEntropy(held, batches(windows(), 2)),
        Weights.of(held),
        StreamedCrossEntropy(mapped, batches(windows(), 2)),
        masters(mapped, "cpu", scratch),
        scratch,
    )


def save_wide(folder: Path) -> None:
    """A model that takes 43 MB in float32, and 22 in its file."""
    model = build("llama-tied-gqa", hidden_size=384, intermediate_size=768, num_hidden_layers=8)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.3)
    model.bfloat16().save_pretrained(folder)


def in_little_memory(program: str, megabytes: int) -> subprocess.CompletedProcess[str]:
    """Run `program`, which calls limit() when it has imported what it needs: so much more it may take from then on.

    Files that are mapped to be shared do not count, private ones do, and so does everything else.
    """
    begin = f"""
import re, resource, torch

def limit():
    taken = 1024 * int(re.search(r"VmData:\\s+(\\d+)", open("/proc/self/status").read())[1])
    resource.setrlimit(resource.RLIMIT_DATA, (taken + {megabytes} * 2**20,) * 2)

torch.set_num_threads(1)
"""
    return subprocess.run([sys.executable, "-W", "ignore", "-c", begin + program], capture_output=True, text=True)
