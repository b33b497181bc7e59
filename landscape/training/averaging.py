"""Means of weights: Σ cᵢ Θᵢ / Σ cᵢ, accumulated in float64, with one member in memory at a time.

Which members and which c make the method:

- LAWA, the mean of the latest checkpoints (Kaddour 2022, arXiv 2209.14981; arXiv 2510.06213 takes the last 5, 500 steps
  apart): c = 1.
- A soup, the mean of models trained apart from one start (Wortsman et al. 2022, arXiv 2203.05482): c = 1.
- EMA, the exponential moving average of a run (of the Polyak-Ruppert kind), here over its checkpoints: c falls by
  `decay` from each member to the one before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from torch import Tensor

from landscape.errors import ModelError
from landscape.weights import Weights, check_same_space


class RunningMean:
    """Σ cᵢ Θᵢ / Σ cᵢ over the members so far; holds the sum, in float64, and no member.

    With c = 1 the sum is exact, and so independent of the order, where no entry of one member is more than some 2²⁶
    times what it is in another.
    """

    def __init__(self) -> None:
        self._sum: dict[str, Tensor] = {}
        self._total = 0.0

    def add(self, weights: Weights, coefficient: float = 1.0) -> None:
        """One more member.

        Raises:
            ModelError: it is of another architecture than those before.
        """
        if not self._sum:
            self._sum = {name: tensor.double() * coefficient for name, tensor in weights.items()}
        else:
            check_same_space(Weights(self._sum), weights)
            for name, tensor in weights.items():
                self._sum[name].add_(tensor.double(), alpha=coefficient)
        self._total += coefficient

    def fade(self, decay: float) -> None:
        """Let every member so far count `decay` of what it did."""
        for tensor in self._sum.values():
            tensor.mul_(decay)
        self._total *= decay

    def mean(self) -> Weights:
        """The mean in float32, in memory of its own.

        Raises:
            ModelError: there was no member.
        """
        if not self._sum:
            raise ModelError("a mean of no models: expected at least one")
        return Weights({name: (tensor / self._total).float() for name, tensor in self._sum.items()})


def weighted_mean(members: Iterable[tuple[float, Weights]]) -> Weights:
    """Σ cᵢ Θᵢ / Σ cᵢ of pairs (cᵢ, Θᵢ), in float32; a member is let go before the next one is asked for.

    >>> import torch
    >>> weighted_mean((c, Weights({"w": torch.tensor([x])})) for c, x in [(1.0, 0.0), (3.0, 4.0)])["w"]
    tensor([3.])

    Raises:
        ModelError: members of different architectures, or none.
    """
    running = RunningMean()
    for coefficient, weights in members:
        running.add(weights, coefficient)
        del weights  # else it would stay until the next one is there
    return running.mean()


def ema_coefficients(n: int, decay: float) -> tuple[float, ...]:
    """cᵢ = decayⁿ⁻¹⁻ⁱ / Σⱼ decayʲ, the oldest member first: those of a `RunningMean` that fades before each member.

    >>> ema_coefficients(2, 0.25)
    (0.2, 0.8)
    """
    powers = [decay**age for age in reversed(range(n))]
    total = math.fsum(powers)
    return tuple(power / total for power in powers)


def lawa_members(steps: Sequence[int], window: int, every: int | None = None) -> list[int]:
    """The last `window` of a run's ascending `steps`, or those that lie `every` apart, counted from the last.

    >>> lawa_members([10, 20, 30, 40, 50], window=3), lawa_members([10, 20, 30, 40, 50], window=3, every=20)
    ([30, 40, 50], [10, 30, 50])

    Raises:
        ModelError: the run is too short, or has no checkpoint at one of the steps.
    """
    if every is None:
        if len(steps) < window:
            raise ModelError(f"{_count(steps)}; expected --window {window} of them; use a smaller one, or end later")
        return list(steps[-window:])
    wanted = [steps[-1] - every * back for back in reversed(range(window))]
    if wanted[0] < steps[0]:
        raise ModelError(
            f"--window {window} --every {every} reaches back to step {wanted[0]}, the run to step {steps[0]}; use a "
            "smaller one, or end later"
        )
    return _there(wanted, steps, every)


def ema_members(steps: Sequence[int], every: int | None = None) -> list[int]:
    """All of a run's ascending `steps`, or those that lie `every` apart, counted from the last.

    Raises:
        ModelError: fewer than two, or the run has no checkpoint at one of the steps.
    """
    wanted = list(steps if every is None else reversed(range(steps[-1], steps[0] - 1, -every)))
    if len(wanted) < 2:
        apart = "" if every is None else f", --every {every} steps apart"
        raise ModelError(f"{_count(wanted)}{apart}; expected two or more; end later, or use another --every")
    return _there(wanted, steps, every)


def _count(steps: Sequence[int]) -> str:
    return f"{len(steps)} {'checkpoint' if len(steps) == 1 else 'checkpoints'} up to step {steps[-1]}"


def _there(wanted: list[int], steps: Sequence[int], every: int | None) -> list[int]:
    """`wanted`, where the run has all of it."""
    for step in reversed(wanted):
        if step not in steps:
            near = sorted(steps, key=lambda one: abs(one - step))[:4]
            raise ModelError(
                f"no checkpoint at step {step}, where --every {every} expects one; nearest: "
                f"{', '.join(f'step {one}' for one in near)}"
            )
    return wanted
