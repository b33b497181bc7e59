"""Studies: rows are what the single jobs measure, nothing is measured twice, what cannot be measured is named."""

from __future__ import annotations

import csv
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from landscape import sharpness
from landscape.config import SharpnessConfig, StudyConfig
from landscape.curvature.store import read as read_sharpness
from landscape.errors import OptionError, StoreError, StudyError
from landscape.evaluation import read as read_evaluation
from landscape.models import load_model
from landscape.models.references import resolve
from landscape.quantize.rtn import round_to_nearest
from landscape.study import read
from landscape.study.columns import LAYERS, STUDY, TENSORS
from landscape.study.predictions import predict
from landscape.weights import Weights
from studies import QUANTIZERS, SMALL, Notes, command, study, tables

pytest.importorskip("pyarrow")
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def done(run: Path, text_file: Path, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("studies") / "done"
    return study(run, text_file, folder)


class TestRows:
    def test_a_row_for_every_checkpoint_and_quantizer(self, done):
        asked = [(step, quantizer) for step in (10, 20, 30) for quantizer in QUANTIZERS]
        assert [(row["step"], row["quantizer"]) for row in done.rows] == asked
        assert not done.skipped
        stored = read(done.folder)
        assert [list(row) for row in stored] == [list(STUDY)] * 6
        for row, made in zip(stored, done.rows, strict=True):
            assert set(made) <= set(STUDY)  # nothing is measured and then dropped
            for name, value in row.items():
                assert value == made.get(name) or (value != value and made[name] != made[name]), name

    def test_its_numbers_are_those_of_the_jobs(self, done, run: Path, text_file: Path, tmp_path: Path):
        for row in done.rows:
            name = f"run-step{row['step']}-{row['quantizer']}-{row['evaluation_key'][:8]}.json"
            file = read_evaluation(done.folder / "evaluations" / name)
            assert row["delta_q"] == file.comparison.relative.value
            assert row["delta_q_se"] == file.comparison.relative.standard_error
            assert (row["predicted"], row["change"]) == (file.step["predicted"], file.step["actual"])
            assert row["curvature_along"] == pytest.approx(file.step["quadratic"] / file.step["length"] ** 2)
            kurtosis = [(layer["excess_kurtosis"], layer["parameters"]) for layer in file.report["layers"]]
            assert row["excess_kurtosis"] == pytest.approx(
                sum(k * n for k, n in kurtosis) / sum(n for _, n in kurtosis)
            )
            assert row["excess_kurtosis_max"] == max(k for k, _ in kurtosis)
        stored = sharpness.measure_sharpness(
            SharpnessConfig(
                f"{run}@step20", text=str(text_file), seq_len=32, tokens=128, layers=True, density_steps=0,
                max_probes=10, batch_size=128, out=tmp_path,
            )
        ).stored  # fmt: skip
        row = done.rows[2]
        assert row["trace"] == pytest.approx(stored.sections["trace"]["value"])
        assert row["trace_se"] == pytest.approx(stored.sections["trace"]["standard_error"])
        assert row["lambda_max"] == pytest.approx(float(stored.sections["eigenvalues/top"]["values"][0]))
        assert row["lambda_min"] == pytest.approx(float(stored.sections["eigenvalues/bottom"]["values"][0]))
        assert row["curvature_tokens"] == 128 and row["eval_tokens"] == 320

    def test_distances_are_to_the_checkpoint_before(self, done, run: Path):
        first, _, second, *_ = done.rows
        steps = [Weights.of(load_model(resolve(f"{run}@step{n}"))) for n in (10, 20)]
        assert "previous" not in first and "distance" not in first
        assert second["previous"] == "step10"
        assert second["distance"] == pytest.approx((steps[1] - steps[0]).norm())
        assert second["weight_norm"] == pytest.approx(steps[1].norm())

    def test_predictions_are_sums_over_the_layers_of_the_second_table(self, done):
        layers = read(done.folder / "layers.parquet")
        assert len(layers) == 6 * 8 and set(layers[0]) == set(LAYERS)
        for row in done.rows:
            own = [each for each in layers if (each["step"], each["quantizer"]) == (row["step"], row["quantizer"])]
            grid = sum(0.5 * each["trace"] * each["grid_step"] ** 2 / 12 for each in own)
            assert row["predicted_grid"] == pytest.approx(grid)
            error = math.sqrt(sum((0.5 * each["trace_se"] * each["grid_step"] ** 2 / 12) ** 2 for each in own))
            assert row["predicted_grid_se"] == pytest.approx(error)
            assert sum(each["delta_h_delta"] for each in own) == pytest.approx(row["delta_h_delta"], rel=1e-4)
            # rounding to nearest knows no inputs; GPTQ does, and needs calibration for that
            assert math.isnan(row["predicted_outputs"]) == row["quantizer"].startswith("rtn")

    def test_the_traces_of_all_tensors_add_up(self, done, run: Path):
        tensors = read(done.folder / "tensors.parquet")
        theta = Weights.of(load_model(resolve(f"{run}@step10")))
        for row in done.rows[::2]:
            own = [each for each in tensors if each["step"] == row["step"]]
            assert {each["tensor"]: each["parameters"] for each in own} == {n: t.numel() for n, t in theta.items()}
            assert sum(each["trace"] for each in own) == pytest.approx(row["trace"], rel=1e-6)

    def test_no_measured_number_without_its_error(self):
        exact = {"learning_rate", "tokens", "bits_per_weight", "gradient_norm", "weight_norm", "distance"}
        exact |= {"step_length", "relative_step_length", "cosine", "quadratic_reach", "misalignment", "grid_step"}
        exact |= {"saturation", "delta_q_low", "delta_q_high"}
        for name, (kind, _) in STUDY.items():
            if kind == "float64" and not name.endswith(("_se", "_residual")) and name not in exact:
                spread = name.startswith(("excess_kurtosis", "max_over_median"))  # of all weights, no sample
                assert spread or f"{name}_se" in STUDY or f"{name}_residual" in STUDY, name

    def test_csv_and_parquet_say_the_same(self, done):
        with open(done.folder / "study.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        for text, row in zip(rows, read(done.folder), strict=True):
            for name, value in row.items():
                assert text[name] == "" if value is None else True
                if isinstance(value, float):
                    assert float(text[name]) == value or math.isnan(value)

    def test_no_path_in_what_is_stored(self, done, run: Path, text_file: Path):
        for file in (*done.folder.glob("*.*"), *done.folder.glob("done/*")):
            content = file.read_bytes()
            assert str(run.parent).encode() not in content and str(text_file.parent).encode() not in content

    def test_the_density_of_eigenvalues_where_it_was_asked_for(self, done, run: Path, text_file: Path, tmp_path: Path):
        asked = {"measure": "curvature", "density_steps": 4}
        study(f"{run}@step10", text_file, tmp_path, **asked)
        (file,) = (tmp_path / "curvature").glob("*.h5")
        density = read_sharpness(file).sections["density"]
        assert density["nodes"].shape[1] == 4 and (density["density"] >= 0).all()
        assert not any("density" in read_sharpness(each).sections for each in (done.folder / "curvature").glob("*.h5"))
        with pytest.raises(OptionError, match="--density-steps -1"):
            StudyConfig("x", quant=["int8"], density_steps=-1)

    def test_every_column_is_explained(self):
        page = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
        for name in {*STUDY, *LAYERS, *TENSORS}:
            assert f"`{name}`" in page or f"`{name.removesuffix('_se')}`" in page, name


class TestAgain:
    def test_nothing_is_measured_twice(self, done, run: Path, text_file: Path, monkeypatch: pytest.MonkeyPatch):
        from landscape.study import local

        before, asked = tables(done.folder), []
        original = local.do
        monkeypatch.setattr(local, "do", lambda task, *rest: asked.append(str(task)) or original(task, *rest))
        notes = Notes()
        study(run, text_file, done.folder, notes)
        assert not asked and "6 of 6 tasks were done already" in notes.notes and tables(done.folder) == before
        some = study(f"{run}@step10,step30", text_file, done.folder)  # Θ_{K−1} of step30 is another one now
        assert asked == ["error of run@step30"] and [row["step"] for row in some.rows] == [10, 10, 30, 30]
        study(run, text_file, done.folder)
        assert len(asked) == 1 and tables(done.folder) == before
        study(f"{run}@step10", text_file, done.folder, trace_error=0.5)
        assert asked[1:] == ["curvature of run@step10"]
        study(run, text_file, done.folder)
        assert tables(done.folder) == before

    def test_text_that_has_changed_is_measured_again(self, run: Path, text_file: Path, tmp_path: Path):
        text = tmp_path / "own.txt"
        shutil.copy(text_file, text)
        loss = [study(f"{run}@step30", text, tmp_path / "out", measure="error").rows[0]["loss"]]
        text.write_text(text.read_text()[40:])
        loss.append(study(f"{run}@step30", text, tmp_path / "out", measure="error").rows[0]["loss"])
        assert loss[0] != loss[1]

    def test_killed_twice_the_tables_are_those_of_an_undisturbed_study(
        self, done, run: Path, text_file: Path, tmp_path: Path
    ):
        out = tmp_path / "killed"
        call = [sys.executable, "-m", "landscape", *command(run, text_file, out)]
        surroundings = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}  # sums depend on threads
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        for tasks in (1, 3):
            process = subprocess.Popen(call, cwd=ROOT, env=surroundings, **quiet)
            deadline = time.monotonic() + 120
            while len(list(out.glob("done/*.json"))) < tasks:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.01)
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert len(list(out.glob("done/*.json"))) < 6
        subprocess.run(call, cwd=ROOT, env=surroundings, check=True, capture_output=True)
        assert tables(out) == tables(done.folder)

    def test_a_note_whose_file_is_gone_does_not_count(self, done, run: Path, text_file: Path, tmp_path: Path):
        out = tmp_path / "copy"
        shutil.copytree(done.folder, out)
        next(out.glob("evaluations/run-step10-*.json")).unlink()
        next(out.glob("done/run-step20-curvature-*.json")).write_text("{")
        notes = Notes()
        study(run, text_file, out, notes)
        assert "4 of 6 tasks were done already" in notes.notes and tables(out) == tables(done.folder)


