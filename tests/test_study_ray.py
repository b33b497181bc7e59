"""Studies on a Ray cluster of two workers: the table of one machine, also when workers are lost or need one average."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from studies import command, tables

pytest.importorskip("pyarrow")
pytest.importorskip("ray")
ROOT = Path(__file__).parent.parent
SURROUNDINGS = os.environ | {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}


@pytest.fixture(scope="module")
def undisturbed(run: Path, text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """By a process of its own, as sums depend on the number of threads."""
    out = tmp_path_factory.mktemp("local") / "study"
    call = [sys.executable, "-m", "landscape", *command(run, text_file, out, "--average", "lawa-2")]
    subprocess.run(call, cwd=ROOT, env=SURROUNDINGS, check=True, capture_output=True)
    return tables(out)


def begun(run: Path, text: Path, out: Path, *more: object) -> subprocess.Popen[str]:
    call = [sys.executable, "-m", "landscape", *command(run, text, out, "--engine", "ray", *more)]
    return subprocess.Popen(
        call, cwd=ROOT, env=SURROUNDINGS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """Processes below this one that are at work on a task, which Ray calls ray::NAME then."""
    parents, found = {}, []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                stat = (folder / "stat").read_text()
                name = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
            if name.startswith(b"ray::do"):
                found.append(int(folder.name))
    return [pid for pid in found if _is_below(pid, process.pid, parents)]


def _is_below(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != ancestor:
        pid = parents[pid]
    return pid == ancestor


def test_a_lost_worker_changes_nothing(run: Path, text_file: Path, tmp_path: Path, undisturbed: dict[str, bytes]):
    process = begun(run, text_file, tmp_path / "study", "--average", "lawa-2")
    killed, deadline = 0, time.monotonic() + 600
    while killed < 2 and process.poll() is None and time.monotonic() < deadline:
        if len(list((tmp_path / "study").glob("done/*.json"))) > killed and (workers := workers_of(process)):
            os.kill(workers[0], signal.SIGKILL)
            killed += 1
        time.sleep(0.05)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert killed == 2 and tables(tmp_path / "study") == undisturbed


def test_a_worker_that_is_always_lost_is_told(run: Path, text_file: Path, tmp_path: Path):
    process = begun(run, text_file, tmp_path / "study", "--retries", "0")
    while process.poll() is None and not workers_of(process):
        time.sleep(0.02)
    os.kill(workers_of(process)[0], signal.SIGKILL)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 2 and "its worker was lost 1 times; run the same command again" in " ".join(
        said.split()
    )


def test_what_is_wrong_with_every_checkpoint_ends_it_in_one_line(run: Path, text_file: Path, tmp_path: Path):
    process = begun(run, text_file, tmp_path / "study", "--calibration", tmp_path / "nothing.txt")
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 2 and "nothing.txt" in said and "Traceback" not in said


def test_no_cluster_at_the_address(run: Path, text_file: Path, tmp_path: Path):
    process = begun(run, text_file, tmp_path / "study", "--address", "127.0.0.1:1")
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 2 and "no Ray cluster answers there" in " ".join(said.split()), said
