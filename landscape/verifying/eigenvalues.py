"""Eigenvalues: proved by the vectors that were kept, a product each, or else found again by the same iteration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from landscape import curvature
from landscape.config import VerifyConfig
from landscape.curvature import eigenvectors, vectors
from landscape.curvature.ledger import Ledger
from landscape.reporting import Reporter
from landscape.sharpness.spectrum import Spectrum
from landscape.sharpness.windows import Spread
from landscape.verifying import layers
from landscape.verifying.operators import Again
from landscape.verifying.verdict import Verdict

_REPLAYED = 1e-5  # share of the largest eigenvalue: the same iteration, or a product with the same vector
_UNIT = 1e-5  # of lengths and angles of eigenvectors


def check(
    verdict: Verdict,
    sections: Mapping[str, Mapping[str, Any]],
    again: Again,
    asked: VerifyConfig,
    rng: np.random.Generator,
    reporter: Reporter,
) -> None:
    """Check both ends of the spectrum, as far as they were measured."""
    ends = [which for which in ("top", "bottom") if f"eigenvalues/{which}" in sections]
    kept = {which: path for which in ends if (path := eigenvectors.file_beside(asked.file, which)).exists()}
    scale = max([*(float(np.abs(sections[f"eigenvalues/{which}"]["values"]).max()) for which in ends), 0.0])
    for which in ends:
        section = sections[f"eigenvalues/{which}"]
        if which in kept:
            reporter.stage(f"products with eigenvectors from the {which}")
            _check_vectors(verdict, which, section, kept[which], again, scale, rng, asked.cells)
    if not kept and ends:
        _find_again(verdict, sections, ends, again, scale, reporter)
    if kept:
        verdict.skipped.append(
            "that nothing lies beyond eigenvalues kept with their vectors: 'missed' and 'unseen' say how sure that is"
        )


def _check_vectors(
    verdict: Verdict,
    which: str,
    section: Mapping[str, Any],
    path: Path,
    again: Again,
    scale: float,
    rng: np.random.Generator,
    count: int,
) -> None:
    """The Rayleigh quotient and the residual of vectors in `path`, and that they are orthonormal."""
    rows = eigenvectors.read(path, again.operator.space, again.gradient, "--vectors")
    verdict.add(f"eigenvectors, {which}", len(section["values"]), len(rows))
    if len(rows) != len(section["values"]):
        return
    products = torch.stack([vectors.coefficients(rows, row) for row in rows]).numpy() - np.eye(len(rows))
    verdict.add(
        f"eigenvectors, {which}: off orthonormal", 0.0, float(np.abs(products).max()), _UNIT, "float32 rounding"
    )
    why = f"{_REPLAYED:.0e} of the largest eigenvalue, for rounding"
    for index in layers.some(rng, len(rows), count):
        row = rows[index]
        image = again.seen @ row
        value = vectors.dot(row, image)
        told, residual = float(section["values"][index]), float(section["residuals"][index])
        verdict.add(f"eigenvalue {which} {index}, from its vector", told, value, _REPLAYED * scale, why)
        rest = vectors.norm(image - value * row)
        verdict.add(f"residual {which} {index}", residual, rest, 10 * _REPLAYED * scale, f"ten times {why}")


def _find_again(
    verdict: Verdict,
    sections: Mapping[str, Mapping[str, Any]],
    ends: list[str],
    again: Again,
    scale: float,
    reporter: Reporter,
) -> None:
    """The iteration once more, from its own start, or from the gradient where it began at other vectors."""
    config = again.config
    spread = Spread(again.loaded.objective, again.loaded.theta, again.operator.space, again.scale)
    spectrum = Spectrum(config, again.seen, again.gradient, _Forgetful(), reporter, spread)
    before = 0
    for which in ends:
        told = sections[f"eigenvalues/{which}"]
        found = spectrum.end(which, len(told["values"]), before)
        before = int(found["products"]) if which == "top" else before
        same = again.measure.exact and int(told["products"]) == int(found["products"])
        for index, value in enumerate(told["values"].tolist()):
            here, rest = float(found["values"][index]), float(found["residuals"][index])
            residual = float(told["residuals"][index])
            apart = 0.0 if same else min(rest + residual, abs(value) + scale) + _REPLAYED * scale
            why = again.measure.why if same else "the two residuals, as the iterations differ"
            verdict.add(f"eigenvalue {which} {index}, found again", value, here, apart, why)
            if same:
                verdict.add(f"residual {which} {index}", residual, rest, 0.0, why)
    spectrum.release()


class _Forgetful(Ledger):
    """A ledger that keeps nothing on the disk."""

    def __init__(self) -> None:
        self._arrays: dict[str, dict[str, np.ndarray]] = {}

    def save(self, name: str, **arrays: np.ndarray) -> None:
        self._arrays[name] = arrays

    def load(self, name: str) -> dict[str, np.ndarray] | None:
        return self._arrays.get(name)

    def save_krylov(self, name: str, krylov: curvature.Krylov) -> None:
        """The space is in memory anyway."""
