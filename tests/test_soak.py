"""The soak in short: a few kills and damages lose nothing and make nothing wrong; and it can tell if they did."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

BENCHMARKS = str(Path(__file__).parent.parent / "benchmarks")
JOBS = ["slice-adaptive", "sharpness", "train", "study"]  # which evaluates, too


@pytest.fixture(scope="module")
def soak():
    """The module, found where it lies."""
    sys.path.insert(0, BENCHMARKS)
    try:
        import soak

        yield soak
    finally:
        sys.path.remove(BENCHMARKS)


@pytest.fixture(scope="module")
def soaked(soak, tmp_path_factory: pytest.TempPathFactory):
    """(folder, tallies) of a turn of each: what is killed, and what is damaged."""
    folder = tmp_path_factory.mktemp("soak")
    rows = soak.rows(JOBS, [soak.KILLS, soak.READ])
    return folder, soak.soak(rows, folder, minutes=5, seed=0, workers=1, rounds=1)


@pytest.mark.parametrize("job", JOBS)
def test_nothing_is_lost_to_kills_and_nothing_comes_out_wrong(soak, soaked, job: str):
    tally = soaked[1][soak.KILLS, job]
    assert tally.failures == []
    assert tally.kills > 0 and tally.resumed > 0 and tally.cases == 1
    assert (tally.lost, tally.wrong) == (0, 0)


def test_no_damage_goes_unnoticed(soak, soaked):
    for (case, name), tally in soaked[1].items():
        if case == soak.READ:
            assert tally.failures == [], name
            assert tally.cases == tally.found + tally.harmless > 0, name
            assert tally.found > 0, name


def test_the_table_has_a_line_for_each_and_the_sums(soak, soaked):
    table = soak.shown(soaked[1])
    assert table.row_count == len(soaked[1]) + 1
    last = [list(column.cells)[-1] for column in table.columns]
    assert int(last[3]) == sum(tally.kills for tally in soaked[1].values())


def test_a_bit_that_differs_is_counted_and_told(soak, soaked, tmp_path: Path):
    from soak_jobs import JOBS as ALL
    from soak_kills import Tally, Undisturbed, compare

    shutil.copytree(soaked[0] / "whole" / "train", tmp_path / "train")
    known = Undisturbed(ALL["train"].result(tmp_path / "train"), 1.0, 1, 1)
    compare("train", tmp_path / "train", known, 0, same := Tally())
    assert same.good and same.cases == 1
    weights = tmp_path / "train" / "run" / "step12" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    compare("train", tmp_path / "train", known, 0, tally := Tally())
    assert tally.wrong == 1 and not tally.good
    assert "run/step12/model.safetensors" in tally.failures[0]


def test_what_vanishes_or_changes_is_lost(soak, soaked):
    from soak_kills import vanished

    before = {"cell 0 0": 1.0, "cell 0 1": 2.0, "ledger krylov-0-0.npz": "inode"}
    assert vanished(before, before) == []
    assert vanished(before, {"cell 0 0": 1.0}) == ["cell 0 1", "ledger krylov-0-0.npz"]
    assert vanished(before, {**before, "cell 0 0": 1.5}) == ["cell 0 0"]
    assert vanished(before, {"cell 0 0": 1.0, "cell 0 1": 2.0, "complete": True}) == []
