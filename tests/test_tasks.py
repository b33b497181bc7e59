"""Local tasks answered through lm-eval; skipped where it is not installed."""

from __future__ import annotations

import copy
import json
import logging
import math
import random
import socket
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import build
from landscape import tasks
from landscape.errors import OptionError
from landscape.models import load_model, load_tokenizer
from landscape.models.references import resolve
from landscape.quantize import parse, quantize
from landscape.tasks import accuracy_drop, holding, loading
from landscape.weights import Weights
from questions import AS_PUBLISHED, FILES, TEST, TRAIN, Row, by_hand, rows, write_task

pytestmark = pytest.mark.usefixtures("process")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("lm_eval")
    pytest.importorskip("accelerate")
    folder = tmp_path_factory.mktemp("tasks")
    write_task(folder, "words", {"test": TEST, "train": TRAIN})
    write_task(folder, "alone", {"test": TEST})
    write_task(folder, "valid", {"validation": TEST}, fewshot_split="validation")
    write_task(folder / "below", "few", {"test": rows(15, seed=3)}, num_fewshot=0)
    for name in ("one", "two"):
        write_task(folder, name, {"test": TEST[:3]}, tag="numbers")
    both = [{"metric": name, "aggregation": "mean", "higher_is_better": True} for name in ("acc", "acc_norm")]
    write_task(folder, "normed", {"test": TEST}, metric_list=both)
    for name, weight in (("by_size", True), ("alike", False)):
        group = {"group": name, "task": ["words", "few"], "metadata": {"version": 7}}
        group["aggregate_metric_list"] = [{"metric": "acc", "weight_by_size": weight}]
        (folder / f"{name}.yaml").write_text(json.dumps(group))
    (folder / "loose.yaml").write_text(json.dumps({"group": "loose", "task": ["words", "few"]}))
    return folder


@pytest.fixture(scope="module")
def everything(folder: Path):
    """The index of the folder and of all that lm-eval has, which takes seconds to make."""
    return loading._manager(["no such task"], folder)


