"""The Makefile's names are options of the commands, and a misspelt one is an error."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def make(*words: str) -> subprocess.CompletedProcess[str]:
    """What make would run, in an environment that knows of no make around it."""
    around = ("MAKE", "MFLAGS", "ARGS", "TIER", "COVERAGE")
    bare = {name: value for name, value in os.environ.items() if not name.startswith(around)}
    return subprocess.run(["make", "-n", *words], cwd=ROOT, env=bare, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "words",
    [("slices", "MODLE=x"), ("sharpness", "PLANE=pca"), ("slices", "quant=rtn-w3"), ("check", "QUANT=x"), ("X=",)],
)
def test_a_name_that_the_target_does_not_take_is_an_error(words: tuple[str, ...]):
    made = make(*words)
    assert made.returncode == 2
    assert words[-1].split("=")[0] in made.stderr
    assert "takes no" in made.stderr


@pytest.mark.parametrize("words", [("slcies",), ("slcies", "MODEL=x")])
def test_a_misspelt_target_is_an_error(words: tuple[str, ...]):
    made = make(*words)
    assert made.returncode == 2 and "make slcies: no such target" in made.stderr


def explanation(command: str) -> str:
    """What `landscape COMMAND --help` says, on wide lines."""
    return subprocess.run(
        [Path(sys.executable).with_name("landscape"), command, "--help"],
        env=os.environ | {"COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout


@pytest.mark.parametrize(
    ("target", "command"),
    [("slices", "slice"), ("sharpness", "sharpness"), ("evaluate", "evaluate"), ("quantize", "quantize")],
)
def test_every_name_is_an_option(target: str, command: str):
    takes = re.search(rf"^{target}_takes := MODEL (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert takes is not None
    names = takes[1].split()
    made = make(target, "MODEL=org/name@main", *(f"{name}={4 if name == 'NPROC' else f'v*{name}'}" for name in names))
    assert made.returncode == 0, made.stderr
    line = made.stdout.splitlines()[-1]
    if "NPROC" in names:
        names.remove("NPROC")
        assert ".venv/bin/torchrun --nproc-per-node 4 -m landscape " in line
    assert f"landscape {command} 'org/name@main' " in line
    explained = explanation(command)
    if target == "quantize":
        names.remove("QUANT")
        assert "quantize 'org/name@main' 'v*QUANT' " in line
    for name in names:
        option = "--" + name.lower().replace("_", "-")
        assert f"{option} 'v*{name}'" in line
        assert re.search(rf"(?<![\w-]){option}(?![\w-])", explained), option


@pytest.mark.parametrize("value", ["two", "0", "2 3", "-1"])
def test_a_number_of_processes_is_a_number(value: str):
    made = make("slices", f"NPROC={value}")
    assert made.returncode == 2 and f"NPROC={value}: expected a number of processes" in made.stderr


def test_training_targets_pass_their_names_on():
    assert "landscape train 'analyses/lab/recipes/tiny.yaml'" in make("train").stdout
    made = make("train", "RECIPE=r.yaml", "CHANGES=seed=2 steps=5", "FORK=runs/a@3", "OUT=runs/b").stdout
    assert "landscape train 'r.yaml' seed=2 steps=5 --fork 'runs/a@3' --out 'runs/b'" in " ".join(made.split())
    assert "torchrun --nproc-per-node 2 -m landscape train" in make("train", "NPROC=2").stdout
    made = make("average", "RUN=runs/a", "WINDOW=5", "EVERY=10").stdout
    assert "landscape average 'runs/a' --window '5' --every '10'" in " ".join(made.split())
    assert "-m analyses.lab 'small' --experiments 'AB'" in make("lab", "SIZE=small", "EXPERIMENTS=AB").stdout
    assert make("lab", "SEED=1").returncode == 2


def test_studies_take_a_run_or_the_bundled_one():
    made = make("study", "RUN=runs/a@last=3", "QUANT=nf4 rtn-w3-g64", "AVERAGE=lawa-5", "TEXT=t.txt").stdout.split()
    assert " ".join(made).endswith("landscape study 'runs/a@last=3' nf4 rtn-w3-g64 --average 'lawa-5' --text 't.txt'")
    assert "--text" not in make("study", "RUN=runs/a").stdout and "validation.jsonl" in make("study").stdout
    made = make("correlate", "TABLES=one two", "X=trace").stdout
    assert "landscape correlate one two --x 'trace'" in " ".join(made.split())


def test_view_shows_all_results_or_those_named():
    made = " ".join(make("view").stdout.split())
    assert re.search(r"landscape view (figures )?data/studies --open --out 'figures/view'$", made)
    made = " ".join(make("view", "RESULTS=one two", "SERVE=8000", "OUT=pages").stdout.split())
    assert made.endswith("landscape view one two --open --serve '8000' --out 'pages'")


@pytest.mark.parametrize("target", ["train", "average", "study", "correlate", "view"])
def test_every_name_of_a_training_target_is_an_option(target: str):
    takes = re.search(rf"^{target}_takes := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert takes is not None
    explained = explanation(target)
    for name in (
        set(takes[1].split())
        - {"RECIPE", "CHANGES", "NPROC", "RUN", "TABLES", "RESULTS"}
        - ({"QUANT"} if target == "study" else set())
    ):
        option = "--" + name.lower().replace("_", "-")
        assert re.search(rf"(?<![\w-]){option}(?![\w-])", explained), option
