"""All that is decided of a slice before the first evaluation, and the key over it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from landscape import inputs, slices
from landscape.basin.sources import Sources
from landscape.config import SliceConfig
from landscape.machine.ranks import Ranks
from landscape.models.checkpoint import Checkpoint
from landscape.results import key_of, path_of


@dataclass(frozen=True)
class Job:
    """A slice: its inputs, its grid, and the processes that share it."""

    config: SliceConfig
    checkpoint: Checkpoint
    sources: Sources
    text: inputs.Text
    ranks: Ranks
    grid: tuple[int, int]
    bounds: slices.Bounds | None

    @property
    def key(self) -> str:
        """SHA-256 over everything that changes the numbers."""
        config, calibration, bounds = self.config, self.text.calibration, self.bounds
        everything = {
            "model": self.checkpoint.identity,
            "sources": self.sources.identity,
            "evaluation": self.text.evaluation.fingerprint,
            "calibration": calibration.fingerprint if calibration is not None else None,
            "grid": self.grid,
            "rectangle": [*bounds.alpha, *bounds.beta] if bounds else [config.margin, config.reach],
            "sampling": "dense"
            if config.dense
            else [config.range_tolerance, config.loss_tolerance, config.max_evaluations, config.seed],
            "dtype": config.dtype,
            "batch_size": config.batch_size,
            "device": torch.device(self.ranks.device).type,
        }
        return key_of(everything)

    @property
    def path(self) -> Path:
        """Where the slice goes: the name asked for, or one that its inputs make."""
        kind = [] if self.config.plane == "checkpoints" else [self.config.plane]
        quantizers = [str(quantizer) for quantizer in self.sources.quantizers]
        return path_of(self.config.out, self.checkpoint, *kind, *quantizers, self.key[:8])
