"""The drop of accuracy and its interval, and other weights held for a while; all that needs no lm-eval."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
import torch

from conftest import build
from landscape import tasks
from landscape.errors import MissingExtraError, ModelError, OptionError
from landscape.tasks import TaskScore, accuracy_drop, holding
from landscape.weights import Weights

pytestmark = pytest.mark.usefixtures("process")

# Accuracies of Θ, and how often Θ̂ errs where Θ is right, and is right where Θ errs
ODDS = {"easy": (0.8, 0.15, 0.1), "middling": (0.6, 0.1, 0.05), "hard": (0.3, 0.2, 0.02)}
TRUE = {name: (p * lost - (1 - p) * won) / (1 - p) for name, (p, lost, won) in ODDS.items()}


def scored(*parts: np.ndarray, by_size: bool = True, questions: str = "the same") -> TaskScore:
    correct = {f"part{i}": np.asarray(part, dtype=float) for i, part in enumerate(parts)}
    return TaskScore("acc", correct, by_size, 0, "1", questions, 0)


def drawn(seed: int, n: int = 200) -> tuple[dict[str, TaskScore], dict[str, TaskScore]]:
    """Seeded answers of Θ and Θ̂ to three tasks of n questions with the odds above."""
    rng = np.random.default_rng(seed)
    theta, theta_hat = {}, {}
    for name, (p, lost, won) in ODDS.items():
        right = rng.random(n) < p
        right_hat = np.where(right, rng.random(n) >= lost, rng.random(n) < won)
        theta[name], theta_hat[name] = scored(right), scored(right_hat)
    return theta, theta_hat


def test_the_drop_is_the_share_of_wrong_answers_added():
    theta, theta_hat = drawn(0)
    found = accuracy_drop(theta, theta_hat)
    acc = np.array([score.accuracy for score in theta.values()])
    acc_hat = np.array([score.accuracy for score in theta_hat.values()])
    for i, drop in enumerate(found.tasks.values()):
        assert drop.accuracy.value == pytest.approx(acc[i]) and drop.accuracy_hat.value == pytest.approx(acc_hat[i])
        assert drop.drop.value == pytest.approx((acc[i] - acc_hat[i]) / (1 - acc[i]))
    assert found.accuracy.value == pytest.approx(acc.mean())
    assert found.drop.value == pytest.approx(((acc - acc_hat) / (1 - acc)).mean())
    assert found.drop_of_means.value == pytest.approx((acc - acc_hat).sum() / (1 - acc).sum())
    assert found.drop.value != pytest.approx(found.drop_of_means.value, rel=0.05)
    same = accuracy_drop(theta, theta)
    assert (same.drop.value, same.drop.low, same.drop.high) == (0, 0, 0)
    assert accuracy_drop(theta, theta_hat) == found and accuracy_drop(theta, theta_hat, seed=1) != found


def test_a_task_is_resampled_alike_whatever_else_is_asked():
    theta, theta_hat = drawn(0)
    alone = accuracy_drop({"hard": theta["hard"]}, {"hard": theta_hat["hard"]})
    assert alone.tasks["hard"] == accuracy_drop(theta, theta_hat).tasks["hard"]
    assert alone.drop == alone.drop_of_means == alone.tasks["hard"].drop
    twice = accuracy_drop({"a": theta["hard"], "b": theta["hard"]}, {"a": theta_hat["hard"], "b": theta_hat["hard"]})
    assert twice.drop.value == pytest.approx(alone.drop.value)
    assert twice.drop.standard_error == pytest.approx(alone.drop.standard_error / math.sqrt(2), rel=0.1)


def test_intervals_cover_what_they_should():
    """Of 300 samples, those whose interval holds the true value: 95 %, give or take 3.7 % (three standard errors)."""
    sums = np.array([[1 - p, p * lost - (1 - p) * won] for p, lost, won in ODDS.values()]).sum(axis=0)
    true = TRUE | {"accuracy": 1 - sums[0] / 3, "drop": float(np.mean(list(TRUE.values())))}
    true["drop_of_means"] = sums[1] / sums[0]
    held = dict.fromkeys(true, 0)
    for seed in range(300):
        found = accuracy_drop(*drawn(seed), draws=400, seed=seed)
        for name, value in true.items():
            estimate = found.tasks[name].drop if name in TRUE else getattr(found, name)
            held[name] += estimate.low <= value <= estimate.high
    assert all(0.913 <= count / 300 <= 0.987 for count in held.values()), held


def test_standard_errors_are_those_of_theory_and_pairing_makes_them_small():
    theta, theta_hat = drawn(3, n=2000)
    found = accuracy_drop(theta, theta_hat)
    for name, drop in found.tasks.items():
        assert drop.accuracy.standard_error == pytest.approx(theta[name].standard_error, rel=0.06)
        wrong, wrong_hat = (1 - scores[name].correct["part0"] for scores in (theta, theta_hat))
        rest = wrong_hat - wrong - drop.drop.value * wrong  # the delta method for a ratio of means
        assert drop.drop.standard_error == pytest.approx(rest.std() / wrong.mean() / math.sqrt(2000), rel=0.06)
    shuffled = np.random.default_rng(0).permutation(2000)
    apart = {name: scored(score.correct["part0"][shuffled]) for name, score in theta_hat.items()}
    assert found.drop.standard_error < 0.75 * accuracy_drop(theta, apart).drop.standard_error


def test_subtasks_weigh_and_are_resampled_apart():
    small, large = np.repeat([1.0, 0.0], [8, 2]), np.repeat([1.0, 0.0], [30, 60])
    by_size, alike = scored(small, large), scored(small, large, by_size=False)
    assert by_size.accuracy == pytest.approx(38 / 100) and alike.accuracy == pytest.approx((8 / 10 + 30 / 90) / 2)
    # within the subtasks alone: that these differ in difficulty is no uncertainty
    within = (0.8 * 0.2 * 10 + (1 / 3) * (2 / 3) * 90) / 100**2
    found = accuracy_drop({"t": by_size}, {"t": by_size}, draws=20_000).accuracy.standard_error
    assert found == pytest.approx(math.sqrt(within), rel=0.03)
    assert by_size.standard_error == pytest.approx(found, rel=0.03)
    found = accuracy_drop({"t": alike}, {"t": alike}, draws=20_000).accuracy.standard_error
    assert found == pytest.approx(math.sqrt(0.8 * 0.2 / 10 + 2 / 9 / 90) / 2, rel=0.03)
    assert alike.standard_error == pytest.approx(found, rel=0.06)  # n − 1 for n = 10


def test_what_cannot_be_divided_or_resampled_says_so():
    right = np.ones(30)
    some = np.repeat([1.0, 0.0], [20, 10])
    perfect = accuracy_drop(
        {"a": scored(right, right[:7]), "b": scored(some)}, {"a": scored(some, right[:7]), "b": scored(some)}
    )
    assert perfect.tasks["a"].accuracy.value == 1
    assert math.isnan(perfect.tasks["a"].drop.value) and math.isnan(perfect.drop.value)
    assert math.isfinite(perfect.drop_of_means.low) and perfect.tasks["b"].drop.value == 0
    three, ten = (
        np.repeat([1.0, 0.0], [30 - wrong, wrong]) for wrong in (3, 10)
    )  # no wrong answer in e^−3 = 5 % of draws
    few = accuracy_drop({"a": scored(three)}, {"a": scored(ten)}).tasks["a"]
    assert few.drop.value == pytest.approx(7 / 3) and math.isnan(few.drop.low) and math.isfinite(few.accuracy.low)
    assert math.isfinite(accuracy_drop({"a": scored(ten)}, {"a": scored(three)}).drop.low)
    single = accuracy_drop({"a": scored([0.0])}, {"a": scored([1.0])})
    assert single.drop.value == -1 and math.isnan(single.drop.low) and math.isnan(scored([0.0]).standard_error)
    unanswered = accuracy_drop({"a": scored(some)}, {"a": scored([*some[1:], math.nan])})
    assert math.isnan(unanswered.drop.value) and math.isnan(unanswered.accuracy_hat.value)
    for other in ({"a": scored(some, questions="others")}, {"b": scored(some)}, {}):
        with pytest.raises(ValueError, match="different questions"):
            accuracy_drop({"a": scored(some)}, other)
    with pytest.raises(ValueError, match="or none"):
        accuracy_drop({}, {})


@pytest.mark.parametrize("name", ["gpt_neox", "llama-tied-gqa"])
def test_other_weights_are_held_for_a_while(name: str):
    model, other = build(name), build(name, seed=1)
    theta, ids = Weights.of(model), torch.arange(12)[None]
    before, places = theta.fingerprint(), [tensor.data_ptr() for tensor in theta.values()]
    with torch.no_grad():
        logits, expected = model(ids).logits, other(ids).logits
        with pytest.raises(KeyError), holding(model, Weights.of(other)):
            assert torch.equal(model(ids).logits, expected)
            assert model.get_output_embeddings().weight is model.get_output_embeddings().weight
            assert theta.fingerprint() == before
            raise KeyError
        assert torch.equal(model(ids).logits, logits)
    assert Weights.of(model).fingerprint() == before
    assert [tensor.data_ptr() for tensor in Weights.of(model).values()] == places
    if "tied" in name:
        assert model.lm_head.weight is model.model.embed_tokens.weight
    with pytest.raises(ModelError, match="same architecture"), holding(model, Weights.of(build("gpt2"))):
        pass


def test_without_lm_eval_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.setitem(sys.modules, "lm_eval.models.huggingface", None)
    with pytest.raises(MissingExtraError, match=r"accuracy on tasks needs .* lm-eval: pip install 'landscape\[eval\]'"):
        tasks.load(["piqa"])
    with pytest.raises(MissingExtraError):
        tasks.score(torch.nn.Linear(1, 1), None, tasks.TaskSet((), "acc", None, 0))
    for names in ([], ["piqa", " "]):
        with pytest.raises(OptionError, match="--tasks: an empty name"):
            tasks.load(names)
