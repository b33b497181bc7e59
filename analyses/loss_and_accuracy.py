"""Relative loss error beside the drop of accuracy on tasks (arXiv 2510.06213, figures 1 and 2 and its appendix)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from analyses.drawn.figure import COLUMN, Figure, Panel, Series, colour, marker
from analyses.lab.claims import Contrast
from analyses.lab.measured import Interval
from analyses.question import Answer, Missing, found, verdict
from analyses.read.tables import Row, Table, column, pooled
from landscape.errors import StudyError
from landscape.statistics.correlation import correlate

QUESTION = "Does accuracy fall where the loss error grows?"
_REACH = 1.959964


def answer(tables: Sequence[Table]) -> Answer:
    """Accuracy drop over ΔQ, all checkpoints and quantizers; their rank correlation."""
    rows, runs, names = pooled(tables, "accuracy_drop", "delta_q")
    if not rows:
        raise Missing(
            "checkpoints with accuracy on tasks",
            "landscape study 'allenai/OLMo-2-0425-1B@stage1-*:log=8' gptq-w3-g128 --tasks paper --out data/studies/1b",
        )
    quantizers = list(dict.fromkeys(row["quantizer"] for row in rows))
    series = tuple(
        _points([row for row in rows if row["quantizer"] == each], each, number)
        for number, each in enumerate(quantizers)
    )
    panel = Panel(series, "ΔQ, %", "accuracy drop, %")
    caption = f"Study {', '.join(names)}: relative accuracy drop (Acc − Âcc)/(1 − Acc) over ΔQ. Bars: 95 %."
    figure = Figure("loss_and_accuracy", caption, ((panel,),), COLUMN, row_height=2.6)
    contrasts, numbers = [], []
    for way in (False, True):
        try:
            found_rank = correlate(
                column(rows, "delta_q"),
                column(rows, "accuracy_drop"),
                [f"{run} {row['quantizer']}" for run, row in zip(runs, rows, strict=True)],
                kinds=("spearman",),
                differenced=way,
            )["spearman"]
        except StudyError as error:
            numbers.append(f"{'changes' if way else 'all rows'}: {error}")
            continue
        what = "changes between checkpoints" if way else "all rows"
        contrasts.append(Contrast(what, 0, Interval(found_rank.value, found_rank.low, found_rank.high)))
    rule = "Spearman's ρ of ΔQ and accuracy drop over all rows above 0"
    decides = [each for each in contrasts if each.what == "all rows"]
    said = verdict(
        "accuracy falls where the error grows", "", rule, contrasts, (0.0, math.inf), percent=False, by=decides
    )
    counts = Counter(row["quantizer"] for row in rows)
    numbers.append("rows: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
    return Answer(names, (figure,), found(said), tuple(numbers))


def _points(rows: Sequence[Row], label: str, number: int) -> Series:
    drop = [100 * each for each in column(rows, "accuracy_drop")]
    reach = [_REACH * 100 * each for each in column(rows, "accuracy_drop_se")]
    return Series(
        [100 * each for each in column(rows, "delta_q")],
        drop,
        label,
        colour(number),
        [y - each for y, each in zip(drop, reach, strict=True)],
        [y + each for y, each in zip(drop, reach, strict=True)],
        dash="",
        marker=marker(number),
        names=[f"{row['run']} {row['checkpoint']}" for row in rows],
    )
