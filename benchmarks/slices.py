"""What one cell of a slice costs over a bare forward pass on the same batches.

    make bench-slices            # or: python benchmarks/slices.py --cells 25x25 --repeats 5

Two ways to the same losses, in turn, cell by cell, so that a machine that speeds up or slows down does so for both:

* bare: the model as it stands, `model(ids).logits` and torch's cross-entropy, nothing else;
* scan: `landscape.slices.scan` into an HDF5 file, tiles flushed, weights computed from the masters at every cell.

A scan does for each cell what a bare pass does, plus 3 reads and 1 write of every weight: 16 bytes a parameter against
2 floating-point operations a parameter and token, so beyond a few dozen tokens the floor of the ratio is 1.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from landscape import slices
from landscape.models import load_model, load_tokenizer
from landscape.objective import TokenCrossEntropy, batches, mean
from landscape.quantize import parse, quantize
from landscape.references import resolve
from landscape.texts import documents
from landscape.tokens import WindowReader
from landscape.weights import Weights

REFERENCE = Path(__file__).parent.parent / "data" / "reference"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(REFERENCE / "mini-pythia"))
    parser.add_argument("--text", default=str(REFERENCE / "corpus" / "validation.jsonl.xz"))
    parser.add_argument("--cells", default="25x25")
    parser.add_argument("--windows", type=int, default=16)
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()

    checkpoint = resolve(args.model)
    model = load_model(checkpoint, args.device)
    theta = Weights.of(model)
    windows = WindowReader(documents(args.text), load_tokenizer(checkpoint), args.seq_len).take(args.windows)
    cut = batches(windows, 8, args.device)
    objective = TokenCrossEntropy(model, cut)
    points = {"theta": theta, "theta_hat": quantize(parse("rtn-w3-channel"), model)[0]}
    step = points["theta_hat"] - theta
    generator = torch.Generator().manual_seed(0)
    noise = Weights({name: torch.randn(t.shape, generator=generator).to(t) for name, t in theta.items()})
    plane = slices.span(theta, noise, step, points)
    bounds = slices.around([(p.alpha, p.beta) for p in plane.points.values()], 0.5)
    shape = slices.parse_grid(args.cells)
    alpha, beta = slices.with_zero(*bounds.alpha, shape[0]), slices.with_zero(*bounds.beta, shape[1])

    def synchronize() -> None:
        if args.device.startswith("cuda"):
            torch.cuda.synchronize()

    def bare() -> float:
        with torch.no_grad():
            total = 0.0
            for batch in cut:
                logits = model(input_ids=batch.ids, use_cache=False).logits
                total += float(cross_entropy(logits[:, :-1].flatten(0, 1), batch.ids[:, 1:].flatten(), reduction="sum"))
        synchronize()
        return total / sum(batch.n_targets for batch in cut)

    for _ in range(3):
        bare()
        mean(objective, theta)
    expected = bare()
    ratios = []
    print(f"{checkpoint}: {theta.numel():,} parameters, {windows.n_tokens:,} tokens a cell, {args.cells} cells")
    for repeat in range(args.repeats):
        bare_time, bare_count, started = 0.0, 0, 0.0

        def loss(weights: Weights) -> float:
            nonlocal bare_time, bare_count
            value = mean(objective, weights)
            paused = time.perf_counter()
            assert abs(bare() - expected) < 1e-4
            bare_count += 1
            bare_time += time.perf_counter() - paused
            return value

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "slice.h5"
            labels = dict.fromkeys(points, "")
            slices.create(path, slices.Layout(plane, alpha, beta, np.zeros(0), labels, {}, {}, "key"))
            with slices.SliceWriter(path, "key", plane.fingerprint()) as writer:
                synchronize()
                started = time.perf_counter()
                slices.scan(writer, plane, points, loss)
                scan_time = time.perf_counter() - started - bare_time
        ratios.append(scan_time / bare_time)
        cells = bare_count
        print(
            f"  {repeat + 1}: scan {1e3 * scan_time / cells:.1f} ms, bare {1e3 * bare_time / cells:.1f} ms a cell, "
            f"ratio {ratios[-1]:.3f}"
        )
    print(f"median ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
