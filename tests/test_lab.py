"""The plan of the experiments, the verdicts on made-up measurements, and all of it end to end at the trial size."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from analyses.lab import experiments as lab
from analyses.lab import report
from analyses.lab.claims import FAILS, HOLDS, OPEN, Contrast, judge
from analyses.lab.differences import CLAIMS, verdicts
from analyses.lab.experiments import EXPERIMENTS, planned
from analyses.lab.measured import Interval, Measured
from analyses.lab.plan import Planned
from analyses.lab.sizes import SIZES
from analyses.lab.worker import INDEX, index_of
from landscape.losses import WindowLosses, compare
from landscape.training.run import Run

ROOT = Path(__file__).parents[1]
LETTERS = "".join(EXPERIMENTS)
WINDOWS = 40


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize(
    ("size", "letters"), [*(("tiny", each) for each in LETTERS), *((size, LETTERS) for size in SIZES)]
)
def test_a_plan_holds_together(size: str, letters: str):
    plan = SIZES[size].plan(letters)
    for run in plan.runs.values():
        recipe = run.recipe(plan.base)
        assert set(run.measured) <= set(recipe.kept)
        assert min(run.measured) > run.begun
        for lawa in run.lawas:
            assert set(lawa.steps) <= set(recipe.kept)
            assert len(lawa.steps) == lawa.window
        if run.fork is not None:
            parent = plan.runs[run.fork[0]].recipe(plan.base)
            assert run.fork[1] in parent.kept_states
            assert parent.seed == recipe.seed
            assert run.begun < recipe.steps


def test_the_experiments_share_their_stable_runs():
    base, seeds = SIZES["tiny"].recipe, (1, 2)
    together = planned(base, "ABC", seeds).runs
    apart = [planned(base, letter, seeds).runs for letter in "ABC"]
    assert len(together) < sum(map(len, apart))
    assert set(together) == set().union(*apart)


def test_a_cooldown_goes_on_at_the_rate_of_the_stable_run_and_ends_at_zero():
    plan = planned(SIZES["tiny"].recipe, "B", (1,))
    run = plan.runs["decay-0.003-s1-from14400"]
    stable, cooled = plan.runs["stable-0.003-s1"].recipe(plan.base), run.recipe(plan.base)
    assert stable.rate()(14399, stable.steps) == cooled.rate()(14400, cooled.steps) == 1.0
    assert cooled.rate()(17999, 18000) == pytest.approx(1 / 3600)


def contrast(seed: int, low: float, high: float, what: str = "x") -> Contrast:
    return Contrast(what, seed, Interval((low + high) / 2, low, high))


def test_a_claim_holds_only_where_every_interval_lies_inside():
    assert judge([contrast(1, 0.1, 0.2), contrast(2, 0.3, 0.4)], 0, 1) == HOLDS
    assert judge([contrast(1, 0.1, 0.2), contrast(2, -0.1, 0.4)], 0, 1) == OPEN
    assert judge([contrast(1, 0.1, 0.2), contrast(2, -0.4, -0.1)], 0, 1) == OPEN
    assert judge([contrast(1, -0.5, -0.2), contrast(2, -0.4, -0.1)], 0, 1) == FAILS
    assert judge([contrast(1, 1.1, 1.2), contrast(2, 1.3, 1.4)], 0, 1) == FAILS
    mixed = [contrast(1, 0.1, 0.2, "a"), contrast(1, -0.5, -0.2, "b"), contrast(2, 0.1, 0.2, "a")]
    assert judge(mixed, 0, 1) == FAILS  # b is outside for every seed it was measured with
    assert judge([*mixed, contrast(2, 0.1, 0.2, "b")], 0, 1) == OPEN


Error = Callable[[Planned, str, int], float]


def measurements(folder: Path, letters: str, loss: Error, error: Error, noise: float = 0.0) -> Measured:
    """As the worker leaves them, with this loss and ΔQ; (run, checkpoint, step) → value."""
    size = SIZES["tiny"]
    plan = size.plan(letters)
    random = np.random.default_rng(0)
    spread = 1 + 0.2 * random.standard_normal(WINDOWS)  # windows differ, alike for all checkpoints
    (folder / INDEX / "evaluations").mkdir(parents=True)
    for run in plan.runs.values():
        index: dict[str, dict[str, str]] = {}
        names = {f"step{step}": step for step in run.measured} | {
            f"{each}-at{each.end}": each.end for each in run.lawas
        }
        for name, step in names.items():
            index[name] = {}
            for quantizer in size.quantizers:
                theta = loss(run, name, step) * spread * 127
                hat = theta * (1 + error(run, name, step)) + noise * random.standard_normal(WINDOWS) * 127
                file = f"{run.name}-{name}-{quantizer}.json"
                content = {"predicted": [127] * WINDOWS, "sum": theta.tolist(), "sum_hat": hat.tolist()}
                (folder / INDEX / "evaluations" / file).write_text(json.dumps({"windows": content}))
                index[name][quantizer] = file
        index_of(folder, run.name).write_text(json.dumps(index))
        made = Run(folder / run.name)
        made.begin(run.recipe(plan.base), {"parameters": 1, "text": "made up", "tokens": 1000})
        made.append({"step": run.steps, "learning_rate": 0.0})
    return Measured(plan, folder)


def paper_loss(run: Planned, name: str, step: int) -> float:
    """What arXiv 2510.06213 finds: lower after decay, and after averaging nearly as low."""
    if name.startswith("lawa"):
        return 3.45
    return 3.7 - (0.3 if run.fork and step == run.steps else 0.0)


def paper_error(run: Planned, name: str, step: int) -> float:
    """Flat while the rate is constant, higher after decay, less with a higher peak, little for averages."""
    peak = float(run.changes["optimizer.peak"])
    ordered = {3e-4: 0.10, 1e-3: 0.08, 3e-3: 0.06, 1e-2: 0.04}[peak]
    if name.startswith("lawa"):
        return 0.01
    return ordered * (1.0 if run.fork and step == run.steps else 0.5)


def says(measured: Measured, letters: str) -> dict[str, str]:
    return {each.claim: each.says for each in verdicts(measured, letters, ["gptq-w3-g64"])}


def test_the_claims_hold_on_measurements_like_the_papers(tmp_path: Path):
    measured = measurements(tmp_path, "ABC", paper_loss, paper_error, noise=0.001)
    assert says(measured, "ABC") == {
        "error flat in the stable phase": HOLDS,
        "rises in the cooldown": HOLDS,
        "end errors alike across budgets": HOLDS,
        "ordered by peak rate": HOLDS,
        "LAWA beats decay": HOLDS,
    }


def test_and_do_not_on_measurements_unlike_them(tmp_path: Path):
    def error(run: Planned, name: str, step: int) -> float:
        """Grows with the steps, falls in the cooldown, and higher with a higher peak."""
        return 0.01 + float(run.changes["optimizer.peak"]) + 0.02 * step / 18000 - (0.005 if run.fork else 0.0)

    measured = measurements(tmp_path, "ABC", lambda run, name, step: 4.0 if "lawa" in name else 3.4, error, noise=1e-4)
    assert set(says(measured, "ABC").values()) == {FAILS}


def test_what_noise_hides_is_not_resolved(tmp_path: Path):
    measured = measurements(tmp_path, "B", paper_loss, lambda *_: 0.05, noise=0.3)
    assert says(measured, "B") == {"ordered by peak rate": OPEN}


def test_intervals_are_those_of_an_evaluation(tmp_path: Path):
    """The paired bootstrap of `landscape evaluate`, to the accuracy of 2000 draws."""
    measured = measurements(tmp_path, "B", paper_loss, paper_error, noise=0.05)
    run = "decay-0.003-s1-from7200"
    file = json.loads((tmp_path / INDEX / "evaluations" / f"{run}-step9000-gptq-w3-g64.json").read_text())["windows"]
    counts = np.array(file["predicted"])
    expected = compare(WindowLosses(np.array(file["sum"]), counts), WindowLosses(np.array(file["sum_hat"]), counts))
    ours = Interval.of(measured.error(run, "step9000", "gptq-w3-g64"))
    assert ours.value == pytest.approx(expected.relative.value, rel=1e-9)
    width = expected.relative.high - expected.relative.low
    assert ours.low == pytest.approx(expected.relative.low, abs=0.1 * width)
    assert ours.high == pytest.approx(expected.relative.high, abs=0.1 * width)


def test_windows_that_differ_are_not_compared(tmp_path: Path):
    measurements(tmp_path, "B", paper_loss, paper_error)
    file = next((tmp_path / INDEX / "evaluations").iterdir())
    content = json.loads(file.read_text())
    content["windows"]["predicted"][0] = 5
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="other windows"):
        Measured(SIZES["tiny"].plan("B"), tmp_path)


@pytest.mark.parametrize("letter", CLAIMS)
def test_every_experiment_has_a_verdict(tmp_path: Path, letter: str):
    measured = measurements(tmp_path, letter, lambda *_: 3.5, lambda *_: 0.05, noise=0.01)
    for verdict in verdicts(measured, letter, ["gptq-w4-g64"]):
        assert verdict.says in (HOLDS, FAILS, OPEN)
        assert {each.seed for each in verdict.contrasts} == set(lab.FORK_ORDERS if letter == "F" else (1, 2))
    report.write(measured.plan, SIZES["tiny"], letter, tmp_path, Console(quiet=True), tmp_path / "results")
    text = (tmp_path / "results" / "docs" / "lab.md").read_text()
    assert all(run in text for run in measured.plan.runs)
    assert ("still fall" in text) == any(run.startswith("stable-0.003") for run in measured.plan.runs)


def test_no_run_decays_its_weights_to_nothing_in_a_step():
    for size in SIZES.values():
        for run in size.plan("D").runs.values():
            assert run.recipe(size.recipe).optimizer["weight_decay"] < 1, (size.name, run.name)


def test_the_report_replaces_its_own_part_of_the_page(tmp_path: Path):
    measured = measurements(tmp_path / "lab", "ABC", paper_loss, paper_error, noise=0.001)
    page = tmp_path / "docs" / "lab.md"
    page.parent.mkdir()
    page.write_text("# The lab\n\nWritten by hand.\n")
    for _ in range(2):
        report.write(measured.plan, SIZES["tiny"], "ABC", tmp_path / "lab", Console(quiet=True), tmp_path)
    text = page.read_text()
    assert text.startswith("# The lab\n\nWritten by hand.\n")
    assert text.count("**holds**") == 5 * 3
    assert text.count("written by make lab") == 1
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [
        "lab-tiny-averaging.png",
        "lab-tiny-budgets.png",
        "lab-tiny-peaks.png",
    ]
    rows = list(csv.DictReader((tmp_path / "data" / "lab" / "tiny.csv").open()))
    assert len(rows) == 3 * sum(len(run.measured) + len(run.lawas) for run in measured.plan.runs.values())
    assert {row["run"] for row in rows} == set(measured.plan.runs)


def test_the_lab_runs_end_to_end_and_goes_on_after_a_kill(tmp_path: Path):
    command = [sys.executable, "-W", "ignore", "-m", "analyses.lab", "trial", "--experiments", "C"]
    command += ["--out", str(tmp_path / "lab"), "--results", str(tmp_path)]
    with pytest.raises(subprocess.TimeoutExpired):  # which kills it
        subprocess.run(command, capture_output=True, timeout=10)
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "LAWA beats decay, gptq-w3-g32" in done.stdout
    plan = SIZES["trial"].plan("C")
    assert all(Run(tmp_path / "lab" / name).facts()["complete"] for name in plan.runs)
    assert "trial: written by make lab" in (tmp_path / "docs" / "lab.md").read_text()
    again = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert again.returncode == 0, again.stderr


def test_a_wrong_experiment_is_one_line():
    command = [sys.executable, "-m", "analyses.lab", "tiny", "--experiments", "AX"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 2
    assert "AX" in done.stderr.splitlines()[-1]
