"""The job: a stored result in; its inputs found again, some of its numbers computed again, a verdict on each out.

    file → configuration, identities → the same Θ, windows, plane, operator → numbers beside numbers

What is computed goes through the functions that the measuring jobs use. Nothing is written.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from landscape import evaluation, slices
from landscape.config import VerifyConfig
from landscape.curvature import store
from landscape.errors import StoreError
from landscape.machine import heap
from landscape.machine.arithmetic import arithmetic
from landscape.reporting import Reporter, Silent
from landscape.storage import hdf5
from landscape.verifying import of_curvature, of_evaluation, of_slice, of_study
from landscape.verifying.verdict import Verdict

SLICE, CURVATURE, EVALUATION, STUDY = "slice", "curvature", "evaluation", "study"
_HDF5 = (".h5", ".hdf5")
_TABLE = ".parquet"

Check = Callable[[Verdict, VerifyConfig, np.random.Generator, Reporter], None]


def verify_file(config: VerifyConfig, reporter: Reporter | None = None) -> Verdict:
    """Check the file that `config` names.

    Raises:
        LandscapeError: it cannot be checked: an input is missing or another one, or the file is damaged.
    """
    heap.hold()
    reporter = reporter or Silent()
    seed = secrets.randbelow(2**32) if config.seed is None else config.seed
    check, facts, kind = _opened(config)
    verdict = Verdict(config.file, kind, seed)
    made_in = facts.get("environment") or {}
    with arithmetic(bool(made_in.get("deterministic")), _threads(made_in.get("threads"))):
        check(verdict, config, np.random.default_rng(seed), reporter)
    return verdict


def _opened(config: VerifyConfig) -> tuple[Check, Mapping[str, Any], str]:
    """(what checks the file, what it says of itself, its kind).

    Raises:
        StoreError: no result, or a damaged one.
    """
    path = config.file
    if path.is_dir() or path.suffix == _TABLE:
        return partial(of_study.check, path if path.is_dir() else path.parent), {}, STUDY
    if path.suffix == ".json":
        result = evaluation.read(path)
        return partial(of_evaluation.check, result), result.facts, EVALUATION
    if path.suffix not in _HDF5:
        raise StoreError(f"{path}: not a result; expected a slice or curvature (.h5), an evaluation (.json) or a study")
    with hdf5.opened(path, "make it anew") as file:
        kind = hdf5.attributes(file).get("kind")
    if kind == store.KIND:
        measured = store.read(path)
        return partial(of_curvature.check, measured), measured.attributes, CURVATURE
    stored = slices.read(path)
    return partial(of_slice.check, stored), stored.attributes, SLICE


def _threads(stored: Any) -> int | None:
    """As many as when the file was made, where this machine has as many."""
    return stored if isinstance(stored, int) and 1 <= stored <= (os.cpu_count() or 1) else None
