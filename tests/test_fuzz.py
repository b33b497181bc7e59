"""Damaged files, a few of each kind, through `benchmarks/fuzz.py`; and that it sees what it looks for."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import build, make_tokenizer
from landscape.curvature import store
from landscape.errors import StoreError
from landscape.study import table
from made_studies import row
from viewer_slices import Recipe

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
pytest.importorskip("gguf")

import fuzz_seeds
import fuzz_workers
from fuzz_targets import TARGETS, Target
from fuzz_workers import CRASH, HANG, MEMORY, READ, REFUSED, UNNAMED, Fuzzer, Limits

NAMES = [
    *("slice", "resumed slice", "page of a slice", "sharpness", "table", "note of a study", "ledger", "recipe"),
    *("changes of a recipe", "config.json", "model of a config.json", "safetensors", "tokenizer.json", "text"),
]


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few of the files that the benchmark damages."""
    folder = tmp_path_factory.mktemp("seeds")
    Recipe(grid=(5, 4)).make(folder / "dense.h5")
    Recipe(grid=(5, 5), adaptive=True).make(folder / "adaptive.h5")
    Recipe(grid=(5, 4), stop_after=6).make(folder / "half.h5")
    values = {"values": np.ones(2), "residuals": np.zeros(2), "converged": np.ones(2, np.uint8), "missed": 0.1}
    layers = {"name": np.array(["a.weight", "b.weight"]), "value": np.ones(2), "standard_error": np.ones(2)}
    store.write(folder / "sharpness.h5", {"key": "key"}, {"eigenvalues/top": values, "trace/layers": layers}, True)
    table.write(folder / "study", "study", [row("run", step) for step in range(1, 9)], {})
    (folder / "study" / "done").mkdir()
    (folder / "study" / "done" / "a.json").write_text('{"files": {"curvature": "curvature/a.h5"}}')
    fuzz_seeds._ledger(folder / "ledger")
    recipe = "model: {type: gpt_neox}\ntext: a.txt\nsteps: 9\nkeep: [3]\noptimizer: {kind: adamw, peak: 1e-3}\n"
    for name in ("recipe.yaml", "run/recipe.yaml"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(recipe)
    (folder / "run" / "log.jsonl").write_text('{"step": 1, "tokens": 32, "text": "a"}\n{"step": 2, "text": "b"}\n')
    build("gpt_neox", hidden_size=8, intermediate_size=8).save_pretrained(folder / "run" / "step20")
    make_tokenizer().save_pretrained(folder / "run" / "step20")
    (folder / "prose.txt").write_text("some text\n" * 9)
    return folder


@pytest.fixture
def fuzzer(seeds: Path, tmp_path: Path) -> Fuzzer:
    return Fuzzer(seeds, tmp_path, 0, Limits(seconds=20))


def target(name: str) -> Target:
    return next(each for each in TARGETS if each.name == name)


@pytest.mark.parametrize("name", NAMES)
def test_damaged_files_are_read_or_refused_by_name(fuzzer: Fuzzer, name: str, tmp_path: Path):
    for index in range(20):
        path = fuzzer.place(target(name), index, tmp_path / "damaged")
        outcome, what = fuzzer.outcome(target(name), path)
        assert outcome in (READ, REFUSED), f"--replay '{name}:{index}' {what}"


@pytest.mark.parametrize("name", NAMES)
def test_whole_files_are_read(fuzzer: Fuzzer, name: str, tmp_path: Path):
    whole = replace(target(name), damage=lambda rng, content: content)
    for index in range(5):
        path = fuzzer.place(whole, index, tmp_path / "whole")
        assert fuzzer.outcome(whole, path) == (READ, ""), path


def crashes(seeds: Path, path: Path) -> None:
    raise KeyError("a defect")


def dies(seeds: Path, path: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hangs(seeds: Path, path: Path) -> None:
    time.sleep(60)


def swells(seeds: Path, path: Path) -> None:
    np.ones(200 << 17)  # 200 MiB


def forgets(seeds: Path, path: Path) -> None:
    raise StoreError("something is damaged")


def claims(seeds: Path, path: Path) -> None:
    try:
        np.empty(1 << 50)
    except MemoryError as error:
        raise StoreError(f"{path}: damaged") from error


@pytest.mark.parametrize(
    ("read", "outcome"),
    [(crashes, CRASH), (dies, CRASH), (hangs, HANG), (swells, MEMORY), (claims, MEMORY), (forgets, UNNAMED)],
)
def test_the_fuzzer_sees(seeds: Path, tmp_path: Path, read: Callable[[Path, Path], Any], outcome: str):
    fuzzer = Fuzzer(seeds, tmp_path, 0, Limits(seconds=2 if outcome == HANG else 60, memory=100 << 20))
    heard = [each for each in fuzzer.run(replace(target("slice"), read=read), range(2)) if each is not None]
    failures = [each for each in heard if isinstance(each, fuzz_workers.Failure)]
    assert [(each.outcome, each.index) for each in failures] == [(outcome, 0), (outcome, 1)]
    assert sum(each[1] for each in heard if isinstance(each, tuple) and each[0] == outcome) == 2


def test_the_same_seed_damages_in_the_same_way(seeds: Path, tmp_path: Path):
    def made(seed: int) -> list[bytes]:
        return [Fuzzer(seeds, tmp_path, seed, Limits()).made(target("recipe"), index)[1] for index in range(20)]

    assert made(0) == made(0) != made(1)
