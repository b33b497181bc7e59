"""The whole job, from a reference to a page: right numbers, resumed after kills, never mixed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

import landscape as ls
from conftest import build, prose
from landscape.errors import ModelError, SliceError, StoreError
from landscape.models import load_model
from landscape.quantize import parse, quantize
from landscape.slices.opened import FILLED
from landscape.storage import hdf5
from landscape.tokens import WindowReader
from landscape.weights import Weights
from test_slices import content, start

pytestmark = pytest.mark.usefixtures("process")


class Notes:
    """A reporter that remembers what it was told; it interrupts after as many evaluations as it is given."""

    def __init__(self, patience: float = float("inf")) -> None:
        self.notes: list[str] = []
        self.evaluations = 0
        self.patience = patience

    def stage(self, name: str):
        def update(done: int, total: int) -> None:
            self.evaluations += name == "evaluating the slice" and done > 0
            if self.evaluations > self.patience:
                raise KeyboardInterrupt

        return update

    def note(self, text: str) -> None:
        self.notes.append(text)


def config(run: Path, text_file: Path, tmp_path: Path, **changes) -> ls.SliceConfig:
    small = {
        "quant": "rtn-w3-g16",
        "text": str(text_file),
        "grid": "5x4",
        "tokens": 256,
        "seq_len": 32,
        "out": tmp_path,
    }
    return ls.SliceConfig(str(run), **{**small, **changes})


def plain_loss(model: torch.nn.Module, ids: torch.Tensor) -> float:
    with torch.no_grad():
        return float(np.mean([float(model(input_ids=row[None], labels=row[None]).loss) for row in ids]))


def test_point_losses_equal_a_plain_transformers_loop(run: Path, text_file: Path, tmp_path: Path, tokenizer):
    stored = ls.render_slice(config(run, text_file, tmp_path)).slice
    windows = WindowReader([text_file.read_text()], tokenizer, 32).take(8)
    assert stored.attributes["tokens_fingerprint"] == windows.fingerprint
    model, before = (load_model(ls.resolve(f"{run}@{step}")) for step in (30, 20))
    assert stored.point("theta").loss == pytest.approx(plain_loss(model, windows.ids), abs=1e-5)
    assert stored.point("theta_prev").loss == pytest.approx(plain_loss(before, windows.ids), abs=1e-5)
    rounded, _ = quantize(parse("rtn-w3-g16"), model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(rounded[name])
    assert stored.point("theta_hat").loss == pytest.approx(plain_loss(model, windows.ids), abs=1e-5)


def test_geometry_and_provenance(run: Path, text_file: Path, tmp_path: Path):
    result = ls.render_slice(config(run, text_file, tmp_path, quant="gptq-w3-g16"))
    stored, facts = result.slice, result.slice.attributes
    theta, before = (Weights.of(load_model(ls.resolve(f"{run}@{step}"))) for step in (30, 20))
    previous = stored.point("theta_prev")
    assert previous.alpha == pytest.approx((before - theta).norm(), rel=1e-5)
    assert previous.beta == pytest.approx(0, abs=1e-4 * previous.alpha)
    assert (facts["model"], previous.what, facts["quantizer"]) == ("run@step30", "run@step20", "gptq-w3-g16")
    assert [(point.role, point.what) for point in stored.points] == [
        ("origin", "run@step30"),
        ("checkpoint", "run@step20"),
        ("quantized", "gptq-w3-g16"),
    ]
    assert facts["model_identity"].startswith("sha256:")
    assert facts["weight_norm"] == pytest.approx(theta.norm())
    origin = stored.at(0.0, 0.0)
    assert origin == stored.point("theta").loss
    assert len(stored.tables["layers"]["name"]) == 8
    assert result.page.exists()
    assert all(figure.stat().st_size > 5000 for figure in result.figures)
    blob = result.path.read_bytes() + result.page.read_bytes()
    for private in (str(tmp_path), str(run.parent), str(Path.home())):
        assert private.encode() not in blob, "a result must not say where it was made"


def test_run_again_evaluates_nothing_and_other_inputs_make_another_file(run: Path, text_file: Path, tmp_path: Path):
    first = ls.render_slice(config(run, text_file, tmp_path))
    reporter = Notes()
    again = ls.render_slice(config(run, text_file, tmp_path), reporter)
    assert again.path == first.path
    assert reporter.evaluations == 0
    assert "nothing was evaluated again" in reporter.notes[0]
    changes = [
        {"quant": "rtn-w4-g16"},
        {"grid": "5x5"},
        {"tokens": 192},
        {"dtype": "bfloat16"},
        {"prev": "@10"},
        {"margin": 0.25},
        {"dense": True},
        {"range_tolerance": 1e-2},
        {"seed": 1},
        {"params": "*mlp*"},
        {"max_evaluations": 500},
        {"plane": "gradient"},
        {"plane": "pca"},
        {"plane": "line", "grid": "9"},
        {"plane": "line", "grid": "9", "to": "@20"},
        {"plane": "line", "grid": "9", "to": "@10"},
    ]
    paths = {ls.render_slice(config(run, text_file, tmp_path, **change)).path for change in changes}
    assert len(paths | {first.path}) == 1 + len(changes)


def test_a_named_file_is_never_mixed_into(run: Path, text_file: Path, tmp_path: Path):
    out = tmp_path / "mine.h5"
    ls.render_slice(config(run, text_file, tmp_path, out=out))
    before = content(out)
    with pytest.raises(StoreError, match=r"made from other inputs.*--overwrite"):
        ls.render_slice(config(run, text_file, tmp_path, out=out, quant="rtn-w4-g16"))
    assert content(out) == before
    replaced = ls.render_slice(config(run, text_file, tmp_path, out=out, quant="rtn-w4-g16", overwrite=True))
    assert replaced.slice.attributes["quantizer"] == "rtn-w4-g16"


def make(path: Path, run: Path, arguments: dict[str, object]) -> None:
    torch.set_num_threads(1)
    ls.render_slice(ls.SliceConfig(str(run), out=path, **arguments))


def test_killed_three_times_the_whole_job_ends_as_if_undisturbed(
    run: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    arguments = {"quant": "gptq-w3-g16", "text": str(text_file), "grid": "16x17", "tokens": 512, "seq_len": 32}
    arguments |= {"dense": True}
    whole, killed = tmp_path / "whole.h5", tmp_path / "killed.h5"
    make(whole, run, arguments)
    slow = ("transformers.models.gpt_neox.modeling_gpt_neox",)
    reached = []
    for share in (0.15, 0.45, 0.75):
        process = start(monkeypatch, make, killed, run, arguments, preload=slow)
        wanted = (share + 0.1 * float(torch.rand(()))) * 16 * 17
        while process.is_alive() and _cells_done(killed) < wanted:
            time.sleep(0.01)
        process.kill()
        process.join()
        reached.append(_cells_done(killed))
    assert 0 < reached[0] < reached[1] < reached[2] < 16 * 17, "the kills did not hit the middle"
    make(killed, run, arguments)
    assert content(killed) == content(whole)


def _cells_done(path: Path) -> int:
    return int(ls.read_slice(path).done.sum()) if path.exists() else 0


def test_a_lone_model_gets_a_random_direction_and_says_so(text_file: Path, tmp_path: Path, tokenizer):
    folder = tmp_path / "lone"
    build("llama-tied-gqa").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    reporter = Notes()
    stored = ls.render_slice(config(folder, text_file, tmp_path / "out"), reporter).slice
    assert any("no known predecessor" in note and "random direction" in note for note in reporter.notes)
    assert [point.name for point in stored.points] == ["theta", "theta_hat"]
    assert _first_axis_is_random(stored)
    seeded = ls.render_slice(config(folder, text_file, tmp_path / "out", seed=1)).slice
    assert seeded.attributes["plane_fingerprint"] != stored.attributes["plane_fingerprint"]


def _first_axis_is_random(stored: ls.StoredSlice) -> bool:
    facts = stored.attributes
    says = "random direction" in facts["alpha_title"]
    assert says == (json.loads(facts["sources"]).get("random") == [facts["seed"], "filter"])
    assert says == (facts["config"]["prev"] == "random")
    return says


def test_prev_may_be_any_model_or_random(run: Path, text_file: Path, tmp_path: Path):
    named = ls.render_slice(config(run, text_file, tmp_path, prev=str(run / "step10"))).slice
    assert named.point("theta_prev").what == "run@step10"
    silent = Notes()
    by_chance = ls.render_slice(config(run, text_file, tmp_path, prev="random"), silent).slice
    assert _first_axis_is_random(by_chance)
    assert not _first_axis_is_random(named)
    assert silent.notes == []  # asked for, so nothing to explain


def test_a_last_checkpoint_that_equals_the_final_model_is_passed_over(run: Path, text_file: Path, tmp_path: Path):
    """The Trainer's layout: the final model on top, and the same weights again as its last checkpoint."""
    import shutil

    trainer = tmp_path / "trainer"
    shutil.copytree(run / "step30", trainer)
    shutil.copytree(run / "step20", trainer / "checkpoint-20")
    shutil.copytree(run / "step30", trainer / "checkpoint-30")
    previous = ls.render_slice(config(trainer, text_file, tmp_path)).slice.point("theta_prev")
    assert previous.what == "trainer@checkpoint-20"
    with pytest.raises(ModelError, match="same weights"):
        ls.render_slice(config(trainer, text_file, tmp_path, prev="@30"))


