"""An extension of Griffe: examples in docstrings become code blocks; Markdown would take their >>> for quotes."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?:^[ ]*>>>.*\n(?:^[ ]*\S.*\n?)*)+(?:\n(?:^[ ]*>>>.*\n?(?:^[ ]*\S.*\n?)*)+)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Fences around the examples of every docstring."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            text = _EXAMPLE.sub(lambda match: f"```pycon\n{match[0].strip()}\n```\n", obj.docstring.value + "\n")
            obj.docstring.value = text.rstrip()
