"""One measurement by several processes: the numbers of one, whoever dies, and one voice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

import landscape as ls
from landscape.config import EvaluateConfig, SharpnessConfig
from landscape.errors import CurvatureError, OptionError, RankError
from landscape.evaluation import evaluate_model
from landscape.machine.ranks import ALONE, ranks
from landscape.sharpness import measure_sharpness
from processes import ended, together

SMALL = {"tokens": 512, "seq_len": 32, "batch_size": 2, "device": "cpu"}
SLICES = {
    "dense": {"dense": True, "grid": "6x5"},
    "adaptive": {"grid": "31x31", "max_evaluations": 60},
    "line": {"plane": "line"},
}


def slice_config(run: Path, text: Path, out: Path, **changes: object) -> ls.SliceConfig:
    return ls.SliceConfig(str(run), **{"quant": "rtn-w3-g16", "text": str(text), "out": out, **SMALL, **changes})


def sharpness_config(run: Path, text: Path, out: Path, **changes: object) -> SharpnessConfig:
    asked = {"text": str(text), "out": out, "top": 2, "layers": False, "quant": "gptq-w3-g16", "vectors": True}
    few = {"density_steps": 5, "density_probes": 2, "max_probes": 12, "tolerance": 1e-3}
    return SharpnessConfig(f"{run}@30", **{**asked, **few, **SMALL, **changes})


def slices(run: Path, text: Path, folder: Path, names: Iterable[str] = SLICES) -> None:
    # one after the other, each with a meeting place of its own
    for offset, name in enumerate(names):
        os.environ["MASTER_PORT"] = str(int(os.environ.get("MASTER_PORT", "0")) + offset)
        ls.render_slice(slice_config(run, text, folder / f"{name}.h5", **SLICES[name]))


def curvature(run: Path, text: Path, folder: Path) -> None:
    measure_sharpness(sharpness_config(run, text, folder / "sharpness.h5"))
    os.environ["MASTER_PORT"] = str(int(os.environ.get("MASTER_PORT", "0")) + 7)
    measure_sharpness(sharpness_config(run, text, folder / "adam.h5", adam=True, density_steps=0, quant=None))


def losses(run: Path, text: Path, folder: Path) -> None:
    evaluate_model(EvaluateConfig(f"{run}@30", text=str(text), quant="gptq-w3-g16,rtn-w4-g16", out=folder, **SMALL))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, run: Path, text_file: Path):
    """The folder with what a job makes on so many ranks."""
    folders: dict[tuple[str, int], Path] = {}

    def make(job, size: int) -> Path:
        name = (job.__name__, size)
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp("-".join(map(str, name)))
            assert ended(together(job, size, run, text_file, folders[name])) == [0] * size
        return folders[name]

    return make


def content(path: Path) -> dict[str, np.ndarray]:
    """Every dataset of a file by its name, and every attribute but times."""
    found: dict[str, np.ndarray] = {}

    def note(name: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item[()]
        for key, value in item.attrs.items():
            if key not in ("seconds", "created", "finished", "DIMENSION_LIST", "REFERENCE_LIST"):
                found[f"{name}@{key}"] = np.asarray(value)

    with h5py.File(path) as file:
        note("", file)
        file.visititems(note)
    return {name: value for name, value in found.items() if name not in ("@environment", "@seal")}


@pytest.mark.parametrize("size", [3])  # which divides neither grids nor windows
@pytest.mark.parametrize("name", SLICES)
def test_a_slice_is_the_same_to_the_bit(made, size: int, name: str):
    one, many = (content(made(slices, n) / f"{name}.h5") for n in (1, size))
    assert list(one) == list(many)
    for key, value in one.items():
        np.testing.assert_array_equal(value, many[key], err_msg=key)


@pytest.mark.parametrize("size", [3])
def test_losses_by_window_are_the_same_to_the_bit(made, size: int):
    one, many = ({p.name: json.loads(p.read_text()) for p in made(losses, n).glob("*.json")} for n in (1, size))
    assert len(one) == 2 and list(one) == list(many)
    for name, result in one.items():
        for key in ("windows", "comparison", "report", "key"):
            assert result[key] == many[name][key], key


@pytest.mark.parametrize("size", [2])
def test_curvature_is_the_same_to_rounding_and_the_trace_to_the_bit(made, size: int):
    for name in ("sharpness", "adam"):
        one, many = (content(made(curvature, n) / f"{name}.h5") for n in (1, size))
        assert list(one) == list(many)
        values = {"eigenvalues/top/values", "eigenvalues/bottom/values", "@gradient_norm", "@loss", "direction@slope"}
        for key in one.keys() & values:
            np.testing.assert_allclose(one[key], many[key], rtol=1e-5, err_msg=key)
        for key in ("eigenvalues/top@products", "eigenvalues/bottom@products", "trace@rounds"):
            assert one[key] == many[key], key
        same = np.testing.assert_array_equal if name == "sharpness" else np.testing.assert_allclose
        same(one["trace/samples"], many["trace/samples"], **({} if name == "sharpness" else {"rtol": 1e-4}))
    np.testing.assert_allclose(one["trace@value"], many["trace@value"], rtol=1e-5)


def in_pieces(run: Path, text: Path, folder: Path) -> None:
    few = {"tolerance": 1e-2, "max_probes": 10, "density_steps": 0}
    options = {"shard": True, "quant": None, "vectors": False, "batch_size": 6, **few}
    measure_sharpness(sharpness_config(run, text, folder / "sharded.h5", **options))


@pytest.mark.parametrize("size", [3])
def test_in_pieces_curvature_is_the_same(made, size: int):
    """Products by differences, probes of other batches: the numbers agree as well as these methods do."""
    one, pieces = content(made(curvature, 1) / "sharpness.h5"), content(made(in_pieces, size) / "sharded.h5")
    for key in ("@loss", "@gradient_norm", "@weight_norm", "@parameters", "@total_parameters", "@eval_windows"):
        np.testing.assert_allclose(pieces[key], one[key], rtol=1e-5, err_msg=key)
    for key in ("eigenvalues/top/values", "eigenvalues/bottom/values"):
        np.testing.assert_allclose(pieces[key], one[key], rtol=2e-3, err_msg=key)
    errors = "eigenvalues/top/standard_errors"
    np.testing.assert_allclose(pieces[errors], one[errors], rtol=0.02)
    away = abs(pieces["trace@value"] - one["trace@value"])
    assert away < 4 * np.hypot(pieces["trace@standard_error"], one["trace@standard_error"])


def refused(run: Path, text: Path, folder: Path) -> None:
    with pytest.raises(OptionError, match="2 windows, 3 ranks, --batch-size 2: expected at least 3 windows"):
        measure_sharpness(sharpness_config(run, text, folder, shard=True, quant=None, vectors=False, tokens=64))


def test_pieces_need_several_ranks_and_a_window_for_each(run: Path, text_file: Path, tmp_path: Path):
    assert ended(together(refused, 3, run, text_file, tmp_path)) == [0, 0, 0]
    for changes, message in (
        ({"quant": None, "vectors": False}, "--shard with one process: expected several under torchrun"),
        ({"vectors": False}, "--shard with --quant: needs the whole model in memory"),
        ({"quant": None}, "--shard with --vectors"),
        ({"quant": None, "vectors": False, "stream": "always"}, "--shard with --stream always"),
    ):
        with pytest.raises(OptionError, match=message):
            measure_sharpness(sharpness_config(run, text_file, tmp_path, shard=True, **changes))


def few_batches(run: Path, text: Path, folder: Path) -> None:
    with pytest.raises(CurvatureError, match="2 batches, 3 ranks: expected one each; lower --batch-size"):
        measure_sharpness(sharpness_config(run, text, folder, tokens=128))


def test_ranks_without_a_batch_are_refused(run: Path, text_file: Path, tmp_path: Path):
    assert ended(together(few_batches, 3, run, text_file, tmp_path)) == [0, 0, 0]


def talk(folder: Path) -> None:
    with ranks("cpu") as own:
        assert own.merged([10 * i for i in own.share(7)]) == [0, 10, 20, 30, 40, 50, 60]
        assert own.collect(own.rank) == [0, 1, 2]
        assert own.told(f"from {own.rank}") == "from 0"
        assert own.sum(torch.tensor([1.0, own.rank])).tolist() == [3.0, 3.0]
        like = {"a": torch.zeros(2), "b": torch.ones(3)}
        given = own.given({"a": torch.arange(2.0), "b": like["b"]} if own.leads else like, like)
        assert given["a"].tolist() == [0, 1] and given["b"] is like["b"]
        if own.leads:
            own.told(OptionError("no such thing"))
        else:
            with pytest.raises(OptionError, match="no such thing"):
                own.told(None)
        (folder / str(own.rank)).touch()


def test_ranks_talk_to_each_other(tmp_path: Path):
    assert ended(together(talk, 3, tmp_path)) == [0, 0, 0]
    assert len(list(tmp_path.iterdir())) == 3
    with ranks("cpu") as own:
        assert own == ALONE and own.told(5) == 5 and own.merged([1, 2]) == [1, 2]


def slowly(run: Path, text: Path, folder: Path) -> None:
    """A slice that waits at every cell, so that it can be killed in the middle."""
    from landscape.slices import scan

    moved = scan.Mover.__call__
    scan.Mover.__call__ = lambda self, a, b: (time.sleep(0.02), moved(self, a, b))[1]  # type: ignore[method-assign]
    try:
        ls.render_slice(slice_config(run, text, folder / "dense.h5", **SLICES["dense"]))
    except RankError as error:
        assert "another rank ended" in str(error)
        sys.exit(3)


@pytest.mark.parametrize("victim", [0, 1])
def test_who_loses_a_rank_says_so_and_what_is_left_is_done_by_any_number(
    made, run: Path, text_file: Path, tmp_path: Path, victim: int
):
    processes = together(slowly, 2, run, text_file, tmp_path)
    path = tmp_path / "dense.h5"
    deadline = time.monotonic() + 60
    while (not path.exists() or not ls.read_slice(path).done.any()) and time.monotonic() < deadline:
        time.sleep(0.01)
    processes[victim].kill()
    assert ended(processes)[1 - victim] == 3
    assert 0 < ls.read_slice(path).done.sum() < 30
    assert ended(together(slices, 4, run, text_file, tmp_path, ["dense"])) == [0] * 4
    whole, resumed = content(made(slices, 1) / "dense.h5"), content(path)
    for key, value in whole.items():
        np.testing.assert_array_equal(value, resumed[key], err_msg=key)


def torchrun(*arguments: object, restarts: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--max-restarts", str(restarts), "--monitor-interval", "0.1", "-m", "landscape"]
    return subprocess.Popen(
        [*command, *map(str, arguments)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},  # as docs/cluster.md
    )


def test_under_torchrun_one_rank_speaks_and_a_dead_one_is_started_again(
    made, run: Path, text_file: Path, tmp_path: Path
):
    path = tmp_path / "dense.h5"
    options = {"quant": "rtn-w3-g16", "text": text_file, "grid": "30x10", "out": path, **SMALL}
    listed = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
    process = torchrun("slice", run, "--dense", *listed, restarts=2)
    deadline = time.monotonic() + 120
    while (not path.exists() or not ls.read_slice(path).done.any()) and time.monotonic() < deadline:
        time.sleep(0.01)
    workers = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    os.kill(workers[-1], signal.SIGKILL)
    done = ls.read_slice(path).done.sum()
    assert 0 < done < 300, "killed too late to test anything"
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    assert out.count("data ") == 1
    assert ls.read_slice(path).complete
    alone = ls.render_slice(slice_config(run, text_file, tmp_path / "alone.h5", dense=True, grid="30x10")).slice
    np.testing.assert_array_equal(alone.loss, ls.read_slice(path).loss)


@pytest.mark.parametrize("wrong", [("slice", "nowhere/to-be-found"), ("quantize", "x", "rtn-w4-g128")])
def test_under_torchrun_a_mistake_is_one_line(wrong: tuple[str, ...]):
    _, err = torchrun(*wrong).communicate(timeout=600)
    lines = [line for line in err.splitlines() if line.startswith("landscape: ")]
    assert len(set(lines)) == 1 and len(lines) <= 2, err
    assert "Traceback (most recent call last)" not in err.split("torch/distributed")[0]
