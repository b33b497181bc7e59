"""Members of averages as models, each loaded once where memory allows, and compared with the first."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch import nn

from landscape.averaging.folders import Planned
from landscape.config import AverageConfig
from landscape.errors import ModelError
from landscape.machine.memory import available
from landscape.models import load_model
from landscape.models.checkpoint import Checkpoint
from landscape.reporting import Reporter
from landscape.weights import Weights, check_same_space

_OF_THE_FILE = {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version", "use_cache"}


class Reader:
    """Members as models of one architecture; those that are needed again stay, as far as memory allows."""

    def __init__(self, config: AverageConfig, pending: list[Planned], reporter: Reporter) -> None:
        lists = [average.members for average in (pending[-1:] if config.kind == "ema" else pending)]
        self._to_come = Counter(member for members in lists for member in members)
        self._to_come.update(average.members[-1] for average in pending)  # the model that the mean is put into
        self._total, self._done = self._to_come.total(), 0
        self._remote_code = config.remote_code
        self._note, self._progress = reporter.note, reporter.stage("averaging")
        self._kept: dict[Checkpoint, nn.Module] = {}
        self._first: tuple[Checkpoint, Weights, dict[str, Any]] | None = None
        self._seen: dict[str, Checkpoint] = {}

    def __call__(self, checkpoint: Checkpoint) -> nn.Module:
        """The model at `checkpoint`."""
        self._progress(self._done, self._total)
        model = self._kept.pop(checkpoint, None) or self._load(checkpoint)
        self._done += 1
        self._to_come[checkpoint] -= 1
        if self._to_come[checkpoint] > 0:
            self._kept[checkpoint] = model
        return model

    def _load(self, checkpoint: Checkpoint) -> nn.Module:
        size = 4 * self._first[1].numel() if self._first else 0
        while self._kept and available("cpu") < 4 * size:  # this one, the sum (float64), the mean
            self._kept.popitem()
        model = load_model(checkpoint, remote_code=self._remote_code)
        config: dict[str, Any] = model.config.to_dict()  # type: ignore[operator, union-attr, attr-defined]
        if "quantization_config" in config:
            raise ModelError(f"model {checkpoint}: packed by a quantizer; expected weights in floating point")
        weights = Weights.of(model)
        self._check(checkpoint, weights, config)
        same = self._seen.setdefault(weights.fingerprint(), checkpoint)
        if same != checkpoint:
            self._note(f"{same} and {checkpoint} hold the same weights, and both count")
        return model

    def _check(self, checkpoint: Checkpoint, weights: Weights, config: dict[str, Any]) -> None:
        """Compare with the first member: other tensors are refused, another configuration of the same is told."""
        if self._first is None:
            self._first = checkpoint, Weights({name: t.to("meta") for name, t in weights.items()}), config
        first, space, expected = self._first
        try:
            check_same_space(space, weights)
        except ModelError as error:
            raise ModelError(f"model {checkpoint}: cannot be averaged with {first}: {error}") from error
        names = (config.keys() | expected.keys()) - _OF_THE_FILE
        if odd := sorted(name for name in names if config.get(name) != expected.get(name)):
            self._note(f"{first} and {checkpoint} are configured differently ({', '.join(odd)})")