class TestSkips:
    def test_a_checkpoint_that_cannot_be_measured_is_named_and_the_others_are(
        self, run: Path, text_file: Path, tmp_path: Path
    ):
        copy, out = tmp_path / "run", tmp_path / "out"
        shutil.copytree(run, copy)
        weights = copy / "step20" / "model.safetensors"
        kept = weights.read_bytes()
        weights.write_bytes(b"")
        found = study(copy, text_file, out, measure="step")
        assert [row["step"] for row in found.rows] == [10, 10, 30, 30]
        assert "previous" not in found.rows[2]  # what was to be Θ_{K−1} is the one that cannot be read
        assert [task for task, _ in found.skipped] == ["error of run@step20"]
        assert json.loads((out / "study.json").read_text())["skipped"][0][0] == "error of run@step20"
        weights.write_bytes(kept)
        whole = study(copy, text_file, out, measure="step").rows
        assert len(whole) == 6 and whole[4]["previous"] == "step20"

    def test_where_none_can_be_measured_it_says_why(self, run: Path, text_file: Path, tmp_path: Path):
        copy = tmp_path / "run"
        shutil.copytree(run / "step30", copy / "step30")
        (copy / "step30" / "model.safetensors").write_bytes(b"")
        with pytest.raises(StudyError, match="none of 1 checkpoints could be measured; error of run@step30: "):
            study(copy, text_file, tmp_path / "out", measure="error")


