"""Study tables at hand: which one a question is asked of, and its rows along a run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from landscape.study import read_all

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """One study: its rows with a quantizer, and where they are from.

    Attributes:
        name: of the study, which is its folder's.
        path: of the file; whatever else the study left lies beside it.
        rows: of all runs; those of checkpoints in the order of training.
    """

    name: str
    path: Path
    rows: tuple[Row, ...]

    @property
    def folder(self) -> Path:
        """The study's."""
        return self.path.parent

    @cached_property
    def quantizers(self) -> tuple[str, ...]:
        """In the order of the table."""
        return tuple(dict.fromkeys(row["quantizer"] for row in self.rows))

    @cached_property
    def runs(self) -> tuple[str, ...]:
        """Names of the runs that have checkpoints here."""
        return tuple(dict.fromkeys(row["run"] for row in self.checkpoints))

    @cached_property
    def checkpoints(self) -> tuple[Row, ...]:
        """Rows of checkpoints; averages are no points of a run."""
        return tuple(row for row in self.rows if row["kind"] == "checkpoint")

    @cached_property
    def _lines(self) -> dict[tuple[str, str, str], tuple[Row, ...]]:
        lines: dict[tuple[str, str, str], list[Row]] = {}
        for row in self.rows:
            if row["step"] is not None:
                lines.setdefault((row["run"], row["quantizer"], row["kind"]), []).append(row)
        return {key: tuple(sorted(own, key=lambda row: row["step"])) for key, own in lines.items()}

    def line(self, run: str, quantizer: str, kind: str = "checkpoint") -> tuple[Row, ...]:
        """Rows of a run under one quantizer, step by step."""
        return self._lines.get((run, quantizer, kind), ())


def load(paths: Iterable[Path]) -> list[Table]:
    """The tables at these paths, files or folders, each once.

    Raises:
        LandscapeError: a path without a table.
    """
    tables = {}
    for path in paths:
        file = (path / "study.parquet" if path.is_dir() else path).resolve()
        if file not in tables:
            rows = tuple(row for row in read_all([file]) if row["quantizer"] is not None)
            tables[file] = Table(file.parent.name, file, rows)
    return list(tables.values())


def pooled(tables: Sequence[Table], *needed: str) -> tuple[list[Row], list[str], tuple[str, ...]]:
    """Checkpoints of all tables with finite numbers in these columns: rows, the run of each, names of the tables.

    What several tables say of one checkpoint under one quantizer on the same tokens is one row, the cells of one table
    filling what is empty in the other; its run is the same run in all of them.
    """
    rows: list[Row] = []
    runs, names = [], []
    places: dict[tuple[Any, ...], int] = {}
    homes: dict[Any, str] = {}
    for table in tables:
        known = {row["run"]: homes[row["identity"]] for row in table.checkpoints if row["identity"] in homes}
        home = {run: known.get(run, f"{table.name}/{run}") for run in table.runs}
        homes = {row["identity"]: home[row["run"]] for row in table.checkpoints if row["identity"]} | homes
        own = [row for row in table.checkpoints if all(is_number(row[column]) for column in needed)]
        names += [table.name] if own else []
        for row in own:
            place = places.setdefault(measured(row), len(rows)) if row["identity"] else len(rows)
            if place < len(rows):
                rows[place] = {**row, **{name: cell for name, cell in rows[place].items() if not _is_empty(cell)}}
            else:
                rows.append(row)
                runs.append(home[row["run"]])
    return rows, runs, tuple(names)


def _is_empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def measured(row: Row) -> tuple[Any, ...]:
    """What a row is a measurement of: checkpoint, quantizer and texts."""
    return row["identity"], row["quantizer"], row["tokens_fingerprint"], row["calibration_fingerprint"]


def is_number(value: Any) -> bool:
    """Whether a cell holds a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def column(rows: Iterable[Row], name: str) -> list[float]:
    """The numbers of a column, NaN for empty cells."""
    return [math.nan if row[name] is None else float(row[name]) for row in rows]
