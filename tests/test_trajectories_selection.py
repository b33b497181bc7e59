"""The grammar of MODEL@SELECTION."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkpoints import save
from landscape.errors import ModelError, OptionError
from landscape.trajectories import Point, parse, select, split
from landscape.trajectories.selection import _log

PYTHIA = ["step0", *(f"step{2**power}" for power in range(10)), *(f"step{1000 * k}" for k in range(1, 144))]
STAGES = [
    *(f"stage1-step{step}-tokens{step // 10}B" for step in (100, 200, 900, 1000)),
    *(f"stage2-ingredient{soup}-step{step}-tokens{step // 10}B" for soup in (1, 2) for step in (50, 100)),
    "main",
]


def line(*names: str, run: str = "run") -> list[Point]:
    found = [parse(name) for name in names]
    return [Point(f"{run}@{each.name}", each.name, each.stage, each.step, None, None, run) for each in found]


def names(points: list[Point]) -> list[str | None]:
    return [point.revision for point in points]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("100..900", [f"step{n}" for n in (100, 500, 900)]),
        ("..500", [f"step{n}" for n in (0, 100, 500)]),
        ("501..", ["step900", "step1000"]),
        ("0..0", ["step0"]),
        ("every=2", ["step0", "step500", "step1000", "main"]),
        ("every=3", ["step0", "step900", "main"]),
        ("every=1", ["step0", "step100", "step500", "step900", "step1000", "main"]),
        ("every=99", ["step0", "main"]),
        ("last=2", ["step1000", "main"]),
        ("last=99", ["step0", "step100", "step500", "step900", "step1000", "main"]),
        ("step500", ["step500"]),
        ("500", ["step500"]),
        ("0500", ["step500"]),
        ("main", ["main"]),
        ("main, step100,500", ["step100", "step500", "main"]),  # in the order of training
        ("step?00", ["step100", "step500", "step900"]),
        ("step*,100", ["step0", "step100", "step500", "step900", "step1000"]),
        ("*", ["step0", "step100", "step500", "step900", "step1000", "main"]),
        ("100..:last=1", ["step1000"]),
        ("last=1:every=1", ["main"]),
        ("every=2:100..", ["step500", "step1000"]),
        ("100..:every=2", ["step100", "step900", "step1000"]),
        ("log=2", ["step100", "step1000"]),
        ("log=1", ["step1000"]),
        ("log=3", ["step100", "step500", "step1000"]),
        ("log=9", ["step100", "step500", "step900", "step1000"]),
    ],
)
def test_parts(selection: str, expected: list[str]) -> None:
    points = line("step0", "step100", "step500", "step900", "step1000", "main")
    assert names(select(points, selection)) == expected


def test_stages() -> None:
    points = line(*STAGES)
    assert names(select(points, "stage1-*")) == STAGES[:4]
    assert names(select(points, "*ingredient*")) == STAGES[4:8]
    assert names(select(points, "stage1-*:last=1,".rstrip(","))) == [STAGES[3]]
    assert names(select(points, "100")) == [STAGES[0], STAGES[5], STAGES[7]]  # a step of three stages
    assert names(select(points, "*ingredient2*,main:every=2")) == [STAGES[6], STAGES[8]]
    assert names(select(points, "stage1-*:log=3")) == [STAGES[0], STAGES[1], STAGES[3]]


def test_log_spacing_over_the_steps_of_pythia() -> None:
    """143000^(1/11) is 2.94: 1, 2.9, 8.7, 25, 75, 221, 650, 1911, 5619, 16527, 48614, 143000, each at its nearest."""
    chosen = [point.step for point in select(line(*PYTHIA), "log=12")]
    assert chosen == [1, 4, 8, 32, 64, 256, 512, 2000, 6000, 17000, 49000, 143000]


@pytest.mark.parametrize("count", [2, 5, 20, 90, 142, 143])
def test_log_spacing_gives_as_many_as_asked_for_where_the_points_are_even(count: int) -> None:
    points = line(*(f"step{1000 * k}" for k in range(1, 144)))
    chosen = [point.step or 0 for point in _log(points, count)]
    assert len(set(chosen)) == count and chosen == sorted(chosen) and (chosen[0], chosen[-1]) == (1000, 143000)


def test_log_takes_the_nearest() -> None:
    points = line("step10", "step90", "step110", "step1000")
    assert names(select(points, "log=3")) == ["step10", "step110", "step1000"]  # 100: 90 is further on a log axis


def test_log_leaves_enough_for_what_follows() -> None:
    """Of 10, 21.5, 46.4 and 100 the nearest are 10, 13, 100 and 100."""
    points = line("step10", "step11", "step12", "step13", "step100")
    assert names(select(points, "log=4")) == ["step10", "step12", "step13", "step100"]


def test_runs_are_narrowed_one_by_one() -> None:
    points = [*line("step1", "step2", "step3", run="a"), *line("step2", "step8", run="b")]
    assert [(point.run, point.step) for point in select(points, "last=1")] == [("a", 3), ("b", 8)]
    assert [(point.run, point.step) for point in select(points, "every=2")] == [("a", 1), ("a", 3), ("b", 2), ("b", 8)]
    assert [(point.run, point.step) for point in select(points, "log=1")] == [("a", 3), ("b", 8)]
    assert [(point.run, point.step) for point in select(points, "step8,1")] == [("a", 1), ("b", 8)]
    assert [(point.run, point.step) for point in select(points, "8..:last=1")] == [("b", 8)]


def test_a_model_without_a_revision_goes_by_its_stage() -> None:
    final = Point("org/final", None, "final", None, None, None, "run")
    assert select([*line("step1"), final], "final") == [final]
    alone = Point("tiny", None, "", None, None, None, "tiny")
    assert select([alone], "main") == select([alone], "last=3") == [alone]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("every=0", "every=0; expected a whole number of at least 1"),
        ("every=", "every=; expected a whole number"),
        ("log=2.5", "log=2.5; expected a whole number"),
        ("last=-1", "last=-1; expected a whole number"),
        ("last=" + "9" * 30, "expected a whole number"),
        ("first=3", "first=3; expected A..B, every=N"),
        ("..", r"\.\.; expected steps A\.\.B with A ≤ B"),
        ("9..3", "9..3; expected steps"),
        ("1..x", "1..x; expected steps"),
        ("1..2,5", "1..2,5; expected steps"),
        ("", "an empty part; expected A..B"),
        ("100::last=1", "an empty part"),
        ("step100,", "step100,; expected A..B"),
        ("log=3", "steps of run begin anew from stage to stage; expected one stage, .* stage1-\\*:log=8"),
    ],
)
def test_what_is_not_of_the_grammar(selection: str, expected: str) -> None:
    with pytest.raises(OptionError, match=expected) as caught:
        select(line(*STAGES), selection)
    assert selection in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("stage3-*", "no revision is stage3-*; nearest: stage1-step"),
        ("950", "no revision is 950; nearest: stage1-step900-tokens90B, stage1-step1000-tokens100B"),
        ("stage2-step190", "no revision is stage2-step190; nearest: stage1-step200-tokens20B"),
        ("stage1-*,mian", "no revision is mian; nearest: main"),
        ("stage1-*:main", "no revision is main; nearest: stage1-"),  # it was left out before
        ("Stage1-*", "no revision is Stage1-*"),
        ("1001..", "1001.. leaves nothing; there is 9 to choose from, with steps from 50 to 1000"),
        ("main:1..", "1.. leaves nothing; there is 1 to choose from, none of them with a step"),
        ("main:log=3", "log=3 leaves nothing"),
    ],
)
def test_what_leaves_nothing(selection: str, expected: str) -> None:
    with pytest.raises(ModelError) as caught:
        select(line(*STAGES), selection)
    assert f"selection {selection}: " in str(caught.value) and expected in str(caught.value)


def test_a_reference_is_split_at_its_last_at_sign(tmp_path: Path) -> None:
    assert split("org/name@stage1-*:log=3") == ("org/name", "stage1-*:log=3")
    assert split("org/name") == ("org/name", None)
    folder = save(tmp_path / "me@home" / "run" / "step5").parent
    assert split(str(folder)) == (str(folder), None)
    assert split(f"{folder}@last=1") == (str(folder), "last=1")
    for wrong, where in (("org/name@", "after"), ("@last=1", "before")):
        with pytest.raises(OptionError, match=f"trajectory {wrong}: nothing {where} the @"):
            split(wrong)
