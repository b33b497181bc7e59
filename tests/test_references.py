"""What a model reference on disk means, and the one line that says why it means none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from checkpoints import save, save_shards
from landscape.errors import ModelError
from landscape.models.checkpoint import Checkpoint, step_of
from landscape.models.references import predecessors, resolve


@pytest.mark.parametrize(
    ("revision", "step"),
    [
        ("step143000", 143000),
        ("stage1-step40000-tokens84B", 40000),
        ("stage2-ingredient3-step23852-tokens51B", 23852),
        ("stage1-step-40000", 40000),
        ("lc-4k-to-32k-step-4000", 4000),
        ("it-SFT", None),
        ("step50000-tokens210B", 50000),
        ("step738020-tokens3095B", 738020),
        ("iter_0058000", 58000),
        ("ckpt_010", 10),
        ("main", None),
        ("v1.0", None),
        ("", None),
        ("checkpoint-500", 500),
        ("global_step1000", 1000),
        ("8000", 8000),
        ("step0", 0),
    ],
)
def test_step_of(revision: str, step: int | None) -> None:
    assert step_of(revision) == step


@pytest.fixture
def training_run(tmp_path: Path) -> Path:
    """Numbers of different length: in alphabetical order step900 would be the last."""
    for step in (100, 900, 1000):
        save(tmp_path / "run" / f"step{step}", weights=f"{step}".encode())
    return tmp_path / "run"


@pytest.fixture
def trainer_run(tmp_path: Path) -> Path:
    """The layout of transformers' Trainer: the final model on top, checkpoints below."""
    save(tmp_path / "trained", weights=b"final")
    for step in (500, 1000):
        folder = save(tmp_path / "trained" / f"checkpoint-{step}", weights=f"{step}".encode())
        (folder / "optimizer.pt").write_bytes(b"state")
    (tmp_path / "trained" / "logs").mkdir()
    return tmp_path / "trained"


def refusal(reference: str | Path, near: Checkpoint | None = None) -> str:
    with pytest.raises(ModelError) as caught:
        resolve(str(reference), near)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_lone_model(tmp_path: Path) -> None:
    checkpoint = resolve(str(save(tmp_path / "tiny")))

    assert (checkpoint.name, checkpoint.revision, checkpoint.step) == ("tiny", None, None)
    assert str(checkpoint) == "tiny"
    assert checkpoint.folder == tmp_path / "tiny"
    assert list(predecessors(checkpoint)) == []


def test_a_run_without_a_final_model_means_its_last_step(training_run: Path) -> None:
    checkpoint = resolve(str(training_run))

    assert (str(checkpoint), checkpoint.step) == ("run@step1000", 1000)
    assert list(predecessors(checkpoint)) == ["@step900", "@step100"]
    assert resolve("@step900", checkpoint).folder == training_run / "step900"


def test_a_final_model_above_its_checkpoints(trainer_run: Path) -> None:
    final = resolve(str(trainer_run))

    assert (str(final), final.folder) == ("trained", trainer_run)
    assert list(predecessors(final)) == ["@checkpoint-1000", "@checkpoint-500"]
    before = resolve(next(predecessors(final)), final)
    assert str(before) == "trained@checkpoint-1000"
    assert list(predecessors(before)) == ["@checkpoint-500"]


def test_a_final_model_in_a_folder_named_after_a_step_keeps_its_checkpoints(trainer_run: Path) -> None:
    final = resolve(str(trainer_run.rename(trainer_run.with_name("step2000"))))

    assert next(predecessors(final)) == "@checkpoint-1000"


@pytest.mark.parametrize("revision", ["step900", "900"])
def test_a_step_of_a_run(training_run: Path, revision: str) -> None:
    checkpoint = resolve(f"{training_run}@{revision}")

    assert str(checkpoint) == "run@step900"
    assert checkpoint.folder == training_run / "step900"
    assert list(predecessors(checkpoint)) == ["@step100"]


@pytest.mark.parametrize("revision", ["checkpoint-500", "500"])
def test_a_checkpoint_of_the_trainer(trainer_run: Path, revision: str) -> None:
    assert str(resolve(f"{trainer_run}@{revision}")) == "trained@checkpoint-500"


def test_the_folder_of_a_step_itself_belongs_to_its_run(training_run: Path) -> None:
    direct = resolve(str(training_run / "step900"))

    assert direct == resolve(f"{training_run}@step900")
    assert list(predecessors(direct)) == ["@step100"]


def test_an_unknown_step_names_the_nearest(training_run: Path) -> None:
    message = refusal(f"{training_run}@step950")

    assert "model run: no checkpoint step950" in message
    assert "nearest: step900, step1000, step100" in message


def test_a_save_that_was_cut_short_is_no_checkpoint(training_run: Path) -> None:
    (training_run / "step2000").mkdir()
    (training_run / "step2000" / "optimizer.pt").touch()

    assert str(resolve(str(training_run))) == "run@step1000"


