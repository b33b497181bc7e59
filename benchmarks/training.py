"""Tokens per second of our training loop beside a plain one of the same model, interleaved in one process.

    make bench-training
    python benchmarks/training.py --device cuda --precision bfloat16 --compile --sizes small

The plain loop is what one writes by hand (after nanoGPT): batches drawn from a memory-mapped file, AdamW with the same
fused kernel, clipping, the rate set at every step; no log, no norms, no state; and it too finds the memory that it
freed (`landscape.machine.heap`, for the whole process: alone it would be slower). The floor is the arithmetic, 6 FLOPs
per parameter and token and 12·layers·width·context for attention, at the rate of a large matrix product in the same
precision, measured here: what share of it is reached is MFU against this device's own peak.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from landscape.training.ranks import Ranks

from landscape.machine import heap
from landscape.models import load_tokenizer
from landscape.models.references import resolve
from landscape.pretraining import build_model, find
from landscape.training import loop, optimizers
from landscape.training.data import Order
from landscape.training.recipe import Recipe
from landscape.training.run import Run

REFERENCE = Path(__file__).parent.parent / "data" / "reference" / "mini-pythia"
SIZES = {"tiny": "p1-160m-tiny", "small": "p1-160m-small"}


def plain(model: Any, forward: Any, recipe: Recipe, ids: np.ndarray, steps: int, optimizer: Any, device: str) -> None:
    """Train for `steps` updates."""
    random = np.random.default_rng(0)
    cast = torch.autocast(device, torch.bfloat16) if recipe.precision == "bfloat16" else nullcontext()
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, (step + 1) / 10)
        starts = random.integers(len(ids) - recipe.seq_len, size=recipe.batch_size)
        rows = [torch.from_numpy(ids[start : start + recipe.seq_len].astype(np.int64)) for start in starts]
        batch = torch.stack(rows)
        batch = batch.pin_memory().to(device, non_blocking=True) if device == "cuda" else batch
        with cast:
            loss = forward(input_ids=batch, labels=batch, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def peak(device: str, precision: str) -> float:
    """FLOP/s of a large matrix product."""
    n = 8192 if device == "cuda" else 2048
    a = torch.randn(n, n, device=device, dtype=getattr(torch, precision))
    best = 0.0
    for _ in range(8):
        began = clock(device)
        for _ in range(4 if device == "cuda" else 1):
            a @ a
        best = max(best, 2 * n**3 * (4 if device == "cuda" else 1) / (clock(device) - began))
    return best


def clock(device: str) -> float:
    """Seconds, after what the device was asked for is done."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def flops(model: Any, recipe: Recipe) -> float:
    """Arithmetic of one token, forward and backward (arXiv 2204.02311, appendix B)."""
    width, layers = model.config.hidden_size, model.config.num_hidden_layers
    embedding = model.get_input_embeddings().weight.numel()
    parameters = sum(p.numel() for p in model.parameters()) - embedding
    return 6 * parameters + 12 * layers * width * recipe.seq_len


def main() -> None:
    """Print a row for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", default=["tiny"], choices=SIZES)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    heap.hold()
    print(f"{args.device}, {args.precision}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    best = peak(args.device, args.precision)
    for size in args.sizes:
        recipe = find(SIZES[size])[0].changed(
            [f"precision={args.precision}", f"steps={args.steps}", "every=0", "order=drawn", "log_every=10"]
        )
        tokenizer = load_tokenizer(resolve(str(REFERENCE)))
        ids = np.random.default_rng(0).integers(len(tokenizer), size=1 << 20).astype(np.uint16)
        order = Order(ids, recipe.seq_len, recipe.batch_size, recipe.steps, 0, recipe.order)
        tokens = args.steps * recipe.batch_size * recipe.seq_len
        ours = build_model(recipe, tokenizer).to(args.device)
        theirs = build_model(recipe, tokenizer).to(args.device)
        updater = optimizers.build(ours, recipe.optimizer)
        optimizer = optimizers.build(theirs, recipe.optimizer).parts[0]
        forward = torch.compile(theirs) if args.compile else theirs
        speeds: dict[str, list[float]] = {"ours": [], "plain": []}
        with tempfile.TemporaryDirectory() as folder:
            run = Run(Path(folder))
            for turn in range(args.repeats + 1):
                for name in ("ours", "plain") if turn % 2 else ("plain", "ours"):
                    began = clock(args.device)
                    if name == "ours":
                        computing = loop.Computing(Ranks(device=args.device), compiled=args.compile)
                        loop.train(ours, updater, recipe, order, run, tokenizer, loop.Progress(), computing)
                    else:
                        plain(theirs, forward, recipe, ids, args.steps, optimizer, args.device)
                    if turn:  # the first turn warms up
                        speeds[name].append(tokens / (clock(args.device) - began))
        ratio = statistics.median(a / b for a, b in zip(speeds["ours"], speeds["plain"], strict=True))
        own, other = (statistics.median(speeds[name]) for name in ("ours", "plain"))
        share = own * flops(ours, recipe) / best
        print(
            f"{size}: {sum(p.numel() for p in ours.parameters()):,} parameters, {recipe.batch_size} × {recipe.seq_len} "
            f"tokens a step: ours {own:,.0f} tokens/s, plain {other:,.0f}, ratio {ratio:.3f}; {share:.0%} of "
            f"{best / 1e9:,.0f} GFLOP/s"
        )


if __name__ == "__main__":
    main()
