"""A study as a page shows it: checkpoints of one or several training runs, with what was measured at each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from landscape.curvature.store import StoredSharpness
from landscape.slices.stored import StoredSlice

CHECKPOINT = "checkpoint"  # the kind of a row that is no average of several
Row = Mapping[str, Any]

_BUMP = 110.0  # the points of a density reach over so many widths of the bump that stands for an eigenvalue


@dataclass(frozen=True)
class Spectrum:
    """The density of Hessian eigenvalues of one checkpoint.

    Attributes:
        points: λ, ascending.
        density: eigenvalues per unit of λ.
        error: standard error of the density.
        top: largest eigenvalues, measured by themselves; empty where they were not.
        bottom: smallest eigenvalues.
    """

    points: np.ndarray
    density: np.ndarray
    error: np.ndarray
    top: tuple[float, ...]
    bottom: tuple[float, ...]

    @classmethod
    def of(cls, stored: StoredSharpness) -> Spectrum | None:
        """The spectrum of a measurement of curvature; None where it holds no density."""
        section = stored.sections.get("density")
        if section is None:
            return None
        n = section["n"]
        ends = [stored.sections.get(f"eigenvalues/{which}", {}).get("values", ()) for which in ("top", "bottom")]
        top, bottom = (tuple(map(float, each)) for each in ends)
        return cls(section["points"], n * section["density"], n * section["standard_error"], top, bottom)

    @property
    def floor(self) -> float:
        """The least density that is drawn: a twentieth of one eigenvalue, at the peak of its bump."""
        return 0.05 * _BUMP / (float(np.ptp(self.points)) or 1.0) / math.sqrt(2 * math.pi)


@dataclass(frozen=True)
class Checkpoint:
    """What a row is about, whatever the quantizer.

    Attributes:
        run: name of the training run.
        name: revision.
        kind: `checkpoint`, or the average it is.
    """

    run: str
    name: str
    kind: str

    @classmethod
    def of(cls, row: Row) -> Checkpoint:
        """That of a row of either table."""
        return cls(str(row.get("run") or ""), str(row.get("checkpoint") or ""), str(row.get("kind") or CHECKPOINT))


@dataclass(frozen=True)
class Course:
    """A study: what was measured along one or several training runs.

    Attributes:
        name: of the study.
        rows: of its table: one for every checkpoint and quantizer, and for averages; empty cells are None.
        layers: of the table of layers; may be empty.
        columns: what each column of both tables means, by name.
        spectra: by the identity of a checkpoint; may be empty.
        slices: by the identity of a checkpoint: slices around it, each with the address of its own page, or "".
    """

    name: str
    rows: tuple[Row, ...]
    layers: tuple[Row, ...]
    columns: Mapping[str, str]
    spectra: Mapping[str, Spectrum]
    slices: Mapping[str, tuple[tuple[StoredSlice, str], ...]]

    @cached_property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Everything that was measured, averages among it, in the order of the table."""
        return tuple(dict.fromkeys(map(Checkpoint.of, self.rows)))

    @cached_property
    def runs(self) -> tuple[str, ...]:
        """Names of the training runs, in the order of the table."""
        return tuple(dict.fromkeys(each.run for each in self.checkpoints))

    @cached_property
    def quantizers(self) -> tuple[str, ...]:
        """Names of the quantizers, in the order of the table."""
        return tuple(dict.fromkeys(str(row["quantizer"]) for row in self.rows if row.get("quantizer") is not None))

    @cached_property
    def identities(self) -> Mapping[Checkpoint, str]:
        """The identity of every checkpoint whose rows have one."""
        return {Checkpoint.of(row): str(row["identity"]) for row in self.rows if row.get("identity")}

    def along(self, run: str, quantizer: str | None = None) -> list[Row]:
        """Rows of the checkpoints of a run, averages left out, by step or tokens.

        Args:
            run: its name.
            quantizer: whose rows; None for one row a checkpoint, whichever comes first.
        """
        own = self._by_run.get(run, [])
        if quantizer is not None:
            return [row for row in own if row.get("quantizer") == quantizer]
        first: dict[Checkpoint, Row] = {}
        for row in own:
            first.setdefault(Checkpoint.of(row), row)
        return list(first.values())

    @cached_property
    def _by_run(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            if (checkpoint := Checkpoint.of(row)).kind == CHECKPOINT:
                found.setdefault(checkpoint.run, []).append(row)
        return {run: sorted(rows, key=_when) for run, rows in found.items()}

    @cached_property
    def longest(self) -> str:
        """The run with the most checkpoints, the first of them where several have as many; "" without a row."""
        return max(self.runs, key=lambda run: len(self.along(run)), default="")


def real(row: Row, column: str) -> float:
    """A cell as a number; NaN where it is empty or holds none."""
    value = row.get(column)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def numeric(rows: Iterable[Row]) -> tuple[str, ...]:
    """Names of the columns that hold a finite number somewhere, in the order of the table."""
    found: dict[str, bool] = {}
    for row in rows:
        for name in row:
            found[name] = found.get(name, False) or math.isfinite(real(row, name))
    return tuple(name for name, there in found.items() if there)


def _when(row: Row) -> float:
    """Where a row stands along its run; those that say neither keep their places at the end."""
    return next((value for name in ("step", "tokens") if math.isfinite(value := real(row, name))), math.inf)
