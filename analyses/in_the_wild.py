"""Figures 1 and 2 of arXiv 2510.06213: loss and quantization error along public training runs.

The paper: whatever the model, the error rises where the learning rate decays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from analyses.drawn.figure import COLOURS, Figure
from analyses.drawn.panels import BILLIONS, LOSS, Line, Side, errors, stacked
from analyses.lab.claims import Contrast, Verdict
from analyses.question import Answer, Missing, found, verdict
from analyses.read.known import Known
from analyses.read.tables import Row, Table, is_number

QUESTION = "Does the error rise where the rate decays in public training runs?"
_CONSTANT = 0.9  # of the highest rate: above, it has not decayed


def answer(tables: Sequence[Table]) -> Answer:
    """A column of panels for each study of public runs; the end of each run against where its decay began."""
    fitting = [table for table in tables if public(table)]
    if not fitting:
        command = (
            "landscape study 'EleutherAI/pythia-160m@log=20' gptq-w4-g128 gptq-w3-g128 --tokens 600000 --clean "
            "--out data/studies/pythia-160m"
        )
        raise Missing("checkpoints of a model on the Hub", command)
    figures, verdicts = [], []
    for table in fitting:
        runs = public(table)
        lines = [
            Line(partial(table.line, run), run, colour) for run, colour in zip(runs, COLOURS * len(runs), strict=False)
        ]
        caption = (
            f"Study {table.name}: loss and quantization error over tokens. Dotted: where a rate begins to decay. "
            "Bands: 95 %."
        )
        name = "in_the_wild" if table is fitting[0] else f"in_the_wild-{table.name}"
        ends = [decay_of(table.line(run, table.quantizers[0])) for run in runs]
        marks = tuple(1e-9 * pair[0]["tokens"] for pair in ends if pair is not None and is_number(pair[0]["tokens"]))
        rows = stacked(table, [Side("", tuple(lines), marks)], [LOSS, *errors(table.quantizers)], BILLIONS)
        figures.append(Figure(name, caption, rows))
        verdicts += [_rises(table, runs, each) for each in table.quantizers]
    return Answer(tuple(table.name for table in fitting), tuple(figures), found(*verdicts))


def public(table: Table) -> list[str]:
    """Runs whose checkpoints are models on the Hub, org/name."""
    return list(dict.fromkeys(row["run"] for row in table.checkpoints if "/" in (row["model"] or "")))


def _rises(table: Table, runs: Sequence[str], quantizer: str) -> Verdict | None:
    contrasts = []
    for run in runs:
        ends = decay_of(table.line(run, quantizer))
        if ends is not None:
            began, last = (Known.of(table, row, "delta_q") for row in ends)
            contrasts.append(Contrast(run, 0, (last - began).interval))
    rule = f"ΔQ at the last checkpoint less that at the last one with {_CONSTANT:.0%} of the highest rate, above 0"
    return verdict("error rises as the rate decays", quantizer, rule, contrasts, (0.0, math.inf))


def decay_of(rows: Sequence[Row]) -> tuple[Row, Row] | None:
    """(the last checkpoint before the rate decays, the last one); None where rates are unknown or never decay."""
    known = [row for row in rows if is_number(row["learning_rate"])]
    highest = max((row["learning_rate"] for row in known), default=0.0)
    constant = [row for row in known if row["learning_rate"] >= _CONSTANT * highest]
    decayed = bool(known) and known[-1]["learning_rate"] < _CONSTANT * highest
    return (constant[-1], known[-1]) if constant and decayed else None
