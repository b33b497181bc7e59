"""Correlations over tables: what goes in, what comes out of a table whose answer is known, and what is refused."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from landscape.config import CorrelateConfig
from landscape.correlations import Correlated, correlate_tables
from landscape.errors import OptionError, StoreError, StudyError
from landscape.statistics.correlation import correlate
from landscape.study import table

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs and two quantizers: ΔQ and trace drift with the step; at four bits they also move together."""
    rows, random = [], np.random.default_rng(0)
    for run in ("a", "b"):
        for step in range(1, 31):
            shared, own = random.normal(size=2) * 0.1
            for quantizer, noise in (("rtn-w4-g64", shared), ("rtn-w3-g64", own)):
                rows.append({
                    "run": run, "checkpoint": f"step{step}", "kind": "checkpoint", "step": step, "quantizer": quantizer,
                    "loss": 3 - 0.02 * step + 0.001 * random.normal(), "trace": float(np.exp(0.05 * step + shared)),
                    "lambda_max": -float(step), "delta_q": float(0.01 * np.exp(0.05 * step + noise)),
                })  # fmt: skip
        rows.append(rows[-1] | {"kind": "lawa-5", "trace": 1e9})
    folder = tmp_path_factory.mktemp("correlations")
    table.write(folder, "study", rows, {})
    return folder


def found(folder: Path, **options: object) -> dict[tuple[str, str, str], Correlated]:
    asked = {"x": "trace", "draws": 200, **options}
    return {(c.quantizer, c.x, c.way): c for c in correlate_tables(CorrelateConfig([str(folder)], **asked))}


def test_drift_is_told_from_what_hangs_together(folder: Path):
    every = found(folder)
    for quantizer in ("rtn-w4-g64", "rtn-w3-g64"):
        assert every[quantizer, "trace", "raw"].coefficients["pearson"].value > 0.9
        assert every[quantizer, "trace", "raw"].coefficients["pearson"].rows == 60  # no averages
    for way in ("differenced", "partial"):
        four, three = (every[q, "trace", way].coefficients["spearman"] for q in ("rtn-w4-g64", "rtn-w3-g64"))
        assert four.low > 0.9 and three.low < 0 < three.high
    assert every["rtn-w4-g64", "trace", "lag 1"].coefficients["pearson"].value < 0  # of white noise, differenced


def test_numbers_are_those_of_the_statistics(folder: Path):
    rows = [row for row in table.read(folder) if row["quantizer"] == "rtn-w4-g64" and row["kind"] == "checkpoint"]
    columns = {name: np.log([row[name] for row in rows]) for name in ("trace", "delta_q", "step", "loss")}
    runs = [row["run"] for row in rows]
    given = {name: columns[name] for name in ("step", "loss")}
    expected = correlate(columns["trace"], columns["delta_q"], runs, given=given, draws=200)
    assert found(folder)["rtn-w4-g64", "trace", "partial"].coefficients == expected
    linear = found(folder, linear=True)["rtn-w4-g64", "trace", "raw"].coefficients["pearson"].value
    assert linear == pytest.approx(np.corrcoef(np.exp(columns["trace"]), np.exp(columns["delta_q"]))[0, 1])


def test_what_has_no_logarithm_is_taken_as_it_is(folder: Path):
    c = found(folder, x="lambda_max")["rtn-w4-g64", "lambda_max", "raw"]
    assert c.coefficients["spearman"].value == pytest.approx(
        -found(folder, x="step")["rtn-w4-g64", "step", "raw"].coefficients["spearman"].value
    )


def test_rows_can_be_chosen(folder: Path):
    assert {key[0] for key in found(folder, quantizer="rtn-w3-g64")} == {"rtn-w3-g64"}
    assert found(folder, where="a")["rtn-w4-g64", "trace", "raw"].coefficients["pearson"].rows == 30
    ends = found(folder, ends=True, given="")
    assert not ends["rtn-w4-g64", "trace", "raw"].coefficients and "2 rows" in ends["rtn-w4-g64", "trace", "raw"].why
    assert ("rtn-w4-g64", "trace", "differenced") not in ends
    assert not any("lag" in way for _, _, way in found(folder, lag=0))


def test_the_command_prints_and_writes_all_three(landscape, folder: Path, tmp_path: Path):
    options = ["--x", "trace,lambda_max", "--draws", 200, "--out", tmp_path / "c.csv"]
    code, out, err = landscape("correlate", folder, *options)
    assert code == 0, err
    for word in ("pearson", "spearman", "kendall", "raw", "differenced", "partial", "rtn-w3-g64", "95 %"):
        assert word in out
    assert max(map(len, out.splitlines())) <= 80
    with open(tmp_path / "c.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * (4 + 2) * 3  # λ_max changes by one from row to row: nothing to correlate
    for row in rows:
        low, value, high = (float(row[name]) for name in ("low", "value", "high"))
        assert low <= value <= high or math.isnan(value), row


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"x": "sharpness"}, OptionError, "--x sharpness: no number"),
        ({"x": "run"}, OptionError, "--x run: no number"),
        ({"y": "nothing"}, OptionError, "--y nothing"),
        ({"given": "stage"}, OptionError, "--given stage"),
        ({"quantizer": "nf4"}, OptionError, "--quantizer nf4: not in these tables; expected some of rtn-w4-g64"),
        ({"where": "c*"}, StudyError, "--where c.: fits no run of 120 rows; expected patterns over a, b"),
        ({"draws": 3}, OptionError, "--draws 3"),
        ({"out": Path("x.txt")}, OptionError, "--out x.txt"),
    ],
)
def test_what_cannot_be_asked_for(folder: Path, options: dict, error: type, words: str):
    with pytest.raises(error, match=words):
        found(folder, **options)


def test_a_table_that_is_not_there(landscape, tmp_path: Path):
    with pytest.raises(StoreError, match="no table there"):
        found(tmp_path)
    code, _, err = landscape("correlate", tmp_path)
    assert code == 2 and err.count("\n") == 1
    assert landscape("correlate")[0] == 2


def test_an_empty_column_is_said(folder: Path):
    c = found(folder, x="predicted")["rtn-w4-g64", "predicted", "raw"]
    assert not c.coefficients and "0 rows" in c.why
