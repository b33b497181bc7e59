"""Losses window by window behind a study's rows: out of its evaluations, or out of one file that keeps them together.

    python -m analyses.read.windows data/studies/lab-tiny    writes windows.npz beside study.parquet

A study's evaluations take tens of kilobytes each and are left behind when a table is kept; this file is what is needed
of them to compare two checkpoints on the same windows.
"""

from __future__ import annotations

import io
import json
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from landscape.storage.files import write_whole

FILE = "windows.npz"
_NAMES = ("sum", "sum_hat", "predicted")  # nats of Θ, nats of Θ̂, tokens
_KEY = 16  # letters of an evaluation's key that name its array
_Floats = NDArray[np.float64]


def read(folder: Path, key: str) -> tuple[_Floats, _Floats, _Floats] | None:
    """(sums of Θ, sums of Θ̂, tokens) of every window in the evaluation with this key; None where it was not kept."""
    kept = _kept(folder).get(key[:_KEY])
    if kept is None:
        for path in (folder / "evaluations").glob(f"*-{key[:8]}.json"):
            found_key, kept = _evaluation(path)
            if found_key == key:
                break
        else:
            return None
    sums, hat, tokens = np.asarray(kept, dtype=float)
    return sums, hat, tokens


def keep(folder: Path) -> int:
    """Write the file from all evaluations in a study's folder; returns of how many."""
    found = {}
    for path in sorted((folder / "evaluations").glob("*.json")):
        key, windows = _evaluation(path)
        found[key[:_KEY]] = windows.astype(np.float32)  # 7 figures of sums of hundreds of nats
    memory = io.BytesIO()
    np.savez_compressed(memory, allow_pickle=False, **found)
    write_whole(folder / FILE, memory.getvalue())
    return len(found)


def _evaluation(path: Path) -> tuple[str, _Floats]:
    content = json.loads(path.read_text(encoding="utf-8"))
    return content["key"], np.array([content["windows"][name] for name in _NAMES], dtype=float)


@lru_cache(maxsize=16)
def _kept(folder: Path) -> dict[str, _Floats]:
    if not (folder / FILE).is_file():
        return {}
    with np.load(folder / FILE) as arrays:
        return {name: arrays[name] for name in arrays.files}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(f"{name}: windows of {keep(Path(name))} evaluations")
