"""The numbers that claims are about: differences of runs at their ends, and how fast an error grows with tokens."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
from scipy import stats

from analyses.lab.claims import Contrast
from analyses.lab.measured import Interval
from analyses.read.known import Known
from analyses.read.runs import Cooldown
from analyses.read.tables import Row, Table, column, is_number
from landscape.errors import StudyError
from landscape.statistics.laws import fit


def end(table: Table, run: str, quantizer: str, name: str = "delta_q") -> Known | None:
    """A column at a run's last checkpoint; None where that has no number."""
    rows = table.line(run, quantizer)
    return Known.of(table, rows[-1], name) if rows and is_number(rows[-1][name]) else None


def difference(what: str, seed: int, one: Known | None, other: Known | None) -> list[Contrast]:
    """One less other, where both are known."""
    return [] if one is None or other is None else [Contrast(what, seed, (one - other).interval)]


def excess(what: str, seed: int, one: Known | None, other: Known | None) -> list[Contrast]:
    """One over other, less 1, where both are known."""
    return [] if one is None or other is None else [Contrast(what, seed, one.over(other).plus(-1.0).interval)]


def between_peaks(table: Table, cooled: Sequence[Cooldown], quantizer: str, name: str) -> list[Contrast]:
    """A column at the ends of cooldowns, for each peak rate less for the next lower one, by seed."""
    at = {(each.peak, each.seed): end(table, each.run, quantizer, name) for each in cooled}
    peaks = sorted({each.peak for each in cooled})
    return [
        contrast
        for lower, higher in itertools.pairwise(peaks)
        for seed in sorted({each.seed for each in cooled})
        for contrast in difference(f"{higher:g} less {lower:g}", seed, at.get((higher, seed)), at.get((lower, seed)))
    ]


def growth_along(rows: Iterable[Row]) -> Interval | None:
    """The slope of ln ΔQ over ln tokens along one run, resampled in blocks of checkpoints; None for too few of them."""
    rows = list(rows)
    try:
        columns = {name: column(rows, name) for name in ("tokens", "parameters", "bits")}
        exponents = fit("kumar", column(rows, "delta_q"), columns).exponents
    except StudyError:
        return None
    return Interval(*exponents["gamma_D"]) if "gamma_D" in exponents else None


def growth_across(rows: Iterable[Row]) -> Interval | None:
    """The same over ends of runs, each a draw of its own: least squares, Student's t; None for fewer than four."""
    pairs = [(row["tokens"], row["delta_q"]) for row in rows if is_number(row["tokens"]) and is_number(row["delta_q"])]
    pairs = [pair for pair in pairs if min(pair) > 0]
    if len(pairs) < 4:
        return None
    line = stats.linregress(*np.log(pairs).T)
    reach = stats.t.ppf(0.975, len(pairs) - 2) * line.stderr
    return Interval(float(line.slope), float(line.slope - reach), float(line.slope + reach))