def test_bounds_are_kept_as_asked(run: Path, text_file: Path, tmp_path: Path):
    stored = ls.render_slice(config(run, text_file, tmp_path, bounds="-1,2,-0.5,3")).slice
    assert (stored.alpha[0], stored.alpha[-1], stored.beta[0], stored.beta[-1]) == (-1, 2, -0.5, 3)


def test_calibration_follows_the_evaluation_windows(run: Path, text_file: Path, tmp_path: Path, tokenizer):
    reporter = Notes()
    stored = ls.render_slice(config(run, text_file, tmp_path, quant="gptq-w3-g16", tokens=2048), reporter).slice
    reader = WindowReader([text_file.read_text()], tokenizer, 32)
    reader.take(64)
    rest = reader.take(128)
    assert stored.attributes["calibration_fingerprint"] == rest.fingerprint
    assert any(f"calibrated on {len(rest)} windows, 128 wanted" in note for note in reporter.notes)


def test_calibration_may_be_documents_of_another_text(run: Path, text_file: Path, tmp_path: Path, tokenizer):
    texts = [prose(n, seed=n) for n in (40, 9, 60, 25)]
    (tmp_path / "c.txt").write_text("\n<|endoftext|>\n".join(texts))
    changes = {"quant": "gptq-w3-g16", "calibration": str(tmp_path / "c.txt"), "calibration_packing": "documents"}
    stored = ls.render_slice(config(run, text_file, tmp_path, **changes)).slice
    expected = WindowReader([text.strip() for text in texts], tokenizer, 32, "documents").take(10)
    assert stored.attributes["calibration_fingerprint"] == expected.fingerprint
    assert stored.attributes["calibration_tokens"] == expected.n_tokens


