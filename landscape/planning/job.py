"""The job: a model's configuration and a machine in; what a job would hold where, and how long it would take, out."""

from __future__ import annotations

import time
from functools import cache
from math import ceil

import torch
from torch import nn

from landscape import inputs, models
from landscape.config import PlanConfig
from landscape.errors import OptionError
from landscape.machine.memory import available
from landscape.planning.dry import Costs, costs, without_numbers
from landscape.planning.plan import Machine, Plan, plan, remedies

_SIDE = 2048  # of the matrices whose product is timed

Planned = tuple[Plan, list[tuple[str, float]]]


def plan_job(config: PlanConfig) -> Planned:
    """The plan, and where it does not fit, what would: words and bytes.

    Raises:
        LandscapeError: no configuration of a model, or windows longer than its context.
    """
    model = without_numbers(config.model)
    context = int(getattr(model.config, "max_position_embeddings", 2048))
    defaults = inputs.PROTOCOL if context >= inputs.PROTOCOL.seq_len else inputs.SMALL
    tokens = config.tokens or (defaults.curvature_tokens if config.job == "sharpness" else defaults.tokens)
    length = config.seq_len or min(defaults.seq_len, context)
    if length > context:
        raise OptionError(f"--seq-len {length}: longer than the {context} tokens this model was built for")
    return plan_of(config, model, ceil(tokens / length), length, models.pick_device("auto"))


def plan_of(config: PlanConfig, model: nn.Module, windows: int, length: int, device: str) -> Planned:
    """As `plan_job`, of a model without numbers and so many windows.

    Raises:
        ModelError: what the model does depends on numbers.
    """

    @cache
    def counted(windows: int, second_order: bool, recomputes: bool) -> Costs:
        return costs(model, windows, length, second_order, recomputes)

    def costs_of(config: PlanConfig) -> Costs:
        exact = config.job == "sharpness" and config.product == "reverse" and not (config.shard or config.stream)
        size = min(windows, config.batch_size or (2 if config.job == "sharpness" else 8))
        return counted(size, exact, config.checkpointing or config.shard or config.stream)

    memory = config.memory * 1e9 if config.memory else available(device)
    machine = Machine(memory, config.tflops * 1e12 if config.tflops else measured_speed(device), config.link * 1e9)
    found = plan(config, windows, costs_of, machine)
    return found, [] if found.fits else remedies(found, windows, costs_of)


def measured_speed(device: str) -> float:
    """Floating-point operations a second in a product of float32 matrices, the best of five."""
    a = torch.randn(_SIDE, _SIDE, device=device)
    seconds = []
    for _ in range(6):
        began = time.perf_counter()
        float((a @ a)[0, 0])  # waits until it is there
        seconds.append(time.perf_counter() - began)
    return 2 * _SIDE**3 / min(seconds[1:])
