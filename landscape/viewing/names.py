"""Names of pages: the same as long as a result stays where it is, safe in any file system and address, and unique."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from landscape.viewing.find import TABLE

_LONGEST = 80


def page_names(places: Iterable[str]) -> dict[str, str]:
    """A name for every place, without suffix: what can be read of it, and six digits of a hash over all of it.

    >>> page_names(["study/run 1.h5"])
    {'study/run 1.h5': 'run-1-f20624'}
    """
    names: dict[str, str] = {}
    for place in sorted(set(places)):
        digest = hashlib.sha256(place.encode()).hexdigest()
        length = next(n for n in range(6, 65) if _name(place, digest[:n]) not in names.values())
        names[place] = _name(place, digest[:length])
    return names


def _name(place: str, digits: str) -> str:
    stem = re.sub(r"\.(h5|hdf5|json)$", "", place.removesuffix(f"/{TABLE}").rsplit("/", 1)[-1])
    readable = re.sub(r"[^a-z0-9.]+", "-", stem.lower())[:_LONGEST].strip("-.")
    return "-".join(filter(None, (readable, digits)))
