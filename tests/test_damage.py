"""A stored file that is no longer what was written is refused in a line that names it: a bit is enough."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from checkpoints import save
from landscape import slices
from landscape.curvature import store
from landscape.errors import ModelError, StoreError
from landscape.models.references import resolve
from landscape.storage.digests import SUMS, broken, check_digest, read_sums, with_digest, write_sums
from landscape.storage.files import lock
from landscape.study import table
from landscape.training.run import FACTS, LOG, Run
from test_slices import layout, plane


def flip(path: Path, find: bytes) -> None:
    """A bit in the one place where `find` begins."""
    content = bytearray(path.read_bytes())
    assert content.count(find) == 1
    content[content.index(find)] ^= 1
    path.write_bytes(content)


def half(path: Path) -> Path:
    """A slice with one tile, one point and one place of the profile."""
    slices.create(path, layout())
    with slices.SliceWriter(path, "key", plane().fingerprint()) as writer:
        writer.write_point("theta", 3.25)
        writer.write_profile(2, 4.25)
        writer.write_tile((slice(0, 2), slice(0, 2)), np.array([[1.375, 1.5], [1.75, 2.25]]))
    return path


class TestSlices:
    @pytest.mark.parametrize("value", [3.25, 4.25, 1.375, 2.25])
    def test_an_evaluation_of_an_unfinished_one(self, tmp_path: Path, value: float):
        path = half(tmp_path / "s.h5")
        assert not slices.read(path).complete
        flip(path, np.float64(value).tobytes())
        with pytest.raises(StoreError, match=r"s\.h5: damaged \(some (cells|points|profile) are not what was evaluat"):
            slices.read(path)
        with pytest.raises(StoreError, match="damaged"):
            slices.SliceWriter(path, "key", plane().fingerprint())

    def test_a_node(self, tmp_path: Path):
        slices.create(path := tmp_path / "s.h5", layout_with_rows())
        with slices.SliceWriter(path, "key", plane().fingerprint()) as writer:
            writer.write_node(0, "node", 0.5, 0.25, 7.25)
        flip(path, np.float64(7.25).tobytes())
        with pytest.raises(StoreError, match="some nodes are not what was evaluated"):
            slices.read(path)

    def test_what_it_was_laid_out_with(self, tmp_path: Path):
        path = half(tmp_path / "s.h5")
        flip(path, slices.read(path).alpha[3].tobytes())
        with pytest.raises(StoreError, match="damaged"):
            slices.read(path)

    def test_a_writer_killed_between_a_loss_and_its_flag_has_done_no_damage(self, tmp_path: Path):
        path = half(tmp_path / "s.h5")
        with h5py.File(path, "r+") as file:
            file["loss"][5, 5] = 9.0
            file["nodes/loss"][...] = 9.0
        assert not slices.read(path).done[5, 5]

    @pytest.mark.parametrize("name", ["created", "environment"])
    def test_when_and_where_it_was_made(self, tmp_path: Path, name: str):
        slices.create(path := tmp_path / "s.h5", layout(environment='{"threads": 1}'))
        with h5py.File(path, "r+") as file:
            file.attrs[name] = str(file.attrs[name]).replace("1", "2")
        with pytest.raises(StoreError, match="its content is not what was written"):
            slices.read(path)


def layout_with_rows() -> slices.Layout:
    from dataclasses import replace

    return replace(layout(), rows=4)


def curvature(folder: Path) -> tuple[Path, bytes]:
    sections = {"trace": {"value": 12.5, "samples": np.array([1.5, 2.5])}}
    store.write(folder / "c.h5", {"key": "k"}, sections, complete=True)
    return folder / "c.h5", np.float64(2.5).tobytes()


def rows_of_a_study(folder: Path) -> tuple[Path, bytes]:
    rows = [{"checkpoint": f"step{step}", "step": step, "loss": 2.5 + step} for step in range(4)]
    table.write(folder, "study", rows, {})
    return folder / "study.parquet", b"step3"


def facts_of_a_run(folder: Path) -> tuple[Path, bytes]:
    Run(folder).write_facts({"schema": 2, "tokens": 12345})
    return folder / FACTS, b"12345"


@pytest.mark.parametrize(
    ("make", "read"),
    [(curvature, store.read), (rows_of_a_study, table.read), (facts_of_a_run, lambda path: Run(path.parent).facts())],
)
def test_a_bit_of_a_result(tmp_path: Path, make: Callable[[Path], tuple[Path, bytes]], read: Callable[[Path], object]):
    path, place = make(tmp_path)
    read(path)
    content = path.read_bytes()
    at = content.index(place)
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    with pytest.raises(StoreError, match=path.name):
        read(path)


def test_a_log_is_known_by_its_rows(tmp_path: Path):
    run = Run(tmp_path)
    for step in (1, 2, 3):
        run.append({"step": step, "loss": step / 2})
    digest = run.digest(2)
    run.append({"step": 4, "loss": 9.0})
    assert run.digest(2) == digest != run.digest(3)
    (tmp_path / LOG).write_text((tmp_path / LOG).read_text().replace("0.5", "0.6"))
    assert run.digest(2) != digest


class TestFolders:
    def test_a_checkpoint_that_is_not_what_its_sums_say(self, tmp_path: Path):
        folder = save(tmp_path / "model")
        before = resolve(str(folder)).identity
        write_sums(folder)
        assert resolve(str(folder)).identity == before
        subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=folder, check=True)
        flip(folder / "model.safetensors", b"weights")
        with pytest.raises(ModelError, match=r"model: model\.safetensors is not the file that SHA256SUMS names"):
            resolve(str(folder))

    def test_a_file_that_is_gone_and_sums_that_are_damaged(self, tmp_path: Path):
        folder = save(tmp_path / "model")
        (folder / "tokenizer.json").write_text("{}")
        write_sums(folder)
        (folder / "tokenizer.json").unlink()
        assert broken(folder, read_sums(folder)) == "tokenizer.json"
        (folder / SUMS).write_text("not a sum")
        with pytest.raises(ModelError, match="SHA256SUMS cannot be read"):
            resolve(str(folder))


def test_a_digest_holds_for_any_order_and_for_no_other_content(tmp_path: Path):
    content = with_digest({"b": [1, 2.5, None, float("nan")], "a": {"é": True}})
    check_digest(json.loads(json.dumps(dict(reversed(content.items())))))
    for odd in ({**content, "b": [1, 2.5, None, 3.0]}, {**content, "c": 1}, {"a": 1}, [], None):
        with pytest.raises(ValueError):
            check_digest(odd)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system takes root")
def test_a_disk_that_cannot_be_written_is_one_line(tmp_path: Path):
    script = f"""
from pathlib import Path
from landscape.errors import StoreError
from landscape.storage.files import lock
try:
    with lock(Path({str(tmp_path)!r}) / "s.h5"): pass
except StoreError as error:
    print(error)
"""
    mount = f'mount -t tmpfs -o size=64k,ro none "{tmp_path}" && exec "{sys.executable}" -c "$0"'
    done = subprocess.run(["unshare", "-m", "sh", "-c", mount, script], capture_output=True, text=True)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
    assert "s.h5: cannot be written (Read-only file system); name another place with --out" in done.stdout, done.stderr


def test_a_lock_can_be_held_twice_in_a_row(tmp_path: Path):
    for _ in range(2):
        with lock(tmp_path / "s.h5"), pytest.raises(StoreError, match="another process"), lock(tmp_path / "s.h5"):
            pass
    assert list(tmp_path.iterdir()) == []