def test_stages_are_not_mixed_into_one_run(tmp_path: Path) -> None:
    names = [f"stage1-step{step}-tokens{step // 10}B" for step in (900, 1000)]
    names += [f"stage2-ingredient{soup}-step{step}-tokens{step // 10}B" for soup in (1, 2) for step in (90, 100)]
    for name in names:
        save(tmp_path / "run" / name)

    first = resolve(f"{tmp_path / 'run'}@stage1-step1000-tokens100B")
    soup = resolve(f"{tmp_path / 'run'}@stage2-ingredient2-step100-tokens10B")
    assert list(predecessors(first)) == ["@stage1-step900-tokens90B"]
    assert list(predecessors(soup)) == ["@stage2-ingredient2-step90-tokens9B"]
    assert "several runs in one directory; name a checkpoint" in refusal(tmp_path / "run")
    assert "no checkpoint 100 " in refusal(f"{tmp_path / 'run'}@100")  # there are two

    final = resolve(str(save(tmp_path / "run")))
    assert list(predecessors(final)) == []


def test_identity_follows_the_content_not_the_path(tmp_path: Path) -> None:
    folder = save(tmp_path / "a", weights=b"weights")
    before = resolve(str(folder)).identity
    assert before.startswith("sha256:") and len(before) == len("sha256:") + 64

    copy = shutil.copytree(folder, tmp_path / "elsewhere" / "b")
    assert resolve(str(copy)).identity == before
    (folder / "README.md").write_text("the description is no part of the model")
    assert resolve(str(folder)).identity == before

    save(folder, weights=b"weightz")
    assert resolve(str(folder)).identity != before
    save(folder, weights=b"weights", config='{"num_attention_heads": 2}')
    assert resolve(str(folder)).identity != before


def test_identity_is_that_of_the_files_that_are_loaded(tmp_path: Path) -> None:
    folder = save(tmp_path / "both", weights=b"safe")
    before = resolve(str(folder)).identity
    save(folder, b"pickled", "pytorch_model.bin")
    save(folder, b"of another program", "consolidated.safetensors")
    assert resolve(str(folder)).identity == before

    shards = save_shards(
        tmp_path / "shards", "model.safetensors", {"model-1.safetensors": b"1", "model-2.safetensors": b"2"}
    )
    before = resolve(str(shards)).identity
    (shards / "model-2.safetensors").write_bytes(b"3")
    assert resolve(str(shards)).identity != before

    pickled = save(tmp_path / "pickled", b"pickled", "pytorch_model.bin")
    before = resolve(str(pickled)).identity
    save(pickled, b"pickles", "pytorch_model.bin")
    assert resolve(str(pickled)).identity != before


def test_no_path_in_what_a_result_stores(training_run: Path, trainer_run: Path) -> None:
    for checkpoint in (resolve(str(training_run)), resolve(str(trainer_run)), resolve(f"{training_run}@100")):
        stored = (str(checkpoint), checkpoint.name, checkpoint.revision or "", checkpoint.identity)
        assert not any("/" in text or str(training_run.parent.name) in text for text in stored)


def test_a_path_may_contain_an_at_sign(tmp_path: Path) -> None:
    folder = save(tmp_path / "me@home" / "tiny")
    save(tmp_path / "me@home" / "run" / "step10")

    assert resolve(str(folder)).folder == folder
    assert str(resolve(f"{tmp_path}/me@home/run@10")) == "run@step10"


def test_a_relative_path(training_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(training_run)
    assert str(resolve(".")) == str(resolve("../run")) == str(resolve("./@step1000")) == "run@step1000"
    monkeypatch.chdir(training_run / "step900")
    assert str(resolve(".")) == "run@step900"


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("{dir}/nope", "no such directory"),
        ("{dir}/nope@step1", "no such directory"),
        ("./nope", "no such directory"),
        ("", "no such directory"),
        ("@step5", "no such directory"),  # nothing to take the step from; never the current directory
        ("{dir}/run@", "nothing after the @"),
        ("org/name@", "nothing after the @"),
        ("{dir}/run@main", "no checkpoint main in this run; nearest: "),
        ("{dir}/lone@step5", "no checkpoint step5 in this run; it has no others"),
        ("{dir}/lone/config.json", "a file; expected a directory"),
        ("{dir}/empty", "neither config.json nor step<N>/"),
        ("{dir}/weightless", "it has no model.safetensors; expected config.json and model.safetensors or"),
        ("{dir}/partial", "it has no model-2.safetensors"),
        ("{dir}/damaged", "model.safetensors.index.json is damaged; copy or download it again"),
    ],
)
def test_what_is_no_model_on_disk(
    training_run: Path, monkeypatch: pytest.MonkeyPatch, reference: str, expected: str
) -> None:
    top = training_run.parent
    save(top / "lone")
    (top / "empty").mkdir()
    (save(top / "weightless") / "model.safetensors").unlink()
    shards = {"model-1.safetensors": b"1", "model-2.safetensors": b"2"}
    (save_shards(top / "partial", "model.safetensors", shards) / "model-2.safetensors").unlink()
    (save_shards(top / "damaged", "model.safetensors", shards) / "model.safetensors.index.json").write_text("[")
    monkeypatch.chdir(training_run)

    reference = reference.format(dir=top)
    message = refusal(reference)
    assert expected in message
    # The value is named: as it was typed, or by the name of the directory that was found.
    assert reference in message or Path(reference.partition("@")[0]).name in message
