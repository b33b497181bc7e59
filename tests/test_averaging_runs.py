"""One average at every checkpoint of a run, on disk and on the Hub."""

from __future__ import annotations

import shutil
import weakref
from pathlib import Path

import pytest
import torch

import hub
from averages import STEPS, Notes, assert_mean, at, average, refusal, said, same_bits, stored
from hub import commit
from landscape.averaging import job, reader
from landscape.averaging.folders import RECIPE
from landscape.models import load_model
from landscape.models.references import predecessors, resolve


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_along_a_run_gives_a_run(trained: Path, out: Path):
    made = average(trained, out=out, window=3, along=True)
    assert [one.folder for one in made] == [out / f"step{step}" for step in (30, 40, 50, 60)]
    assert sorted(path.name for path in out.iterdir()) == ["step30", "step40", "step50", "step60"]
    checkpoint = resolve(f"{out}@50")
    assert (checkpoint.step, list(predecessors(checkpoint))) == (50, ["@step40", "@step30"])
    assert resolve(str(out)).revision == "step60"
    for step in (30, 40, 50, 60):
        members = (step - 20, step - 10, step)
        assert_mean(out / f"step{step}", at(trained, *members))
        assert [member["step"] for member in said(out / f"step{step}")["members"]] == list(members)
        assert (out / f"step{step}" / "tokenizer.json").is_file()


@pytest.mark.parametrize(
    ("options", "ends"),
    [
        ({"kind": "lawa", "window": 3}, (30, 60)),
        ({"kind": "lawa", "window": 2, "every": 20}, (30, 60)),
        ({"kind": "ema", "decay": 0.3}, (20, 60)),
        ({"kind": "ema", "every": 20}, (40, 60)),
    ],
)
def test_along_gives_the_bits_of_a_single_average(trained: Path, tmp_path: Path, options: dict, ends: tuple):
    made = average(trained, out=tmp_path / "along", along=True, **options)
    assert (made[0].folder.name, made[-1].folder.name) == tuple(f"step{end}" for end in ends)
    for end in ends:
        along, single = tmp_path / "along" / f"step{end}", tmp_path / f"single{end}"
        average(f"{trained}@{end}", out=single, **options)
        assert same_bits(along, single)
        assert said(along) == said(single)


def test_along_with_gaps(trained: Path, out: Path, tmp_path: Path):
    gap = tmp_path / "gap"
    for step in (10, 20, 30, 50, 60):
        shutil.copytree(trained / f"step{step}", gap / f"step{step}")
    notes = Notes()
    made = average(gap, out=out, window=2, every=10, along=True, notes=notes)
    assert [one.folder.name for one in made] == ["step20", "step30", "step60"]
    assert notes.heard == ["no average at steps 50: the window before has gaps"]
    consecutive = average(gap, out=out.with_name("b"), window=2, along=True)
    assert consecutive[2].members == ("gap@step30", "gap@step50")


class Reads(list[str]):
    """The checkpoints that were loaded, in order, and how many of them were in memory at once."""

    def __init__(self) -> None:
        self.alive: list[weakref.ref[torch.nn.Module]] = []
        self.most = 0

    def __call__(self, checkpoint, **options) -> torch.nn.Module:
        self.append(checkpoint.revision)
        model = load_model(checkpoint, **options)
        self.alive = [other for other in self.alive if other() is not None] + [weakref.ref(model)]
        self.most = max(self.most, len(self.alive))
        return model


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    counted = Reads()
    monkeypatch.setattr(reader, "load_model", counted)
    return counted


@pytest.mark.parametrize(
    ("options", "most"), [({"window": 2}, 2), ({"window": 2, "every": 20}, 3), ({"kind": "ema"}, 1)]
)
def test_along_reads_each_checkpoint_once(trained: Path, tmp_path: Path, reads, monkeypatch, options: dict, most: int):
    average(trained, out=tmp_path / "ample", along=True, **options)
    assert sorted(reads) == [f"step{step}" for step in STEPS]
    assert reads.most <= most + 1  # what the next averages need, and the model that was just written
    reads.clear()
    monkeypatch.setattr(reader, "available", lambda device: 0)
    scarce = average(trained, out=tmp_path / "scarce", along=True, **options)
    assert len(reads) > len(STEPS) or options.get("kind") == "ema"
    assert all(same_bits(tmp_path / "ample" / one.folder.name, one.folder) for one in scarce)


