"""A model in memory answers tasks, through lm-eval; other weights can be put into it for a while."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from landscape.errors import OptionError
from landscape.tasks.accuracy import TaskScore
from landscape.tasks.loading import LoadedTask, TaskSet
from landscape.tasks.manners import OnProgress, quiet, reason, require, seeded
from landscape.weights import Weights, check_same_space


def score(
    model: nn.Module,
    tokenizer: Any,
    tasks: TaskSet,
    batch_size: int = 8,
    dtype: torch.dtype = torch.float32,
    on_progress: OnProgress = lambda done, total: None,
) -> dict[str, TaskScore]:
    """The answers of `model`, a causal language model of transformers, to each of `tasks`.

    A `dtype` other than float32 runs the forward pass under autocast, and log-probabilities are float32 still. The
    prompts are the same in every call. `on_progress` counts questions.

    Raises:
        MissingExtraError: lm-eval is not installed.
        OptionError: a choice is empty or longer than the model's context, or the task's own code fails.
    """
    require()
    scores: dict[str, TaskScore] = {}
    before, total = 0, sum(task.n_questions for task in tasks.tasks)
    with quiet():
        lm = _answering(model, tokenizer, batch_size, dtype)
        for task in tasks.tasks:
            lm.tell = partial(_tell, on_progress, before, task.n_questions, total)
            scores[task.name] = _asked(lm, task, tasks)
            before += task.n_questions
    return scores


@contextmanager
def holding(model: nn.Module, weights: Weights) -> Iterator[None]:
    """Let `model` compute with `weights`, whose memory it then shares, and have its own back afterwards.

    Nothing is copied where device and dtype agree, so nothing comes back changed; a tied tensor is one parameter, and
    stays tied.

    Raises:
        ModelError: weights of another architecture.
    """
    check_same_space(Weights.of(model), weights)
    own = [(parameter, parameter.data, weights[name]) for name, parameter in model.named_parameters()]
    try:
        for parameter, _, other in own:
            parameter.data = other.detach().to(parameter)
        yield
    finally:
        for parameter, tensor, _ in own:
            parameter.data = tensor


def _asked(lm: Any, task: LoadedTask, tasks: TaskSet) -> TaskScore:
    from lm_eval.evaluator import evaluate

    try:
        with seeded(tasks.seed):
            found = evaluate(lm=lm, task_dict={"tasks": dict(task.leaves)}, limit=tasks.limit, bootstrap_iters=0)
    except Exception as error:  # the task's own code raises what it likes; an error of the model is none of the task's
        if lm.computing:
            raise
        raise OptionError(f"task {task.name}: cannot be asked ({reason(error)})") from error
    correct: dict[str, np.ndarray] = {}
    cut = 0
    for name, leaf in task.leaves.items():
        samples = found["samples"][name]
        samples = sorted((s for s in samples if s["filter"] == samples[0]["filter"]), key=lambda s: s["doc_id"])
        asked = {instance.doc_id: instance.doc for instance in leaf.instances}
        if any(sample["doc"] != asked[sample["doc_id"]] for sample in samples):
            raise OptionError(
                f"task {name}: its questions change whenever they are read; its process_docs needs a seed"
            )
        correct[name] = np.array([_outcome(sample, tasks.metric) for sample in samples])
        cut += sum(any(prompt in lm.cut for prompt in sample["arguments"]) for sample in samples)
    shots = max(leaf.get_config("num_fewshot") for leaf in task.leaves.values())
    return TaskScore(tasks.metric, correct, task.by_size, shots, task.version, task.questions, cut, task.unanswerable)


def _outcome(sample: Mapping[str, Any], metric: str) -> float:
    """What `metric` says of an answer; NaN where a likelihood is, which lm-eval would take for the largest."""
    likelihoods = [answer[0][0] for answer in sample["resps"]]
    return math.nan if any(map(math.isnan, likelihoods)) else float(sample[metric])


def _answering(model: nn.Module, tokenizer: Any, batch_size: int, dtype: torch.dtype) -> Any:
    """`model` as lm-eval wants it; it notes which prompts were cut, and tells how far it is."""
    from lm_eval.models.huggingface import HFLM

    class Answering(HFLM):  # type: ignore[misc]
        """`tell` hears the share that is answered; errors are the model's own while it is `computing`."""

        tell: Callable[[float], None]
        computing = False

        def loglikelihood(self, requests: Any, disable_tqdm: bool = True) -> Any:
            return super().loglikelihood(requests, disable_tqdm=True)

        def _loglikelihood_tokens(self, requests: Any, *_args: Any, **_options: Any) -> Any:
            for prompt, context, choice in requests:
                if not 0 < len(choice) <= self.max_length:
                    raise ValueError(
                        f"a choice of {len(choice)} tokens, {prompt[1][:50]!r}; the model takes 1 to {self.max_length}"
                    )
                if len(context) + len(choice) > self.max_length + 1:
                    self.cut.add(prompt)
            self.wanted, self.answered, self.computing = len(requests), 0, True
            answers = super()._loglikelihood_tokens(requests, disable_tqdm=True)
            self.computing = False
            return answers

        def add_partial(self, *_answer: Any) -> None:
            """lm-eval calls it for every answer, as it would its cache."""
            self.answered += 1
            self.tell(self.answered / self.wanted)

    lm = Answering(
        pretrained=model,
        tokenizer=copy.deepcopy(tokenizer),  # lm-eval may give it a padding token
        backend="causal",
        batch_size=batch_size,
        mixed_precision_dtype=None if dtype in (torch.float32, torch.float64) else dtype,
        softmax_dtype=torch.promote_types(dtype, torch.float32),
    )
    lm.cut = set()
    lm.set_cache_hook(lm)
    return lm


def _tell(on_progress: OnProgress, before: int, questions: int, total: int, share: float) -> None:
    on_progress(before + int(share * questions), total)
