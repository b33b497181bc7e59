"""Averages made, read back and compared with float64 sums of the files."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from landscape.averaging import Averaged, average_checkpoints
from landscape.averaging.folders import RECIPE
from landscape.config import AverageConfig
from landscape.errors import LandscapeError, ModelError, StoreError
from landscape.reporting import Silent

STEPS = (10, 20, 30, 40, 50, 60)  # of the run that conftest.py trains
TIED = "llama-tied-gqa"


class Notes(Silent):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def note(self, text: str) -> None:
        self.heard.append(text)


def average(*models: object, out: Path, notes: Notes | None = None, **options: object) -> list[Averaged]:
    return average_checkpoints(AverageConfig([str(model) for model in models], out=out, **options), notes)


def stored(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def said(folder: Path) -> dict[str, object]:
    return json.loads((folder / RECIPE).read_text())


def at(run: Path, *steps: int) -> list[Path]:
    return [run / f"step{step}" for step in steps]


def assert_mean(folder: Path, members: list[Path], coefficients: tuple[float, ...] = ()) -> None:
    """What `folder` holds is Σ cᵢ Θᵢ / Σ cᵢ of the files of `members`, rounded to float32 once."""
    coefficients = coefficients or (1.0,) * len(members)
    found, files = stored(folder), [stored(member) for member in members]
    assert found.keys() == files[0].keys()
    for name, tensor in found.items():
        total = sum(c * file[name].double() for c, file in zip(coefficients, files, strict=True))
        expected = total / math.fsum(coefficients)
        assert tensor.dtype == torch.float32
        assert (tensor.double() - expected).abs().le(expected.abs() * 2**-24 * (1 + 1e-6)).all(), name


def same_bits(a: Path, b: Path) -> bool:
    return (a / "model.safetensors").read_bytes() == (b / "model.safetensors").read_bytes()


def refusal(*models: object, out: Path, **options: object) -> str:
    with pytest.raises(LandscapeError) as error:
        average(*models, out=out, **options)
    assert isinstance(error.value, ModelError | StoreError)
    return str(error.value)
