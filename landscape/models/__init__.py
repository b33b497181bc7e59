"""A model reference, and what it names: files held against what they claim, a model in memory or in its file."""

from typing import TYPE_CHECKING

from landscape.lazily import lazily

if TYPE_CHECKING:
    from landscape.models.checkpoint import Checkpoint, step_of
    from landscape.models.loading import (
        context_length,
        first_line,
        load_model,
        load_tokenizer,
        pick_device,
        read_model,
        vocabulary_size,
    )
    from landscape.models.references import predecessors, resolve, revisions

__all__ = [
    "Checkpoint",
    "context_length",
    "first_line",
    "load_model",
    "load_tokenizer",
    "pick_device",
    "predecessors",
    "read_model",
    "resolve",
    "revisions",
    "step_of",
    "vocabulary_size",
]

__getattr__ = lazily(
    __name__,
    {
        "loading": (
            "context_length",
            "first_line",
            "load_model",
            "load_tokenizer",
            "pick_device",
            "read_model",
            "vocabulary_size",
        ),
        "checkpoint": ("Checkpoint", "step_of"),
        "references": ("predecessors", "resolve", "revisions"),
    },
)
