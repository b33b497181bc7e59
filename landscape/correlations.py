"""The job: tables of studies in; how columns hang together out, raw, differenced, partial and lagged, with intervals.

Everything drifts along a training run, so that raw coefficients prove little. All four stand side by side.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from landscape.config import CorrelateConfig
from landscape.errors import OptionError, StudyError
from landscape.statistics.correlation import Coefficient, correlate
from landscape.storage.files import write_whole
from landscape.study import table
from landscape.study.columns import STUDY

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Correlated:
    """Two columns under one quantizer.

    Attributes:
        way: raw, differenced, partial or lag.
        coefficients: by kind; empty where there are too few rows, and then `why` says so.
    """

    x: str
    y: str
    quantizer: str
    way: str
    coefficients: Mapping[str, Coefficient]
    why: str = ""


def correlate_tables(config: CorrelateConfig) -> list[Correlated]:
    """What `config` asks for, quantizer by quantizer.

    Raises:
        OptionError: a column that is no number of a study, or a quantizer that is not in the tables.
        StoreError: a file that is no table.
        StudyError: no row fits.
    """
    wanted = [word.strip() for word in config.x.split(",") if word.strip()]
    given = [word.strip() for word in config.given.split(",") if word.strip()]
    for option, names in (("x", wanted), ("y", [config.y]), ("given", given)):
        for name in names:
            if STUDY.get(name, ("string", ""))[0] == "string":
                raise OptionError(f"--{option} {name}: no number of a study's table; docs/studies.md lists its columns")
    rows = _rows(config)
    found = []
    for quantizer in _quantizers(config, rows):
        own = [row for row in rows if row["quantizer"] == quantizer]
        if config.ends:
            own = list({row["run"]: row for row in own}.values())  # the last one stays
        for x in wanted:
            found += _pair(config, x, quantizer, own, given)
    if config.out:
        write_whole(config.out, _as_csv(found).encode())
    return found


def _rows(config: CorrelateConfig) -> Sequence[Row]:
    """Checkpoints, not averages: those are no points of a run."""
    patterns = [word.strip() for word in config.where.split(",") if word.strip()]
    rows = [row for row in table.read_all(map(Path, config.tables)) if row["kind"] == "checkpoint"]
    chosen = [row for row in rows if not patterns or any(fnmatchcase(row["run"], each) for each in patterns)]
    if not rows or any("delta_q" not in row for row in rows):
        raise StudyError(
            f"{', '.join(config.tables)}: no table of checkpoints, or an empty one; expected study.parquet"
        )
    if not chosen:
        runs = ", ".join(sorted({row["run"] for row in rows})[:5])
        raise StudyError(f"--where {config.where}: fits no run of {len(rows)} rows; expected patterns over {runs}")
    return chosen


def _quantizers(config: CorrelateConfig, rows: Sequence[Row]) -> list[str]:
    there = [name for name in dict.fromkeys(row["quantizer"] for row in rows) if name is not None]
    asked = [word.strip() for word in config.quantizer.split(",") if word.strip()]
    for name in asked:
        if name not in there:
            raise OptionError(f"--quantizer {name}: not in these tables; expected some of {', '.join(map(str, there))}")
    return asked or there


def _pair(
    config: CorrelateConfig, x: str, quantizer: str, rows: Sequence[Row], given: Sequence[str]
) -> list[Correlated]:
    columns = {name: _column(config, name, rows) for name in (x, config.y, *given)}
    runs = None if config.ends else [row["run"] for row in rows]
    ways: dict[str, dict[str, Any]] = {"raw": {}}
    if not config.ends:
        ways["differenced"] = {"differenced": True}
    ways["partial"] = {"given": {name: columns[name] for name in given if name not in (x, config.y)}}
    if config.lag and not config.ends:
        ways[f"lag {config.lag}"] = {"lag": config.lag, "differenced": True}
    found = []
    for way, how in ways.items():
        try:
            made, why = correlate(columns[x], columns[config.y], runs, **how, draws=config.draws, seed=config.seed), ""
        except StudyError as error:
            made, why = {}, str(error).removeprefix("correlation: ")
        found.append(Correlated(x, config.y, quantizer, way, made, why))
    return found


def _column(config: CorrelateConfig, name: str, rows: Sequence[Row]) -> np.ndarray:
    values = np.array([math.nan if row[name] is None else float(row[name]) for row in rows])
    there = values[np.isfinite(values)]
    return np.log(values) if not config.linear and len(there) and (there > 0).all() else values


def _as_csv(found: Sequence[Correlated]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["quantizer", "x", "y", "way", "coefficient", "value", "low", "high", "rows"])
    for each in found:
        for kind, c in each.coefficients.items():
            writer.writerow([each.quantizer, each.x, each.y, each.way, kind, c.value, c.low, c.high, c.rows])
    return text.getvalue()
