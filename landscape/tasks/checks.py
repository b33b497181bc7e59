"""What a task must be to be scored here, and what lm-eval lets pass though the accuracy would mean nothing."""

from __future__ import annotations

import itertools
from typing import Any

from landscape.errors import OptionError
from landscape.tasks.manners import reason

_TOLERATED = 0.01  # share of questions without a right choice


def has_choices(name: str, leaf: Any, metric: str) -> None:
    """Raise `OptionError` unless `leaf` has choices, and a mean of `metric` over its questions."""
    from lm_eval.api.metrics import mean

    if leaf.OUTPUT_TYPE != "multiple_choice":
        raise OptionError(f"task {name}: output_type {leaf.OUTPUT_TYPE}; only multiple_choice can be scored here")
    means = [known for known, combine in leaf.aggregation().items() if combine is mean]
    if metric not in means:
        has = ", ".join(means) or "no mean at all"
        raise OptionError(f"task {name}: no mean of {metric} over its questions; it has {has}")


def unanswerable(name: str, leaf: Any, limit: int | None) -> int:
    """How many questions have an answer that is none of their choices: a few in a large data set, else an error.

    lm-eval counts them as wrong, whatever the model says. A task with labels counted from 1 would pass for a hard one.
    """
    if callable(leaf.get_config("process_results")):
        return 0  # then its own code says what is right
    odd: list[tuple[int, Any, int]] = []
    for number, doc in enumerate(itertools.islice(leaf.eval_docs, limit), start=1):
        try:
            choices = leaf.doc_to_choice(doc)
            answer = leaf.doc_to_text(doc) if leaf.multiple_input else leaf.doc_to_target(doc)
        except Exception as error:  # whatever its templates and code raise
            raise OptionError(f"task {name}: question {number} cannot be made ({reason(error)})") from error
        for one in answer if isinstance(answer, list) else [answer]:
            if not (0 <= one < len(choices) if isinstance(one, int) else one in choices):
                odd.append((number, one, len(choices)))
                break
    if odd and len(odd) > _TOLERATED * number:
        first, one, among = odd[0]
        raise OptionError(
            f"task {name}: {len(odd)} of {number} answers are no choice, the first to question {first}: {one!r}; "
            f"expected one of its {among} choices, or the number of one counted from 0"
        )
    return len(odd)
