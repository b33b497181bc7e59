"""What the sections of `curvature.py` share: a model with its data, the unit of time, and how lines are said."""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import transformers
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import peers
from landscape.curvature.probes import rademacher
from landscape.models import load_model
from landscape.models.references import resolve
from landscape.objective import Batch, TokenCrossEntropy, batches
from landscape.tokens import Windows
from landscape.weights import Weights
from trained import REFERENCE, trained, windows

CHECKPOINTS = ("step4800", "step8000")
LARGE = "pythia-160m"  # its shape, with random weights
_PYTHIA_160M = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "vocab_size": 50304,
    "tie_word_embeddings": False,
}
_QUICK = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "vocab_size": 1024,
}


def say(text: str = "") -> None:
    print(text, flush=True)


def told(name: str, function: Callable[[], None]) -> None:
    """Run it, and say so in its line where it cannot."""
    reason = peers.attempt(function)
    if reason:
        say(f"  {name:<58}{reason}")


class Problem:
    """A model with its data, as we take them and as the others do."""

    def __init__(self, name: str, model: nn.Module, data: Windows, size: int, device: str) -> None:
        self.name, self.device = name, device
        self.model = model.to(device).eval()
        self.cut: list[Batch] = batches(data, size, device)
        self.count = sum(batch.n_targets for batch in self.cut)
        self.data: peers.Data = [(batch.ids, batch.ids[:, 1:].flatten()) for batch in self.cut]
        self.weights = Weights.of(self.model)
        self.n = self.weights.numel()
        self.objective = TokenCrossEntropy(self.model, self.cut)
        self.half = TokenCrossEntropy(self.model, self.cut, torch.bfloat16)
        self.recomputed = TokenCrossEntropy(self.model, self.cut, recomputes=True)
        self.like = torch.empty(0, device=device)

    def gradient(self) -> None:
        """The unit."""
        self.model.zero_grad(set_to_none=True)
        for batch in self.cut:
            logits = self.model(input_ids=batch.ids, use_cache=False).logits
            total = cross_entropy(logits[:, :-1].flatten(0, 1), batch.ids[:, 1:].flatten(), reduction="sum")
            (total / self.count).backward()

    def flops(self) -> float:
        """Of the matrix products in one gradient: 6 per parameter and token, and attention's over whole squares."""
        embedding = self.model.get_input_embeddings().weight
        inside = sum(p.numel() for p in self.model.parameters() if p.ndim == 2 and p is not embedding)
        tokens = sum(batch.ids.numel() for batch in self.cut)
        squares = sum(batch.ids.numel() * batch.ids.shape[1] for batch in self.cut)
        config = self.model.config
        return 6.0 * inside * tokens + 12.0 * config.num_hidden_layers * config.hidden_size * squares

    def rows(self, k: int) -> Tensor:
        """Random signs (k, n)."""
        return torch.stack([rademacher(self.n, self.like, 7, i) for i in range(k)])

    def synchronize(self) -> None:
        """Wait until a GPU has done what it was told."""
        if self.device.startswith("cuda"):
            torch.cuda.synchronize()

    def seconds(self, item: Callable[[], object]) -> float:
        """How long one call takes."""
        gc.collect()  # PyHessian's graphs are cycles
        self.synchronize()
        started = time.perf_counter()
        item()
        self.synchronize()
        return time.perf_counter() - started


def problem_of(name: str, args: argparse.Namespace, size: int = 2) -> Problem:
    """A model of `trained`, a checkpoint of the bundled run, or the large one."""
    if name in CHECKPOINTS:
        model = load_model(resolve(f"{REFERENCE / 'mini-pythia'}@{name}"), attention="eager")
    elif name == LARGE:
        torch.manual_seed(0)
        config = transformers.AutoConfig.for_model("gpt_neox", **_PYTHIA_160M | (_QUICK if args.quick else {}))
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    else:
        model = trained(name)
    return Problem(name, model, text(args), size, args.device)


def text(args: argparse.Namespace) -> Windows:
    data = windows("validation", 4, 32) if args.quick else windows("validation", 8, 128)
    assert data.lengths.unique().numel() == 1  # the others average over batches
    return data


@dataclass(frozen=True)
class Ratio:
    """Time over that of a gradient: median, smallest and largest; and the medians of both in seconds."""

    median: float
    low: float
    high: float
    item: float
    gradient: float

    def __str__(self) -> str:
        return f"{self.median:8.2f} ({self.low:.2f} to {self.high:.2f})"


def compare(problem: Problem, item: Callable[[], object], repeats: int, per: int = 1, warm: bool = True) -> Ratio:
    """Time of `item` divided by `per`, over a gradient's, in turn."""
    if warm:
        problem.gradient()
        item()
    pairs = [(problem.seconds(problem.gradient), problem.seconds(item) / per) for _ in range(repeats)]
    problem.model.zero_grad(set_to_none=True)
    ratios = [b / a for a, b in pairs]
    gradient, own = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Ratio(statistics.median(ratios), min(ratios), max(ratios), own, gradient)


def peak_rate(device: str, repeats: int = 20) -> float:
    """float32 operations per second of a square matrix product: 1024 wide, 8192 on a GPU."""
    width = 8192 if device.startswith("cuda") else 1024
    a, b = torch.randn(width, width, device=device), torch.randn(width, width, device=device)
    best = float("inf")
    for _ in range(repeats):
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        started = time.perf_counter()
        a @ b
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return 2.0 * width**3 / best