class TestAverages:
    def test_averages_are_checkpoints(self, run: Path, text_file: Path, tmp_path: Path):
        found = study(
            run, text_file, tmp_path, measure="error", average="lawa-2,lawa-2x20,soup:step[23]0,soup:step[12]*"
        )
        rows = {(row["kind"], row["step"]): row for row in found.rows if row["quantizer"] == QUANTIZERS[0]}
        assert list(rows) == [
            *(("checkpoint", step) for step in (10, 20, 30)), ("lawa-2", 20), ("lawa-2", 30), ("lawa-2x20", 30),
            ("soup:step[23]0", 30), ("soup:step[12]*", 20),
        ]  # fmt: skip
        assert rows["soup:step[23]0", 30]["loss"] == rows["lawa-2", 30]["loss"] != rows["lawa-2x20", 30]["loss"]
        made = Weights.of(load_model(resolve(str(next(tmp_path.glob("averages/run-lawa-2x20-step30-*"))))))
        ends = [Weights.of(load_model(resolve(f"{run}@step{n}"))) for n in (10, 30)]
        assert (made - (ends[0] + ends[1]) * 0.5).norm() < 1e-5 * made.norm()
        assert rows["soup:step[23]0", 30]["learning_rate"] is None and rows["soup:step[23]0", 30]["run"] == "run"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"quant": []}, "no quantizer named"),
        ({"quant": ["rtn-w4"]}, "quantizer rtn-w4: expected"),
        ({"measure": "sharpness"}, "--measure sharpness: expected some of error, step"),
        ({"average": "mean-3"}, "--average mean-3: expected lawa-WINDOW"),
        ({"average": "lawa-1"}, "--average lawa-1: expected"),
        ({"average": "lawa-9"}, "--average lawa-9: no checkpoint of .* has the members"),
        ({"average": "soup:none*"}, "--average soup:none.: no checkpoint"),
        ({"engine": "slurm"}, "--engine slurm: expected one of local, ray"),
        ({"address": "auto"}, "--address auto: belongs to --engine ray"),
        ({"trace_error": 2.0}, "--trace-error 2.0: expected"),
        ({"retries": -1}, "--retries -1"),
        ({"gpus": -1.0}, "--gpus -1.0"),
    ],
)
def test_what_cannot_be_asked_for(run: Path, text_file: Path, tmp_path: Path, options: dict, words: str):
    with pytest.raises(Exception, match=words) as caught:
        study(run, text_file, tmp_path, **options)
    assert type(caught.value).__module__ == "landscape.errors" and not list(tmp_path.iterdir())


