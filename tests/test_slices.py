"""The scan and its file: exact cells, nothing lost to a kill, nothing mixed, everything readable."""

from __future__ import annotations

import errno
import math
import multiprocessing
import os
import resource
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import xarray

from landscape import slices
from landscape.errors import StoreError
from landscape.storage.files import lock
from landscape.weights import Weights

NAMED = {
    "theta": slices.Named("Θ_K", "origin", "run@step30"),
    "theta_prev": slices.Named("Θ_{K−1}", "checkpoint", "run@step20"),
    "theta_hat": slices.Named("Θ̂_K", "quantized", "rtn-w3-g16"),
}


def points() -> dict[str, Weights]:
    generator = torch.Generator().manual_seed(1)
    origin, first, second = (Weights({"w": torch.randn(40, generator=generator)}) for _ in range(3))
    return {"theta": origin, "theta_prev": origin + 0.3 * first, "theta_hat": origin + 0.7 * second}


def plane() -> slices.Plane:
    p = points()
    return slices.span(p["theta"], p["theta_prev"] - p["theta"], p["theta_hat"] - p["theta"], p)


def loss(weights: Weights) -> float:
    """Depends on every bit of every weight."""
    w = weights["w"].double()
    return float((w * w).sum() + torch.sin(3 * w).sum())


def layout(shape: tuple[int, int] = (7, 10), key: str = "key", **attributes: str) -> slices.Layout:
    bounds = slices.around([(c.alpha, c.beta) for c in plane().points.values()], 0.5)
    alpha, beta = slices.with_zero(*bounds.alpha, shape[0]), slices.with_zero(*bounds.beta, shape[1])
    table = {"layers": {"name": ["a", "b"], "bits": [3, 4], "error": [0.1, math.nan], "fallback": [False, True]}}
    return slices.Layout(plane(), alpha, beta, np.linspace(-0.5, 1.5, 9), NAMED, attributes, table, key)


def fill(path: Path, evaluate=loss, **kwargs) -> slices.StoredSlice:
    if not path.exists():
        slices.create(path, layout(**kwargs))
    losses = slices.Losses(evaluate, evaluate)
    with lock(path), slices.SliceWriter(path, "key", plane().fingerprint()) as writer:
        slices.evaluate_points(writer, points(), losses)
        slices.scan(writer, plane(), losses)
    return slices.read(path)


def content(path: Path) -> dict[str, object]:
    """Every dataset and every attribute as bytes, but for the two times and HDF5's own references."""
    found: dict[str, object] = {}

    def visit(name: str, item: h5py.Dataset | h5py.Group) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item[()].tobytes() if item.dtype.kind != "O" else item[()].tolist()
        for key, value in item.attrs.items():
            if key not in ("created", "finished", "seal", "DIMENSION_LIST", "REFERENCE_LIST"):
                found[f"{name}@{key}"] = value if isinstance(value, (str, bytes)) else np.asarray(value).tobytes()

    with h5py.File(path, "r") as file:
        file.visititems(visit)
        visit("", file)
    return found


def test_every_cell_is_the_loss_at_its_coordinates(tmp_path: Path):
    stored, p = fill(tmp_path / "s.h5"), plane()
    assert stored.complete
    assert stored.loss.shape == (7, 10)  # not square
    for i, a in enumerate(stored.alpha):
        for j, b in enumerate(stored.beta):
            there = Weights({"w": (p.origin["w"] + float(a) * p.u["w"]) + float(b) * p.v["w"]})
            assert stored.loss[i, j] == pytest.approx(loss(there), rel=1e-6)


def test_the_cell_at_zero_is_the_loss_of_the_origin_bit_for_bit(tmp_path: Path):
    stored = fill(tmp_path / "s.h5")
    i, j = int(np.flatnonzero(stored.alpha == 0)[0]), int(np.flatnonzero(stored.beta == 0)[0])
    assert stored.loss[i, j] == loss(points()["theta"]) == stored.point("theta").loss


