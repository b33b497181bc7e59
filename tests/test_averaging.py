"""Averages of real checkpoints: the numbers against float64 sums of the files."""

from __future__ import annotations

import json
import math
import shutil
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from averages import TIED, Notes, assert_mean, at, average, refusal, said, same_bits, stored
from conftest import VOCABULARY, build
from landscape.averaging.folders import RECIPE
from landscape.errors import ModelError
from landscape.models import load_model, load_tokenizer
from landscape.models.references import resolve
from landscape.training.averaging import RunningMean, ema_coefficients, ema_members, lawa_members, weighted_mean
from landscape.weights import Weights


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


# the mathematics


def weights(*values: float) -> Weights:
    return Weights({"w": torch.tensor(values)})


def test_a_mean_is_accumulated_in_float64():
    """In float32 the small members would drown, and 0.1 + 0.2 + 0.3 would round twice."""
    big, small = weights(2.0**24), weights(1.0)
    assert weighted_mean([(1, big), (1, small), (1, small), (1, small), (1, small)])["w"].item() == 3355444.0
    mean = weighted_mean([(0.1, weights(1.0)), (0.2, weights(2.0)), (0.3, weights(4.0))])["w"]
    assert mean.dtype == torch.float32
    assert mean.item() == torch.tensor((0.1 + 0.4 + 1.2) / 0.6).item()


def test_a_mean_lets_go_of_each_member_and_touches_none():
    alive: list[weakref.ref[Weights]] = []

    def members() -> Iterator[tuple[float, Weights]]:
        for value in (1.0, 2.0, 3.0):
            assert all(reference() is None for reference in alive)
            member = weights(value)
            alive.append(weakref.ref(member))
            yield 1.0, member
            del member

    assert weighted_mean(members())["w"].item() == 2.0
    kept = weights(3.0)
    mean = weighted_mean([(2.0, kept), (1.0, weights(0.0))])
    assert (kept["w"].item(), mean["w"].item()) == (3.0, 2.0)
    alone = weighted_mean([(1.0, kept)])
    alone["w"].zero_()
    assert kept["w"].item() == 3.0


def test_members_of_different_spaces_or_none():
    with pytest.raises(ModelError, match=r"tensor w has shape \(1,\) in one model and \(2,\)"):
        weighted_mean([(1.0, weights(1.0)), (1.0, weights(1.0, 2.0))])
    with pytest.raises(ModelError, match="at least one"):
        weighted_mean([])


def test_ema_coefficients_in_closed_form():
    assert ema_coefficients(3, 0.5) == pytest.approx((1 / 7, 2 / 7, 4 / 7), rel=1e-15)
    for n, decay in ((2, 0.9), (7, 0.3), (40, 0.99)):
        expected = [(1 - decay) * decay ** (n - 1 - i) / (1 - decay**n) for i in range(n)]
        assert ema_coefficients(n, decay) == pytest.approx(expected, rel=1e-12)
    assert ema_coefficients(4, 1.0) == (0.25,) * 4


def test_fading_is_what_the_coefficients_say():
    values = [3.0, -1.0, 5.0, 2.0]
    running = RunningMean()
    for value in values:
        running.fade(0.7)
        running.add(weights(value))
    expected = math.fsum(c * value for c, value in zip(ema_coefficients(4, 0.7), values, strict=True))
    assert running.mean()["w"].item() == pytest.approx(expected, rel=1e-7)


def test_which_steps_are_members():
    steps = [0, 1, 10, 20, 30, 40]
    assert lawa_members(steps, 3) == [20, 30, 40]
    assert lawa_members(steps, 6) == steps
    assert lawa_members(steps, 3, every=20) == [0, 20, 40]
    assert lawa_members(steps, 5, every=10) == [0, 10, 20, 30, 40]
    assert ema_members(steps) == steps
    assert ema_members(steps, every=20) == [0, 20, 40]
    assert ema_members([10, 15, 30], every=15) == [15, 30]  # 0 lies before the run


# what an average is


