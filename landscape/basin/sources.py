"""What a plane is made from besides Θ_K, decided from names alone: other checkpoints, quantizers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from landscape import packed, quantize
from landscape.config import RANDOM, SliceConfig
from landscape.curvature import eigenvectors
from landscape.errors import ModelError
from landscape.models.checkpoint import Checkpoint
from landscape.models.references import predecessors, resolve


@dataclass(frozen=True)
class Sources:
    """What a plane is made from besides Θ_K, decided before anything is loaded.

    Attributes:
        checkpoints: other checkpoints.
        quantizers: in order.
        identity: all of it, for the key of the result.
    """

    checkpoints: tuple[Checkpoint, ...] = ()
    quantizers: tuple[quantize.Quantizer, ...] = ()
    identity: Mapping[str, Any] = field(default_factory=dict)


def check_quantizers(config: SliceConfig) -> None:
    """Raise `QuantizerError` for a name that means nothing, before anything is resolved or read."""
    for name in config.quant.split(","):
        quantize.parse(name.strip())


def sources_of(config: SliceConfig, checkpoint: Checkpoint, previous: Checkpoint | None) -> Sources:
    """What the plane of `config` is made from; `previous` is Θ_{K−1}, None for a random direction.

    Raises:
        LandscapeError: a reference or a quantizer means nothing; the run has too few checkpoints.
    """
    names = config.quant.split(",") if config.plane == "quantizers" else [config.quant]
    quantizers = tuple(quantize.parse(name.strip()) for name in names)
    if config.plane in ("random", "pca", "eigenvectors") or (config.plane == "line" and config.to):
        quantizers = ()
    others: tuple[Checkpoint, ...] = ()
    identity: dict[str, Any] = {}
    if config.plane == "checkpoints":
        others = (previous,) if previous else ()
    elif config.plane == "line" and config.to:
        others = (packed.find(config.to, checkpoint, config.remote_code),)
    elif config.plane == "pca":
        names = list(itertools.islice(predecessors(checkpoint), config.checkpoints))
        check_enough(checkpoint, len(names))
        others = tuple(resolve(name, checkpoint, config.remote_code) for name in names)
    elif config.plane == "eigenvectors" and config.vectors:
        identity["vectors"] = eigenvectors.fingerprint(config.vectors, "--vectors")
    if config.plane == RANDOM or (config.plane == "checkpoints" and not previous):
        identity["random"] = [config.seed, config.normalize]
    identity |= {
        "plane": config.plane,
        "others": [other.identity for other in others],
        "quantizers": [str(quantizer) for quantizer in quantizers],
        "params": config.params,
    }
    return Sources(others, quantizers, identity)


def check_enough(checkpoint: Checkpoint, count: int) -> None:
    """Raise `ModelError` where `count` other checkpoints span no principal components."""
    if count < 2:
        raise ModelError(
            f"--plane pca: {checkpoint} has {count} other checkpoints before it in its run, expected at least 2; "
            "name a later one as run@step, or take another --plane"
        )
