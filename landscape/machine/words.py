"""Numbers as a person says them."""

from __future__ import annotations


def byte_size(size: float) -> str:
    """Three digits of a number of bytes."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} PB"


def duration(seconds: float) -> str:
    """Three digits of a time, in the unit that suits it."""
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 86_400:.3g} days"
