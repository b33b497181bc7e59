"""The operator that a measurement of curvature was made with, made again."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from landscape import curvature, inputs, models
from landscape.config import SharpnessConfig, VerifyConfig
from landscape.curvature import store
from landscape.machine.environment import attention_of, environment
from landscape.machine.ranks import ALONE
from landscape.reporting import Reporter, versions
from landscape.sharpness import parts
from landscape.verifying import given
from landscape.verifying.yardstick import Yardstick, yardstick


@dataclass(frozen=True)
class Again:
    """What the file was made from, made again.

    Attributes:
        operator: the Hessian.
        seen: what eigenvalues and trace are of: the Hessian, or it scaled on both sides by `scale`.
        gradient: of the loss, as `seen` sees it.
    """

    config: SharpnessConfig
    text: inputs.Text
    loaded: inputs.Loaded
    operator: curvature.Operator
    seen: curvature.LinearOperator
    scale: torch.Tensor | None
    gradient: torch.Tensor
    measure: Yardstick


def made(stored: store.StoredSharpness, asked: VerifyConfig, reporter: Reporter) -> Again:
    """From the configuration in the file.

    Raises:
        LandscapeError: an input is missing or another one.
    """
    facts, own = stored.attributes, stored.attributes["config"]
    reporter.stage("resolving the model")
    checkpoint = given.checkpoint(asked, facts["model"], facts["model_identity"])
    together = own.get("batch_size", asked.batch_size)  # every batch has its own probes
    config = given.configuration(SharpnessConfig, asked, own, model=facts["model"], batch_size=together)
    text = given.read_text(config, asked, facts, checkpoint, reporter)
    device = models.pick_device(config.device)
    reporter.stage(f"loading {checkpoint}")
    loaded = inputs.load(config, checkpoint, text, device, "float32", config.checkpointing)
    reporter.stage("gradient")
    seen: curvature.LinearOperator
    scale: torch.Tensor | None
    operator = parts.hessian(config, loaded, ALONE, reporter)
    gradient, seen, scale = operator.gradient(), operator, None
    if config.adam:
        diagonal = curvature.diagonal_from_gradients(loaded.objective, loaded.theta, operator.space)
        scaled = curvature.Preconditioned(operator, diagonal)
        seen, scale = scaled, scaled.scale
        gradient = gradient * scale
    here = environment(device, attention_of(loaded.model))
    measure = yardstick(facts, here, versions(), (config.batch_size, config.batch_size))
    if (ranks := facts.get("environment", {}).get("ranks", 1)) != 1:  # sums over ranks are taken in another order
        measure = replace(measure, reasons=(*measure.reasons, f"{ranks} ranks and 1"))
    return Again(config, text, loaded, operator, seen, scale, gradient, measure)
