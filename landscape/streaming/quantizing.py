"""Evaluate and quantize a model that memory does not hold in float32, one decoder block at a time.

    block out of its file → its layers quantized → all windows through it → gone; the next

Θ̂ is never anywhere as a whole. The losses are those of a model in memory, to the bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from landscape import quantize
from landscape.decoder.blocks import Walk
from landscape.losses import WindowLosses
from landscape.models.mapped import brought_in
from landscape.objective import TokenCrossEntropy, autocast
from landscape.storage.scratch import Scratch
from landscape.tokens import Windows
from landscape.weights import Weights


@dataclass(frozen=True)
class Streamed:
    """Losses by window, the quantizer's report (None for Θ), and the seconds that quantizing took of it."""

    losses: WindowLosses
    report: quantize.Report | None
    quantize_seconds: float


def streamed_losses(
    objective: TokenCrossEntropy,
    quantizer: quantize.Quantizer | None = None,
    calibration: Windows | None = None,
    batch_size: int = 8,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Streamed:
    """The losses of `objective`, whose model `load_mapped` loaded: those of Θ, or of Θ̂ by `quantizer`.

    Hidden states of all evaluation and calibration tokens are held in main memory.

    Raises:
        ModelError: the model does not call its blocks one after the other.
        QuantizerError: as `quantize.quantize`.
    """
    model, device = objective.model, next(objective.model.parameters()).device
    walk = Walk(model, [batch.ids for batch in objective.batches], keep="cpu")
    hold = partial(brought_in, device=str(device))
    steps, evaluating, began = [0], 0.0, time.monotonic()

    def tick() -> None:
        steps[0] += 1
        on_progress(steps[0], (len(walk.blocks) + 1) * len(walk.ids))

    def through(index: int, _quantized: dict[str, Tensor] | None = None) -> None:
        nonlocal evaluating
        start = time.monotonic()
        with torch.no_grad(), autocast(device.type, objective.dtype):
            walk.step(index, tick)
        evaluating += time.monotonic() - start

    report = None
    if quantizer is None:
        for index, block in enumerate(walk.blocks):
            with hold(block):
                through(index)
    else:
        report = quantize.quantize_blocks(quantizer, model, calibration, through, batch_size, hold=hold, keep="cpu")
    quantizing = time.monotonic() - began - evaluating
    with walk.skipped():
        _ = objective.in_two  # decided on six tokens of its own
    sums = []
    for index, batch in enumerate(objective.batches):
        with torch.no_grad(), walk.finished(index):
            sums.append(objective.by_window({}, batch))
        tick()
    return Streamed(WindowLosses.of(sums, objective.batches), report, quantizing if report is not None else 0.0)


def quantize_to_scratch(
    quantizer: quantize.Quantizer,
    model: nn.Module,
    theta: Weights,
    calibration: Windows | None,
    batch_size: int,
    scratch: Scratch,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Weights, quantize.Report]:
    """`quantize.quantize` of a `model` whose Θ is in scratch space (`landscape.models.mapped.masters`); so is Θ̂ then.

    Raises:
        QuantizerError: as `quantize.quantize`.
    """
    device = str(next(model.parameters()).device)
    found: dict[str, Tensor] = {}

    def put(_index: int, quantized: dict[str, Tensor]) -> None:
        found.update((name, scratch.keep(tensor.cpu())) for name, tensor in quantized.items())

    hold = partial(brought_in, device=device)
    report = quantize.quantize_blocks(
        quantizer, model, calibration, put, batch_size, on_progress, hold=hold, keep="cpu"
    )
    return Weights({name: found.get(name, tensor) for name, tensor in theta.items()}, theta.keep), report
