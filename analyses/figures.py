"""Draw every question of the papers that the tables at hand can answer, say what they answer, and what is missing.

python -m analyses.figures                          all of data/studies/*/study.parquet
python -m analyses.figures studies/mine --out figures/mine
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from rich.console import Console

from analyses import (
    averaging,
    basin,
    budgets,
    forks,
    in_the_wild,
    int4_collapse,
    loss_and_accuracy,
    other_quantizers,
    peak_rate,
    prediction,
    scaling_laws,
    schedules,
    sharpness_over_training,
    weight_decay,
)
from analyses.drawn import page, printed
from analyses.question import Answer, Missing
from analyses.read import tables
from analyses.read.tables import Table
from landscape.errors import LandscapeError

QUESTIONS: tuple[ModuleType, ...] = (
    in_the_wild,
    budgets,
    peak_rate,
    averaging,
    weight_decay,
    schedules,
    other_quantizers,
    loss_and_accuracy,
    basin,
    sharpness_over_training,
    int4_collapse,
    forks,
    scaling_laws,
    prediction,
)
COMMITTED = Path("data/studies")


def name_of(question: ModuleType) -> str:
    """As its file is called."""
    return question.__name__.rpartition(".")[2]


def draw_all(studies: Sequence[Table], out: Path, console: Console) -> dict[str, Missing]:
    """Answer what can be answered; returns what is missing, by question."""
    missing = {}
    for question in QUESTIONS:
        name = name_of(question)
        try:
            answer: Answer = question.answer(studies)
        except Missing as what:
            missing[name] = what
            continue
        lines = list(answer.lines())
        for figure in answer.figures:
            paths = [*printed.write(figure, out), page.write(figure, question.QUESTION, lines, out)]
            told = ", ".join(path.name for path in paths)
            console.print(f"[bold]{figure.name}[/]  {told}", highlight=False)
        console.print(f"{question.QUESTION} ({', '.join(answer.tables)})", markup=False, highlight=False)
        for line in lines:
            console.print(f"  {line}", markup=False, highlight=False)
    return missing


def main() -> None:
    """Read the tables, draw, list what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", type=Path, help="study tables or their folders; default: data/studies/*")
    parser.add_argument("--out", type=Path, default=Path("figures/analyses"), help="where the figures go")
    args = parser.parse_args()
    paths = args.tables or sorted(COMMITTED.glob("*/study.parquet"))
    console = Console(soft_wrap=True)
    try:
        missing = draw_all(tables.load(paths), args.out, console)
    except LandscapeError as error:
        print(f"figures: {error}", file=sys.stderr)
        sys.exit(2)
    for name, what in missing.items():
        console.print(f"missing  {name}: {what.what}", markup=False, highlight=False)
        console.print(f"         {what.command}", markup=False, highlight=False)


if __name__ == "__main__":
    main()
