"""A job as phases, each with its operations and what a rank holds meanwhile; whether that fits, and what would.

Operations and bytes of a batch are counted (`landscape.planning.dry`). How often a batch is computed is what the jobs
do: a probe of the trace is two losses, a product by differences four gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil

from landscape.config import PlanConfig
from landscape.planning.dry import Costs

BYTES = 4  # of a float32 weight
_KEEP = 0.5  # of the free memory, for graphs that are kept: as `landscape.curvature.batched`
_HALF = 0.3  # of the time in float32 that 16-bit arithmetic takes on a device made for it
_LEAST_VECTORS = 11  # of a Krylov space that is restarted, and those beside it: as `landscape.sharpness.spectrum`
_EFFICIENCY = 0.5  # of what large matrix products reach, by a model of this kind: docs/scale.md


@dataclass(frozen=True)
class Machine:
    """What a rank has.

    Attributes:
        memory: bytes.
        speed: floating-point operations a second in large matrix products.
        link: bytes a second between ranks.
    """

    memory: float
    speed: float
    link: float


@dataclass(frozen=True)
class Phase:
    """A part of a job, as every rank sees it.

    Attributes:
        name: what is done.
        flops: operations of one rank.
        sent: bytes that one rank sends.
        held: bytes by what they are, at the worst moment.
    """

    name: str
    flops: float
    held: dict[str, float]
    sent: float = 0.0

    @property
    def bytes(self) -> float:
        """All that is held."""
        return sum(self.held.values())


@dataclass(frozen=True)
class Plan:
    """A job on a machine."""

    config: PlanConfig
    costs: Costs
    machine: Machine
    phases: tuple[Phase, ...]

    def seconds(self, phase: Phase) -> float:
        """How long it takes: operations at half the speed of large products, and what is sent."""
        pace = _HALF if self.config.dtype != "float32" else 1.0
        return phase.flops * pace / (self.machine.speed * _EFFICIENCY) + phase.sent / self.machine.link

    @property
    def peak(self) -> float:
        """Bytes at the worst moment."""
        return max(phase.bytes for phase in self.phases)

    @property
    def fits(self) -> bool:
        """Whether a device has that much."""
        return self.peak <= self.machine.memory


def plan(config: PlanConfig, windows: int, costs_of: Callable[[PlanConfig], Costs], machine: Machine) -> Plan:
    """The phases of `config` over so many windows; `costs_of` gives what one of its batches costs."""
    costs = costs_of(config)
    batches = ceil(windows / _batch_size(config))
    kinds = {"slice": _slice, "sharpness": _sharpness, "evaluate": _evaluate}
    return Plan(config, costs, machine, tuple(kinds[config.job](config, costs, batches, machine)))


def remedies(found: Plan, windows: int, costs_of: Callable[[PlanConfig], Costs]) -> list[tuple[str, float]]:
    """What could be changed so that it fits, with the bytes it would then take; the least invasive first."""
    config = found.config
    changes: list[tuple[str, dict[str, object]]] = []
    if _batch_size(config) > 1:
        changes.append(("--batch-size 1", {"batch_size": 1}))
    if config.job == "sharpness" and not config.shard:
        changes.append(("--checkpointing --batch-size 1", {"checkpointing": True, "batch_size": 1}))
        changes.append(("--product difference --batch-size 1", {"product": "difference", "batch_size": 1}))
    if config.job == "sharpness":
        changes += [
            (f"torchrun on {ranks} ranks with --shard --batch-size 1", {"shard": True, "batch_size": 1, "ranks": ranks})
            for ranks in (2, 4, 8, 16, 32, 64)
            if ranks > config.ranks
        ]
    if not config.stream and not config.shard:
        changes.append(("--stream always", {"stream": True, "batch_size": 1}))
    fitting: list[tuple[str, float]] = []
    for words, change in changes:
        other = plan(replace(config, **change), windows, costs_of, found.machine)  # type: ignore[arg-type]
        if other.fits and not (fitting and "--shard" in words and "--shard" in fitting[-1][0]):
            fitting.append((words, other.peak))
    return fitting


def _batch_size(config: PlanConfig) -> int:
    return config.batch_size or (2 if config.job == "sharpness" else 8)


def _weights(config: PlanConfig, costs: Costs, copies: float) -> dict[str, float]:
    """`copies` of Θ, as the way of holding them has it."""
    whole = BYTES * costs.parameters
    if config.shard:
        return {"weights": copies * whole / config.ranks, "gathered blocks": 2.0 * BYTES * costs.largest_block}
    if config.stream:  # a block of Θ and of two directions; what is outside of blocks stays
        return {"blocks": 3.0 * BYTES * costs.largest_block, "embeddings and head": float(BYTES * costs.outside)}
    return {"weights": copies * whole}


def _slice(config: PlanConfig, costs: Costs, batches: int, machine: Machine) -> Iterator[Phase]:
    rounds, loss = ceil(config.evaluations / config.ranks), {"activations": float(costs.loss.peak)}
    once = batches * costs.loss.flops
    yield Phase("quantizing, spanning the plane", 2 * once, _weights(config, costs, 6) | loss)
    spread = 2.0 * BYTES * costs.parameters if config.ranks > 1 else 0.0
    yield Phase(f"{config.evaluations} places", rounds * once, _weights(config, costs, 4) | loss, spread)


def _evaluate(config: PlanConfig, costs: Costs, batches: int, machine: Machine) -> Iterator[Phase]:
    loss, once = {"activations": float(costs.loss.peak)}, ceil(batches / config.ranks) * costs.loss.flops
    yield Phase("loss of Θ", once, _weights(config, costs, 1) | loss)
    yield Phase("quantizing", 2 * batches * costs.loss.flops, _weights(config, costs, 2) | loss)
    yield Phase("loss of Θ̂", once, _weights(config, costs, 2) | loss)


def _sharpness(config: PlanConfig, costs: Costs, batches: int, machine: Machine) -> Iterator[Phase]:
    whole, ranks, own = BYTES * costs.parameters, config.ranks, ceil(batches / config.ranks)
    in_pieces = config.shard or config.stream
    vector = whole / ranks if config.shard else 0.0 if config.stream else float(whole)
    reduced = 2.0 * whole * (ranks - 1) / ranks
    gathered = 3 * reduced if config.shard else reduced  # for each batch: weights twice, the gradient once
    # the gradient counts as a copy of Θ where it is in pieces; otherwise it is part of what computing it makes
    activations = {"activations": float(costs.forward.peak if in_pieces else costs.gradient.peak)}
    held = _weights(config, costs, 3) | activations
    yield Phase("gradient", own * costs.gradient.flops, held, gathered * (own if config.shard else 1))
    if config.product == "difference" or in_pieces or costs.graph is None or costs.product is None:
        held = _weights(config, costs, 5) | activations
        flops = 4 * config.products * own * costs.gradient.flops
        sent = 4 * config.products * gathered * (own if config.shard else 1)
        name = f"{config.products} products by differences"
    else:
        keeps = own * costs.graph.held < _KEEP * (machine.memory - 3 * whole)
        held = _weights(config, costs, 3)
        held |= {"graphs": float(costs.graph.held * (own if keeps else 1)), "activations": float(costs.product.peak)}
        built = own * costs.graph.flops * (1 if keeps else config.products)
        flops = built + config.products * own * costs.product.flops
        sent = config.products * reduced
        name = f"{config.products} products, graphs {'kept' if keeps else 'built anew for each'}"
    if vector:  # fewer mean restarts, and more products; below the least none can be done
        fit = max(_LEAST_VECTORS, (machine.memory - sum(held.values())) // vector)
        held["Krylov vectors"] = min(config.products + 2, fit) * vector
    yield Phase(name, flops, held, sent)
    forward = _weights(config, costs, 3) | {"activations": float(costs.loss.peak)}
    sent = 2 * config.probes * own * gathered / 3 if config.shard else 0.0
    yield Phase(f"trace, {config.probes} probes", 2 * config.probes * own * costs.loss.flops, forward, sent)