def test_the_command_line_says_it_in_one_line(landscape, run: Path, text_file: Path, tmp_path: Path):
    for words, said in (
        ([f"{run}@step99"], "step99"),
        ([f"{run}@every=0"], "every=0"),
        ([tmp_path / "nothing"], "nothing"),
        ([run, "--out", text_file], "expected a directory"),
    ):
        asked = ["rtn-w4-g16", "--text", text_file, "--out", tmp_path / "x", *words[1:]]
        code, _, err = landscape("study", words[0], *asked)
        last = err.splitlines()[-1]
        assert code == 2 and last.startswith("landscape: ") and said in last and "Traceback" not in err
    assert not (tmp_path / "x").exists()


def test_a_table_that_is_none(tmp_path: Path):
    for content, words in ((None, "no table there"), (b"PAR1", "not a table of a study")):
        if content:
            (tmp_path / "study.parquet").write_bytes(content)
        with pytest.raises(StoreError, match=words):
            read(tmp_path)


LAYER = {"name": "a", "parameters": 12, "inputs": 4, "grid_step": 0.6, "step_norm": 0.5, "output_shift": 0.02}


class TestPredictions:
    def test_by_hand(self):
        found = predict([LAYER], {"a": (10.0, 1.0)})
        assert found["grid"] == pytest.approx((0.5 * 10 * 0.36 / 12, 0.5 * 0.36 / 12))
        assert found["length"][0] == pytest.approx(0.5 * 10 * 0.25 / 12)
        assert found["outputs"][0] == pytest.approx(0.5 * 10 * 0.02 * 4 / 12)
        assert all(math.isnan(value) for value, _ in predict([LAYER], {}).values())

    def test_exact_on_a_quadratic_whose_hessian_is_a_product_of_inputs_and_outputs(self):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(50, 4, generator=generator, dtype=torch.float64)
        delta = torch.randn(3, 4, generator=generator, dtype=torch.float64)
        gram, scale = x.T @ x / 50, 7.0
        hessian = torch.kron(scale * torch.eye(3, dtype=torch.float64), gram)  # of ½·7·mean‖Xδᵀ‖²
        quadratic = 0.5 * float(delta.flatten() @ hessian @ delta.flatten())
        shift = float((delta @ gram * delta).sum() / gram.trace())
        layer = LAYER | {"output_shift": shift, "step_norm": float(delta.norm())}
        found = predict([layer], {"a": (float(hessian.trace()), 0.0)})
        assert found["outputs"][0] == pytest.approx(quadratic)
        assert abs(found["length"][0] - quadratic) > 0.1 * quadratic  # which knows nothing of the inputs

    def test_uniform_rounding_errors_meet_the_grid_on_average(self):
        generator = torch.Generator().manual_seed(1)
        weight = torch.randn(256, 1024, generator=generator)
        diagonal = torch.rand(256, 1024, generator=generator) ** 4  # of the Hessian, and knows nothing of the weights
        rounded = round_to_nearest(weight, 4, 64, "symmetric", False)
        delta = (rounded.weight - weight).double()
        layer = LAYER | {
            "parameters": weight.numel(), "step_norm": float(delta.norm()),
            "grid_step": float(rounded.step.double().square().mean().sqrt()),
        }  # fmt: skip
        real = 0.5 * float((diagonal * delta**2).sum())
        found = predict([layer], {"a": (float(diagonal.double().sum()), 0.0)})
        assert found["length"][0] == pytest.approx(real, rel=0.02)
        # of 64 weights that share a scale, the largest lies half a step outside: (1/4)/(1/12) instead of 1
        assert found["grid"][0] * (1 + 2 / 64) == pytest.approx(real, rel=0.02)


def test_options_are_those_of_the_jobs():
    config = StudyConfig("x", quant=["rtn-w3-g16,rtn-w4-g16", "int8"], **SMALL)
    assert config.quant == ["rtn-w3-g16", "rtn-w4-g16", "int8"]
    with pytest.raises(OptionError, match="--seq-len 1"):
        StudyConfig("x", quant=["int8"], seq_len=1)