@pytest.mark.parametrize("options", [{"window": 3}, {"kind": "ema"}])
def test_along_goes_on_where_it_was(trained: Path, tmp_path: Path, reads, options: dict):
    out, whole = tmp_path / "out", tmp_path / "whole"
    average(trained, out=whole, along=True, **options)
    average(f"{trained}@50", out=out, along=True, **options)
    shutil.rmtree(out / "step40")
    before = {path.name: (path / "model.safetensors").stat().st_mtime_ns for path in out.iterdir()}
    reads.clear()
    notes = Notes()
    made = average(trained, out=out, along=True, notes=notes, **options)
    assert {one.folder.name for one in made if one.made} == {"step40", "step60"}
    assert notes.heard == [f"{len(made) - 2} of {len(made)} there already, of the same members"]
    for path in out.iterdir():
        assert same_bits(path, whole / path.name)
        if path.name in before:
            assert (path / "model.safetensors").stat().st_mtime_ns == before[path.name]

    reads.clear()
    assert not any(one.made for one in average(trained, out=out, along=True, **options))
    assert reads == []


def test_an_interrupted_run_of_averages_is_whole(trained: Path, out: Path, monkeypatch: pytest.MonkeyPatch):
    write, written = job._write, []

    def stop(folder, *rest):
        if written:
            (out.parent / ".out.partial").mkdir()
            (out.parent / ".out.partial" / "half").write_text("as a killed process leaves it")
            raise KeyboardInterrupt
        written.append(folder)
        write(folder, *rest)

    monkeypatch.setattr(job, "_write", stop)
    with pytest.raises(KeyboardInterrupt):
        average(trained, out=out, window=5, along=True)
    assert [path.name for path in out.iterdir()] == ["step50"] and resolve(str(out)).step == 50
    monkeypatch.setattr(job, "_write", write)
    made = average(trained, out=out, window=5, along=True)
    assert [one.made for one in made] == [False, True]
    assert sorted(path.name for path in out.parent.iterdir()) == ["out"]
    assert not (out / "step60" / "half").exists()


def test_nothing_is_left_of_an_average_that_failed(trained: Path, out: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(job, "versions", lambda: fail(out))
    assert "the disk is full" in refusal(trained, out=out / "below")
    assert list(out.parent.iterdir()) == []


CALL = """
import json, pathlib
from landscape.averaging import average_checkpoints
from landscape.config import AverageConfig
from landscape.errors import LandscapeError
from landscape.reporting import Silent

class Notes(Silent):
    def __init__(self):
        self.heard = []
    def note(self, text):
        self.heard.append(text)

def call(models, **options):
    notes = Notes()
    try:
        made = average_checkpoints(AverageConfig(models, **options), notes)
    except LandscapeError as error:
        return str(error)
    return [[[one.folder.name, list(one.members)] for one in made], notes.heard]
"""


def test_a_run_on_the_hub(trained: Path, tmp_path: Path):
    folders = {f"step{step}": trained / f"step{step}" for step in STEPS} | {"main": trained / "step60"}
    repository = {
        "refs": {name: commit(name) for name in folders},
        "files": {commit(name): folder for name, folder in folders.items()},
    }
    out = tmp_path / "out"
    with hub.serve({"org/trained": repository}) as served:
        code = f"""{CALL}
report([
    call(["org/trained@step50"], out={str(out / "last")!r}, window=2),
    call(["org/trained"], out={str(out / "along")!r}, window=5, along=True),
    call(["org/trained@main", "org/trained@step60"], out={str(out / "soup")!r}, kind="soup"),
    call(["org/trained@main"], out={str(out / "main")!r}),
    call(["org/trained@step55"], out={str(out / "55")!r}),
    call(["org/trained"], out={str(out / "35")!r}, every=25, window=2),
])"""
        last, along, soup, main, no_such, gap = hub.run(code, served.address, tmp_path / "home")
    assert last == [[["last", ["org/trained@step40", "org/trained@step50"]]], []]
    assert [name for name, _ in along[0]] == ["step50", "step60"]
    assert along[1] == ["org/trained tells no step; the run was taken to end at step60"]
    assert len(soup[1]) == 1 and "hold the same weights, and both count" in soup[1][0]
    assert "org/trained@main: its revision tells no step; expected RUN, or RUN@step" in main
    assert "no revision step55 on the Hub" in no_such
    assert "model org/trained: no checkpoint at step 35" in gap

    average(f"{trained}@50", out=tmp_path / "local", window=2)
    assert stored(out / "last").keys() == stored(tmp_path / "local").keys()
    for name, tensor in stored(tmp_path / "local").items():
        assert torch.equal(stored(out / "last")[name], tensor)
    facts = said(out / "last")
    assert [member["identity"] for member in facts["members"]] == [f"commit:{commit(f'step{n}')}" for n in (40, 50)]
    assert str(tmp_path) not in (out / "last" / RECIPE).read_text()
