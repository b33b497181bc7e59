"""Two arms compared at the same checkpoints: the paired t-test, and the one that knows that a seed is one draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from landscape.errors import StudyError
from landscape.statistics.resampling import runs_of


@dataclass(frozen=True)
class Paired:
    """A mean difference of pairs.

    Attributes:
        mean: of the differences.
        low: lower end of its 95 % interval.
        high: upper end.
        t: mean over standard error.
        p_value: two-sided, with `pairs` − 1 degrees of freedom.
        pairs: what was counted as an independent draw: checkpoints, or seeds.
    """

    mean: float
    low: float
    high: float
    t: float
    p_value: float
    pairs: int


def paired(one: ArrayLike, other: ArrayLike, seeds: Sequence[object] | None = None) -> Paired:
    """One less other, pair by pair; with `seeds`, the mean difference of each seed is one draw.

    Checkpoints of one run resemble each other, so that a test that counts each takes a few draws for many. With the
    mean of each seed, as clusters of equal size allow, it has as many draws as there are seeds. arXiv 2604.15167 gives
    t = −5.46 and p < 0.0001 for three seeds an arm, which only pooled checkpoints can give.

    Args:
        one: a number for each checkpoint.
        other: the other arm's, at the same checkpoint and seed.
        seeds: of every pair; None to count every pair.

    Raises:
        StudyError: fewer than two draws, or other numbers of pairs.
    """
    a, b = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    if a.shape != b.shape or (seeds is not None and len(seeds) != len(a)):
        raise StudyError(f"paired comparison: {len(a)} and {len(b)} rows; expected a pair in each")
    difference = a - b
    if seeds is not None:
        difference = np.array([difference[own].mean() for own in runs_of(seeds)])
    n = len(difference)
    if n < 2:
        raise StudyError(f"paired comparison: {n} {'seeds' if seeds is not None else 'pairs'}; expected at least two")
    mean, error = difference.mean(), difference.std(ddof=1) / np.sqrt(n)
    reach = stats.t.ppf(0.975, n - 1) * error
    t = mean / error if error > 0 else np.inf * np.sign(mean) if mean else 0.0
    return Paired(
        float(mean), float(mean - reach), float(mean + reach), float(t), float(2 * stats.t.sf(abs(t), n - 1)), n
    )