@pytest.fixture
def indexed(everything, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_manager", lambda names, folder: everything)


@pytest.fixture(scope="module")
def trained(run: Path):
    checkpoint = resolve(f"{run}@step30")
    return load_model(checkpoint), load_tokenizer(checkpoint)


@pytest.mark.parametrize("shots", [0, 2, 4])
def test_answers_are_those_of_the_models_own_likelihoods(folder: Path, trained, shots: int):
    model, tokenizer = trained
    before = Weights.of(model).fingerprint()
    asked = tasks.load(["words"], shots=shots, task_folder=folder, seed=5)
    theta = tasks.score(model, tokenizer, asked)
    expected, cut = by_hand(model, tokenizer, shots, seed=5)
    score = theta["words"]
    assert score.correct["words"].tolist() == expected and score.cut == cut
    assert (score.metric, score.shots, score.version, score.n_questions) == ("acc", shots, "3", 60)
    assert 0.35 < score.accuracy < 0.8  # one in four is chance
    assert (cut > 0) == (shots == 4)
    for name in ("rtn-w3-g16", "rtn-w2-g16"):
        hat, _ = quantize(parse(name), model)
        with holding(model, hat):
            theta_hat = tasks.score(model, tokenizer, asked)
            assert theta_hat["words"].correct["words"].tolist() == by_hand(model, tokenizer, shots, seed=5)[0]
        assert theta_hat["words"].questions == score.questions
        found = accuracy_drop(theta, theta_hat)
        assert found.drop.value == pytest.approx(
            (np.mean(expected) - theta_hat["words"].accuracy) / (1 - np.mean(expected))
        )
        assert found.drop.low <= found.drop.value <= found.drop.high
    assert Weights.of(model).fingerprint() == before
    again = tasks.score(model, tokenizer, asked, batch_size=3)["words"]
    assert again.correct["words"].tolist() == expected and again.questions == score.questions


def test_the_first_questions_alone(folder: Path, trained):
    first = tasks.load(["words", "few"], shots=2, limit=10, task_folder=folder)
    told: list[tuple[int, int]] = []
    found = tasks.score(*trained, first, on_progress=lambda *done: told.append(done))
    assert found["words"].correct["words"].tolist() == by_hand(*trained, 2, questions=TEST[:10])[0]
    assert found["few"].n_questions == 10 and found["few"].shots == 0  # it says so itself
    assert told == sorted(told) and told[-1] == (20, 20) and len(told) == 80
    assert tasks.load(["words"], task_folder=folder).tasks[0].n_questions == 60


def test_questions_have_a_fingerprint(folder: Path, trained, tmp_path: Path):
    def asked(**options: object) -> str:
        return tasks.load(["words"], **{"shots": 2, "limit": 5, "task_folder": folder} | options).fingerprint

    write_task(tmp_path / "other", "words", {"test": TEST, "train": TRAIN}, doc_to_target="{{(label + 1) % 4}}")
    write_task(tmp_path / "same", "words", {"test": TEST, "train": TRAIN}, tag="elsewhere")
    options = ({}, {"seed": 1}, {"shots": 0}, {"limit": 6}, {"shots": 0, "task_folder": tmp_path / "other"})
    assert asked() == asked(task_folder=tmp_path / "same")
    assert len({asked(**option) for option in options}) == len(options)


def test_prompts_are_written_once(folder: Path, trained, monkeypatch):
    told: list[tuple[int, int]] = []
    asked = tasks.load(["words", "few"], 1, task_folder=folder, on_progress=lambda *done: told.append(done))
    assert told == [(60, 75), (75, 75)]
    first = tasks.score(*trained, asked)
    for task in asked.tasks:
        for leaf in task.leaves.values():
            monkeypatch.setattr(leaf, "fewshot_context", None)
    again = tasks.score(*trained, asked)
    for name, score in first.items():
        assert score.correct[name].tolist() == again[name].correct[name].tolist()


def test_questions_that_change_are_refused(folder: Path, trained, tmp_path: Path):
    write_task(tmp_path, "mine", {"test": TEST})
    (tmp_path / "own.py").write_text("def shuffled(dataset):\n    return dataset.shuffle()\n")
    path = tmp_path / "mine.yaml"
    path.write_text(path.read_text()[:-1] + ', "process_docs": !function "own.shuffled"}')
    with pytest.raises(OptionError, match="task mine: its questions change whenever they are read"):
        tasks.score(*trained, tasks.load(["mine"], shots=0, task_folder=tmp_path))


@pytest.mark.parametrize("name", ["alone", "valid"])
def test_no_question_is_answered_in_its_own_prompt(folder: Path, trained, name: str):
    asked = tasks.load([name], shots=3, task_folder=folder)
    tasks.score(*trained, asked)
    for instance in asked.tasks[0].leaves[name].instances:
        *examples, question = instance.args[0].split("\n\n")
        answers = {f"{row['asked']} {row['choices'][row['label']]}" for row in TEST if row != instance.doc}
        assert question == instance.doc["asked"]
        assert len(examples) == 3 and set(examples) <= answers


@pytest.mark.parametrize("name", ["by_size", "alike"])
def test_a_group_is_averaged_as_lm_eval_does(folder: Path, trained, indexed, name: str):
    from lm_eval.evaluator import evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    asked = tasks.load([name], shots=2, task_folder=folder, seed=4)
    score = tasks.score(*trained, asked)[name]
    assert {part: len(correct) for part, correct in score.correct.items()} == {"words": 60, "few": 15}
    assert score.version == "7" and score.by_size == (name == "by_size")
    manager = TaskManager(include_path=folder, include_defaults=False)
    loading._anchor(manager.task_index, folder)
    theirs = manager.load([name])
    theirs["tasks"]["words"].set_config("num_fewshot", 2)
    for task in theirs["tasks"].values():
        task.set_fewshot_seed(4)
    lm = HFLM(pretrained=trained[0], tokenizer=copy.deepcopy(trained[1]), batch_size=4)
    found = evaluate(lm=lm, task_dict=theirs, bootstrap_iters=10)["results"]
    alone = tasks.score(*trained, tasks.load(["words"], shots=2, task_folder=folder, seed=4))["words"]
    for ours, known in ((score, found[name]), (alone, found["words"])):
        assert ours.accuracy == pytest.approx(known["acc,none"], abs=1e-12)
        assert ours.standard_error == pytest.approx(known["acc_stderr,none"], rel=1e-12)


def test_the_metric_is_the_one_asked_for(folder: Path, trained):
    model, tokenizer = trained
    acc, per_character = (
        tasks.score(model, tokenizer, tasks.load(["normed"], 0, task_folder=folder, metric=metric))["normed"]
        for metric in ("acc", "acc_norm")
    )
    assert (acc.metric, per_character.metric) == ("acc", "acc_norm")
    assert acc.correct["normed"].tolist() == by_hand(model, tokenizer)[0] != per_character.correct["normed"].tolist()


def test_a_lower_precision_and_a_broken_model_answer_too(folder: Path, trained):
    model, tokenizer = trained
    asked = tasks.load(["words"], shots=0, task_folder=folder)
    exact = tasks.score(model, tokenizer, asked)["words"].correct["words"]
    seen: set[torch.dtype] = set()
    hook = model.get_output_embeddings().register_forward_hook(lambda _module, _inputs, logits: seen.add(logits.dtype))
    rough = tasks.score(model, tokenizer, asked, dtype=torch.bfloat16)["words"].correct["words"]
    hook.remove()
    assert seen == {torch.bfloat16}
    agreed = (exact == rough).mean()
    assert agreed >= 0.8
    with holding(model, math.nan * Weights.of(model)):
        assert math.isnan(tasks.score(model, tokenizer, asked)["words"].accuracy)
    assert tasks.score(model, tokenizer, asked)["words"].correct["words"].tolist() == exact.tolist()


def test_a_guest_is_silent_and_leaves_things_as_they_were(folder: Path, trained, monkeypatch, capfd, caplog):
    def refuse(*_arguments: object, **_options: object) -> None:
        raise AssertionError("a local task needs no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    model, tokenizer = trained
    logger, padding = logging.getLogger("lm_eval"), tokenizer.pad_token
    random.random()
    np.random.rand()
    level, python, numpy, torches = logger.level, random.getstate(), np.random.get_state(), torch.get_rng_state()
    monkeypatch.chdir(folder.parent)
    tasks.score(model, tokenizer, tasks.load(["words"], shots=4, limit=5, task_folder=folder))
    assert capfd.readouterr() == ("", "") and not caplog.records
    assert logger.level == level and tokenizer.pad_token == padding is None
    assert random.getstate() == python and torch.equal(torch.get_rng_state(), torches)
    assert all(np.array_equal(a, b) for a, b in zip(np.random.get_state(), numpy, strict=True))


def test_an_error_of_the_model_is_its_own(folder: Path, trained):
    model, tokenizer = trained

    def fail(*_arguments: object) -> None:
        raise RuntimeError("out of memory")

    hook = model.register_forward_pre_hook(fail)
    try:
        with pytest.raises(RuntimeError, match="out of memory"):
            tasks.score(model, tokenizer, tasks.load(["words"], task_folder=folder))
    finally:
        hook.remove()


def test_the_tasks_of_the_paper_have_choices_and_acc(everything):
    assert len(set(tasks.PAPER_TASKS)) == 12
    for name in tasks.PAPER_TASKS:
        known = everything.task_index[name].cfg
        metrics = known["aggregate_metric_list" if name == "mmlu" else "metric_list"]
        assert "acc" in [metric["metric"] for metric in metrics]
        assert known.get("output_type", "multiple_choice") == "multiple_choice"


def test_a_tag_stands_for_its_tasks(folder: Path, indexed):
    assert [task.name for task in tasks.load(["two", "numbers"], 0, task_folder=folder).tasks] == ["two", "one"]


def test_a_few_bad_questions_in_many_count_as_wrong(folder: Path, trained, tmp_path: Path):
    questions = [*TEST, *TRAIN, *rows(119, seed=3), {**TEST[0], "label": 7}, {**TEST[1], "label": 9}]
    write_task(tmp_path, "many", {"test": questions})
    score = tasks.score(*trained, tasks.load(["many"], shots=0, task_folder=tmp_path))["many"]
    assert score.unanswerable == 2 and score.correct["many"][-2:].tolist() == [0, 0]
    assert score.correct["many"][:60].tolist() == by_hand(*trained)[0]


def test_the_tasks_of_the_paper_are_asked_as_lm_eval_writes_them(folder: Path, trained, tmp_path: Path):
    """Its own task files, over a few local rows of their schemas; here a data set would come from the Hub."""
    import lm_eval.tasks

    theirs = Path(lm_eval.tasks.__file__).parent
    for name in tasks.PAPER_TASKS:
        where, row = AS_PUBLISHED[name]
        splits = ("test", "dev") if name == "mmlu" else ("train", "validation", "test")
        for split in splits:
            (tmp_path / f"{name}_{split}.jsonl").write_text(
                "\n".join(json.dumps({**row, "number": f"{split} {i}"}) for i in range(6))
            )
        config = {
            "include": str(theirs / where / f"{FILES.get(name, name)}.yaml"),
            "task": name,
            "dataset_path": "json",
            "dataset_name": None,
            "dataset_kwargs": {"data_files": {split: f"{name}_{split}.jsonl" for split in splits}},
        }
        (tmp_path / f"{name}.yaml").write_text(json.dumps(config))
    asked = tasks.load(tasks.PAPER_TASKS, task_folder=tmp_path)
    found = tasks.score(*trained, asked)
    assert tuple(found) == tasks.PAPER_TASKS
    for name, score in found.items():
        assert (score.n_questions, score.shots, score.unanswerable) == (6, 5, 0), name
        assert len(set(score.correct[name])) == 1 and score.accuracy in (0, 1), name  # one question, six times
    assert found["mmlu"].metric == "acc" and "about anatomy" in asked.tasks[-1].leaves["mmlu"].instances[0].args[0]
    drop = accuracy_drop(found, found)
    assert list(drop.tasks) == list(tasks.PAPER_TASKS) and drop.drop_of_means.value == 0


def test_a_tied_model_stays_tied(folder: Path, trained):
    model, tokenizer = build("llama-tied-gqa"), trained[1]
    theta = Weights.of(model)
    before, places = theta.fingerprint(), [tensor.data_ptr() for tensor in theta.values()]
    asked = tasks.load(["words"], shots=1, limit=12, task_folder=folder)
    hat, _ = quantize(parse("rtn-w2-g16"), model)
    with holding(model, hat):
        found = tasks.score(model, tokenizer, asked)["words"].correct["words"].tolist()
        assert found == by_hand(model, tokenizer, 1, questions=TEST[:12])[0]
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert Weights.of(model).fingerprint() == before
    assert [tensor.data_ptr() for tensor in Weights.of(model).values()] == places


BROKEN: dict[str, tuple[dict[str, object], list[Row], str]] = {
    "generates": ({"output_type": "generate_until", "metric_list": None}, TEST, "output_type generate_until; only"),
    "no acc": (
        {"metric_list": [{"metric": "f1", "aggregation": "f1", "higher_is_better": True}]},
        TEST,
        "no mean of acc",
    ),
    "label": ({}, [*TEST[:3], {**TEST[3], "label": 4}], "1 of 4 answers are no choice, the first to question 4: 4;"),
    "negative label": (
        {},
        [{**TEST[0], "label": -1}] * 9,
        "9 of 9 answers are no choice, the first to question 1: '-1'",
    ),
    "word label": ({"doc_to_target": "{{asked}}"}, TEST[:2], "expected one of its 4 choices, or"),
    "field": ({"doc_to_text": "{{question}}"}, TEST, "cannot be loaded (UndefinedError: 'question' is undefined)"),
    "data file": ({"dataset_kwargs": {"data_files": {"test": "gone.jsonl"}}}, TEST, "its data cannot be read (FileNot"),
    "split": ({"test_split": "exam"}, TEST, "cannot be loaded"),
    "python": ({"process_docs": "not a function"}, TEST, "cannot be loaded"),
    "shots": ({}, TEST[:5], "has 4 questions for examples; give --shots 4 or fewer"),
    "long choice": ({}, [*TEST[:7], {**TEST[7], "choices": ["word " * 80, "a", "b", "c"]}], "the model takes 1 to 64"),
    "empty choice": (
        {"target_delimiter": ""},
        [*TEST[:7], {**TEST[7], "choices": ["", "a", "b", "c"]}],
        "a choice of 0 tokens",
    ),
}


@pytest.mark.parametrize("mistake", BROKEN)
def test_a_broken_task_is_one_line(folder: Path, trained, tmp_path: Path, mistake: str, capfd):
    options, questions, expected = BROKEN[mistake]
    write_task(tmp_path, "mine", {"test": questions}, **options)
    with pytest.raises(OptionError) as caught:
        tasks.score(*trained, tasks.load(["mine"], task_folder=tmp_path))
    line = str(caught.value)
    assert line.startswith("task mine: ") and expected in line and "\n" not in line and len(line) < 450
    assert capfd.readouterr() == ("", "")


def test_names_and_folders_that_are_none(folder: Path, indexed, tmp_path: Path, capfd):
    wrong = {
        "wordz": "no file in --task-folder says 'task: wordz'; did you mean words",
        "arc_chalenge": "did you mean arc_challenge",
        "qqqqqq": "'lm-eval ls tasks' lists what there is",
        "loose": "task loose: a group without a mean acc in lm-eval; name its tasks instead: words, few",
        "piqa": "task piqa: its data set cannot be fetched",  # the tests run offline
    }
    for name, expected in wrong.items():
        with pytest.raises(OptionError) as caught:
            tasks.load(["words", name], task_folder=folder)
        assert expected in str(caught.value), name
    with pytest.raises(OptionError, match="no such directory"):
        tasks.load(["words"], task_folder=tmp_path / "gone")
    assert capfd.readouterr() == ("", "")


def test_a_broken_file_is_not_replaced_by_a_task_of_lm_eval(folder: Path, tmp_path: Path):
    broken = {
        "task: [piqa\n": "ParserError",
        "1": "Expected YAML dict",
        '{"task": "piqa", "include": "gone"}': "FileNot",
    }
    for content, expected in broken.items():
        (tmp_path / "piqa.yaml").write_text(content)
        with pytest.raises(OptionError, match=r"--task-folder: piqa\.yaml cannot be read") as caught:
            tasks.load(["piqa"], task_folder=tmp_path)
        assert expected in str(caught.value)
    for below in ("a", "b"):
        write_task(tmp_path / "two" / below, "mine", {"test": TEST})
    with pytest.raises(OptionError, match=r"a/mine\.yaml and b/mine\.yaml both define mine; rename one"):
        tasks.load(["mine"], task_folder=tmp_path / "two")


def test_data_that_is_no_json_is_one_line(folder: Path, tmp_path: Path):
    write_task(tmp_path, "mine", {"test": TEST})
    (tmp_path / "mine_test.jsonl").write_text('{"asked": \n{')
    with pytest.raises(OptionError, match="task mine: its data cannot be read"):
        tasks.load(["mine"], task_folder=tmp_path)
