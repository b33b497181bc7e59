"""A job looks ahead: it says what it will hold and for how long; what cannot fit is refused, with what would."""

from __future__ import annotations

from landscape.config import PlanConfig
from landscape.errors import ModelError
from landscape.machine.words import byte_size, duration
from landscape.models.checkpoint import Checkpoint
from landscape.models.mapped import stored_parameters
from landscape.planning.dry import without_numbers
from landscape.planning.job import plan_of
from landscape.reporting import Reporter
from landscape.tokens import Windows

_WORTH = 3e12  # operations: a job of fewer is done in a minute, and not planned


def look_ahead(
    config: PlanConfig, checkpoint: Checkpoint, windows: Windows, device: str, reporter: Reporter, remote_code: bool
) -> None:
    """Plan `config` over `windows`, and say how long it takes and what is held at the worst moment.

    A model whose operations depend on its numbers, such as one of experts, is not planned, and that is said.

    Raises:
        ModelError: memory does not hold what the job would take.
    """
    if _operations(config, stored_parameters(checkpoint), windows.n_tokens) < _WORTH:
        return
    reporter.stage("planning")
    try:
        model = without_numbers(str(checkpoint.folder), remote_code)
        found, remedies = plan_of(config, model, len(windows), windows.ids.shape[1], device)
    except ModelError as error:
        reporter.say(f"not planned: {error}")
        return
    free = byte_size(found.machine.memory)
    worst = max(found.phases, key=lambda phase: phase.bytes)
    held = ", ".join(f"{name} {byte_size(size)}" for name, size in worst.held.items())
    if not found.fits:
        others = " or ".join(f"{words} ({byte_size(size)})" for words, size in remedies)
        raise ModelError(
            f"model {checkpoint}: {config.job} would take {byte_size(worst.bytes)} ({worst.name}: {held}), and {free} "
            f"are free; use {others or 'a device with more memory: nothing else makes it fit'}"
        )
    seconds = float(f"{sum(map(found.seconds, found.phases)):.2g}")
    reporter.say(f"planned: about {duration(seconds)}, at most {byte_size(worst.bytes)} of {free} free")
    reporter.stage(f"then held: {held}")


def _operations(config: PlanConfig, parameters: int, tokens: int) -> float:
    """Two a weight and token for a loss; how many of them a job takes, about."""
    losses = {
        "slice": config.evaluations,
        "evaluate": 1 + 3 * config.quantizers,
        "sharpness": 6 * (config.products + config.density) + 2 * config.probes,
    }
    return 2.0 * parameters * tokens * losses[config.job]
