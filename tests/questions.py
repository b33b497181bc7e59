"""Multiple-choice questions about spelling, task files of lm-eval with them, and their answers by hand."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import torch

from conftest import WORDS

Row = dict[str, object]


def rows(n: int, seed: int) -> list[Row]:
    """Which word comes next: two that exist, two misspelt. A model that learned to spell is right every other time."""
    rng = random.Random(seed)
    long = [word for word in WORDS if len(word) > 2]
    made = []
    for _ in range(n):
        asked = " ".join(rng.choice(WORDS) for _ in range(4))
        choices = rng.sample(long, 2)
        right = choices[0]
        while len(choices) < 4:
            letters = list(rng.choice(long))
            letters[rng.randrange(len(letters))] = rng.choice("".join(WORDS))
            word = "".join(letters)
            if word not in choices and word not in WORDS:
                choices.append(word)
        rng.shuffle(choices)
        made.append({"asked": asked, "choices": choices, "label": choices.index(right)})
    return made


def write_task(folder: Path, name: str, data: dict[str, list[Row]], **options: object) -> None:
    """A task file and its data beside it; YAML, as JSON is."""
    folder.mkdir(exist_ok=True, parents=True)
    for split, questions in data.items():
        (folder / f"{name}_{split}.jsonl").write_text("\n".join(map(json.dumps, questions)))
    config = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {split: f"{name}_{split}.jsonl" for split in data}},
        "output_type": "multiple_choice",
        "doc_to_text": "{{asked}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{label}}",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
        "metadata": {"version": 3},
    }
    config |= {f"{'training' if split == 'train' else split}_split": split for split in data}
    (folder / f"{name}.yaml").write_text(json.dumps(config | options))


TEST, TRAIN = rows(60, seed=1), rows(20, seed=2)


def by_hand(model, tokenizer, shots: int = 0, seed: int = 0, questions: list[Row] = TEST) -> tuple[list[float], int]:
    """(right or wrong for each question, prompts that do not fit) by one forward pass for each choice, unpadded."""
    rng = random.Random(seed)
    correct, cut = [], 0
    for row in questions:
        examples = rng.sample(TRAIN, shots)
        prompt = "".join(f"{one['asked']} {one['choices'][one['label']]}\n\n" for one in examples) + row["asked"]
        likelihoods, too_long = [], False
        for choice in row["choices"]:
            start, ids = tokenizer.encode(prompt), tokenizer.encode(f"{prompt} {choice}")
            n = len(ids) - len(start)
            too_long |= len(ids) > 65
            ids = torch.tensor(ids[-65:])
            with torch.no_grad():
                logits = model(ids[None, :-1]).logits[0].double()
            likelihoods.append(logits.log_softmax(-1)[torch.arange(len(ids) - 1), ids[1:]][-n:].sum().item())
        correct.append(float(np.argmax(likelihoods) == row["label"]))
        cut += too_long
    return correct, cut


# One question as the data set of each task of the paper has it
AS_PUBLISHED: dict[str, tuple[str, Row]] = {
    name: (
        "arc",
        {"question": "a cat?", "choices": {"text": ["a dog", "a mat"], "label": ["A", "B"]}, "answerKey": "B"},
    )
    for name in ("arc_easy", "arc_challenge")
} | {
    "openbookqa": (
        "openbookqa",
        {"question_stem": "a cat", "choices": {"text": ["sat", "hills"], "label": ["A", "B"]}, "answerKey": "A"},
    ),
    "piqa": ("piqa", {"goal": "sat on a mat", "sol1": "a cat", "sol2": "a town", "label": 0}),
    "hellaswag": (
        "hellaswag",
        {"activity_label": "Rain", "ctx_a": "it rained", "ctx_b": "far", "endings": ["away", "[x] dog"], "label": "0"},
    ),
    "winogrande": (
        "winogrande",
        {"sentence": "the cat and the dog sat while _ rained", "option1": "it", "option2": "one", "answer": "1"},
    ),
    "mathqa": ("mathqa", {"Problem": "one", "options": "a ) 3 , b ) 4 , c ) 5 , d ) 6 , e ) 7", "correct": "e"}),
    "pubmedqa": ("pubmedqa", {"QUESTION": "a cat?", "CONTEXTS": ["one", "mat"], "final_decision": "maybe"}),
    "sciq": (
        "sciq",
        {
            "support": " a cat",
            "question": "sat?",
            "distractor1": "x",
            "distractor2": "y",
            "distractor3": "z",
            "correct_answer": "cat",
        },
    ),
    "social_iqa": (
        "siqa",
        {"context": "a cat", "question": "sat?", "answerA": "on", "answerB": "it", "answerC": "far", "label": "3"},
    ),
    "commonsense_qa": ("commonsense_qa", {"question": "a?", "choices": {"text": list("vwxyz")}, "answerKey": "E"}),
    "mmlu": ("mmlu/default", {"question": "a?", "choices": ["the", "cat", "sat", "on"], "answer": 2}),
}
FILES = {"social_iqa": "siqa", "winogrande": "default", "commonsense_qa": "default", "mmlu": "mmlu_anatomy"}