def test_non_finite_weights_are_measured_or_named(run: Path, text_file: Path, tmp_path: Path, broken_copy):
    """A point with a NaN loss is a result; a plane through NaN weights is none."""
    from safetensors.torch import load_file, save_file

    folder = broken_copy()
    tensors = load_file(folder / "model.safetensors")
    tensors["gpt_neox.final_layer_norm.weight"][0] = float("nan")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ls.LandscapeError, match="not finite"):
        ls.render_slice(config(run, text_file, tmp_path, prev=str(folder)))
    # far enough out, the loss of a real model overflows: kept, marked done, the slice complete
    stored = ls.render_slice(config(run, text_file, tmp_path, bounds="-1e30,1e30,-1e30,1e30", grid="5x5")).slice
    assert stored.complete
    assert not np.isfinite(stored.loss[stored.done]).all()
    assert np.isfinite(stored.at(0, 0))


def test_a_changed_plane_is_refused_on_resume(run: Path, text_file: Path, tmp_path: Path):
    half = config(run, text_file, tmp_path, dense=True)
    with pytest.raises(KeyboardInterrupt):
        ls.render_slice(half, Notes(40))
    with h5py.File(next(tmp_path.glob("*.h5")), "r+") as file:
        file.attrs["plane_fingerprint"] = "0" * 64
        hdf5.seal(file, FILLED)
    with pytest.raises(StoreError, match="differs in its bits"):
        ls.render_slice(half)


NEAR = {"bounds": "-0.3,0.3,-0.5,0.5", "grid": "21x23"}  # smooth enough for one polynomial


def test_a_sampled_job_goes_on_where_it_was_interrupted(run: Path, text_file: Path, tmp_path: Path):
    whole, killed = (config(run, text_file, tmp_path, out=tmp_path / f"{name}.h5", **NEAR) for name in ("a", "b"))
    result = ls.render_slice(whole)
    assert result.slice.certificate.pieces == 1
    total = result.slice.certificate.evaluations
    kept = []
    for patience in (7, 15):
        with pytest.raises(KeyboardInterrupt):
            ls.render_slice(killed, Notes(patience))
        kept.append(sum(map(len, ls.read_slice(killed.out).nodes.values())))
    assert kept == [8, 24]  # what is kept, is passed by without an evaluation, and without a word
    resumed = Notes()
    ls.render_slice(killed, resumed)
    assert content(killed.out) == content(whole.out)
    assert total > 30


def test_a_bfloat16_slice_is_honest_and_its_points_are_float32(run: Path, text_file: Path, tmp_path: Path):
    rough = ls.render_slice(config(run, text_file, tmp_path, dtype="bfloat16", **NEAR)).slice
    exact = ls.render_slice(config(run, text_file, tmp_path, dense=True, **NEAR)).slice
    assert np.array_equal(rough.alpha, exact.alpha)
    assert [point.loss for point in rough.points] == [point.loss for point in exact.points]
    assert rough.certificate.noise > 1e-5
    assert np.abs(rough.loss - exact.loss).max() <= rough.certificate.error
    dense = ls.render_slice(config(run, text_file, tmp_path, dtype="bfloat16", dense=True, **NEAR)).slice
    assert [point.loss for point in dense.points] == [point.loss for point in exact.points]
    assert 1e-6 < np.abs(dense.loss - exact.loss).max() < 0.1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_losses_below_the_noise_are_no_slice(dtype: str, run: Path, text_file: Path, tmp_path: Path):
    there = {"float32": "-1e-8,1e-8,-1e-8,1e-8", "bfloat16": "-1e-4,1e-4,-1e-4,1e-4"}[dtype]
    with pytest.raises(SliceError, match=r"less than the noise.*widen it with --bounds"):
        ls.render_slice(config(run, text_file, tmp_path, dtype=dtype, bounds=there, grid="21x21"))
    assert list(tmp_path.iterdir()) == []
