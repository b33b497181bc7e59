"""What a file of this folder is: a question of the papers, asked of tables, with figures and verdicts as the answer.

A claim is judged as in the lab (`analyses.lab.claims`): it holds where the 95 % intervals of all its contrasts lie
inside what it says, does not hold where those of every seed lie outside for some contrast, and is not resolved
otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from analyses.drawn.figure import Figure
from analyses.lab.claims import Contrast, Verdict, judge
from analyses.lab.measured import Interval
from analyses.read.tables import Table

T = TypeVar("T")


class Missing(Exception):
    """Rows that a question needs and no table at hand has; `str` says what is needed, and which command gives it."""

    def __init__(self, what: str, command: str) -> None:
        """Keep both apart, for whoever lists them."""
        super().__init__(f"{what}; {command}")
        self.what, self.command = what, command


@dataclass(frozen=True)
class Answer:
    """What tables say to a question.

    Attributes:
        tables: names of those it was asked of.
        figures: one or more; the first is called after the question.
        verdicts: on the claims of the papers.
        numbers: sentences, where there is nothing to be judged.
    """

    tables: tuple[str, ...]
    figures: tuple[Figure, ...]
    verdicts: tuple[Verdict, ...] = ()
    numbers: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """All of it in words, a claim or a sentence a line."""
        yield from map(said, self.verdicts)
        yield from self.numbers


def choose(
    tables: Sequence[Table],
    take: Callable[[Table], T | None],
    what: str,
    command: str,
    most: Callable[[Table, T], int] = lambda table, taken: len(table.rows),
) -> tuple[Table, T]:
    """Of the tables that have what `take` takes of them, the one with `most` of it, or with most rows, and what it has.

    Raises:
        Missing: none has any of it; `what` it is, and the `command` that gives it.
    """
    fitting = [(table, taken) for table in tables if (taken := take(table))]
    if not fitting:
        raise Missing(what, command)
    return max(fitting, key=lambda each: (most(*each), len(each[0].rows)))


def lab(letters: str, more: str = "gptq-w4-g64 gptq-w3-g64") -> str:
    """The commands that train runs of the lab and measure them; `more` are quantizers and options of the study."""
    return (
        f"make lab SIZE=short EXPERIMENTS={letters}, "
        f"then landscape study runs/lab-short {more} --out data/studies/lab-short"
    )


class Question(Protocol):
    """What a file of this folder offers: the question in words, and who answers it."""

    QUESTION: str

    def answer(self, tables: Sequence[Table]) -> Answer:
        """The figures and verdicts of these tables.

        Raises:
            Missing: none of them has the rows.
        """
        ...


def verdict(
    claim: str,
    quantizer: str,
    rule: str,
    contrasts: Sequence[Contrast],
    within: tuple[float, float],
    percent: bool = True,
    by: Sequence[Contrast] | None = None,
) -> Verdict | None:
    """A claim judged by `by`, or by all of its contrasts; None where there is nothing to judge it by."""
    decides = contrasts if by is None else by
    if not decides:
        return None
    return Verdict(claim, quantizer, rule, tuple(contrasts), judge(decides, *within), percent)


def found(*verdicts: Verdict | None) -> tuple[Verdict, ...]:
    """Those that could be judged."""
    return tuple(each for each in verdicts if each is not None)


def said(verdict: Verdict) -> str:
    """A verdict with its numbers, contrast by contrast, its seeds beside each other."""
    by_what: dict[str, list[Contrast]] = {}
    for each in verdict.contrasts:
        by_what.setdefault(each.what, []).append(each)
    numbers = "; ".join(
        f"{what}: {' and '.join(with_interval(each.interval, verdict.percent, '+') for each in own)}"
        for what, own in by_what.items()
    )
    about = f", {verdict.quantizer}" if verdict.quantizer else ""
    return f"{verdict.says}: {verdict.claim}{about} ({verdict.rule}). {numbers}"


def with_interval(each: Interval, percent: bool = False, sign: str = "") -> str:
    """A number and the range it lies in."""
    factor, unit = (100.0, " %") if percent else (1.0, "")
    value, low, high = (figures(factor * number, sign) for number in (each.value, each.low, each.high))
    return f"{value}{unit} [{low}, {high}]"


def figures(number: float, sign: str = "") -> str:
    """Three figures; with "+" as `sign`, positive numbers have theirs.

    >>> figures(0.01234, "+"), figures(-3.2), figures(12345.0)
    ('+0.0123', '-3.20', '12345')
    """
    if not math.isfinite(number) or not number:
        return f"{number:{sign}g}"
    return f"{number:{sign}.{min(6, max(0, 2 - math.floor(math.log10(abs(number)))))}f}"
