"""What products, eigenvalues and traces cost over one gradient of the same data, ours and other packages'.

    python benchmarks/curvature.py [--only product,lambda,trace,memory,flagged] [--device cuda] [--quick]
    python benchmarks/curvature.py --only large
    pip install --no-deps -r benchmarks/peers.txt    # the other packages; without them their lines say so

The unit is one plain float32 gradient: `model(ids).logits`, torch's cross-entropy and `backward()` over 8 windows of
128 tokens in 4 micro-batches, with eager attention. One is timed right before everything that is timed, so a machine
that speeds up or slows down does so for both. Ratios are medians over the repeats, with their range.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time

import torch

from large import large_section
from leading import flagged_section, lambda_section
from memory import memory_section
from problem import CHECKPOINTS, problem_of, say
from products import product_section
from traces import trace_section

SECTIONS = {"product": product_section, "lambda": lambda_section, "trace": trace_section}
DEFAULT = (*SECTIONS, "memory", "flagged")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="llama,gpt_neox")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="only to see that everything runs")
    parser.add_argument("--seeds", type=int, default=20, help="start vectors of each kind")
    parser.add_argument("--only", default=",".join(DEFAULT), help=f"{', '.join(DEFAULT)}, large")
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    names, only = args.models.split(","), args.only.split(",")
    if args.quick:
        args.repeats = min(args.repeats, 2)
    unknown = set(only) - {*DEFAULT, "large"}
    if unknown:
        parser.error(f"--only {', '.join(sorted(unknown))}: expected {', '.join(DEFAULT)} or large")
    started = time.perf_counter()
    for name in names:
        for section, function in SECTIONS.items():
            if section in only:
                function(problem_of(name, args), args)
                gc.collect()
        if "memory" in only:
            memory_section(name, args)
    if "flagged" in only:
        for name in (*names, *CHECKPOINTS):
            flagged_section(problem_of(name, args), args)
    if "large" in only:
        large_section(args)
    say(
        f"python {' '.join(sys.argv)}: torch {torch.__version__}, {torch.get_num_threads()} threads, {args.device}, "
        f"{args.repeats} repeats, {time.perf_counter() - started:.0f} s"
    )


if __name__ == "__main__":
    main()
