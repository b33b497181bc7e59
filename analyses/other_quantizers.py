"""Figure 10 of arXiv 2510.06213: does the order of checkpoints hold under other quantizers?"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from analyses.drawn.figure import Figure, Panel, Series, colour
from analyses.lab.claims import Contrast
from analyses.lab.measured import Interval
from analyses.question import Answer, choose, found, lab, verdict
from analyses.read.tables import Table, is_number
from landscape.errors import StudyError
from landscape.statistics.correlation import correlate

QUESTION = "Does the order of checkpoints by error hold under other quantizers?"
_FEW, _ACROSS = 3, 4  # quantizers beside the first of which all pairs are compared; panels in a row
ALIKE = 0.5  # Spearman's ρ above which two quantizers are said to order checkpoints alike


def answer(tables: Sequence[Table]) -> Answer:
    """ΔQ under each quantizer against that under the first; rank correlations of all pairs."""
    what = "checkpoints measured with at least two quantizers"
    table, errors = choose(tables, errors_of, what, lab("A"), lambda table, _: len(table.quantizers))
    first = table.quantizers[0]
    others = table.quantizers[1:]
    scatter = [_scatter(errors, first, other, number) for number, other in enumerate(others)]
    few = len(others) <= _FEW
    pairs = list(itertools.combinations(table.quantizers, 2)) if few else [(first, other) for other in others]
    raw = {pair: _rank(errors, *pair) for pair in pairs}
    changes = {pair: _rank(errors, *pair, differenced=True) for pair in pairs}
    which = "each pair" if few else f"each with {first}"
    caption = (
        f"Study {table.name}: every point a checkpoint, ΔQ under two quantizers. Below: Spearman's ρ of {which} over "
        "checkpoints" + (", and of changes from one checkpoint of a run to the next." if any(changes.values()) else ".")
    )
    below = Panel(
        (_dots(raw, "checkpoints", "#0072b2", -0.08), _dots(changes, "changes", "#d55e00", 0.08)),
        "",
        "Spearman's ρ",
        ticks=tuple((float(place), f"{a}\n{b}" if few else b.replace("-", "\n")) for place, (a, b) in enumerate(pairs)),
    )
    rows = tuple(tuple(scatter[place : place + _ACROSS]) for place in range(0, len(scatter), _ACROSS))
    whole = Figure("other_quantizers-order", caption, ((below,),), row_height=2.2)
    figure = Figure("other_quantizers", caption, rows, row_height=2.4 if few else 1.9, share_x=False, share_y=False)
    contrasts = [Contrast(" and ".join(pair), 0, each) for pair, each in raw.items() if each is not None]
    apart = [Contrast(f"{' and '.join(pair)}, changes", 0, each) for pair, each in changes.items() if each is not None]
    rule = f"Spearman's ρ over checkpoints above {ALIKE} for every pair" + ("" if few else f" with {first}")
    said = verdict(
        "quantizers order checkpoints alike", "", rule, [*contrasts, *apart], (ALIKE, 1.01), percent=False, by=contrasts
    )
    return Answer((table.name,), (figure, whole), found(said))


Errors = dict[tuple[str, str], dict[str, float]]


def errors_of(table: Table) -> Errors:
    """ΔQ by checkpoint and quantizer, of checkpoints measured with more than one."""
    errors: Errors = {}
    for row in table.checkpoints:
        if is_number(row["delta_q"]):
            errors.setdefault((row["run"], row["checkpoint"]), {})[row["quantizer"]] = row["delta_q"]
    return {key: own for key, own in errors.items() if len(own) > 1}


def _both(errors: Errors, one: str, other: str) -> list[tuple[str, float, float]]:
    return [(run, own[one], own[other]) for (run, _), own in errors.items() if one in own and other in own]


def _rank(errors: Errors, one: str, other: str, differenced: bool = False) -> Interval | None:
    pairs = _both(errors, one, other)
    try:
        runs, x, y = zip(*pairs, strict=True) if pairs else ((), (), ())
        rank = correlate(x, y, runs, kinds=("spearman",), differenced=differenced)["spearman"]
    except StudyError:
        return None
    return Interval(rank.value, rank.low, rank.high)


def _scatter(errors: Errors, first: str, other: str, number: int) -> Panel:
    pairs = [(run, 100 * x, 100 * y) for run, x, y in _both(errors, first, other) if min(x, y) > 0]
    points = Series(
        [x for _, x, _ in pairs],
        [y for _, _, y in pairs],
        colour=colour(number),
        dash="",
        names=[run for run, _, _ in pairs],
    )
    return Panel((points,), f"ΔQ, %  {first}", f"ΔQ, %  {other}", x_scale="log", y_scale="log")


def _dots(ranks: dict[tuple[str, str], Interval | None], label: str, ink: str, shift: float) -> Series:
    known = [(place + shift, each) for place, each in enumerate(ranks.values()) if each is not None]
    return Series(
        [place for place, _ in known],
        [each.value for _, each in known],
        label,
        ink,
        [each.low for _, each in known],
        [each.high for _, each in known],
        dash="",
    )
