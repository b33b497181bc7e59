"""The planes one can ask for: which weights and directions span each, and what its named points are.

Each kind is a function from Θ_K and what the job can provide (checkpoints, quantizers, the objective) to a `Span`.
Whatever it finds is then held to the parameters of `--params`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import torch

from landscape import packed, quantize
from landscape.basin.sources import check_enough
from landscape.basin.workshop import HAT, THETA, Workshop
from landscape.curvature import Hessian, ParameterSpace, eigenvectors
from landscape.errors import OptionError
from landscape.inputs import SameWeights
from landscape.models.checkpoint import Checkpoint
from landscape.slices import Named
from landscape.weights import Weights, random_direction

PREVIOUS = "Θ_{K−1}"
_RISE = 0.1  # nats, by which the loss is to rise up to the edge along a direction that is sharp, as its curvature says

Interval = tuple[float, float]


@dataclass
class Span:
    """Two directions from Θ_K, or one, and the points to be located on what they span.

    Attributes:
        first, second: directions, with memory of their own.
        points: weights by name; the first is Θ_K, and the profile runs from it to the last.
        named: what they are.
        titles: of the axes, in words.
        about: what the plane is, for someone who sees it for the first time.
        sides: of the rectangle along α and β, where the points do not give them.
        attributes: numbers that belong to the plane.
        reports: of the quantizers that were used.
    """

    first: Weights
    second: Weights | None
    points: dict[str, Weights]
    named: dict[str, Named]
    titles: tuple[str, str]
    about: str = ""
    sides: tuple[Interval | None, Interval | None] = (None, None)
    attributes: dict[str, float] = field(default_factory=dict)
    reports: list[quantize.Report] = field(default_factory=list)


def span(workshop: Workshop) -> Span:
    """What spans the plane asked for.

    Raises:
        LandscapeError: weights that span nothing, or belong to another architecture.
    """
    kind = _KINDS[workshop.config.plane]
    return kind(workshop) if workshop.config.params == "*" else _held(kind, workshop)


def _checkpoints(work: Workshop) -> Span:
    theta, (hat, report, named) = work.theta, work.hat()
    if not work.sources.checkpoints:
        direction = random_direction(theta, work.config.seed, work.config.normalize)
        points, names = {"theta": theta, "theta_hat": hat}, {"theta": work.origin(), "theta_hat": named}
        title = f"α: distance along a random direction, {work.config.normalize}-normalized, seed {work.config.seed}"
        about = f"It runs through {THETA} and the quantized weights {HAT}; its first direction is random."
        return Span(direction, hat - theta, points, names, (title, _STEP_TITLE), about, reports=[report])
    previous = work.sources.checkpoints[0]
    before, other = work.load(previous), _named(previous, PREVIOUS)
    what = "an earlier checkpoint" if other.label == PREVIOUS else "weights that somebody packed,"
    return Span(
        before - theta,
        hat - theta,
        {"theta": theta, "theta_prev": before, "theta_hat": hat},
        {"theta": work.origin(), "theta_prev": other, "theta_hat": named},
        (f"α: distance along {THETA} → {other.label}", _STEP_TITLE),
        f"It runs through the final weights {THETA}, {what} {other.label} and the quantized weights {HAT}.",
        reports=[report],
    )


def _named(other: Checkpoint, label: str) -> Named:
    """Another checkpoint by its label; a packed one is somebody's Θ̂_K."""
    if packed.is_packed(other):
        return Named(f"Θ̂_{{{other.name}}}", "quantized", str(other))
    return Named(label, "checkpoint", str(other))


def _random(work: Workshop) -> Span:
    config, theta = work.config, work.theta
    first, second = (random_direction(theta, seed, config.normalize) for seed in (config.seed, config.seed + 1))
    words = f"random direction, {config.normalize}-normalized, seed"
    return Span(
        first,
        second,
        {"theta": theta},
        {"theta": work.origin()},
        (f"α: distance along a {words} {config.seed}", f"β: a second one, seed {config.seed + 1}"),
        f"It runs through {THETA} along two random directions; each {config.normalize} is as long there as in {THETA}.",
        sides=_around_zero(_share_of_norm(work) or theta.norm()),
    )


