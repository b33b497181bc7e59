"""What a person sees of quantizers: a row for each Θ̂, or the layers of one, and what to think of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from landscape.evaluation import NONE, Evaluated
from landscape.evaluation.frontier import Frontier
from landscape.machine.words import byte_size
from landscape.quantizing import Quantized
from landscape.terminal.progress import shown

_LAYERS = 12  # in the terminal; the file has all


def print_evaluations(console: Console, results: Sequence[Evaluated], notes: Sequence[str], seconds: float) -> None:
    """Θ first, then each Θ̂ with its size and what quantization costs, each with its 95 % interval."""
    facts, theta = results[0].facts, results[0].comparison.loss
    console.print()
    console.print(Text.assemble(("Θ  ", "bold"), facts["model"]))
    console.print(f"loss {theta.value:.5f}{_error(theta.standard_error, '.5f')} nats per token")
    rows = [result for result in results if result.quantizer != NONE]
    if rows:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("quantizer", overflow="fold")
        for heading in ("bits", "loss", "ΔL", "ΔQ", "95 %"):
            table.add_column(heading, justify="right", no_wrap=True)
        for result in rows:
            found = result.comparison
            table.add_row(
                result.quantizer,
                f"{result.report['bits_per_weight']:.2f}",
                f"{found.loss_hat.value:.4f}",
                f"{found.change.value:+.4f}",
                _percent(found.relative.value),
                _interval(found.relative.low, found.relative.high),
            )
        console.print(table)
    if steps := [result for result in rows if result.step]:
        _print_steps(console, steps)
    if results[0].tasks:
        _print_tasks(console, rows or list(results))
    console.print(
        f"{facts['eval_tokens']:,} tokens of {facts['text']} ({facts['eval_windows']} windows of up to "
        f"{facts['seq_len']}), {facts['dtype']}, {seconds:.0f} s; intervals from {facts['config']['draws']:,} paired "
        "draws of the windows; bits of a quantized weight, scales included"
    )
    path, count = results[0].path, len(results)
    _print_end(console, notes, [("data", shown(path) if count == 1 else f"{count} files in {shown(path.parent)}")])


def _print_steps(console: Console, results: Sequence[Evaluated]) -> None:
    """For each Θ̂ how far off it is, and what the second order says beside what the loss does."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("quantizer", overflow="fold")
    for heading in ("‖δ‖/‖Θ‖", "g·δ", "½ δᵀHδ", "½ Σ H_ii δ_i²", "predicted", "ΔL"):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        step = result.step
        table.add_row(
            result.quantizer,
            f"{step['relative_length']:.4f}",
            f"{step['slope']:+.4f}",
            f"{step['quadratic'] / 2:.4f}",
            f"{step['diagonal'] / 2:.4f}" if "diagonal" in step else "",
            f"{step['predicted']:+.4f}",
            f"{step['actual']:+.4f}",
        )
    console.print(table)
    console.print(
        f"δ = Θ̂ − Θ, on the first {results[0].step['tokens']:,} tokens; predicted: g·δ + ½ δᵀHδ; ½ Σ H_ii δ_i²: "
        "½ δᵀHδ, were the errors of rounding independent"
    )


