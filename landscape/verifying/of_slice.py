"""A slice: its plane spanned again, its named points and some of its places evaluated again.

What was evaluated must come out again; at cells of a reconstruction taken by chance, the loss itself must be within the
error that the picture states.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from landscape import inputs, models, slices
from landscape.basin import planes
from landscape.basin.sources import Sources, sources_of
from landscape.basin.workshop import furnished, losses_of
from landscape.config import SliceConfig, VerifyConfig
from landscape.errors import StoreError
from landscape.machine.environment import attention_of, environment
from landscape.models.checkpoint import Checkpoint
from landscape.reporting import Reporter, versions
from landscape.slices.samples import CHECK, NODE
from landscape.slices.scan import Mover
from landscape.verifying import given, layers, of_picture
from landscape.verifying.verdict import Item, Verdict, pairs
from landscape.verifying.yardstick import FLOAT64, Yardstick, yardstick

_OTHERS = {"checkpoints": "prev", "line": "to"}  # the option that names what else spans a plane
_LENGTHS = ("alpha", "beta", "residual", "distance")
_LAST_DIGITS = 1e-5  # share of a distance
_BETWEEN = 3  # so many times fewer reconstructed cells than evaluated places

Place = tuple[str, float, float, float, bool]  # what, α, β, stored loss, whether it was evaluated in float32


@dataclass(frozen=True)
class _Again:
    """What the file was made from, made again."""

    config: SliceConfig
    text: inputs.Text
    loaded: inputs.Loaded
    chosen: planes.Span
    plane: slices.Plane
    measure: Yardstick


def check(
    stored: slices.StoredSlice, verdict: Verdict, asked: VerifyConfig, rng: np.random.Generator, reporter: Reporter
) -> None:
    """Check a slice.

    Raises:
        LandscapeError: an input is missing or another one.
    """
    again = _made(stored, asked, reporter)
    told, found = stored.attributes["plane_fingerprint"], again.plane.fingerprint()
    if told == found or again.measure.exact:
        verdict.add("plane, to the bit", told[:12], found[:12])
    else:
        verdict.skipped.append("the plane to the bit: other rounding gives its directions other last digits")
    rows = [asdict(layer) for report in again.chosen.reports for layer in report.layers]
    told_rows = _rows(stored.tables.get("layers", {}))
    layers.require_same_levels(asked, told_rows, rows, again.measure)
    _check_plane(verdict, stored, again)
    if rows:
        layers.check(verdict, told_rows, rows, again.measure, rng, asked.cells)
    _check_losses(verdict, stored, again, rng, asked.cells, reporter)
    of_picture.check(stored, verdict)


def _made(stored: slices.StoredSlice, asked: VerifyConfig, reporter: Reporter) -> _Again:
    facts, own = stored.attributes, stored.attributes["config"]
    reporter.stage("resolving the model")
    checkpoint = given.checkpoint(asked, facts["model"], facts["model_identity"])
    changes: dict[str, Any] = {"model": facts["model"], "vectors": asked.vectors, "prev": None, "to": None}
    if (option := _OTHERS.get(own.get("plane", "checkpoints"))) is not None:
        changes[option] = given.other(asked, option, own.get(option), checkpoint)
    config = given.configuration(SliceConfig, asked, own, **changes)
    sources = _sources(asked, config, checkpoint, json.loads(facts["sources"]))
    text = given.read_text(config, asked, facts, checkpoint, reporter)
    device = models.pick_device(config.device)
    reporter.stage(f"loading {checkpoint}")
    loaded = inputs.load(config, checkpoint, text, device, config.dtype)
    calibrating = replace(config, batch_size=own.get("batch_size", config.batch_size))  # decides some roundings
    chosen = planes.span(furnished(calibrating, checkpoint, sources, text, loaded, device, reporter))
    plane = slices.span(loaded.theta, chosen.first, chosen.second, chosen.points)
    here = environment(device, attention_of(loaded.model))
    measure = yardstick(facts, here, versions(), (own.get("batch_size", 0), config.batch_size))
    is_same = plane.fingerprint() == facts["plane_fingerprint"]
    return _Again(config, text, loaded, chosen, plane, measure.after(is_same))


def _sources(asked: VerifyConfig, config: SliceConfig, checkpoint: Checkpoint, stored: Mapping[str, Any]) -> Sources:
    """What spans the plane.

    Raises:
        StoreError: something else than the file says.
    """
    found = sources_of(config, checkpoint, next(iter(inputs.earlier(config, checkpoint)), None))
    for name, option, what in (
        ("others", _OTHERS.get(config.plane, "model"), "other checkpoint"),
        ("vectors", "vectors", "file of eigenvectors"),
    ):
        told, here = (", ".join(map(str, np.atleast_1d(each.get(name) or ""))) for each in (stored, found.identity))
        given.require(asked, option, what, told, here)
    if odd := [name for name in {*stored, *found.identity} if stored.get(name) != found.identity.get(name)]:
        raise StoreError(f"{asked.file}: contradicts itself: {odd[0]} of its plane is not that of its configuration")
    return found


def _check_plane(verdict: Verdict, stored: slices.StoredSlice, again: _Again) -> None:
    facts, plane, share = stored.attributes, again.plane, again.measure.share(_LAST_DIGITS)
    why = again.measure.why if again.measure.exact else f"{share:.0e} of the distance, for other rounding"
    for point in stored.points:
        here = plane.points[point.name]
        found = {name: getattr(here, name) for name in _LENGTHS} | {"s": here.raw[0], "t": here.raw[1]}
        told = {name: getattr(point, name) for name in _LENGTHS} | {"s": point.raw[0], "t": point.raw[1]}
        sizes = {name: share * (here.distance if name in _LENGTHS else 1.0) for name in found}
        verdict.add_worst(f"place of {point.label}", [Item(n, told[n], found[n], sizes[n], why) for n in found])
    told = {"cosine": facts["cosine"], "‖d₁‖": facts["direction_lengths"][0], "‖d₂‖": facts["direction_lengths"][1]}
    found = {"cosine": plane.cosine, "‖d₁‖": plane.lengths[0], "‖d₂‖": plane.lengths[1]}
    sizes = {"cosine": share, "‖d₁‖": share * plane.lengths[0], "‖d₂‖": share * plane.lengths[1]}
    verdict.add_worst("directions", [Item(n, told[n], found[n], sizes[n], why) for n in found])
    reports = again.chosen.reports
    sizes = {
        "vocabulary": models.vocabulary_size(again.loaded.model),
        "total_parameters": plane.origin.numel(),
        "quantized_parameters": reports[0].quantized_parameters if reports else 0,
        "weight_norm": plane.origin.norm(),
    }
    verdict.add_worst("model", pairs(facts, sizes, FLOAT64, "float64 rounding"))
    verdict.add_worst("text", pairs(facts, given.sizes(again.text)))


def _check_losses(
    verdict: Verdict,
    stored: slices.StoredSlice,
    again: _Again,
    rng: np.random.Generator,
    count: int,
    reporter: Reporter,
) -> None:
    measure = again.measure
    losses, move = losses_of(again.loaded.objective, again.config.dtype), Mover(again.plane)
    points = [point for point in stored.points if stored.complete or np.isfinite(point.loss)]
    evaluated, filled = list(_evaluated(stored)), list(_filled(stored))
    chosen = [evaluated[i] for i in layers.some(rng, len(evaluated), count)]
    between = [filled[i] for i in layers.some(rng, len(filled), -(-count // _BETWEEN))]
    update = reporter.stage("evaluating again")
    total, origin = len(points) + len(chosen) + len(between), stored.points[0].loss
    for done, point in enumerate(points):
        update(done, total)
        tolerance = measure.loss(point.loss, point.loss - origin, "float32")
        verdict.add(
            f"loss at {point.label}", point.loss, losses.exact(again.chosen.points[point.name]), tolerance, measure.why
        )
    for done, (what, alpha, beta, loss, exact) in enumerate(chosen, len(points)):
        update(done, total)
        found = (losses.exact if exact else losses.scan)(move(alpha, beta))
        tolerance = measure.loss(loss, loss - origin, "float32" if exact else None)
        verdict.add(f"loss at {what}", loss, found, tolerance, measure.why)
    for done, (what, alpha, beta, loss, _) in enumerate(between, len(points) + len(chosen)):
        update(done, total)
        assert stored.certificate is not None
        tolerance = stored.certificate.error + measure.loss(loss, loss - origin)
        verdict.add(f"loss at {what}", loss, losses.exact(move(alpha, beta)), tolerance, "the error the picture states")


def _evaluated(stored: slices.StoredSlice) -> Iterator[Place]:
    """The places that a loss was evaluated at, named points aside."""
    for kind, exact in ((CHECK, True), (NODE, False)):
        for i, (a, b, loss) in enumerate(stored.nodes[kind].tolist()):
            yield f"{kind} {i}", a, b, loss, exact
    known = {(a, b) for rows in stored.nodes.values() for a, b, _ in rows.tolist()}
    known |= {(point.alpha, point.beta) for point in stored.points}
    is_dense = stored.certificate is None
    for cell in _cells(stored, stored.evaluated & stored.done):
        if is_dense or cell[1:3] not in known:
            yield cell
    if is_dense:
        for i, ((a, b), loss) in enumerate(
            zip(of_picture.line(stored).tolist(), stored.profile[1].tolist(), strict=True)
        ):
            if stored.complete or np.isfinite(loss):
                yield f"profile {i}", a, b, loss, False


def _filled(stored: slices.StoredSlice) -> Iterator[Place]:
    """The cells that were reconstructed."""
    return _cells(stored, ~stored.evaluated & stored.done)


def _cells(stored: slices.StoredSlice, which: np.ndarray) -> Iterator[Place]:
    for i, j in np.argwhere(which).tolist():
        yield f"cell {i}, {j}", float(stored.alpha[i]), float(stored.beta[j]), float(stored.loss[i, j]), False


def _rows(columns: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    length = min((len(values) for values in columns.values()), default=0)
    plain = {name: values.tolist() for name, values in columns.items()}
    return [{name: values[i] for name, values in plain.items()} for i in range(length)]