def _eigenvectors(work: Workshop) -> Span:
    assert work.config.vectors is not None
    theta = work.theta
    space = ParameterSpace.select(theta, work.config.patterns)
    like = next(iter(theta.values()))
    rows = eigenvectors.read(work.config.vectors, space, like, "--vectors")
    if len(rows) < 2:
        raise OptionError(
            f"--vectors {work.config.vectors}: holds one vector, two span a plane; measure with --top 2 --vectors"
        )
    curvature = abs(float(rows[0] @ (Hessian(work.loaded.objective, theta, work.config.patterns) @ rows[0])))
    first, second = (_direction(row, space, theta) for row in rows[:2])
    return Span(
        first,
        second,
        {"theta": theta},
        {"theta": work.origin()},
        ("α: distance along the first eigenvector of the Hessian", "β: distance along the second"),
        f"It runs through {THETA} along two eigenvectors of the Hessian, as they were measured.",
        sides=_around_zero(_share_of_norm(work) or ((2 * _RISE / curvature) ** 0.5 if curvature else None)),
    )


def _gradient(work: Workshop) -> Span:
    theta, (hat, report, named) = work.theta, work.hat()
    hessian = Hessian(work.loaded.objective, theta, work.config.patterns)
    downhill = -hessian.gradient()
    slope = float(downhill.norm())
    curvature = float(downhill @ (hessian @ downhill)) / slope**2 if slope else 0.0
    root = (slope**2 + 2 * _RISE * max(curvature, 0.0)) ** 0.5  # −slope·t + curvature·t²/2 is _RISE at (slope ± root)
    return Span(
        _direction(downhill, hessian.space, theta),
        hat - theta,
        {"theta": theta, "theta_hat": hat},
        {"theta": work.origin(), "theta_hat": named},
        ("α: distance downhill, along −∇L", _STEP_TITLE),
        f"It runs through {THETA} along the negative gradient of the loss, and through the quantized weights {HAT}.",
        sides=(((slope - root) / curvature, (slope + root) / curvature) if curvature > 0 else None, None),
        reports=[report],
    )


def _quantizers(work: Workshop) -> Span:
    theta, (one, two) = work.theta, work.sources.quantizers
    (hat, report), (other, other_report) = work.quantized(one), work.quantized(two)
    labels = [f"Θ̂_{{{quantizer}}}" for quantizer in (one, two)]
    return Span(
        hat - theta,
        other - theta,
        {"theta": theta, "theta_hat": hat, "theta_hat_2": other},
        {
            "theta": work.origin(),
            "theta_hat": Named(labels[0], "quantized", str(one)),
            "theta_hat_2": Named(labels[1], "quantized", str(two)),
        },
        (f"α: distance along {THETA} → {labels[0]}", f"β: {THETA} → {labels[1]}, part orthogonal to α"),
        f"It runs through {THETA} and the weights that two quantizers make of it, {labels[0]} and {labels[1]}.",
        reports=[report, other_report],
    )


def _line(work: Workshop) -> Span:
    theta = work.theta
    reports = []
    if work.sources.checkpoints:
        other = work.sources.checkpoints[0]
        end, name, named = work.load(other), "theta_to", _named(other, f"Θ_{{{other.revision or other.name}}}")
    else:
        end, report, named = work.hat()
        name, reports = "theta_hat", [report]
    return Span(
        end - theta,
        None,
        {"theta": theta, name: end},
        {"theta": work.origin(), name: named},
        (f"α: distance along {THETA} → {named.label}", ""),
        f"The straight line through {THETA} and {named.label}.",
        reports=reports,
    )