def _print_tasks(console: Console, results: Sequence[Evaluated]) -> None:
    """For each Θ̂ its tasks and their mean: accuracies, and what is lost of the wrong answers that were left."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("quantizer", "task"):
        table.add_column(heading, overflow="fold")
    for heading in ("Acc", "of Θ̂", "drop", "95 %"):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        named = [*result.tasks["tasks"].items(), ("mean over tasks", result.tasks)]
        for i, (task, row) in enumerate(named if len(named) > 2 else named[:1]):
            drop = row["drop"]
            shots = f" ({row['shots']} shots)" if "shots" in row else ""
            accuracies = (f"{row['accuracy']['value']:.4f}", f"{row['accuracy_hat']['value']:.4f}")
            drops = ("" if math.isnan(drop["value"]) else _percent(drop["value"]), _interval(drop["low"], drop["high"]))
            table.add_row("" if i else result.quantizer, f"{task}{shots}", *accuracies, *drops)
    console.print(table)
    metric = next(iter(results[0].tasks["tasks"].values()))["metric"]
    console.print(f"{metric}; drop = (Acc − Âcc)/(1 − Acc), of the wrong answers of Θ; the mean is that of the drops")


def print_quantized(console: Console, result: Quantized, notes: Sequence[str], seconds: float) -> None:
    """The layers that lost most, the whole, and where Θ̂ is."""
    report = result.report
    console.print()
    console.print(Text.assemble(("Θ  ", "bold"), result.model, ("   Θ̂  ", "bold"), report.quantizer))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    shared = shared_start([layer.name for layer in report.layers])
    table.add_column(f"{shared}…" if shared else "layer", overflow="fold")
    for heading in ("bits", "‖δ‖/‖W‖", "output error", "rounding", "kurtosis"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    worst = sorted(report.layers, key=lambda layer: -layer.weight_error)
    for layer in worst[:_LAYERS]:
        table.add_row(
            layer.name.removeprefix(shared),
            f"{layer.bits_per_weight:.2f}",
            f"{layer.weight_error:.4f}",
            _short(layer.output_error),
            _short(layer.rtn_output_error),
            f"{layer.excess_kurtosis:+.2f}",
            "rounded to nearest" if layer.fallback else "",
        )
    console.print(table)
    if len(worst) > _LAYERS:
        console.print(f"… and {len(worst) - _LAYERS} layers with smaller errors")
    calibrated = f", calibrated on {report.calibration_tokens:,} tokens" if report.calibration_tokens else ""
    console.print(
        f"{report.quantized_parameters:,} of {report.total_parameters:,} parameters quantized to "
        f"{report.bits_per_weight:.2f} bits, the model {byte_size(report.bits / 8)}{calibrated}; ‖δ‖ = "
        f"{result.step_norm:.4g}, {seconds:.0f} s"
    )
    _print_end(console, notes, [("model", shown(result.folder))] if result.folder else [])


def print_frontier(console: Console, found: Frontier) -> None:
    """A row for each model and quantizer by rising size; those that nothing of their size beats are marked."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("model", "quantizer"):
        table.add_column(heading, overflow="fold")
    for heading in ("size", found.unit.split()[0], "ΔQ", "best"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in found.rows:
        alone = row.quantizer == NONE
        cells = (row.model, "16 bits" if alone else row.quantizer, byte_size(row.bits / 8), f"{row.loss:.4f}")
        table.add_row(*cells, "" if alone else _percent(row.relative), "●" if row.best else "")
    console.print(table)
    console.print(f"losses in {found.unit} on {found.text}; ● nothing of this size or smaller is better")
    _print_end(console, [], [("data" if path.suffix == ".csv" else "figure", shown(path)) for path in found.files])


def _print_end(console: Console, notes: Sequence[str], files: Sequence[tuple[str, str]]) -> None:
    for note in notes:
        console.print(Text.assemble(("note    ", "yellow"), note))
    for what, path in files:
        console.print(Text.assemble((f"{what:8}", "green"), path), soft_wrap=True)


def shared_start(names: Sequence[str]) -> str:
    """The parts that all names begin with, up to the number of the block."""
    parts = [name.split(".") for name in names]
    same = 0
    while all(len(part) > same + 1 and part[same] == parts[0][same] for part in parts):
        same += 1
    return "".join(f"{part}." for part in parts[0][:same])


def _interval(low: float, high: float) -> str:
    return "" if math.isnan(low) else f"{_percent(low)} … {_percent(high)}"


def _percent(share: float) -> str:
    """Three digits, but none beyond the thousandth of a percent."""
    size = abs(share) * 100
    return f"{share:+.{3 if size < 1 else 2 if size < 10 else 1 if size < 100 else 0}%}"


def _error(standard_error: float, form: str) -> str:
    return "" if math.isnan(standard_error) else f" ± {standard_error:{form}}"


def _short(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2e}"