def test_named_points_are_evaluated_at_themselves(tmp_path: Path):
    stored = fill(tmp_path / "s.h5")
    for name, weights in points().items():
        assert stored.point(name).loss == loss(weights)
    t, along = stored.profile
    assert along[t == 0][0] == loss(points()["theta"])
    assert along[t == 1][0] == pytest.approx(loss(points()["theta_hat"]), rel=1e-5)


def test_named_points_say_what_they_are(tmp_path: Path):
    stored = fill(tmp_path / "s.h5")
    assert {p.name: slices.Named(p.label, p.role, p.what) for p in stored.points} == NAMED
    places = {p.name: slices.Coordinates(p.alpha, p.beta, p.residual, p.distance, p.raw) for p in stored.points}
    assert places == plane().points


def test_points_are_evaluated_once_and_let_go(tmp_path: Path):
    slices.create(tmp_path / "s.h5", layout())
    losses, seen = slices.Losses(pytest.fail, lambda weights: seen.append(weights) or loss(weights)), []
    with slices.SliceWriter(tmp_path / "s.h5", "key", plane().fingerprint()) as writer:
        writer.write_point("theta", 5.0)
        held = points()
        slices.evaluate_points(writer, held, losses)
        assert held == {}
        slices.evaluate_points(writer, {}, losses)
    assert len(seen) == 2
    stored = slices.read(tmp_path / "s.h5")
    assert [point.loss for point in stored.points] == [5.0, *(loss(w) for w in list(points().values())[1:])]


def test_a_dense_slice_has_evaluated_cells_and_no_more(tmp_path: Path):
    stored = fill(tmp_path / "s.h5")
    assert stored.evaluated.all()
    assert (stored.surface, stored.certificate, stored.reading) == (None, None, {})
    assert [len(rows) for rows in (stored.checks, *stored.nodes.values())] == [0, 0, 0]
    a, b = stored.alpha[2], stored.beta[3]
    assert stored.at(a + 0.4 * (stored.alpha[3] - a), b) == stored.loss[2, 3]  # of the nearest cell


def test_a_dense_line(tmp_path: Path):
    p = points()
    line = slices.span(p["theta"], p["theta_hat"] - p["theta"], None, {n: p[n] for n in ("theta", "theta_hat")})
    path, alpha = tmp_path / "s.h5", np.linspace(-1, 6, 9)
    slices.create(path, slices.Layout(line, alpha, np.zeros(1), np.array([0, 0.5]), NAMED, {}, {}, "key"))
    with slices.SliceWriter(path, "key", line.fingerprint()) as writer:
        slices.scan(writer, line, slices.Losses(loss, loss))
    stored = slices.read(path)
    assert stored.complete
    assert stored.is_line
    assert stored.bounds == slices.Bounds((-1.0, 6.0), (0.0, 0.0))
    there = [*alpha.tolist(), stored.point("theta_hat").alpha / 2]
    moved = [Weights({"w": torch.add(line.origin["w"], line.u["w"], alpha=a)}) for a in there]
    assert [*stored.loss[:, 0], stored.profile[1][1]] == [loss(weights) for weights in moved]


def test_nothing_is_written_to_the_plane(tmp_path: Path):
    p = plane()
    before = p.fingerprint()
    slices.create(tmp_path / "s.h5", layout())
    with slices.SliceWriter(tmp_path / "s.h5", "key", before) as writer:
        slices.evaluate_points(writer, points(), slices.Losses(loss, loss))
        slices.scan(writer, p, slices.Losses(loss, loss))
    assert p.fingerprint() == before


def test_non_finite_and_negative_and_zero_losses_are_kept(tmp_path: Path):
    values = iter([*[1.0] * 12, math.nan, math.inf, -math.inf, -2.5, 0.0, *[1.0] * 200])
    stored = fill(tmp_path / "s.h5", lambda weights: next(values))
    first = stored.loss[:4, :4].flatten()  # the first tile, row by row
    assert np.array_equal(first[:5], [math.nan, math.inf, -math.inf, -2.5, 0.0], equal_nan=True)
    assert stored.done.all()
    again = fill(tmp_path / "s.h5", lambda weights: pytest.fail("a finished slice was evaluated again"))
    assert np.array_equal(again.loss, stored.loss, equal_nan=True)


