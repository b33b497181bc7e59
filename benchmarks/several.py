"""Some of a list of names, as an option of a benchmark takes them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable


def several(names: Iterable[str]) -> Callable[[str], list[str]]:
    """What argparse makes of `a,b`: a list of `names`, or a line that says which there are."""
    known = list(names)

    def parse(given: str) -> list[str]:
        chosen = given.split(",")
        if odd := [name for name in chosen if name not in known]:
            raise argparse.ArgumentTypeError(f"{odd[0]!r}: expected some of {', '.join(known)}, with commas")
        return chosen

    return parse