def _pca(work: Workshop) -> Span:
    """Principal components of the steps to Θ_K, not centred, as in Li et al. 2018, arXiv 1712.09913, section 7.2."""
    theta, found = work.theta, {}
    for other in work.sources.checkpoints:
        with suppress(SameWeights):  # the last of a run is often the final model under another name
            found[other] = work.load(other)
    check_enough(work.checkpoint, len(found))
    others, weights = list(found), list(found.values())
    steps = [each - theta for each in weights]
    gram = torch.tensor([[a.dot(b) for b in steps] for a in steps], dtype=torch.float64)
    values, vectors = torch.linalg.eigh(gram)
    first, second = (_combined(steps, vectors[:, -k].tolist()) for k in (1, 2))
    share = (values / values.sum()).tolist()
    names = {
        f"theta_{i}": Named(f"Θ_{{{other.revision}}}", "checkpoint", str(other)) for i, other in enumerate(others, 1)
    }
    points = {"theta": theta, **dict(zip(names, weights, strict=True))}
    return Span(
        first,
        second,
        points,
        {"theta": work.origin(), **names},
        (f"α: first principal component, {share[-1]:.1%} of the variance", f"β: second, {share[-2]:.1%}"),
        f"It runs through {THETA} along the two directions in which the {len(others)} checkpoints before it moved "
        "most; these are shown where they project, with their distance from the plane.",
        attributes={"explained_first": share[-1], "explained_second": share[-2]},
    )


def _combined(steps: list[Weights], shares: list[float]) -> Weights:
    """Σ share·step, towards where training came from."""
    sign = 1.0 if shares[-1] >= 0 else -1.0
    total = steps[0] * (sign * shares[0])
    for step, share in zip(steps[1:], shares[1:], strict=True):
        for name, tensor in total.items():
            tensor.add_(step[name], alpha=sign * share)
    return total


def _direction(flat: torch.Tensor, space: ParameterSpace, theta: Weights) -> Weights:
    """`flat` as weights, which are zero where `space` has no parameter."""
    parts = space.unflatten(flat)
    return Weights({n: parts[n].clone() if n in parts else torch.zeros_like(t) for n, t in theta.items()})


def _around_zero(half_width: float | None) -> tuple[Interval | None, Interval | None]:
    side = (-half_width, half_width) if half_width else None
    return side, side


def _share_of_norm(work: Workshop) -> float | None:
    return work.config.reach * work.theta.norm() if work.config.reach else None


def _held(kind: Callable[[Workshop], Span], work: Workshop) -> Span:
    """What `kind` makes of weights in which every parameter that matches no pattern is as in Θ_K."""
    theta, patterns = work.theta, work.config.patterns
    moving = set(ParameterSpace.select(theta, patterns).names)

    def point(weights: Weights) -> Weights:
        return Weights({name: t if name in moving else theta[name] for name, t in weights.items()}, weights.keep)

    def direction(weights: Weights) -> Weights:
        for name in weights.keys() - moving:
            weights[name].zero_()
        return weights

    def quantized(quantizer: quantize.Quantizer) -> tuple[Weights, quantize.Report]:
        weights, report = work.quantized(quantizer)
        return point(weights), report

    chosen = kind(replace(work, load=lambda other: point(work.load(other)), quantized=quantized))
    return replace(
        chosen,
        first=direction(chosen.first),
        second=direction(chosen.second) if chosen.second is not None else None,
        about=f"{chosen.about} Only {', '.join(patterns)} move: {len(moving)} of {len(theta)} tensors.",
    )


_STEP_TITLE = "β: quantization step, part orthogonal to α"


_KINDS: dict[str, Callable[[Workshop], Span]] = {
    "checkpoints": _checkpoints,
    "random": _random,
    "pca": _pca,
    "eigenvectors": _eigenvectors,
    "gradient": _gradient,
    "quantizers": _quantizers,
    "line": _line,
}
