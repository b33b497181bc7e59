"""What a person sees of a measurement of curvature: every number with its error, and what they do not say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from landscape.sharpness import SharpnessResult
from landscape.terminal.progress import shown

_WIDEST = 32  # characters of a bar
_LAYERS = 8  # in the table; the file has all


def print_sharpness(console: Console, result: SharpnessResult, notes: list[str], seconds: float) -> None:
    """The numbers, what they were measured on, and where the files are."""
    facts, sections = result.stored.attributes, result.stored.sections
    console.print()
    console.print(Text.assemble(("Θ  ", "bold"), facts["model"]))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading, side in (("", "left"), ("value", "right"), ("±", "right"), ("", "left")):
        table.add_column(heading, justify=side)  # type: ignore[arg-type]
    table.add_row("loss", f"{facts['loss']:.5f}", "", "nats per token")
    table.add_row("‖∇L‖", _short(facts["gradient_norm"]), "", _of_windows(facts.get("gradient_norm_standard_error")))
    for which, word in (("top", "λ_max"), ("bottom", "λ_min")):
        if f"eigenvalues/{which}" in sections:
            _add_eigenvalues(table, word, sections[f"eigenvalues/{which}"])
    trace = sections["trace"]
    about = f"{trace['method']}, {trace['rounds']} probes" + (
        "" if trace["reached"] else ", error asked for not reached"
    )
    table.add_row("trace", _short(trace["value"]), _short(trace["standard_error"]), about)
    n = facts["parameters"]
    table.add_row("trace/n", _short(trace["value"] / n), _short(trace["standard_error"] / n), f"n = {n:,}")
    if "direction" in sections:
        _add_direction(table, sections["direction"])
    console.print(table)
    if "density" in sections:
        _print_density(console, sections["density"])
    if "trace/layers" in sections:
        _print_layers(console, sections["trace/layers"])
    covered = (
        "all" if n == facts["total_parameters"] else f"{facts['patterns']}: {n:,} of {facts['total_parameters']:,}"
    )
    for line in (
        f"{facts['operator']} of {covered} parameters, {facts['eval_tokens']:,} tokens of {facts['text']} "
        f"({facts['eval_windows']} windows), {facts['dtype']}, {seconds:.0f} s",
    ):
        console.print(Text(line))
    for note in [*notes, *observations(sections)]:
        console.print(Text.assemble(("note    ", "yellow"), note))
    files = [
        ("data", result.path),
        *(("vectors", path) for path in result.vectors),
        *(("figure", figure) for figure in result.figures[1:]),
    ]
    for what, path in files:
        console.print(Text.assemble((f"{what:<8}", "bold green"), shown(path)), soft_wrap=True)


def observations(sections: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What the numbers themselves give reason to say."""
    notes = []
    for which in ("top", "bottom"):
        section = sections.get(f"eigenvalues/{which}")
        if section is not None and not section["converged"].all():
            notes.append(
                f"{int((section['converged'] == 0).sum())} of {len(section['values'])} eigenvalues from the {which} "
                "have not converged: more --max-products"
            )
    top, bottom = sections.get("eigenvalues/top"), sections.get("eigenvalues/bottom")
    if top is not None and bottom is not None and -bottom["values"][0] > top["values"][0]:
        notes.append("the eigenvalue of largest magnitude is negative: power iteration would report that one")
    trace = sections["trace"]
    if trace["disagreement"] > 3 * trace["standard_error"] and trace["disagreement"] > 0.05 * abs(trace["value"]):
        notes.append(
            f"the two step sizes of the trace differ by {_short(trace['disagreement'])} (corrected for): the loss is "
            "far from quadratic within 1 % of ‖Θ‖; --layers measures by products"
        )
    return notes


def _add_eigenvalues(table: Table, word: str, section: Mapping[str, Any]) -> None:
    errors = section.get("standard_errors", np.full(len(section["values"]), np.nan))
    for index, (value, residual) in enumerate(zip(section["values"], section["residuals"], strict=True)):
        name = word if index == 0 else f"  {index + 1}."
        about = ""
        if index == 0:
            draft = f" and a draft worth {section['draft']:.2g}" if section.get("draft") else ""
            about = f"{section['products']} products{draft}; missed: {section['missed']:.0e}"
        if not section["converged"][index]:
            about = f"not converged after {section['products']} products"
        about = "; ".join(filter(None, (about, _of_windows(errors[index]))))
        table.add_row(name, _short(value), _short(residual), about)


def _of_windows(error: float | None) -> str:
    """How far another choice of windows would move a number that is exact on these."""
    return f"{_short(error)} by the choice of windows" if error is not None and math.isfinite(error) else ""


def _add_direction(table: Table, section: Mapping[str, Any]) -> None:
    table.add_row("δᵀHδ/‖δ‖²", _short(section["curvature"]), "", f"δ = Θ̂ − Θ for {section['quantizer']}")
    about = f"second order: g·δ = {section['slope']:.3g}, ½ δᵀHδ = {0.5 * section['quadratic']:.3g}"
    table.add_row("ΔL predicted", f"{section['predicted']:+.5f}", "", about)
    table.add_row("ΔL", f"{section['actual']:+.5f}", "", f"ΔQ = {section['relative_error']:.3%}")


def _print_density(console: Console, section: Mapping[str, Any]) -> None:
    console.print(Text("\nspectral density: eigenvalues above a threshold", style="bold"))
    counts, errors = section["above"], section["above_standard_error"]
    widest = math.log10(max(2.0, float(counts.max()) + 1))
    for threshold, count, error in zip(section["thresholds"], counts, errors, strict=True):
        bar = "█" * max(0, round(_WIDEST * math.log10(max(1.0, count + 1)) / widest))
        console.print(Text(f"  λ > {_short(threshold):>8}  {count:>9,.1f} ± {error:<8,.1f} {bar}"))


def _print_layers(console: Console, section: Mapping[str, Any]) -> None:
    order = np.argsort(-section["value"])
    console.print(Text(f"\ntrace per tensor, the {min(_LAYERS, len(order))} largest of {len(order)}", style="bold"))
    for index in order[:_LAYERS]:
        value, error = section["value"][index], section["standard_error"][index]
        console.print(Text(f"  {section['name'][index]:<48} {_short(value):>10} ± {_short(error)}"))
    console.print()


def _short(value: float) -> str:
    return f"{value:.4g}" if abs(value) >= 1e-3 or value == 0 else f"{value:.2e}"
