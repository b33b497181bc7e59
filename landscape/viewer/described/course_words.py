"""The sentences of a study's page: which runs, how the quantization error goes along them, what is missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from landscape.viewer.described.course import CHECKPOINT, Course, Row, real
from landscape.viewer.described.words import listed, measured, percent

_FELL = 0.5  # a rate below this share of its highest has begun to decay
_GONE = 0.1  # below this share of it, the decay counts as done
_NAMED = 4  # names in a sentence


def caption(course: Course) -> tuple[str, ...]:
    """What the page shows, for a reader who knows none of it."""
    if not course.rows:
        return ()
    many = len(course.runs) > 1
    measured = sum(each.kind == CHECKPOINT for each in course.checkpoints)
    what = f"{len(course.runs)} training runs" if many else f"the training run {course.longest}"
    found = [
        f"This page follows {what} of a language model: {measured:,} checkpoint{'s' if measured != 1 else ''}, that "
        f"is, states of its weights on the way{_reach(course)}."
    ]
    if course.quantizers:
        several = len(course.quantizers) > 1
        found.append(
            f"At each the weights were rounded to few bits by {'each of ' if several else ''}"
            f"{len(course.quantizers)} quantizer{'s' if several else ''} ({_some(course.quantizers)}), and ΔQ, the "
            "quantization error, says by how many percent the loss rises when they are."
        )
    run, quantizer = course.longest, _telling(course)
    if quantizer:
        found += _along(course, run, quantizer)
        found.append(_ends(course, quantizer))
    return tuple(filter(None, found))


def title(course: Course) -> str:
    """The study in a line."""
    return f"{course.name}: {len(course.runs)} training runs" if len(course.runs) > 1 else course.name


def facts(course: Course) -> tuple[tuple[str, str], ...]:
    """(name, value) of what was measured."""
    first: Row = course.rows[0] if course.rows else {}
    averages = sum(each.kind != CHECKPOINT for each in course.checkpoints)
    found = [
        ("Runs", f"{len(course.runs):,}"),
        ("Checkpoints", f"{len(course.checkpoints) - averages:,}"),
        ("Averages of checkpoints", f"{averages:,}" if averages else ""),
        ("Quantizers", f"{len(course.quantizers):,}"),
        ("Parameters", _whole(first, "parameters")),
        ("Evaluated on", str(first.get("text") or "")),
        ("Tokens of the losses", _whole(first, "eval_tokens")),
        ("Tokens of the curvature", next(filter(None, (_whole(row, "curvature_tokens") for row in course.rows)), "")),
        ("Spectra", f"{len(course.spectra):,}" if course.spectra else ""),
        ("Slices", f"{sum(map(len, course.slices.values())):,}" if course.slices else ""),
        ("Precision", str(first.get("dtype") or "")),
    ]
    return tuple((name, value) for name, value in found if value)


def notices(course: Course) -> tuple[str, ...]:
    """What is missing, and what must not be compared."""
    found = []
    if not course.rows:
        found.append("The table has no row yet.")
    known = {"trace": "curvature (λ_max, tr H)", "learning_rate": "learning rate"}
    for column, what in known.items():
        rows = [row for run in course.runs for row in course.along(run)]
        without = sum(not math.isfinite(real(row, column)) for row in rows)
        if rows and without:
            all_of = (
                "No checkpoint has" if without == len(rows) else f"{without:,} of {len(rows):,} checkpoints have no"
            )
            found.append(f"{all_of} {what}: it was not measured, or is not known.")
    broken = sum(real(row, "delta_q") == math.inf for row in course.rows)
    if broken:
        found.append(
            f"Infinite losses of Θ̂ in {broken:,} of {len(course.rows):,} rows: these are left out of all that is drawn."
        )
    texts = {row.get("tokens_fingerprint") for row in course.rows} - {None}
    if len(texts) > 1:
        found.append(f"The losses were measured on {len(texts)} different texts: between these they do not compare.")
    return tuple(found)


def _whole(row: Row, column: str) -> str:
    value = real(row, column)
    return f"{value:,.0f}" if math.isfinite(value) else ""


def _reach(course: Course) -> str:
    tokens = [value for row in course.rows if math.isfinite(value := real(row, "tokens"))]
    if not tokens:
        return ""
    low, high = min(tokens), max(tokens)
    return f", after {amount(low)} tokens" if low == high else f", from {amount(low)} to {amount(high)} tokens"


def amount(tokens: float) -> str:
    """Tokens as people say them.

    >>> amount(18_432_000), amount(2.5e12), amount(640)
    ('18.4 million', '2.5 trillion', '640')
    """
    for size, word in ((1e12, " trillion"), (1e9, " billion"), (1e6, " million")):
        if tokens >= size:
            return f"{tokens / size:.3g}{word}"
    return f"{tokens:,.0f}"


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names) if rest <= 0 else f"{', '.join(names[:_NAMED])} and {rest} more"


def _telling(course: Course) -> str | None:
    """The quantizer whose error shows most along the longest run."""

    def worst(quantizer: str) -> float:
        values = [real(row, "delta_q") for row in course.along(course.longest, quantizer)]
        return max((value for value in values if math.isfinite(value)), default=-math.inf)

    best = max(course.quantizers, key=worst, default=None)
    return best if best is not None and worst(best) > -math.inf else None


def _along(course: Course, run: str, quantizer: str) -> list[str]:
    """How the error goes along one run, and when, measured by its learning rate."""
    rows = [row for row in course.along(run, quantizer) if math.isfinite(real(row, "delta_q"))]
    first, last = rows[0], rows[-1]
    where = f"In {run}, " if len(course.runs) > 1 else ""
    if len(rows) == 1:
        return [f"{where}{quantizer} changes the loss by {_error(last)}."]
    worst = max(rows, key=lambda row: real(row, "delta_q"))
    found = [
        f"{where}{'under' if where else 'Under'} {quantizer} the error goes from {_error(first)}{_at(first)} to "
        f"{_error(last)}{_at(last)}; its largest is {_error(worst)}{_at(worst)}."
    ]
    rates = [real(row, "learning_rate") for row in rows]
    if not all(map(math.isfinite, rates)) or max(rates) <= 0:
        return found
    peak = max(range(len(rates)), key=lambda place: (rates[place], place))
    fell = next((place for place in range(peak, len(rows)) if rates[place] < _FELL * rates[peak]), None)
    if fell is None:
        found.append(f"The learning rate of this run has not begun to fall: it is {_rate(rates[-1])} at its end.")
    elif fell > 0:
        found.append(
            f"Until{_at(rows[fell - 1], '')} the learning rate is still above half of its highest, and the error "
            f"{_error(rows[fell - 1])}; where the rate has fallen to {_rate(rates[-1])}, it is {_error(last)}."
        )
    return found


def _rate(rate: float) -> str:
    return measured(float(f"{rate:.2g}"), math.nan)


def _at(row: Row, word: str = " at") -> str:
    tokens, step = real(row, "tokens"), real(row, "step")
    if math.isfinite(tokens):
        return f"{word} {amount(tokens)} tokens"
    return f"{word} step {step:,.0f}" if math.isfinite(step) else f"{word} {row.get('checkpoint')}"


def _error(row: Row) -> str:
    return percent(real(row, "delta_q"))


def _ends(course: Course, quantizer: str) -> str:
    """Ends of runs whose rate has decayed, against ends of those whose rate has not; averages of neither."""
    decayed: list[float] = []
    steady: list[float] = []
    for run in course.runs:
        rows = [row for row in course.along(run, quantizer) if math.isfinite(real(row, "delta_q"))]
        rates = [real(row, "learning_rate") for row in rows]
        if len(rows) > 1 and all(map(math.isfinite, rates)):
            (decayed if rates[-1] < _GONE * max(rates) else steady).append(real(rows[-1], "delta_q"))
    if len(decayed) < 2 or len(steady) < 2:
        return ""
    parts = [
        f"{percent(median(decayed))} for the {len(decayed)} runs whose learning rate has fallen below a tenth",
        f"{percent(median(steady))} for the {len(steady)} whose rate has not",
    ]
    return f"At the ends of the runs the median error under {quantizer} is {listed(parts)}."
