"""What quantization costs in answers: the accuracies of Θ and Θ̂ on the same questions, and an interval for the drop.

Most questions are answered alike by Θ and Θ̂. As in `landscape.losses`, both are therefore resampled together: the
bootstrap draws questions, and the drop is known far better than either accuracy.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from landscape.losses import Estimate

_DEFINED = 0.99  # share of the draws in which a drop must be defined for it to have an interval


@dataclass(frozen=True)
class TaskScore:
    """The answers of one model to one task, question by question.

    Attributes:
        metric: lm-eval's name of what is averaged: `acc` takes the likeliest choice, `acc_norm` the likeliest per
            character.
        correct: subtask → 1 for a right answer, 0 for a wrong one, in the order of its questions; float64
            (questions,). A task that is no group has one subtask: itself. NaN where the model gave no likelihood.
        by_size: whether subtasks weigh by their questions (so lm-eval for mmlu) or all the same.
        shots: worked examples before every question; the most that any subtask has.
        version: lm-eval's version of the task.
        questions: SHA-256 of prompts, choices and answers in order: equal exactly when the questions are.
        cut: questions whose prompt was longer than the model's context and lost its beginning.
        unanswerable: questions that no choice answers; wrong, as lm-eval counts them.
    """

    metric: str
    correct: Mapping[str, np.ndarray]
    by_size: bool
    shots: int
    version: str
    questions: str
    cut: int
    unanswerable: int = 0

    @property
    def n_questions(self) -> int:
        """Over all subtasks."""
        return sum(len(part) for part in self.correct.values())

    @property
    def shares(self) -> list[float]:
        """What each subtask weighs; they add up to 1."""
        if self.by_size:
            return [len(part) / self.n_questions for part in self.correct.values()]
        return [1 / len(self.correct)] * len(self.correct)

    @property
    def accuracy(self) -> float:
        """Acc: the mean over questions, or over subtasks where these weigh the same."""
        return self._mean(list(self.correct.values()))

    @property
    def error_rate(self) -> float:
        """1 − Acc; exactly 0 where every answer is right."""
        return self._mean([1 - part for part in self.correct.values()])

    @property
    def standard_error(self) -> float:
        """The one lm-eval states; NaN where a subtask has a single question.

        With sᵢ² the sample variance of subtask i of k, nᵢ its questions and n = Σ nᵢ: √(Σ (nᵢ − 1) sᵢ² / (n − k) / n),
        for one task s/√n; √(Σ sᵢ²/nᵢ)/k where subtasks weigh the same.
        """
        parts = list(self.correct.values())
        if any(len(part) < 2 for part in parts):
            return math.nan
        variances = [float(part.var(ddof=1)) for part in parts]
        sizes = [len(part) for part in parts]
        if not self.by_size:
            return math.sqrt(sum(s / n for s, n in zip(variances, sizes, strict=True))) / len(parts)
        pooled = sum((n - 1) * s for s, n in zip(variances, sizes, strict=True)) / (sum(sizes) - len(sizes))
        return math.sqrt(pooled / sum(sizes))

    def _mean(self, parts: list[np.ndarray]) -> float:
        return math.fsum(share * float(part.mean()) for share, part in zip(self.shares, parts, strict=True))


@dataclass(frozen=True)
class Drop:
    """Accuracies of Θ and Θ̂, and (Acc − Âcc)/(1 − Acc): the wrong answers that Θ̂ adds, as a share of those of Θ.

    With Acc = 1 there is nothing to divide by: the drop is NaN, and so is any mean that includes it. Draws of the
    bootstrap in which that happens are left out; where they are more than 1 % (Θ has fewer than about five wrong
    answers) the drop has no interval.
    """

    accuracy: Estimate
    accuracy_hat: Estimate
    drop: Estimate


@dataclass(frozen=True)
class AccuracyDrop:
    """Θ̂ against Θ on several tasks, each of which weighs the same.

    The paper (arXiv 2510.06213, section 3.1) writes (Acc − Âcc)/(1 − Acc) and averages over tasks, and leaves open
    which comes first. Both are here, and differ where tasks do: `drop` is meant by "accuracy drop".

    Attributes:
        tasks: each task by itself.
        accuracy: the mean of Acc over tasks.
        accuracy_hat: the mean of Âcc over tasks.
        drop: the mean over tasks of their drops.
        drop_of_means: the drop of the two mean accuracies.
    """

    tasks: Mapping[str, Drop]
    accuracy: Estimate
    accuracy_hat: Estimate
    drop: Estimate
    drop_of_means: Estimate


def accuracy_drop(
    theta: Mapping[str, TaskScore], theta_hat: Mapping[str, TaskScore], draws: int = 2000, seed: int = 0
) -> AccuracyDrop:
    """Θ̂ against Θ on the same questions, with a paired bootstrap of `draws` resamplings.

    Questions are drawn within each subtask, tasks independently of each other. A task's interval does not depend on
    which other tasks are there. No interval comes from a subtask with a single question.

    Raises:
        ValueError: no task, or the questions are not the same.
    """
    asked, asked_hat = (
        [(name, score.questions, score.metric) for name, score in scores.items()] for scores in (theta, theta_hat)
    )
    if not asked or asked != asked_hat:
        raise ValueError("accuracy_drop: Θ and Θ̂ were asked different questions, or none")
    value = np.array([[theta[name].error_rate, theta_hat[name].error_rate] for name in theta])
    drawn = np.stack([_wrong(name, theta[name], theta_hat[name], draws, seed) for name in theta])
    mean, mean_drawn = value.mean(axis=0), drawn.mean(axis=0)
    accuracy, accuracy_hat = _accuracies(mean, mean_drawn)
    return AccuracyDrop(
        tasks={
            name: Drop(*_accuracies(value[i], drawn[i]), _estimate(float(_drop(value[i])), _drop(drawn[i])))
            for i, name in enumerate(theta)
        },
        accuracy=accuracy,
        accuracy_hat=accuracy_hat,
        drop=_estimate(float(_drop(value).mean()), _drop(drawn).mean(axis=0)),
        drop_of_means=_estimate(float(_drop(mean)), _drop(mean_drawn)),
    )


def _wrong(name: str, theta: TaskScore, theta_hat: TaskScore, draws: int, seed: int) -> np.ndarray:
    """Shares of wrong answers of Θ and Θ̂ in every draw; (draws, 2).

    To draw questions is to draw how many fall on each pair of outcomes, and of these pairs there are four.
    """
    rng = np.random.default_rng((seed, zlib.crc32(name.encode())))
    wrong = np.zeros((draws, 2))
    for share, part in zip(theta.shares, theta.correct, strict=True):
        pairs = 1 - np.stack([theta.correct[part], theta_hat.correct[part]], axis=1)
        if len(pairs) < 2 or not np.isfinite(pairs).all():
            return np.full((draws, 2), math.nan)
        kinds, counts = np.unique(pairs, axis=0, return_counts=True)
        taken = rng.multinomial(len(pairs), counts / len(pairs), size=draws)
        wrong += share * (taken @ kinds) / len(pairs)
    return wrong


def _drop(wrong: np.ndarray) -> np.ndarray:
    """(Acc − Âcc)/(1 − Acc) from the shares of wrong answers (…, 2)."""
    error, error_hat = wrong[..., 0], wrong[..., 1]
    return np.divide(error_hat - error, error, out=np.full_like(error, math.nan), where=error != 0)


def _accuracies(wrong: np.ndarray, drawn: np.ndarray) -> tuple[Estimate, Estimate]:
    theta, theta_hat = (_estimate(1 - float(wrong[i]), 1 - drawn[:, i]) for i in (0, 1))
    return theta, theta_hat


def _estimate(value: float, drawn: np.ndarray) -> Estimate:
    defined = drawn[np.isfinite(drawn)]
    if len(defined) < _DEFINED * len(drawn) or not math.isfinite(value):
        return Estimate(value, math.nan, math.nan, math.nan)
    low, high = np.percentile(defined, [2.5, 97.5])
    return Estimate(value, float(defined.std(ddof=1)), float(low), float(high))
