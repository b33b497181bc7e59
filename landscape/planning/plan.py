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
_DENSITY_STEPS = 24  # of Lanczos for each probe of the density, as `landscape.config.SharpnessConfig`
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
    if config.job == "sharpness" and not (config.shard or config.stream):
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
    many = config.quantizers
    yield Phase("loss of Θ", once, _weights(config, costs, 1) | loss)
    if many:
        each = f"{many} times, " if many > 1 else ""
        yield Phase(f"{each}quantizing", many * 2 * batches * costs.loss.flops, _weights(config, costs, 2) | loss)
        yield Phase(f"{each}loss of Θ̂", many * once, _weights(config, costs, 2) | loss)


def _sharpness(config: PlanConfig, costs: Costs, batches: int, machine: Machine) -> Iterator[Phase]:
    own, in_pieces = ceil(batches / config.ranks), config.shard or config.stream
    # the gradient counts as a copy of Θ where it is in pieces; otherwise it is part of what computing it makes
    activations = {"activations": float(costs.forward.peak if in_pieces else costs.gradient.peak)}
    held, sent = _weights(config, costs, 3) | activations, _summed(config, costs) * (own if config.shard else 1)
    yield Phase("gradient", own * costs.gradient.flops, held, sent)
    if config.product == "difference" or in_pieces or costs.graph is None or costs.product is None:
        held, how = _weights(config, costs, 5) | activations, "by differences"
        once, each, sent = 0.0, 4 * own * costs.gradient.flops, 4 * sent
    else:
        keeps = own * costs.graph.held < _KEEP * (machine.memory - 3 * BYTES * costs.parameters)
        held, how = _weights(config, costs, 3), f"graphs {'kept' if keeps else 'built anew for each'}"
        held |= {"graphs": float(costs.graph.held * (own if keeps else 1)), "activations": float(costs.product.peak)}
        once, each = own * costs.graph.flops, own * costs.product.flops
        if not keeps:
            once, each = 0.0, once + each
    krylov = _krylov(config, costs, machine, config.products + 2, held)
    yield Phase(
        f"{config.products} products, {how}", once + config.products * each, held | krylov, config.products * sent
    )
    if config.density:
        krylov = _krylov(config, costs, machine, _DENSITY_STEPS, held)
        yield Phase(f"density, {config.density} products", config.density * each, held | krylov, config.density * sent)
    forward = _weights(config, costs, 3) | {"activations": float(costs.loss.peak)}
    sent = 2 * config.probes * own * _summed(config, costs) / 3 if config.shard else 0.0
    yield Phase(f"trace, {config.probes} probes", 2 * config.probes * own * costs.loss.flops, forward, sent)


def _summed(config: PlanConfig, costs: Costs) -> float:
    """Bytes that a rank sends for a gradient: once for all its batches; in pieces, weights twice for each batch too."""
    reduced = 2.0 * BYTES * costs.parameters * (config.ranks - 1) / config.ranks
    return 3 * reduced if config.shard else reduced


def _krylov(
    config: PlanConfig, costs: Costs, machine: Machine, wanted: int, held: dict[str, float]
) -> dict[str, float]:
    """So many vectors, or those that fit beside what is held: fewer mean restarts, and more products."""
    if config.stream:
        return {}
    vector = BYTES * costs.parameters / (config.ranks if config.shard else 1)
    fit = max(_LEAST_VECTORS, (machine.memory - sum(held.values())) // vector)
    return {"Krylov vectors": min(wanted, fit) * vector}
