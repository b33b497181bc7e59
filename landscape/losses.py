"""How much quantization costs: the losses of Θ and Θ̂ over the same windows, and an interval for their difference.

Windows differ far more from each other than Θ̂ from Θ on any one of them. Both are therefore evaluated on the same
windows in the same loop, and the bootstrap draws windows for both at once: ΔL is then known to a fraction of the error
of L itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from landscape.machine.ranks import ALONE, Ranks
from landscape.objective import Batch, TokenCrossEntropy

_AT_ONCE = 1 << 22  # draws times windows held at a time


@dataclass(frozen=True)
class WindowLosses:
    """Summed cross-entropy of each window in nats, and how many tokens were predicted in it; float64 and int64."""

    sums: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, sums: Sequence[Tensor], batches: Sequence[Batch]) -> WindowLosses:
        """From the sums of each batch's windows."""
        if not sums:
            return cls(np.zeros(0), np.zeros(0, dtype=np.int64))
        counts = torch.cat([batch.lengths - 1 for batch in batches])
        return cls(torch.cat(list(sums)).double().cpu().numpy(), counts.numpy())

    @property
    def mean(self) -> float:
        """L = Σ sums / Σ counts, nats per token; NaN without a window."""
        return float(self.sums.sum() / self.counts.sum()) if len(self.sums) else math.nan

    @property
    def perplexity(self) -> float:
        """exp(L)."""
        return math.exp(self.mean) if self.mean < 700 else math.inf


@dataclass(frozen=True)
class Estimate:
    """A number with its bootstrap over windows or questions: standard error, interval of 95 % of the draws."""

    value: float
    standard_error: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """Θ̂ against Θ.

    Attributes:
        loss: L(Θ).
        loss_hat: L(Θ̂).
        change: ΔL = L(Θ̂) − L(Θ), nats per token.
        relative: ΔQ = L(Θ̂)/L(Θ) − 1, the quantization error.
        perplexity_ratio: exp(ΔL).
    """

    loss: Estimate
    loss_hat: Estimate
    change: Estimate
    relative: Estimate
    perplexity_ratio: Estimate


def window_losses(
    objective: TokenCrossEntropy,
    weights: Mapping[str, Tensor],
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    ranks: Ranks = ALONE,
) -> WindowLosses:
    """The losses of every window at `weights`, without gradients. May be NaN or infinite: that is a result.

    Of several `ranks` each evaluates some of the batches, and all get the losses of all.
    """
    sums: list[Tensor] = []
    own = ranks.share(len(objective.batches))
    with torch.no_grad():
        for found in objective.windows(weights, own):
            sums.append(found)
            on_progress(len(sums), len(own))
    return WindowLosses.of(ranks.merged([each.cpu() for each in sums]), objective.batches)


def compare(theta: WindowLosses, theta_hat: WindowLosses, draws: int = 2000, seed: int = 0) -> Comparison:
    """Θ̂ against Θ on the same windows, with a paired bootstrap of `draws` resamplings of the windows.

    Windows are taken as independent. Where documents run on from one window into the next they are nearly so; the
    text of a few documents alone supports no claim beyond these documents, whatever the interval.

    Raises:
        ValueError: the windows are not the same.
    """
    if not np.array_equal(theta.counts, theta_hat.counts):
        raise ValueError("compare: Θ and Θ̂ were evaluated on different windows")
    n = len(theta.sums)
    drawn: list[np.ndarray] = []
    if n > 1 and np.isfinite(theta.sums).all() and np.isfinite(theta_hat.sums).all():
        rng = np.random.default_rng(seed)
        step = max(1, _AT_ONCE // n)
        for start in range(0, draws, step):
            taken = rng.multinomial(n, np.full(n, 1 / n), size=min(step, draws - start))
            tokens = taken @ theta.counts
            drawn.append(np.stack([taken @ theta.sums / tokens, taken @ theta_hat.sums / tokens]))
    lost, hat = np.concatenate(drawn, axis=1) if drawn else np.zeros((2, 0))
    at, at_hat = theta.mean, theta_hat.mean
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return Comparison(
            loss=_estimate(at, lost),
            loss_hat=_estimate(at_hat, hat),
            change=_estimate(at_hat - at, hat - lost),
            relative=_estimate(at_hat / at - 1 if at else math.nan, hat / lost - 1),
            perplexity_ratio=_estimate(float(np.exp(np.float64(at_hat - at))), np.exp(hat - lost)),
        )


def _estimate(value: float, drawn: np.ndarray) -> Estimate:
    if not len(drawn):
        return Estimate(value, math.nan, math.nan, math.nan)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Estimate(value, float(drawn.std(ddof=1)), float(low), float(high))


def standard_error(shares: np.ndarray, counts: np.ndarray) -> float:
    """Of Σ shares / Σ counts over windows taken as independent, as of a ratio of means; NaN for a single window."""
    n = len(shares)
    if n < 2:
        return math.nan
    rest = shares - shares.sum() / counts.sum() * counts
    return float(np.sqrt(n / (n - 1) * (rest**2).sum()) / counts.sum())
