"""The part of an evaluation that asks questions: accuracies of Θ and Θ̂ on tasks, as they go into a result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from landscape import tasks
from landscape.config import PAPER, EvaluateConfig
from landscape.inputs import Loaded
from landscape.reporting import Reporter
from landscape.weights import Weights


@dataclass
class Exam:
    """The questions, and Θ's answers once they were given."""

    config: EvaluateConfig
    tokenizer: Any
    asked: tasks.TaskSet
    theta: Mapping[str, tasks.TaskScore] | None = None

    @classmethod
    def prepare(cls, config: EvaluateConfig, tokenizer: Any, reporter: Reporter) -> Exam:
        """Load the tasks that `config` names and write their prompts.

        Raises:
            MissingExtraError: lm-eval is not installed.
            OptionError: a task that is unknown, or cannot be scored.
        """
        assert config.tasks is not None
        names = list(tasks.PAPER_TASKS) if config.tasks.strip() == PAPER else config.tasks.split(",")
        progress = reporter.stage("writing the prompts")
        asked = tasks.load(names, config.shots, config.limit, config.task_folder, config.seed, on_progress=progress)
        return cls(config, tokenizer, asked)

    def sit(self, loaded: Loaded, weights: Weights | None, name: str, reporter: Reporter) -> dict[str, Any]:
        """Accuracies of Θ and of Θ̂ (of Θ itself where `weights` is None), and the drop, as they are stored."""
        if self.theta is None:
            self.theta = self._answers(loaded, "Θ", reporter)
        hat = self.theta
        if weights is not None:
            with tasks.holding(loaded.model, weights):
                hat = self._answers(loaded, name, reporter)
        stored = asdict(tasks.accuracy_drop(self.theta, hat, self.config.draws, self.config.seed))
        for task, score in self.theta.items():
            stored["tasks"][task] |= {
                "metric": score.metric,
                "questions": score.n_questions,
                "fingerprint": score.questions,
                "shots": score.shots,
                "version": score.version,
                "cut": score.cut,
                "unanswerable": score.unanswerable,
                "stated_error": score.standard_error,
                "stated_error_hat": hat[task].standard_error,
                "correct": _listed(score.correct),
                "correct_hat": _listed(hat[task].correct),
            }
        return stored

    def notes(self) -> list[str]:
        """What nobody should overlook in Θ's answers."""
        said = []
        for task, score in (self.theta or {}).items():
            if score.cut:
                said.append(
                    f"{task}: {score.cut} of {score.n_questions} prompts were longer than the model's context and lost "
                    "their beginning"
                )
            if score.unanswerable:
                said.append(f"{task}: {score.unanswerable} of {score.n_questions} questions have no right choice")
            if math.isnan(score.accuracy):
                said.append(f"{task}: the model gives no likelihood to some choices, so there is no accuracy")
        return said

    def _answers(self, loaded: Loaded, name: str, reporter: Reporter) -> dict[str, tasks.TaskScore]:
        on_question = reporter.stage(f"asking {name}")
        dtype = getattr(torch, self.config.dtype)
        return tasks.score(loaded.model, self.tokenizer, self.asked, self.config.batch_size, dtype, on_question)


def _listed(correct: Mapping[str, np.ndarray]) -> dict[str, list[float]]:
    return {name: part.tolist() for name, part in correct.items()}
