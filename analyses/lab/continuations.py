"""A task for models too small for the papers' twelve: which of four passages goes on from here?

    python -m analyses.lab.continuations TEXT FOLDER [--questions 1000]

writes FOLDER/continuation.yaml and its questions, for `landscape study … --tasks continuation --task-folder FOLDER`.
The right passage is what follows in the text, the other three come from elsewhere in it; all begin and end between
words. Chance is a quarter.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from pathlib import Path

import yaml

from landscape.storage.files import write_whole
from landscape.texts import documents

NAME = "continuation"
_BEFORE, _AFTER, _CHOICES = 30, 6, 4  # words asked with, words of a passage, passages


def questions(text: str, count: int, seed: int = 0) -> list[dict[str, object]]:
    """`count` questions from the documents at `text`.

    Raises:
        ValueError: fewer words than that takes.
    """
    words = [re.split(r"\s+", document.strip()) for document in documents(text)]
    places = [(d, start) for d, own in enumerate(words) for start in range(0, len(own) - _BEFORE - _AFTER, _BEFORE)]
    if len(places) < max(count, _CHOICES):
        raise ValueError(f"{text}: {len(places)} passages; expected at least {max(count, _CHOICES)}")
    chance = random.Random(seed)
    made: list[dict[str, object]] = []
    for place in chance.sample(places, count):
        others = [each for each in chance.sample(places, _CHOICES) if each != place][: _CHOICES - 1]
        passages = [" ".join(words[d][start + _BEFORE :][:_AFTER]) for d, start in (place, *others)]
        order = chance.sample(range(_CHOICES), _CHOICES)
        document, start = place
        made.append(
            {
                "asked": " ".join(words[document][start : start + _BEFORE]),
                "choices": [passages[each] for each in order],
                "label": order.index(0),
            }
        )
    return made


def write(text: str, folder: Path, count: int) -> None:
    """The task file of lm-eval and its data beside it."""
    rows = "\n".join(json.dumps(row, ensure_ascii=False) for row in questions(text, count))
    task = {
        "task": NAME,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": f"{NAME}.jsonl"}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{asked}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{label}}",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": 1},
    }
    write_whole(folder / f"{NAME}.jsonl", rows.encode())
    write_whole(folder / f"{NAME}.yaml", yaml.safe_dump(task, sort_keys=False).encode())


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--questions", type=int, default=1000)
    args = parser.parse_args()
    try:
        write(args.text, args.folder, args.questions)
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
