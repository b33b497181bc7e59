"""A true file passes, on other threads and batches too; another input is named; nothing is written."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import pytest
import torch

import results
from landscape.basin import render_slice
from landscape.config import SliceConfig, VerifyConfig
from landscape.errors import LandscapeError, OptionError, StoreError
from landscape.slices import read
from landscape.verifying import Verdict, job, verify_file
from results import changed
from studies import Notes

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.usefixtures("process")
KINDS = ("adaptive", "dense", "curvature", "evaluated", "table")


@pytest.fixture(scope="module")
def files(run: Path, text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One of each kind, made by one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("verify")
    try:
        return {kind: getattr(results, kind)(run, text_file, folder) for kind in KINDS}
    finally:
        torch.set_num_threads(threads)


@pytest.fixture
def verify(run: Path, text_file: Path):
    def check(file: Path, **options: object) -> Verdict:
        return verify_file(VerifyConfig(file, **{"model": str(run), "text": str(text_file), "seed": 1, **options}))

    return check


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


class TestTrueFiles:
    @pytest.mark.parametrize("kind", KINDS)
    def test_every_kind_passes_to_the_bit_and_nothing_is_written(self, kind: str, files, verify, monkeypatch, tmp_path):
        before = contents(files["table"].parent.parent)
        monkeypatch.chdir(tmp_path)
        more = {"model": None, "text": None} if kind == "table" else {}  # its files are checked below
        verdict = verify(files[kind], **more)
        assert verdict.holds and not verdict.lies and len(verdict.items) > 6
        assert verdict.kind == {"adaptive": "slice", "dense": "slice", "evaluated": "evaluation"}.get(
            kind, {"table": "study"}.get(kind, kind)
        )
        if kind != "table":
            assert any(item.why.startswith("bit for bit") for item in verdict.items)
        losses = [item for item in verdict.items if item.what.startswith(("loss at", "window", "eigenvalue", "‖g‖"))]
        own = [item for item in losses if item.why.startswith("bit for bit")]
        assert all(item.stored == item.found and item.tolerance == 0 for item in own) and (own or kind == "table")
        assert contents(files["table"].parent.parent) == before and not list(tmp_path.iterdir())

    @pytest.mark.parametrize("kind", ["dense", "evaluated"])
    def test_another_batch_size_passes_within_what_is_stated(self, kind: str, files, verify):
        verdict = verify(files[kind], batch_size=3)
        assert verdict.holds
        losses = [item for item in verdict.items if item.what.startswith(("loss at", "window"))]
        assert losses and all("batches of 4 and 3 windows" in item.why for item in losses)
        assert all(0 < item.tolerance < 1e-4 * item.stored for item in losses)

    @pytest.mark.parametrize("kind", ["adaptive", "curvature"])
    def test_other_threads_pass_within_what_is_stated(self, kind: str, files, verify, tmp_path, monkeypatch):
        def by_two(file: h5py.File) -> None:
            file.attrs["environment"] = file.attrs["environment"].replace('"threads": 1', '"threads": 2')

        threads = changed(files[kind], tmp_path, by_two)
        monkeypatch.setattr(job.os, "cpu_count", lambda: 1)  # so that two are not taken here
        verdict = verify(threads)
        assert verdict.holds
        assert any("threads 2 and 1" in item.why for item in verdict.items)
        assert not any(item.why.startswith("bit for bit") for item in verdict.items)

    def test_the_threads_a_file_was_made_with_are_taken_and_given_back(self, files, verify, tmp_path, monkeypatch):
        def by_two(file: h5py.File) -> None:
            file.attrs["environment"] = file.attrs["environment"].replace('"threads": 1', '"threads": 2')

        monkeypatch.setattr(job.os, "cpu_count", lambda: 2)
        verdict = verify(changed(files["adaptive"], tmp_path, by_two), cells=1)
        assert any(item.why.startswith("bit for bit") for item in verdict.items)
        assert torch.get_num_threads() == 1

    def test_a_bfloat16_slice_and_one_that_is_half_done(self, run: Path, text_file: Path, verify, tmp_path: Path):
        rough = results.dense(run, text_file, tmp_path, dtype="bfloat16", quant="rtn-w3-g16")
        assert verify(rough).holds
        given = {"plane": "random", "grid": "6x6", "dense": True, **results.TEXT}
        config = SliceConfig(f"{run}@step30", text=str(text_file), out=tmp_path / "half.h5", **given)

        class Impatient(Notes):
            def stage(self, name: str):
                def update(done: int, total: int) -> None:
                    if name == "evaluating the slice" and done > 20:
                        raise KeyboardInterrupt

                return update

        with pytest.raises(KeyboardInterrupt):
            render_slice(config, Impatient())
        assert not read(tmp_path / "half.h5").complete
        verdict = verify(tmp_path / "half.h5", cells=100)
        assert verdict.holds and 5 < sum(item.what.startswith("loss at cell") for item in verdict.items) < 36

    def test_a_study_is_checked_with_the_files_behind_it(self, files, verify):
        verdict = verify(files["table"].parent, cells=2)
        assert verdict.holds and not any("--model" in skipped for skipped in verdict.skipped)
        assert sum(".json" in item.what for item in verdict.items) == 2
        assert any(".h5" in item.what for item in verdict.items)
        alone = verify(files["table"], model=None, cells=2)
        assert alone.holds and any("--model" in skipped for skipped in alone.skipped)


class TestTheChoice:
    def test_a_seed_names_it_and_each_time_it_is_another(self, files, run: Path, text_file: Path):
        def chosen(**options: object) -> tuple[int, list[str]]:
            config = VerifyConfig(files["evaluated"], model=str(run), text=str(text_file), cells=3, **options)
            verdict = verify_file(config)
            return verdict.seed, [item.what for item in verdict.items if item.what.startswith("window ")]

        assert chosen(seed=5) == chosen(seed=5) != chosen(seed=6)
        assert chosen()[0] != chosen()[0]
        assert len(chosen(seed=5)[1]) == 6  # Θ and Θ̂


class TestInputs:
    def test_another_input_is_named(self, files, verify, run: Path, tmp_path: Path):
        other = tmp_path / "other.txt"
        other.write_text((run / "step10" / "config.json").read_text() * 30)
        with pytest.raises(StoreError, match=r"its model run@step30 is sha256 .* name the right one with --model"):
            verify(files["adaptive"], model=str(run / "step10"))
        with pytest.raises(StoreError, match=r"its text prose.txt is windows .* with --text, or --tokenizer"):
            verify(files["curvature"], text=str(other))
        with pytest.raises(StoreError, match=r"other checkpoint is .* the right one with --prev"):
            verify(files["dense"], prev="@step10")
        with pytest.raises(StoreError, match=r"calibration text is .* with --calibration"):
            gone = changed(files["dense"], tmp_path, lambda file: None)
            with h5py.File(gone, "r+") as file:
                stored = file.attrs["config"].replace('"calibration": null', '"calibration": "elsewhere.txt"')
                file.attrs["config"] = stored
                results.hdf5.seal(file)
            verify(gone, calibration=str(other))

    def test_what_lay_on_a_disk_must_be_named_again(self, files, verify):
        with pytest.raises(
            StoreError, match="was made from run@step30, which lay on a disk; say where it is with --mo"
        ):
            verify(files["evaluated"], model=None)
        with pytest.raises(LandscapeError, match="--text"):
            verify(files["evaluated"], text=None)

    def test_names_in_the_file_lead_nowhere_and_allow_nothing(self, files, verify, run: Path, tmp_path: Path):
        def steer(content: dict) -> None:
            content["model"] = str(run / "step30")
            content["config"] |= {"remote_code": True, "out": str(tmp_path / "gone"), "text": "/etc/hostname"}

        bent = changed(files["evaluated"], tmp_path, steer)
        with pytest.raises(StoreError, match="say where it is with --model"):
            verify(bent, model=None)
        with pytest.raises(StoreError, match="say where it is with --text"):
            verify(bent, text=None)
        assert not (tmp_path / "gone").exists()

    def test_a_run_stands_for_its_checkpoint_of_the_same_name(self, files, verify, run: Path):
        verdict = verify(files["evaluated"], model=f"{run}@step30", cells=1)
        assert [item.found for item in verdict.items] == [
            item.found for item in verify(files["evaluated"], model=str(run / "step30"), cells=1).items
        ]

    @pytest.mark.parametrize(
        ("name", "content", "words"),
        [
            ("no.h5", None, "no such file"),
            ("text.h5", b"nothing of HDF5", "not a whole HDF5 file"),
            ("page.html", b"<html>", "not a result"),
            ("other.json", b"{}", "not an evaluation"),
        ],
    )
    def test_what_is_no_result(self, name: str, content: bytes | None, words: str, verify, tmp_path: Path):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(StoreError, match=words):
            verify(tmp_path / name)

    def test_a_study_without_its_files(self, files, verify, tmp_path: Path):
        (tmp_path / "study.parquet").write_bytes(files["table"].read_bytes())
        with pytest.raises(StoreError, match=r"no evaluation .* which a row rests on"):
            verify(tmp_path)

    def test_options_that_cannot_be(self, files):
        for options in ({"cells": 0}, {"seed": -1}, {"batch_size": 0}):
            with pytest.raises(OptionError, match="expected"):
                VerifyConfig(files["dense"], **options)


class TestCommand:
    def test_the_last_line_and_the_exit_code_say_it(self, landscape, files, run: Path, text_file: Path, tmp_path: Path):
        given = ("--model", run, "--text", text_file, "--cells", 2, "--seed", 3)
        code, out, _ = landscape("verify", files["evaluated"], *given)
        last = out.strip().splitlines()[-1]
        assert code == 0 and last.startswith(f"{files['evaluated'].name} tells the truth: ")
        count = last.rpartition(": ")[2].split(" of ")
        assert count[0] == count[1] and "--seed 3" in out and "bit for bit" in out

        def worse(content: dict) -> None:
            content["comparison"]["loss_hat"]["value"] += 1e-6

        code, out, _ = landscape("verify", changed(files["evaluated"], tmp_path, worse), *given)
        last = out.strip().splitlines()[-1]
        assert code == 1 and "does not tell the truth" in last and "loss_hat over all windows" in last
        assert "NOT TRUE" in out
        code, out, err = landscape("verify", files["evaluated"], "--text", text_file)
        assert code == 2 and out == "" and err.splitlines()[-1].startswith("landscape: ") and "--model" in err

    def test_help_says_when_it_cannot_tell(self, landscape):
        code, out, _ = landscape("verify", "--help")
        assert code == 0 and "Exit code 0" in out and "--cells" in out and os.linesep in out
