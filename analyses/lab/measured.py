"""What was measured, as arrays over resamplings of the evaluation windows, the same for every checkpoint.

Element 0 of every array is the number itself, on all windows; the others are its bootstrap. Differences, ratios and
slopes taken element by element are therefore paired: what windows have in common drops out of them.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analyses.lab.plan import Plan, Planned
from analyses.lab.worker import INDEX, index_of
from landscape.training.run import Run

DRAWS = 2000


@dataclass(frozen=True)
class Interval:
    """A number and the range that holds 95 % of its resamplings."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, array: np.ndarray) -> Interval:
        """Of an array as this module makes them."""
        low, high = np.percentile(array[1:], [2.5, 97.5])
        return cls(float(array[0]), float(low), float(high))


class Measured:
    """The measurements of all runs of a plan."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        """Read what `analyses.lab.worker` left in `folder`."""
        self.plan, self._folder = plan, folder
        self._sums: dict[tuple[str, str, str], np.ndarray] = {}
        counts: list[int] = []
        for name in plan.runs:
            index = json.loads(index_of(folder, name).read_text())
            for checkpoint, files in index.items():
                for quantizer, file in files.items():
                    windows = json.loads((folder / INDEX / "evaluations" / file).read_text())["windows"]
                    if counts and counts != windows["predicted"]:
                        raise ValueError(f"{file}: other windows than the rest")
                    counts = windows["predicted"]
                    self._sums[name, checkpoint, quantizer] = np.array([windows["sum"], windows["sum_hat"]])
        self.quantizers = tuple(dict.fromkeys(quantizer for _, _, quantizer in self._sums))
        random = np.random.default_rng(0)
        drawn = random.multinomial(len(counts), np.full(len(counts), 1 / len(counts)), size=DRAWS)
        taken = np.concatenate([np.ones((1, len(counts))), drawn])  # (1 + draws, windows)
        self._shares = taken / (taken @ np.array(counts))[:, None]
        self._random = np.random.default_rng(1)

    def losses(self, run: str, checkpoint: str, quantizer: str) -> tuple[np.ndarray, np.ndarray]:
        """(L(Θ), L(Θ̂)) in nats per token."""
        theta, hat = self._sums[run, checkpoint, quantizer] @ self._shares.T
        return theta, hat

    def error(self, run: str, checkpoint: str, quantizer: str) -> np.ndarray:
        """ΔQ = L(Θ̂)/L(Θ) − 1."""
        theta, hat = self.losses(run, checkpoint, quantizer)
        return hat / theta - 1

    def mean_error(self, run: str, checkpoints: Sequence[str], quantizer: str) -> np.ndarray:
        """The mean ΔQ of several checkpoints, which are drawn anew in every resampling too."""
        errors = np.array([self.error(run, checkpoint, quantizer) for checkpoint in checkpoints])
        n = len(checkpoints)
        weights = np.vstack([np.full(n, 1 / n), self._random.multinomial(n, np.full(n, 1 / n), size=DRAWS) / n])
        return np.einsum("nd,dn->d", errors, weights)

    def slope(self, points: Sequence[tuple[str, int]], quantizer: str, resampled: bool = False) -> np.ndarray:
        """Least-squares slope of ln ΔQ over ln steps at points (run, step), drawn anew every time if `resampled`."""
        n = len(points)
        x = np.log([step for _, step in points])[:, None]
        errors = np.array([self.error(run, f"step{step}", quantizer) for run, step in points])  # (points, 1 + draws)
        y = np.log(np.maximum(errors, 1e-6))
        weights = np.full((n, 1 + DRAWS), 1.0)
        if resampled:
            weights[:, 1:] = self._random.multinomial(n, np.full(n, 1 / n), size=DRAWS).T
        x = x - (weights * x).sum(axis=0) / n
        y = y - (weights * y).sum(axis=0) / n
        return (weights * x * y).sum(axis=0) / (weights * x**2).sum(axis=0)

    def steps(self, run: Planned, low: float, high: float) -> list[str]:
        """Checkpoints of a run with low < step ≤ high, in order."""
        return [f"step{step}" for step in sorted(run.measured) if low < step <= high]

    def rate(self, run: str, step: int) -> float:
        """The learning rate of the last update before this checkpoint."""
        rows = Run(self._folder / run).rows()
        return float(next(row["learning_rate"] for row in reversed(rows) if row["step"] <= step))

    def table(self) -> str:
        """All of it as CSV, a row for each checkpoint and quantizer."""
        tokens = self.plan.base.batch_size * self.plan.base.seq_len
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = ("loss", "loss_hat", "delta_q")
        writer.writerow(["run", "checkpoint", "step", "tokens", "quantizer", *_with_error(names)])
        for (run, checkpoint, quantizer), _ in sorted(self._sums.items(), key=_by_step):
            step = _step(checkpoint)
            arrays = (*self.losses(run, checkpoint, quantizer), self.error(run, checkpoint, quantizer))
            numbers = [f"{number:.6f}" for each in arrays for number in (each[0], each[1:].std(ddof=1))]
            writer.writerow([run, checkpoint, step, step * tokens, quantizer, *numbers])
        return text.getvalue()


def _with_error(names: Iterable[str]) -> list[str]:
    return [word for name in names for word in (name, f"{name}_se")]


def _step(checkpoint: str) -> int:
    """Of step400 and of lawa-5x10-at400."""
    return int(checkpoint.rpartition("step" if checkpoint.startswith("step") else "at")[2])


def _by_step(item: tuple[tuple[str, str, str], np.ndarray]) -> tuple[str, int, str, str]:
    run, checkpoint, quantizer = item[0]
    return run, _step(checkpoint), checkpoint, quantizer