def test_lawa_is_the_mean_of_the_last_checkpoints(trained: Path, out: Path, tokenizer):
    (made,) = average(trained, out=out, window=3)
    assert (made.folder, made.made) == (out, True)
    assert made.members == ("trained@step40", "trained@step50", "trained@step60")
    assert made.coefficients == pytest.approx((1 / 3,) * 3)
    assert_mean(out, at(trained, 40, 50, 60))

    facts = said(out)
    assert (facts["kind"], facts["window"], facts["every"]) == ("lawa", 3, None) and "decay" not in facts
    for member, step in zip(facts["members"], (40, 50, 60), strict=True):
        assert (member["name"], member["revision"], member["step"]) == ("trained", f"step{step}", step)
        assert member["identity"] == resolve(f"{trained}@{step}").identity
        assert member["coefficient"] == pytest.approx(1 / 3)
    assert facts["versions"]["torch"] == torch.__version__
    for part in out.parents:
        assert part.name == "" or part.name not in (out / RECIPE).read_text()

    assert load_tokenizer(resolve(str(out))).get_vocab() == tokenizer.get_vocab()
    assert sorted(path.name for path in out.parent.iterdir()) == ["out"]


def test_an_average_is_a_checkpoint_whose_embeddings_are_tied(trained: Path, out: Path):
    average(trained, out=out, window=2)
    checkpoint = resolve(str(out))
    model = load_model(checkpoint)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    member = load_model(resolve(f"{trained}@60"))
    assert Weights.of(model).numel() == Weights.of(member).numel()
    assert stored(out).keys() == stored(trained / "step60").keys()
    assert "lm_head.weight" not in stored(out)

    ids = torch.arange(64).reshape(2, 32) % VOCABULARY
    loss = model(input_ids=ids, labels=ids).loss.item()
    ends = [load_model(resolve(f"{trained}@{step}"))(input_ids=ids, labels=ids).loss.item() for step in (50, 60)]
    assert math.isfinite(loss) and loss not in ends


@pytest.mark.parametrize(
    ("model", "options", "steps"),
    [
        ("", {"window": 2}, (50, 60)),
        ("@30", {"window": 2}, (20, 30)),
        ("@step30", {"window": 3}, (10, 20, 30)),
        ("/step40", {"window": 2}, (30, 40)),
        ("", {"window": 3, "every": 20}, (20, 40, 60)),
        ("@50", {"window": 3, "every": 20}, (10, 30, 50)),
        ("@50", {}, (10, 20, 30, 40, 50)),
    ],
)
def test_window_and_every_choose_the_members(trained: Path, out: Path, model: str, options: dict, steps: tuple):
    (made,) = average(f"{trained}{model}", out=out, **options)
    assert made.members == tuple(f"trained@step{step}" for step in steps)
    assert_mean(out, at(trained, *steps))


def test_ema_counts_older_checkpoints_less(trained: Path, out: Path):
    (made,) = average(f"{trained}@30", out=out, kind="ema", decay=0.5)
    assert made.coefficients == pytest.approx((1 / 7, 2 / 7, 4 / 7))
    assert_mean(out, at(trained, 10, 20, 30), (1, 2, 4))
    facts = said(out)
    assert (facts["kind"], facts["decay"], facts["every"]) == ("ema", 0.5, None) and "window" not in facts
    (apart,) = average(f"{trained}@50", out=out.with_name("apart"), kind="ema", every=20)
    assert apart.members == ("trained@step10", "trained@step30", "trained@step50")


def test_soup_of_models_anywhere_in_any_precision(trained: Path, out: Path, tmp_path: Path):
    build(TIED, seed=1).half().save_pretrained(tmp_path / "half")
    (made,) = average(f"{trained}@20", "@30", tmp_path / "half", out=out, kind="soup")
    assert made.members == ("trained@step20", "trained@step30", "half")
    assert_mean(out, [*at(trained, 20, 30), tmp_path / "half"])
    facts = said(out)
    assert facts.keys() == {"kind", "members", "files", "versions", "environment"}
    assert [member["step"] for member in facts["members"]] == [20, 30, None]


