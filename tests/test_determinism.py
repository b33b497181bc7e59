"""Float32 whatever the environment says, operations that are repeatable, and the record of both in every result."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import pytest
import torch

import results
from landscape.averaging import average_checkpoints
from landscape.config import (
    AverageConfig,
    EvaluateConfig,
    QuantizeConfig,
    SharpnessConfig,
    SliceConfig,
    StudyConfig,
    TrainConfig,
)
from landscape.errors import OptionError
from landscape.machine.arithmetic import arithmetic, exactly
from landscape.machine.environment import environment
from landscape.quantizing import quantize_model
from landscape.study import plan
from landscape.trajectories import points

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.usefixtures("process")
ENTRIES = {
    "commit", "packages", "machine", "cpu", "cpu_capability", "torch_build", "threads", "attention", "float32", "tf32",
    "deterministic", "ranks",
}  # fmt: skip


@pytest.fixture
def settings() -> Iterator[None]:
    """What these tests turn is turned back."""
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True
    torch.use_deterministic_algorithms(False)


class TestArithmetic:
    def test_float32_is_float32_within_and_as_it_was_without(self, settings):
        torch.set_float32_matmul_precision("medium")
        with arithmetic():
            assert torch.get_float32_matmul_precision() == "highest"
            assert not torch.backends.cudnn.allow_tf32 and not torch.backends.cuda.matmul.allow_tf32
            assert not torch.are_deterministic_algorithms_enabled()
        assert torch.get_float32_matmul_precision() == "medium" and torch.backends.cudnn.allow_tf32

    def test_an_environment_that_asks_for_less_does_not_get_it(self, run: Path, text_file: Path, tmp_path: Path):
        """TORCH_ALLOW_TF32_CUBLAS_OVERRIDE makes float32 products coarser from the start of the process."""
        code = (
            "import sys, torch; assert torch.get_float32_matmul_precision() == 'high'\n"
            "from landscape.config import EvaluateConfig; from landscape.evaluation import evaluate_model\n"
            "model, text, out = sys.argv[1:]\n"
            "made = evaluate_model(EvaluateConfig(model, text=text, quant='none', tokens=64, out=out))\n"
            "print(made[0].facts['environment']['float32'], made[0].facts['environment']['tf32'])"
        )
        made = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code, run, text_file, tmp_path],
            env=os.environ | {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert made.stdout.strip().splitlines()[-1:] == ["highest False"], made.stderr

    def test_deterministic_is_for_the_length_of_the_job(self, settings):
        before = torch.get_num_threads()
        with arithmetic(deterministic=True, threads=2):
            assert torch.are_deterministic_algorithms_enabled() and torch.get_num_threads() == 2
            assert not torch.utils.deterministic.fill_uninitialized_memory
            assert environment()["deterministic"] is True
        assert not torch.are_deterministic_algorithms_enabled() and torch.get_num_threads() == before
        assert torch.utils.deterministic.fill_uninitialized_memory

    def test_an_operation_that_cannot_be_is_one_line(self, settings):
        """put_ without accumulation has none on any device."""

        @exactly
        def job(config: Any) -> torch.Tensor:
            return torch.zeros(4).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))

        deterministic = EvaluateConfig("model", deterministic=True)
        assert job(replace(deterministic, deterministic=False)).sum() > 0
        with pytest.raises(
            OptionError, match=r"--deterministic: put_ cannot be computed so on this device; leave it out"
        ):
            job(deterministic)
        assert not torch.are_deterministic_algorithms_enabled()

    def test_an_error_of_the_job_itself_stays_what_it_is(self):
        with pytest.raises(RuntimeError, match="size"), arithmetic(deterministic=True):
            torch.zeros(2) @ torch.zeros(3)


class TestJobs:
    @pytest.mark.parametrize("kind", ["adaptive", "curvature", "evaluated"])
    def test_the_numbers_are_the_same_and_so_is_the_key(self, kind: str, run: Path, text_file: Path, tmp_path: Path):
        """On a CPU every operation of these jobs is repeatable already: the option changes nothing, and is recorded."""
        (tmp_path / "other").mkdir()
        make = getattr(results, kind)
        plain, strict = make(run, text_file, tmp_path), make(run, text_file, tmp_path / "other", deterministic=True)
        assert plain.name == strict.name and numbers(plain) == numbers(strict)
        assert facts_of(plain)["key"] == facts_of(strict)["key"]
        told = [environment_of(path)["deterministic"] for path in (plain, strict)]
        assert told == [False, True]

    def test_all_jobs_take_it_and_a_study_hands_it_on(self, run: Path, text_file: Path, tmp_path: Path):
        for config in (SliceConfig, SharpnessConfig, EvaluateConfig, QuantizeConfig, StudyConfig, TrainConfig):
            assert config.__dataclass_fields__["deterministic"].default is False
        study = StudyConfig(str(run), quant=["rtn-w3-g16"], text=str(text_file), out=tmp_path, **results.TEXT)
        every = points(str(run))

        def tasks(config: StudyConfig) -> list[plan.Task]:
            return plan.tasks(config, plan.subjects(config, every, every))

        plain, strict = tasks(study), tasks(replace(study, deterministic=True))
        assert not any(task.config.deterministic for task in plain)
        assert all(task.config.deterministic for task in strict)
        assert [task.note for task in plain] == [task.note for task in strict]  # it names no other result


def numbers(path: Path) -> str:
    """A hash over the numbers of a result."""
    if path.suffix == ".json":
        content = json.loads(path.read_text())
        return json.dumps({name: content[name] for name in ("windows", "comparison", "report", "step")})
    digest = hashlib.sha256()

    def add(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            digest.update(name.encode() + str(item[()]).encode() if item.dtype.kind == "O" else item[()].tobytes())

    with h5py.File(path) as file:
        file.visititems(add)
    return digest.hexdigest()


def facts_of(path: Path) -> dict[str, Any]:
    if path.suffix == ".json":
        return json.loads(path.read_text())
    with h5py.File(path) as file:
        return dict(file.attrs)


def environment_of(path: Path) -> dict[str, Any]:
    told = facts_of(path)["environment"]
    return told if isinstance(told, dict) else json.loads(told)


class TestRecord:
    def test_every_kind_of_result_carries_it_and_tells_no_place_or_person(
        self, run: Path, text_file: Path, tmp_path: Path
    ):
        kinds = ("adaptive", "dense", "curvature", "evaluated")
        files = [getattr(results, kind)(run, text_file, tmp_path) for kind in kinds]
        table = results.table(run, text_file, tmp_path, quant=["rtn-w3-g16"], measure="error")
        files.append(table.with_name("study.json"))
        kept = tmp_path / "quantized"
        quantize_model(
            QuantizeConfig(f"{run}@step30", quant="rtn-w3-g16", text=str(text_file), save=kept, **results.TEXT)
        )
        files.append(kept / "report.json")
        (averaged,) = average_checkpoints(AverageConfig([str(run)], window=2, out=tmp_path / "mean"))
        files.append(averaged.folder / "average.json")
        assert len(files) == 7
        for path in files:
            found = environment_of(path)
            assert set(found) >= ENTRIES and found["threads"] == 1 and found["ranks"] == 1, path.name
            assert found["machine"] == f"{platform.system()} {platform.machine()}"
            text = json.dumps(found)
            assert "/" not in found["cpu"] and str(Path.home()) not in text and socket.gethostname() not in text
            assert f'"{getpass.getuser()}' not in text
        with_model = [environment_of(path)["attention"] for path in files[:4]]
        assert with_model == ["sdpa"] * 4 and environment_of(files[4])["attention"] == ""

    def test_the_commit_is_that_of_the_checkout(self):
        found = environment()["commit"]
        folder = Path(__file__).parent.parent
        if not (folder / ".git").exists():
            assert found == ""
            return
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=True)
        assert found.rstrip("+") == head.stdout.strip() and len(found.rstrip("+")) == 40

    def test_it_enters_no_key(self, run: Path, text_file: Path, tmp_path: Path, monkeypatch):
        first = results.evaluated(run, text_file, tmp_path, second_order=False, curvature_tokens=None)
        wrote = first.read_bytes()
        torch.set_num_threads(2)
        again = results.evaluated(run, text_file, tmp_path, second_order=False, curvature_tokens=None)
        assert again == first and again.read_bytes() == wrote

    def test_a_file_filled_in_two_environments_says_so(self, run: Path, text_file: Path, tmp_path: Path):
        """And is not held to the bits of one of them."""
        from studies import Notes

        class Impatient(Notes):
            def stage(self, name: str):
                def update(done: int, total: int) -> None:
                    if name == "evaluating the slice" and done > 20:
                        raise KeyboardInterrupt

                return update

        from landscape.basin import render_slice
        from landscape.config import VerifyConfig
        from landscape.slices import read
        from landscape.verifying import verify_file

        given = {"plane": "random", "grid": "6x6", "dense": True, "out": tmp_path / "half.h5", **results.TEXT}
        config = SliceConfig(f"{run}@step30", text=str(text_file), **given)
        with pytest.raises(KeyboardInterrupt):
            render_slice(config, Impatient())
        assert read(config.out).attributes["mixed"] == 0
        torch.set_num_threads(2)
        render_slice(config)
        torch.set_num_threads(1)
        stored = read(config.out)
        assert stored.complete and stored.attributes["mixed"] == 1
        verdict = verify_file(VerifyConfig(config.out, model=str(run), text=str(text_file), cells=3))
        assert verdict.holds and any("more than one environment" in item.why for item in verdict.items)
