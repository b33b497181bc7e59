"""Loss against size: is a larger model in fewer bits better than a smaller one that is not quantized?

files of evaluations → a row for each model and quantizer → which nothing beats, as table, CSV and figure
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from landscape import evaluation
from landscape.config import FrontierConfig
from landscape.errors import OptionError, StoreError
from landscape.evaluation import NONE, Evaluated
from landscape.storage.files import write_whole
from landscape.viewer.printed.write import STYLE

NATS, BITS = "nats per token", "bits per byte"
_MARKS = "osD^vP*X<>hp"


@dataclass(frozen=True)
class Row:
    """One model with one quantizer.

    Attributes:
        model, quantizer: their names; the quantizer is `none` for the model alone, in 16 bits.
        parameters: of the whole model.
        bits: of the whole model, scales included, 16 for each parameter that is not quantized.
        loss, standard_error: of Θ̂, in the unit of the frontier.
        relative: ΔQ.
        best: no other row is as small and has a lower loss.
    """

    model: str
    quantizer: str
    parameters: int
    bits: float
    loss: float
    standard_error: float
    relative: float
    best: bool = False


@dataclass(frozen=True)
class Frontier:
    """Rows by rising size, the unit of their losses, the text, and the files they went to."""

    rows: tuple[Row, ...]
    unit: str
    text: str
    files: tuple[Path, ...] = ()


def compare_sizes(config: FrontierConfig) -> Frontier:
    """Read the evaluations that `config` names, compare them, and write CSV and figures.

    Raises:
        StoreError: a file that is no evaluation, or none at all.
        OptionError: evaluations of different texts.
    """
    found = frontier([evaluation.read(path) for path in _files(config.results)])
    base = config.out.with_suffix("") if config.out.suffix in (".pdf", ".png", ".csv") else config.out
    table, pdf, png = (base.with_name(f"{base.name}.{kind}") for kind in ("csv", "pdf", "png"))
    write_whole(table, _csv(found))
    for path in (pdf, png):
        memory = io.BytesIO()
        with matplotlib.rc_context(STYLE):
            metadata = {"CreationDate": None} if path is pdf else None  # the same rows give the same bytes
            draw(found).savefig(memory, format=path.suffix[1:], dpi=300, metadata=metadata)
        write_whole(path, memory.getvalue())
    return Frontier(found.rows, found.unit, found.text, (table, pdf, png))


def frontier(results: Sequence[Evaluated]) -> Frontier:
    """The rows of `results` and of each model alone, by size.

    In nats per token where all were evaluated on the same tokens; where tokenizers differ, in bits per byte of the
    text, Σ losses / (ln 2 · bytes).

    Raises:
        OptionError: evaluations of different texts.
    """
    texts = sorted({result.facts["text"] for result in results})
    same = len({result.facts["tokens_fingerprint"] for result in results}) == 1
    if len(texts) > 1 or (not same and len({result.facts["model"] for result in results}) == 1):
        raise OptionError(
            f"frontier: evaluations of different text ({', '.join(texts)}; "
            f"{', '.join(sorted({str(result.facts['eval_tokens']) for result in results}))} tokens); losses compare on "
            "the same text only"
        )
    rows: dict[tuple[str, str], Row] = {}
    for result in results:
        facts, found = result.facts, result.comparison
        predicted = sum(facts["windows"]["predicted"])
        unit = 1.0 if same else predicted / (math.log(2) * facts["predicted_bytes"])
        model, parameters = facts["model"], facts["total_parameters"]
        alone = Row(
            model, NONE, parameters, 16.0 * parameters, found.loss.value * unit, found.loss.standard_error * unit, 0.0
        )
        rows.setdefault((model, NONE), alone)
        if result.quantizer != NONE:
            hat = found.loss_hat
            rows[model, result.quantizer] = Row(
                model,
                result.quantizer,
                parameters,
                result.bits,
                hat.value * unit,
                hat.standard_error * unit,
                found.relative.value,
            )
    ordered = sorted(rows.values(), key=lambda row: (row.bits, row.loss))
    return Frontier(tuple(_marked(ordered)), NATS if same else BITS, texts[0])


def _marked(rows: Sequence[Row]) -> list[Row]:
    lowest, marked = math.inf, []
    for row in rows:  # by rising size: one that is not below all before it is beaten
        marked.append(replace(row, best=row.loss < lowest))
        lowest = min(lowest, row.loss) if not math.isnan(row.loss) else lowest
    return marked


def draw(found: Frontier) -> Figure:
    """Loss against size on a logarithmic axis: a colour for each model, a mark for each quantizer, the best joined."""
    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    axes = figure.subplots()
    models = list(dict.fromkeys(row.model for row in sorted(found.rows, key=lambda row: row.parameters)))
    quantizers = list(dict.fromkeys(row.quantizer for row in found.rows if row.quantizer != NONE))
    colours = matplotlib.colormaps["viridis"]([i / max(1, len(models)) for i in range(len(models))])
    finite = [row for row in found.rows if math.isfinite(row.loss)]
    best = [row for row in finite if row.best]
    axes.step(
        [row.bits / 8e6 for row in best], [row.loss for row in best], where="post", color="0.75", lw=0.8, zorder=1
    )
    for row in finite:
        alone = row.quantizer == NONE
        mark = "o" if alone else _MARKS[1:][quantizers.index(row.quantizer) % (len(_MARKS) - 1)]
        colour = colours[models.index(row.model)]
        axes.errorbar(
            row.bits / 8e6,
            row.loss,
            fmt=mark,
            ms=4.5,
            color=colour,
            mfc="white" if alone else colour,
            mew=1.0,
            zorder=2,
        )
    if len(sizes := [row.bits for row in finite]) and max(sizes) > 3 * min(sizes):
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("size (MB)")
    axes.set_ylabel(f"loss ({found.unit})")
    handles = [axes.plot([], [], "s", color=colours[i], label=model)[0] for i, model in enumerate(models)]
    handles += [axes.plot([], [], "o", color="0.3", mfc="white", label="16 bits")[0]]
    handles += [
        axes.plot([], [], _MARKS[1:][i % (len(_MARKS) - 1)], color="0.3", label=name)[0]
        for i, name in enumerate(quantizers)
    ]
    figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=7, handletextpad=0.4)
    return figure


def _files(named: Sequence[str]) -> list[Path]:
    paths: list[Path] = []
    for name in named:
        path = Path(name).expanduser()
        inside = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise StoreError(f"{name}: no .json in it; expected a directory that 'landscape evaluate' wrote")
        paths += inside
    return paths


def _csv(found: Frontier) -> bytes:
    memory = io.StringIO()
    writer = csv.writer(memory, lineterminator="\n")
    writer.writerow(
        ["model", "quantizer", "parameters", "bits", "loss", "standard_error", "relative_error", "best", "unit", "text"]
    )
    for row in found.rows:
        numbers = (row.parameters, round(row.bits), row.loss, row.standard_error, row.relative, int(row.best))
        writer.writerow([row.model, row.quantizer, *numbers, found.unit, found.text])
    return memory.getvalue().encode()
