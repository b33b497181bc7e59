"""Measure the bundled run and write what came out to `expected.json`, which the tests hold the code to.

The second half of `make reference`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from landscape.models import load_model, load_tokenizer
from landscape.models.references import resolve
from landscape.objective import TokenCrossEntropy, batches, mean
from landscape.quantize import parse, quantize
from landscape.texts import documents
from landscape.tokens import WindowReader
from landscape.weights import Weights

HERE = Path(__file__).parent
STEPS = (4800, 6400, 7200, 8000)
QUANTIZERS = ("rtn-w4-g128", "rtn-w3-g128", "gptq-w4-g128", "gptq-w3-g128")
SEQ_LEN, EVALUATION, CALIBRATION = 256, 64, 128  # windows


def measure(step: int) -> dict[str, Any]:
    """Loss of one checkpoint in nats per token, ‖Θ‖, and the loss and ‖δ‖ of each quantizer."""
    checkpoint = resolve(f"{HERE / 'mini-pythia'}@{step}")
    tokenizer, model = load_tokenizer(checkpoint), load_model(checkpoint)
    held_out, seen = (str(HERE / "corpus" / f"{split}.jsonl.xz") for split in ("validation", "train"))
    evaluation = WindowReader(documents(held_out), tokenizer, SEQ_LEN).take(EVALUATION)
    calibration = WindowReader(documents(seen), tokenizer, SEQ_LEN).take(CALIBRATION)
    objective, theta = TokenCrossEntropy(model, batches(evaluation, 8)), Weights.of(model)
    row: dict[str, Any] = {"loss": mean(objective, theta), "norm": theta.norm(), "quantized": {}}
    for name in QUANTIZERS:
        rounded, _ = quantize(parse(name), model, calibration)
        row["quantized"][name] = {"loss": mean(objective, rounded), "step_norm": (rounded - theta).norm()}
    return row


def main() -> None:
    """Measure every checkpoint, print ΔQ, write `expected.json`."""
    rows = {}
    for step in STEPS:
        rows[str(step)] = row = measure(step)
        errors = {name: f"{q['loss'] / row['loss'] - 1:.2%}" for name, q in row["quantized"].items()}
        print(f"step {step}: loss {row['loss']:.4f}  " + "  ".join(f"{name} {error}" for name, error in errors.items()))
    (HERE / "expected.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