def test_no_tokenizer_is_said(trained: Path, out: Path, tmp_path: Path):
    build(TIED, seed=1).save_pretrained(tmp_path / "bare")
    notes = Notes()
    average(f"{trained}@20", tmp_path / "bare", out=out, kind="soup", notes=notes)
    assert [note for note in notes.heard if "bare has no tokenizer" in note] and not list(out.glob("tokenizer*"))
    notes = Notes()
    average(tmp_path / "bare", f"{trained}@20", out=out.with_name("other"), kind="soup", notes=notes)
    assert notes.heard == [] and (out.with_name("other") / "tokenizer.json").is_file()


def test_the_order_of_a_soup_does_not_change_a_bit(trained: Path, tmp_path: Path):
    """1e20 + 1 − 1e20 is 0 or 1, as it is added up."""
    names = [str(tmp_path / name) for name in "abc"]
    for name, value in zip(names, (1e20, 1.0, -1e20), strict=True):
        model = build(TIED)
        with torch.no_grad():
            model.model.norm.weight.fill_(value)
        model.save_pretrained(name)
    a, b, c = names
    orders = [(a, b, c), (a, c, b), (b, c, a), (c, a, b)]
    folders = [tmp_path / f"soup{number}" for number in range(len(orders))]
    for order, folder in zip(orders, folders, strict=True):
        average(*order, out=folder, kind="soup")
    assert all(same_bits(folders[0], folder) for folder in folders)


def test_members_that_are_the_same_model_are_noted(trained: Path, out: Path, tmp_path: Path):
    shutil.copytree(trained / "step60", tmp_path / "main")
    config = json.loads((tmp_path / "main" / "config.json").read_text())
    (tmp_path / "main" / "config.json").write_text(json.dumps(config | {"use_cache": False}))
    notes = Notes()
    average(tmp_path / "main", f"{trained}@60", f"{trained}@50", out=out, kind="soup", notes=notes)
    assert len(notes.heard) == 1 and "hold the same weights, and both count" in notes.heard[0]
    assert "main" in notes.heard[0] and "trained@step60" in notes.heard[0]
    notes = Notes()
    average(f"{trained}@50", f"{trained}@60", trained / "step50", out=out.with_name("b"), kind="soup", notes=notes)
    assert notes.heard == ["trained@step50 is named 2 times and counts as often"]
    assert_mean(out.with_name("b"), at(trained, 50, 60), (2, 1))


def test_the_final_model_above_its_checkpoints_has_no_step(trained: Path, out: Path, tmp_path: Path):
    """transformers' Trainer leaves it there; which step it is of, nobody knows."""
    top = tmp_path / "trainer"
    shutil.copytree(trained / "step60", top)
    for step in (10, 20):
        shutil.copytree(trained / f"step{step}", top / f"checkpoint-{step}")
    notes = Notes()
    (made,) = average(top, out=out, window=2, notes=notes)
    assert made.members == ("trainer@checkpoint-10", "trainer@checkpoint-20")
    assert notes.heard == ["trainer tells no step; the run was taken to end at checkpoint-20"]


def test_one_family_of_checkpoints_is_one_run(trained: Path, out: Path, tmp_path: Path):
    stages = tmp_path / "stages"
    for name in ("stage1-step10-tokens1B", "stage1-step20-tokens2B", "stage2-step15-tokens3B"):
        shutil.copytree(trained / "step10", stages / name)
    (made,) = average(f"{stages}@stage1-step20-tokens2B", out=out, kind="ema")
    assert made.members == ("stages@stage1-step10-tokens1B", "stages@stage1-step20-tokens2B")
    assert "several runs in one directory" in refusal(stages, out=tmp_path / "b", kind="ema")
    shutil.copytree(trained / "step10", stages / "stage1-step10-tokens2B")
    message = refusal(f"{stages}@stage1-step20-tokens2B", out=tmp_path / "b", kind="ema")
    assert "stage1-step10-tokens1B and stage1-step10-tokens2B are of one step" in message