def test_xarray_shows_labelled_coordinates(tmp_path: Path):
    stored = fill(tmp_path / "s.h5")
    with xarray.open_dataset(tmp_path / "s.h5", engine="h5netcdf") as dataset:
        assert dataset["loss"].dims == ("alpha", "beta")
        assert np.array_equal(dataset["alpha"], stored.alpha)
        at_origin = dataset["loss"].sel(alpha=0.0, beta=0.0)
        assert float(at_origin) == stored.point("theta").loss


def test_tables_come_back(tmp_path: Path):
    layers = fill(tmp_path / "s.h5").tables["layers"]
    assert layers["name"].tolist() == ["a", "b"]
    assert layers["bits"].tolist() == [3, 4]
    assert math.isnan(layers["error"][1])
    assert layers["fallback"].tolist() == [False, True]


def start(
    monkeypatch: pytest.MonkeyPatch, function: Callable[..., None], *arguments: object, preload: Sequence[str] = ()
) -> BaseProcess:
    """`function` in a process that can be killed; torch and `preload` load once, where all of them are forked from."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([function.__module__, *preload])
    process = context.Process(target=function, args=arguments)
    process.start()
    return process


def kill_at(process: BaseProcess, count: Path, wanted: float) -> None:
    """Kill it when the file `count` has so many lines."""
    while process.is_alive() and lines(count) < wanted:
        time.sleep(0.001)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def lines(path: Path) -> int:
    return len(path.read_text().split()) if path.exists() else 0


def fill_slowly(path: Path, count: Path) -> None:
    """A line in `count` for every evaluation."""
    with count.open("a") as evaluations:

        def slow(weights: Weights) -> float:
            time.sleep(0.004)
            print("x", file=evaluations, flush=True)
            return loss(weights)

        fill(path, slow)


def test_killed_three_times_and_resumed_equals_undisturbed_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fill(tmp_path / "whole.h5")
    path, count = tmp_path / "killed.h5", tmp_path / "count"
    done = []
    for evaluations in (30, 55, 70):  # of 82 in all; each start begins after the last tile that was stored
        kill_at(start(monkeypatch, fill_slowly, path, count), count, evaluations + int(torch.randint(12, (1,))))
        partial = slices.read(path)
        assert np.isfinite(partial.loss[partial.done]).all()
        done.append(int(partial.done.sum()))
    assert done == sorted(done)
    assert 0 < done[-1] < 70, "the kills came too late or too early to test anything"
    last = start(monkeypatch, fill_slowly, path, count)
    last.join()
    assert last.exitcode == 0
    assert content(path) == content(tmp_path / "whole.h5")
    # no finished tile twice: a kill costs at most the tile it hit, 16 cells
    total = 3 + 9 + 70
    assert total <= lines(count) <= total + 3 * 16


def test_it_can_be_read_while_it_is_filled(tmp_path: Path):
    path = tmp_path / "s.h5"
    look = (
        "import xarray, sys; d = xarray.open_dataset(sys.argv[1], engine='h5netcdf', phony_dims='sort');"
        "print(int(d['done'].sum()), d.attrs['status'].strip())"
    )
    seen: list[int] = []
    said: list[str] = []

    def watched(weights: Weights) -> float:
        seen.append(int(slices.read(path).done.sum()))
        if len(seen) == 3 + 9 + 20:
            said.append(subprocess.check_output([sys.executable, "-c", look, str(path)], text=True).strip())
        return loss(weights)

    fill(path, watched, shape=(4, 6))
    assert seen[0] == 0
    assert seen[-1] == 16  # the first tile is there when the last cell is evaluated
    assert said == ["16 running"]  # with HDF5's own locking, from another process


def hold(path: Path, ready, release) -> None:
    with lock(path):
        ready.set()
        release.wait(20)


def test_one_writer_at_a_time(tmp_path: Path):
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    other = context.Process(target=hold, args=(tmp_path / "s.h5", ready, release))
    other.start()
    try:
        assert ready.wait(60)
        with pytest.raises(StoreError, match="another process"), lock(tmp_path / "s.h5"):
            pass
    finally:
        release.set()
        other.join()
    with lock(tmp_path / "s.h5"):
        pass
    assert list(tmp_path.iterdir()) == []  # a lock leaves nothing behind


def test_other_inputs_are_never_mixed_in(tmp_path: Path):
    path = tmp_path / "s.h5"
    fill(path)
    with pytest.raises(StoreError, match="made from other inputs"):
        slices.SliceWriter(path, "another key", plane().fingerprint())
    with pytest.raises(StoreError, match="differs in its bits"):
        slices.SliceWriter(path, "key", "0" * 64)


def test_damaged_files_are_found(tmp_path: Path):
    whole = tmp_path / "whole.h5"
    fill(whole)
    blob = whole.read_bytes()
    for name, damaged in {"truncated": blob[: len(blob) // 2], "text": b"hello", "empty": b""}.items():
        path = tmp_path / f"{name}.h5"
        path.write_bytes(damaged)
        with pytest.raises(StoreError, match="not a whole HDF5 file"):
            slices.read(path)
    with h5py.File(whole, "r+") as file:
        file.attrs["schema"] = 99
    with pytest.raises(StoreError, match="schema 99, this version reads 3"):
        slices.read(whole)
    with h5py.File(tmp_path / "other.h5", "w"):
        pass
    with pytest.raises(StoreError, match="schema None"):
        slices.read(tmp_path / "other.h5")
    with pytest.raises(StoreError, match="no such file"):
        slices.read(tmp_path / "missing.h5")


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path):
    path = tmp_path / "s.h5"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as Python does at start: a write fails with EFBIG
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        with pytest.raises(StoreError, match="the disk is full"):
            slices.create(path, layout(shape=(60, 60)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system takes root")
def test_a_really_full_disk(tmp_path: Path):
    """On a file system of 64 KiB, without touching the machine's: mounted in a mount namespace of its own."""
    script = textwrap.dedent(
        f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        import test_slices as t
        from landscape.errors import StoreError
        try:
            t.slices.create(Path({str(tmp_path)!r}) / "s.h5", t.layout(shape=(200, 200)))
        except StoreError as error:
            print(error)
            print(sorted(p.name for p in Path({str(tmp_path)!r}).iterdir()))
        """
    )
    mount = f"mount -t tmpfs -o size=64k none {tmp_path} && exec {sys.executable} -c {shlex.quote(script)}"
    done = subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True, text=True)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
    assert "the disk is full" in done.stdout, done.stderr
    assert done.stdout.strip().endswith("[]")
    assert done.stderr == ""


@pytest.mark.parametrize("name", ["directory", "file/s.h5", "file/within/s.h5", 260 * "s"])
def test_places_that_cannot_be_written(name: str, tmp_path: Path):
    from landscape.storage.files import write_whole

    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_text("old")
    with pytest.raises(StoreError, match=r"cannot be written.*name another place"):
        write_whole(tmp_path / name, b"new")
    assert (tmp_path / "file").read_text() == "old"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["directory", "file"]
    write_whole(tmp_path / "directory" / "within" / "s.h5", b"new")
    assert [path.name for path in (tmp_path / "directory" / "within").iterdir()] == ["s.h5"]


def test_disk_errors_pass_on_what_they_do_not_know(tmp_path: Path):
    from landscape.storage.files import disk_errors

    with pytest.raises(StoreError, match="cannot be written"), disk_errors(tmp_path):
        raise OSError(errno.EROFS, "Read-only file system")
    with pytest.raises(OSError, match="odd"), disk_errors(tmp_path):
        raise OSError(errno.EIO, "odd")
