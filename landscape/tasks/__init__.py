"""Accuracy on multiple-choice tasks, and how much of it quantization costs; asked and scored by lm-eval-harness.

    names → `load` → lm-eval's tasks with their data → `score` with a model in memory → right or wrong, by question
    scores of Θ and of Θ̂ → `accuracy_drop` → (Acc − Âcc)/(1 − Acc) with an interval

Tasks come with lm-eval, or from YAML files of its format in a folder; with local data (`dataset_path: json`, data files
relative to the YAML file) no network is needed. Such files may name Python code to run: use folders you trust.
"""

from landscape.tasks.accuracy import AccuracyDrop, Drop, TaskScore, accuracy_drop
from landscape.tasks.asking import holding, score
from landscape.tasks.loading import PAPER_TASKS, LoadedTask, TaskSet, load

__all__ = [
    "PAPER_TASKS",
    "AccuracyDrop",
    "Drop",
    "LoadedTask",
    "TaskScore",
    "TaskSet",
    "accuracy_drop",
    "holding",
    "load",
    "score",
]
