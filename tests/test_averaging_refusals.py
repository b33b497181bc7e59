"""What is no average, and what happens to a directory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from averages import TIED, Notes, assert_mean, at, average, refusal, stored
from conftest import build
from landscape.averaging import reader
from landscape.averaging.folders import RECIPE
from landscape.models import load_model
from landscape.models.references import resolve
from landscape.storage.files import lock


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_runs_that_do_not_have_the_window(trained: Path, out: Path):
    missing = refusal(trained, out=out, window=2, every=25)
    assert missing == (
        "model trained@step60: no checkpoint at step 35, where --every 25 expects one; "
        "nearest: step 30, step 40, step 20, step 50"
    )
    assert "no checkpoint at step 45, where --every 15" in refusal(trained, out=out, kind="ema", every=15)
    few = refusal(f"{trained}@30", out=out)
    assert few.startswith("model trained@step30: 3 checkpoints up to step 30; expected --window 5 of them")
    far = refusal(trained, out=out, window=4, every=20)
    assert "--window 4 --every 20 reaches back to step 0, the run to step 10" in far
    assert "reaches back to step -40" in refusal(trained, out=out, window=6, every=20, along=True)
    assert "1 checkpoint up to step 10; expected two" in refusal(f"{trained}@10", out=out, kind="ema")
    assert "1 checkpoint up to step 60, --every 100 steps apart" in refusal(trained, out=out, kind="ema", every=100)
    assert "no checkpoint 35 in this run; nearest: step30" in refusal(f"{trained}@35", out=out)
    assert not out.parent.joinpath("out").exists()


def test_models_that_are_no_run(trained: Path, out: Path, tmp_path: Path):
    shutil.copytree(trained / "step10", tmp_path / "alone")
    assert "model alone: no run of checkpoints" in refusal(tmp_path / "alone", out=out)
    assert "--kind soup" in refusal(tmp_path / "alone", out=out, kind="ema")


def test_models_of_different_architectures(trained: Path, out: Path, tmp_path: Path):
    build("gpt_neox").save_pretrained(tmp_path / "other")
    message = refusal(f"{trained}@10", tmp_path / "other", out=out, kind="soup")
    assert "cannot be averaged with" in message and "both must have the same architecture" in message
    assert "trained@step10" in message and "other" in message.partition(": two models")[0]
    build(TIED, intermediate_size=48).save_pretrained(tmp_path / "narrow")
    assert "has shape" in refusal(f"{trained}@10", tmp_path / "narrow", out=out, kind="soup")
    assert not out.exists()


def test_configurations_that_differ_where_tensors_do_not(trained: Path, out: Path, tmp_path: Path, tokenizer):
    build(TIED, num_attention_heads=2, num_key_value_heads=1).save_pretrained(tmp_path / "heads")
    tokenizer.save_pretrained(tmp_path / "heads")
    notes = Notes()
    average(f"{trained}@10", tmp_path / "heads", out=out, kind="soup", notes=notes)
    (note,) = notes.heard
    assert {"trained@step10", "heads"} < set(note.split()) and "are configured differently" in note
    assert "num_attention_heads" in note and "hidden_size" not in note
    assert json.loads((out / "config.json").read_text())["num_attention_heads"] == 2  # of the one named last


def test_models_whose_weights_are_packed(trained: Path, out: Path, monkeypatch: pytest.MonkeyPatch):
    def load(checkpoint, **options):
        model = load_model(checkpoint, **options)
        model.config.quantization_config = {"quant_method": "gptq"}
        return model

    monkeypatch.setattr(reader, "load_model", load)
    assert "packed by a quantizer; expected weights in floating point" in refusal(trained, out=out)


def test_another_average_in_the_way(trained: Path, out: Path):
    average(trained, out=out, window=2)
    first = stored(out)
    assert not average(trained, out=out, window=2)[0].made  # the same again
    for options in ({"window": 3}, {"window": 2, "every": 10}, {"kind": "ema"}):
        assert "holds another average" in refusal(trained, out=out, **options)
    assert "use --overwrite" in refusal(f"{trained}@40", out=out, window=2)
    assert stored(out)["model.norm.weight"].equal(first["model.norm.weight"])
    (made,) = average(f"{trained}@40", out=out, window=2, overwrite=True)
    assert made.made
    assert_mean(out, at(trained, 30, 40))


def test_members_that_have_changed_make_another_average(trained: Path, out: Path, tmp_path: Path):
    again = tmp_path / "trained"
    shutil.copytree(trained, again)
    average(again, out=out, window=2, along=True)
    shutil.rmtree(again / "step30")
    shutil.copytree(trained / "step10", again / "step30")
    assert f"{out / 'step30'}: holds another average" in refusal(again, out=out, window=2, along=True)
    assert "holds another average" in refusal(f"{again}@20", out=out, window=2, kind="ema", along=True)
    assert all(one.made for one in average(again, out=out, window=2, along=True, overwrite=True))
    assert_mean(out / "step30", at(trained, 20, 10))


def test_a_run_that_was_renamed_is_still_the_same(trained: Path, out: Path, tmp_path: Path):
    average(trained, out=out, window=2)
    shutil.copytree(trained, tmp_path / "renamed")
    assert not average(tmp_path / "renamed", out=out, window=2)[0].made


def test_damaged_averages(trained: Path, out: Path):
    average(trained, out=out, window=5, along=True)
    weights = out / "step50" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert "or a damaged one" in refusal(trained, out=out, window=5, along=True)
    for odd in ("{}", "[" * 100_000):
        (out / "step50" / RECIPE).write_text(odd)
        assert "step50: holds SHA256SUMS, which is of no average" in refusal(trained, out=out, window=5, along=True)


def test_averages_further_on_stay_where_they_are_of_the_same_kind(trained: Path, out: Path):
    average(trained, out=out, window=3, along=True)
    notes = Notes()
    made = average(f"{trained}@40", out=out, window=3, along=True, notes=notes)
    assert [one.made for one in made] == [False, False] and (out / "step60").is_dir()
    assert notes.heard == ["2 of 2 there already, of the same members"]
    assert "step30: holds another average" in refusal(f"{trained}@20", out=out, window=2, along=True)
    made = average(f"{trained}@30", out=out, window=2, along=True, overwrite=True)
    assert sorted(path.name for path in out.iterdir()) == ["step20", "step30"]  # no mixture of windows
    assert all(one.made for one in made)


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_no_average_wrote_is_never_removed(trained: Path, tmp_path: Path, overwrite: bool):
    options = {"window": 2, "overwrite": overwrite}
    precious = tmp_path / "precious"
    (precious / "below").mkdir(parents=True)
    (precious / "below" / "thesis.txt").write_text("years")
    assert "holds below/thesis.txt, which is of no average" in refusal(trained, out=precious, **options)

    mine = tmp_path / "mine"
    average(trained, out=mine, window=3)
    (mine / "link").symlink_to(precious)
    assert "holds link" in refusal(trained, out=mine, **options)
    assert (mine / "link").exists() and (mine / "model.safetensors").exists()

    runs = tmp_path / "runs"
    shutil.copytree(trained / "step10", runs / "step10")
    (runs / "log.txt").write_text("beside the checkpoints")
    assert "step10: holds config.json, which is of no average" in refusal(trained, out=runs, along=True, **options)
    assert "holds log.txt, which is of no average" in refusal(trained, out=runs, **options)
    (tmp_path / "other" / "step30").mkdir(parents=True)
    (tmp_path / "other" / "step30" / "thesis.txt").write_text("years")
    assert "holds thesis.txt" in refusal(trained, out=tmp_path / "other", along=True, **options)
    assert "a checkpoint itself" in refusal(trained, out=mine, along=True, **options)
    file = tmp_path / "file"
    file.write_text("x")
    for along in (False, True):
        assert "cannot be written" in refusal(trained, out=file, along=along, **options)
    assert (precious / "below" / "thesis.txt").exists() and (runs / "step10" / "model.safetensors").exists()


def test_beside_what_is_no_checkpoint_a_run_of_averages_can_lie(trained: Path, out: Path):
    (out / "step50").mkdir(parents=True)  # empty, and so free
    (out / "README.md").write_text("mine")
    for overwrite in (False, True):
        assert len(average(trained, out=out, window=5, along=True, overwrite=overwrite)) == 2
    assert (out / "README.md").read_text() == "mine"


def test_an_average_never_takes_the_place_of_a_member(trained: Path, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    for overwrite in (False, True):
        options = {"window": 2, "overwrite": overwrite}
        assert "holds copy@step10, which is to be averaged" in refusal(copy, out=copy, along=True, **options)
        assert "which is to be averaged" in refusal(copy, out=copy / "step60", **options)
        assert "would count as a checkpoint of copy" in refusal(copy, out=copy / "step70", **options)
    average(copy, out=copy / "lawa", window=2)
    average(copy, out=copy / "averages", window=5, along=True)
    assert resolve(str(copy)).step == 60
    average(copy / "averages", out=tmp_path / "of-averages", window=2)
    assert "to be averaged" in refusal(copy / "averages", out=copy / "averages", along=True, window=2, overwrite=True)
    assert (copy / "averages" / "step60" / "model.safetensors").exists()


def test_one_writer_at_a_time(trained: Path, out: Path):
    with lock(out):
        assert "being written by another process" in refusal(trained, out=out)


def test_an_empty_directory_is_free(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (made,) = average(trained, out=Path())
    assert made.folder == tmp_path / "here" and (tmp_path / "here" / RECIPE).is_file()
