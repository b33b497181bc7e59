"""What `landscape plan` counts beside what is measured: bytes, operations a second, at three sizes.

Every number is of a process of its own. Peaks are the kernel's (VmHWM), less what the process had before: *live*, with
an allocator that gives back at once what is freed, and *taken*, with the C library's as it is, which keeps some of it.
Times are the best of three, beside a product of large matrices timed in between.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from landscape.curvature import Hessian
from landscape.machine import heap
from landscape.objective import Batch, TokenCrossEntropy
from landscape.planning.dry import costs
from landscape.planning.job import measured_speed
from landscape.weights import Weights

SIZES = {  # name: width, layers, heads
    "1.6M": (128, 4, 4),
    "16M": (384, 6, 6),
    "85M": (768, 10, 12),
}
WINDOWS, TOKENS, VOCABULARY = 2, 256, 4096
AT_ONCE = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}  # give back what is freed
PARTS = ("loss", "gradient", "graph", "product")


def model_of(size: str, device: str) -> torch.nn.Module:
    """A GPT-NeoX with random weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    width, layers, heads = SIZES[size]
    config = AutoConfig.for_model(
        "gpt_neox",
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        vocab_size=VOCABULARY,
        max_position_embeddings=TOKENS,
        bos_token_id=0,
        eos_token_id=0,
    )
    torch.manual_seed(0)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


def peak_of(run: Callable[[], object]) -> tuple[int, object]:
    """By how much the process grows at most while it runs, in bytes."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    made = run()
    return resident("VmHWM") - before, made


def resident(word: str) -> int:
    """A line of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(word)) * 1024


def measure(size: str, part: str) -> dict[str, float]:
    """Planned and measured bytes of one part, and the share of the speed of large products that it reaches."""
    planned = costs(model_of(size, "meta"), WINDOWS, TOKENS, second_order=True)
    model = model_of(size, "cpu")
    weights = Weights.of(model)
    ids = torch.randint(VOCABULARY, (WINDOWS, TOKENS))
    objective = TokenCrossEntropy(model, [Batch(ids, torch.full((WINDOWS,), TOKENS))])
    _ = objective.in_two

    def loss() -> object:
        with torch.no_grad():
            return objective(weights, objective.batches[0])

    def gradient() -> object:
        leaves = {name: tensor.detach().requires_grad_() for name, tensor in weights.items()}
        return torch.autograd.grad(objective(leaves, objective.batches[0])[0], list(leaves.values()))

    operator = Hessian(objective, weights, keep=True, workers=1)
    vector = torch.randn(operator.n)
    runs: dict[str, Callable[[], object]] = {"loss": loss, "gradient": gradient}
    runs |= {"graph": lambda: operator._locals(), "product": lambda: operator @ vector}
    if part == "product":
        runs["graph"]()
    loss()  # what a process takes once
    peak, kept = peak_of(runs[part])
    del kept
    heap.hold()
    speeds = []
    for _ in range(3):
        speed = measured_speed("cpu")
        if part == "graph":
            operator.release()
        began = time.perf_counter()
        runs[part]()
        speeds.append(getattr(planned, part).flops / (time.perf_counter() - began) / speed)
    # torch's own arithmetic adds up parts of a product in threads' buffers; the operator, one vector of the result
    bytes_planned = getattr(planned, part).peak + (4 * planned.parameters if part == "product" else 0)
    return {"parameters": planned.parameters, "planned": bytes_planned, "peak": peak, "reached": max(speeds)}


def of_a_process(size: str, part: str, more: dict[str, str]) -> dict[str, float]:
    """What `measure` finds in a process with more environment."""
    command = [sys.executable, "-W", "ignore", __file__, "--one", size, part]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | more)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """A table, one line for each size and part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=SIZES, help="one size")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(*given.one)))
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("model", "part", "planned", "live", "ratio", "taken", "ratio", "of large products"):
        table.add_column(heading, justify="right")
    for size in [given.only] if given.only else SIZES:
        for part in PARTS:
            live, taken = of_a_process(size, part, AT_ONCE), of_a_process(size, part, {})
            planned = taken["planned"]
            row = [f"{taken['parameters'] / 1e6:.1f} M", part, f"{planned / 1e6:.0f} MB"]
            for found in (live, taken):
                row += [f"{found['peak'] / 1e6:.0f} MB", f"{found['peak'] / planned:.2f}"]
            table.add_row(*row, f"{taken['reached']:.2f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
