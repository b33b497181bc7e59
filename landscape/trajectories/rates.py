"""The learning rate that a family published, as a function of how far its training had come.

Trainers write down a rate for "after n steps": n/w of the peak in a warm-up of w steps, and the end of a decay at its
last step. `landscape.training.schedules` gives the rate *of* an update instead, which is one update off; the shapes of
the decays are the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from landscape.training import SHAPES


@dataclass(frozen=True)
class Rate:
    """Warm-up from 0, the peak, and a decay; all places in one unit, which is the caller's.

    Attributes:
        peak: the largest rate.
        until: where the decay has reached its end.
        warmup: where the warm-up ends; 0 for none.
        since: where the decay begins; None for right after the warm-up.
        shape: of the decay, one of `SHAPES`.
        end: what the decay leads to, as a share of the peak.
        floor: what the rate does not fall below, as a share of the peak.
    """

    peak: float
    until: float
    warmup: float = 0.0
    since: float | None = None
    shape: str = "cosine"
    end: float = 0.0
    floor: float = 0.0

    def at(self, place: float) -> float:
        """The rate when training has come to `place`.

        >>> rate = Rate(peak=1e-3, warmup=10, since=60, until=100, shape="linear")
        >>> [rate.at(place) for place in (0, 5, 10, 60, 80, 100, 110)]
        [0.0, 0.0005, 0.001, 0.001, 0.0005, 0.0, 0.0]
        """
        if place < self.warmup:
            return self.peak * place / self.warmup
        since = self.warmup if self.since is None else self.since
        left = min(1.0, max(0.0, (self.until - place) / (self.until - since)))
        return self.peak * max(self.floor, self.end + (1 - self.end) * SHAPES[self.shape](left))
