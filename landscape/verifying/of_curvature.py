"""A measurement of curvature: loss, gradient, eigenvalues, some probes, and the quadratic model, computed again.

Eigenvectors that were kept prove their eigenvalues by a product each. Without them the iteration runs again. A probe of
the trace is named by its seed and number, so it must give its sample again; a probe of the density has its first two
moments from one product.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from landscape.config import VerifyConfig
from landscape.curvature import store, vectors
from landscape.quantize import parse
from landscape.reporting import Reporter
from landscape.sharpness import parts
from landscape.verifying import eigenvalues, given, layers, probes
from landscape.verifying.operators import Again, made
from landscape.verifying.verdict import Item, Verdict, pairs
from landscape.verifying.yardstick import FLOAT64, LOSS, PRODUCT

_LENGTH = 1e-5  # share of ‖δ‖


def check(
    stored: store.StoredSharpness, verdict: Verdict, asked: VerifyConfig, rng: np.random.Generator, reporter: Reporter
) -> None:
    """Check a measurement of curvature.

    Raises:
        LandscapeError: an input is missing or another one.
    """
    again = made(stored, asked, reporter)
    sections = stored.sections
    _check_gradient(verdict, stored.attributes, again)
    eigenvalues.check(verdict, sections, again, asked, rng, reporter)
    if "trace" in sections:
        probes.check_trace(verdict, sections, again, rng, asked.cells, reporter)
    if "density" in sections:
        probes.check_density(verdict, sections["density"], again, rng, reporter)
    if "direction" in sections:
        _check_direction(verdict, sections, again, asked, reporter)


def _check_gradient(verdict: Verdict, facts: Mapping[str, Any], again: Again) -> None:
    operator, measure = again.operator, again.measure
    here = operator.gradient()
    norm = vectors.norm(here)
    covered = {"parameters": operator.n, "total_parameters": again.loaded.theta.numel()}
    verdict.add_worst("model and text", pairs(facts, covered | given.sizes(again.text)))
    verdict.add("loss", facts["loss"], operator.loss(), measure.loss(facts["loss"]), measure.why)
    share = measure.share(PRODUCT)
    why = measure.why if measure.exact else f"{share:.0e} of it, for other rounding"
    verdict.add("‖g‖", facts["gradient_norm"], norm, share * norm, why)
    verdict.add(
        "‖Θ‖", facts["weight_norm"], again.loaded.theta.norm(), FLOAT64 * facts["weight_norm"], "float64 rounding"
    )


def _check_direction(
    verdict: Verdict, sections: Mapping[str, Mapping[str, Any]], again: Again, asked: VerifyConfig, reporter: Reporter
) -> None:
    told = sections["direction"]
    quantizer = parse(str(told["quantizer"]))
    measure = again.measure.after(False)
    found = parts.direction(again.config, quantizer, again.text.calibration, again.operator, again.loaded, reporter)
    here = {name: value for name, value in found["direction"].items() if name != "quantizer"}
    layers.require_same_levels(asked, [_step(told)], [_step(here)], measure)
    terms = (PRODUCT + measure.moved) * (abs(here["slope"]) + abs(here["quadratic"]))
    losses = 2 * LOSS["float32"] * again.operator.loss() + measure.moved * abs(here["actual"])
    sizes = dict.fromkeys(("slope", "quadratic", "predicted"), terms)
    sizes |= {"actual": losses, "relative_error": losses, "length": measure.share(_LENGTH) * here["length"]}
    sizes["curvature"] = terms / here["length"] ** 2
    why = measure.why if measure.exact else "rounding of products and losses"
    items = [Item(n, told[n], value, 0.0 if measure.exact else sizes[n], why) for n, value in here.items()]
    verdict.add_worst(f"along the step of {quantizer}", items)
    shares, rows = sections.get("direction/layers", {}), found["direction/layers"]
    items = [
        Item(f"{n} of {layer}", told_here, value, 0.0 if measure.exact else terms, why)
        for n in ("slope", "quadratic")
        for layer, told_here, value in zip(rows["name"], _column(shares, n), rows[n].tolist(), strict=False)
    ]
    verdict.add("layers along it", len(_column(shares, "slope")), len(rows["name"]))
    verdict.add_worst("shares of the layers", items)


def _step(direction: Mapping[str, Any]) -> dict[str, Any]:
    """The step as if it were that of one layer."""
    return {"name": "the model", "quantizer": "the quantizer", "step_norm": direction["length"]}


def _column(section: Mapping[str, Any], name: str) -> list[float]:
    return [float(value) for value in section.get(name, ())]
