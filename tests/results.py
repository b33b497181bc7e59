"""One result of each kind, small and real, and how to change one so that only computing it again can tell."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from landscape.basin import render_slice
from landscape.config import EvaluateConfig, SharpnessConfig, SliceConfig
from landscape.evaluation import evaluate_model
from landscape.sharpness import measure_sharpness
from landscape.storage import hdf5
from landscape.storage.digests import with_digest
from studies import study

TEXT = {"seq_len": 32, "tokens": 320, "batch_size": 4}
LANCZOS = {"top": 2, "max_products": 12, "max_probes": 12, "density_steps": 6, "density_probes": 2}


def adaptive(run: Path, text: Path, out: Path, **changes: Any) -> Path:
    """A picture from few evaluations."""
    given = {"quant": "rtn-w3-g16", "plane": "line", "grid": "41", **TEXT, **changes}
    return render_slice(SliceConfig(f"{run}@step30", text=str(text), out=out / "adaptive.h5", **given)).path


def dense(run: Path, text: Path, out: Path, **changes: Any) -> Path:
    """Every cell evaluated."""
    given = {"quant": "gptq-w3-g16", "grid": "4x3", "dense": True, "calibration_windows": 8, **TEXT, **changes}
    return render_slice(SliceConfig(f"{run}@step30", text=str(text), out=out / "dense.h5", **given)).path


def curvature(run: Path, text: Path, out: Path, **changes: Any) -> Path:
    """Eigenvalues, trace, density, and a quantizer's step."""
    given = {"quant": "rtn-w3-g16", **TEXT, **LANCZOS, **changes}
    return measure_sharpness(SharpnessConfig(f"{run}@step30", text=str(text), out=out / "curvature.h5", **given)).path


def evaluated(run: Path, text: Path, out: Path, **changes: Any) -> Path:
    """One quantizer, with its second order."""
    given = {"quant": "rtn-w3-g16", "second_order": True, "curvature_tokens": 128, **TEXT, **changes}
    return evaluate_model(EvaluateConfig(f"{run}@step30", text=str(text), out=out, **given))[0].path


def table(run: Path, text: Path, out: Path, **changes: Any) -> Path:
    """Two quantizers on three checkpoints; the table."""
    return study(run, text, out / "study", **changes).folder / "study.parquet"


def changed(path: Path, folder: Path, change: Callable[[Any], None]) -> Path:
    """A copy of `path`, and of the eigenvectors beside it, in which `change` was made and sealed as if nothing were."""
    for each in path.parent.glob(f"{path.stem}*"):
        if each.is_file():
            shutil.copy(each, folder)
    copy = folder / path.name
    if path.suffix == ".json":
        content = json.loads(copy.read_text(encoding="utf-8"))
        change(content)
        copy.write_text(json.dumps(with_digest(content)), encoding="utf-8")
        return copy
    with h5py.File(copy, "r+") as file:
        change(file)
        hdf5.seal(file)
    return copy


def stretch(dataset: Any, index: Any, by: float = 1.001) -> None:
    """One number of a dataset, a little larger."""
    dataset[index] = np.asarray(dataset[index]) * by
