"""Whether a picture was evaluated or reconstructed, and how far it can be trusted: said in one way everywhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from landscape.slices.stored import StoredSlice
from landscape.viewer.described.words import bound, number, share, text

EVALUATED, RECONSTRUCTED = "evaluated", "reconstructed"


@dataclass(frozen=True)
class Trust:
    """Where the losses of a picture come from.

    Attributes:
        kind: "evaluated", "reconstructed", "partly reconstructed" or "unfinished".
        words: the same with the number of evaluations and the error.
        short: a few words less, for where there is little room.
        checked: how the error was checked, a sentence; empty where nothing was.
        error: largest one expected, nats; 0 where there is none, infinite where it is not known.
        noise: in words, how much one evaluation scatters; empty in float32.
        notices: what a reader must know before trusting it.
    """

    kind: str
    words: str
    short: str
    checked: str = ""
    error: float = 0.0
    noise: str = ""
    notices: tuple[str, ...] = ()


def trust(stored: StoredSlice) -> Trust:
    """What `stored` says of its own losses."""
    if stored.certificate is not None:
        return _certified(stored)
    cells, done = stored.done.size, int(stored.done.sum())
    made = sum(map(len, stored.nodes.values())) + int((stored.evaluated & stored.done).sum())
    if done == cells:
        dtype = text(stored.attributes.get("dtype"), "float32")
        less = "" if dtype == "float32" else f" in {dtype}"
        return Trust(EVALUATED, f"{EVALUATED} at all {cells:,} {_noun(stored)}{less}", EVALUATED + less)
    if made > done:  # places off the grid: a reconstruction has begun
        so_far = f"{made:,} evaluation{'s' if made > 1 else ''} made so far"
        notice = f"{so_far}; the picture is reconstructed from them when there are enough."
    else:
        so_far = f"{done:,} of {cells:,} {_noun(stored)} evaluated"
        notice = f"{so_far} so far; the others are left blank."
    return Trust("unfinished", f"unfinished: {so_far}", so_far, notices=(notice,))


def evaluated_cells(stored: StoredSlice) -> np.ndarray:
    """(alpha, beta) the cells that have a loss which was evaluated."""
    return stored.evaluated & stored.done


def of_range(error: float, stored: StoredSlice) -> float | None:
    """`error` as a share of the range of the picture's finite losses; None where they have none."""
    losses = stored.loss[stored.done & np.isfinite(stored.loss)]
    spread = float(np.ptp(losses)) if losses.size else 0.0
    return error / spread if spread else None


def _certified(stored: StoredSlice) -> Trust:
    c = stored.certificate
    assert c is not None
    every_cell = c.evaluated == 1
    kind = EVALUATED if every_cell else f"partly {RECONSTRUCTED}" if c.evaluated > 0 else RECONSTRUCTED
    worst, torn = _checks(stored)
    off = max(c.error, worst)  # between evaluated cells a picture can be less exact than on them
    relative = of_range(off, stored)
    of_picture = f" ({share(relative)} of the range)" if relative is not None and np.isfinite(relative) else ""
    error = f"error ≤ {bound(off)} nats" if np.isfinite(off) else "error unknown"
    if every_cell:
        words = f"{EVALUATED} at all {stored.done.size:,} {_noun(stored)}"
        short = EVALUATED
        if off > 0:  # lower precision than float32, compared with it
            words, short = f"{words}, {error}{of_picture} against float32", f"{short}, {error}"
    else:
        some = f", {100 * c.evaluated:.0f} % of the {_noun(stored)} among them" if c.evaluated > 0 else ""
        words = f"{RECONSTRUCTED} from {c.evaluations:,} evaluations{some}, {error}{of_picture}"
        short = f"{RECONSTRUCTED}, {error}"
    checked = ""
    if c.checks:
        besides = f"; at {torn} of them only one of the two is finite" if torn else ""
        differs = f"the loss in float32 differs by at most {bound(worst)} nats{besides}"
        checked = f"At {c.checks} places that it was not made from, {differs}."
    return Trust(kind, words, short, checked, off, _noise(stored), _notices(stored))


def _checks(stored: StoredSlice) -> tuple[float, int]:
    """Largest error at the check points, and at how many of them only one of loss and reconstruction is finite."""
    losses, shown = stored.checks[:, 2], stored.checks[:, 3]
    both = np.isfinite(losses) & np.isfinite(shown)
    worst = float(np.abs(losses - shown)[both].max(initial=0.0))
    return worst, int((np.isfinite(losses) != np.isfinite(shown)).sum())


def _notices(stored: StoredSlice) -> tuple[str, ...]:
    c = stored.certificate
    assert c is not None
    notices = []
    because = f": {c.why}" if c.why else ""
    if not c.reached:
        better = " With --dtype float32 it would be more exact." if _noise(stored) else ""
        better = better or (" That is about what one evaluation scatters by." if c.error < 5 * c.noise else "")
        notices.append(
            f"The picture is less exact than was asked for: it may be off by {bound(c.error)} nats, not by "
            f"{bound(c.target)} at most{because if c.pieces == 1 else ''}.{better}"
        )
    if c.evaluated == 1:
        notices.append(f"Every one of the {stored.done.size:,} {_noun(stored)} was evaluated itself{because}.")
    elif c.pieces > 1:
        some = (
            f", {100 * c.evaluated:.0f} % of the {_noun(stored)} being evaluated one by one" if c.evaluated > 0 else ""
        )
        notices.append(f"One polynomial was not enough{because}. The picture is joined from {c.pieces} pieces{some}.")
    elif c.evaluated > 0:
        notices.append(f"{100 * c.evaluated:.0f} % of the {_noun(stored)} were evaluated one by one{because}.")
    return tuple(notices)


def _noun(stored: StoredSlice) -> str:
    return "places" if stored.is_line else "cells"


def _noise(stored: StoredSlice) -> str:
    dtype = text(stored.attributes.get("dtype"), "float32")
    if dtype == "float32" or stored.certificate is None:
        return ""
    return f"one evaluation in {dtype} scatters by {number(stored.certificate.noise, '.1g')} nats"
