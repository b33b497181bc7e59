"""Prompts of a task: written once, so that every model is asked the same, and quickly."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any

from landscape.errors import OptionError
from landscape.tasks.manners import reason


def _give_examples(name: str, leaf: Any, shots: int) -> None:
    """Put `shots` examples before each question of `leaf`, never the question itself.

    lm-eval leaves a question out of its own examples where their split has the name in `test_split`. Where a task names
    no split for examples it does not, and questions are answered in their own prompts.
    """
    config, examples = leaf.config, leaf.fewshot_cfg
    if config.num_fewshot == 0:
        return
    leaf.set_config("num_fewshot", shots)
    asked = config.test_split or config.validation_split
    source = examples.split or config.training_split or config.validation_split or config.test_split
    shared = source == asked and (examples.split or not examples.samples)
    if shared:
        examples.split = config.test_split
    there = len(leaf.sampler.df) - bool(shared)
    if there < shots:
        raise OptionError(f"task {name}: has {there} questions for examples; give --shots {there} or fewer")


def write_prompts(name: str, leaf: Any, shots: int, limit: int | None, seed: int) -> str:
    """Write the prompts of `leaf`, which keeps them; SHA-256 of prompts, choices and answers in order.

    Raises:
        OptionError: too few questions for examples, or a template or code of the task fails.
    """
    _give_examples(name, leaf, shots)
    leaf.set_fewshot_seed(seed)
    digest = hashlib.sha256()
    try:
        leaf.build_all_requests(limit=limit)
        for asked in leaf.instances:
            digest.update(repr((asked.args, leaf.doc_to_target(asked.doc) if asked.idx == 0 else None)).encode())
    except Exception as error:  # the task's templates and code raise what they like
        raise OptionError(f"task {name}: its prompts cannot be written ({reason(error)})") from error
    leaf.build_all_requests = partial(_forget_answers, leaf)  # lm-eval would write them anew for every model
    return digest.hexdigest()


def _forget_answers(leaf: Any, **_options: Any) -> None:
    for asked in leaf.instances:
        asked.resps, asked.filtered_resps = [], {}
