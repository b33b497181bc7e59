"""Recipes made for tests."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from landscape.errors import OptionError
from landscape.training.recipe import Recipe, from_dict

MINIMAL = {"model": {"type": "gpt_neox"}, "text": "a.txt", "steps": 100}
LINES = "model: {type: gpt_neox}\ntext: a.txt\nsteps: 100\n"
ALL = [each.name for each in fields(Recipe)]


def made(**own: object) -> Recipe:
    return from_dict({**MINIMAL, **own}, "test")


def written(folder: Path, content: str, name: str = "recipe.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def refused(action, *parts: str) -> None:
    """`action` ends in one line that holds `parts`."""
    with pytest.raises(OptionError) as error:
        action()
    assert "\n" not in str(error.value)
    for part in parts:
        assert part in str(error.value)
