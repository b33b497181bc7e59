"""Section `memory`: the peak of a process that evaluates a plane, over that of one that only evaluates the model."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

_WAYS = ("nothing", "inference", "plane")
_SHAPE = {"hidden_size": 768, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 3072}


def memory_section(args: argparse.Namespace) -> None:
    """Peaks of fresh processes, on a model large enough that its weights are what counts."""
    peaks = {}
    for way in _WAYS:
        command = [sys.executable, str(Path(__file__)), way]
        peaks[way] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])
    theta = int(subprocess.run([*command[:2], "size"], check=True, capture_output=True, text=True).stdout.split()[-1])
    inference, plane = peaks["inference"] - peaks["nothing"], peaks["plane"] - peaks["inference"]
    print(
        f"memory: Θ is {theta >> 20} MiB; inference takes {inference >> 20} MiB, evaluating a plane {plane >> 20} MiB "
        "more,"
    )
    print(f"{plane / theta:.2f} times Θ\n")


def _measured(way: str) -> int:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from landscape import slices
    from landscape.objective import Batch, TokenCrossEntropy, mean
    from landscape.weights import Weights, move_to, random_direction

    torch.manual_seed(0)
    config = AutoConfig.for_model("gpt_neox", **_SHAPE, vocab_size=4096, max_position_embeddings=256)
    if way == "nothing":
        return _peak()
    model = AutoModelForCausalLM.from_config(config).eval()
    theta = Weights.of(model)
    if way == "size":
        return 4 * theta.numel()
    objective = TokenCrossEntropy(model, [Batch(torch.randint(4096, (1, 64)), torch.tensor([64]))])
    mean(objective, theta)
    if way == "plane":
        plane = slices.span(theta, random_direction(theta, 0), random_direction(theta, 1), {"theta": theta})
        scratch = theta.clone()
        mean(objective, move_to(scratch, theta, 0.1, plane.u, 0.1, plane.v))
    return _peak()


def _peak() -> int:
    """Of this program: what getrusage says, a process that is started inherits from the one that starts it."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


if __name__ == "__main__":
    print(_measured(sys.argv[1]))
