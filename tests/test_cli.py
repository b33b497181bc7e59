"""The command as a person meets it: help that teaches, one line for every mistake, exit code 2, nothing left behind."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import build, make_tokenizer
from landscape import slices
from landscape.config import PLANES, SliceConfig
from landscape.curvature import ParameterSpace, eigenvectors
from landscape.models import load_model
from landscape.models.references import resolve
from landscape.storage.files import lock
from landscape.weights import Weights
from test_slices import NAMED, plane

pytestmark = pytest.mark.usefixtures("process")


@contextlib.contextmanager
def nothing_new(folder: Path) -> Iterator[None]:
    before = sorted(folder.rglob("*"))
    yield
    assert sorted(folder.rglob("*")) == before, "something half-written was left behind"


def complaint(result: tuple[int, str, str]) -> str:
    """The one line on stderr, progress aside."""
    code, out, err = result
    assert code == 2, (out, err)
    assert "Traceback" not in err
    said = [line for line in err.splitlines() if line.startswith("landscape: ")]
    assert len(said) == 1, err
    assert err.rstrip().splitlines()[-1] == said[0]
    assert out == ""
    return said[0]


def test_help_teaches(landscape):
    code, out, _ = landscape("slice", "--help")
    assert code == 0
    for word in ("--prev", "--quant", "--text", "--calibration", "gptq-w3-g128", "600,000", "Θ_{K−1}", "@step142000"):
        assert word in out.replace("\n", " "), word
    for field in fields(SliceConfig):
        assert field.name == "model" or f"--{field.name.replace('_', '-')}" in out, field.name
    for kind in PLANES:
        assert f"'{kind}'" in out, kind


@pytest.mark.parametrize("command", ["slice", "sharpness"])
def test_help_shows_each_example_on_a_line_of_its_own(landscape, command: str):
    code, out, _ = landscape(command, "--help")
    assert code == 0
    assert len(re.findall(rf"^ +landscape {command} ", out, re.MULTILINE)) >= 3
    assert "\\b" not in out


def test_help_answers_at_once():
    """Nothing heavy is loaded for it: half a second of this process's own time, the interpreter's start included."""
    command = [Path(sys.executable).with_name("landscape"), "slice", "--help"]
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < 0.5


def test_summary_names_points_losses_and_files(landscape, run: Path, text_file: Path, tmp_path: Path):
    arguments = ["slice", run, "--text", text_file, "--quant", "rtn-w3-g16", "--grid", "5x4", "--tokens", "256"]
    code, out, err = landscape(*arguments, "--out", tmp_path)
    assert code == 0, err
    path = next(tmp_path.glob("*.h5"))
    stored = slices.read(path)
    for point in stored.points:
        assert point.label in out
        assert f"{point.loss:.4f}" in out
        assert f"{point.distance:.4g}" in out
    delta = stored.point("theta_hat").loss / stored.point("theta").loss - 1
    assert f"{delta:.3%}" in out
    assert "256 tokens of prose.txt" in out
    assert path.with_suffix(".html").name in out.replace("\n", "")
    assert max(map(len, out.splitlines())) <= 90 + len(str(tmp_path)) + 60


CASES = {
    "unknown local model": (["./nowhere"], "no such directory"),
    "hub id that is not cached": (["org/never-heard-of"], "HF_HUB_OFFLINE is set"),
    "unknown step": (["{run}@25"], "no checkpoint 25 in this run; nearest: step20, step30"),
    "unknown prev": (["{run}", "--prev", "@11"], "nearest: step10"),
    "a file for a model": (["{text}"], "expected a directory"),
    "unknown quantizer": (["{run}", "--quant", "gptx-w3-g16"], "unknown method 'gptx', did you mean gptq?"),
    "unknown method": (["{run}", "--quant", "spqr-w4-g128"], "unknown method 'spqr'; expected (rtn|gptq|awq|"),
    "override of embeddings": (["{run}", "--quant", "rtn-w3-g16+embed_in=w8"], "is about gpt_neox.embed_in; only"),
    "group too large": (["{run}", "--quant", "rtn-w3-g128"], "group size 128: does not divide the 32 inputs"),
    "group that divides nothing": (["{run}", "--quant", "rtn-w3-g24"], "does not divide"),
    "missing text": (["{run}", "--text", "./nope.txt"], "no such file or directory"),
    "text too short": (["{run}", "--text", "{short}"], "too short for one window of 64 tokens"),
    "no text left to calibrate on": (
        ["{run}", "--quant", "gptq-w3-g16", "--tokens", "900000"],
        "give --calibration TEXT",
    ),
    "window beyond the context": (["{run}", "--seq-len", "100"], "longer than the 64 tokens"),
    "other architecture": (["{run}", "--prev", "{other}"], "must have the same architecture"),
    "tokenizer of another model": (["{run}", "--tokenizer", "{large}"], "this tokenizer belongs to another model"),
    "no tokenizer": (["{bare}"], "name one with --tokenizer"),
    "bad grid": (["{run}", "--grid", "7"], "two whole numbers of at least 2 such as 41x25"),
    "bad bounds": (["{run}", "--bounds", "1,2,3"], "expected four numbers"),
    "empty bounds": (["{run}", "--bounds", "2,1,0,1"], "the smaller first"),
    "bad margin": (["{run}", "--margin", "-1"], "expected a fraction of at least 0"),
    "bad tokens": (["{run}", "--tokens", "0"], "expected a whole number of at least 1"),
    "not a number": (["{run}", "--tokens", "many"], "many"),
    "not a fraction": (["{run}", "--margin", "wide"], "wide"),
    "bad dtype": (["{run}", "--dtype", "int4"], "expected one of float32, bfloat16, float16"),
    "bad packing": (["{run}", "--packing", "tight"], "joined"),
    "bad device": (["{run}", "--device", "cuda:7"], "torch cannot use it here"),
    "unknown option": (["{run}", "--qaunt", "rtn-w3-g16"], "--quant"),
    "no model": ([], "Missing argument"),
    "unknown plane": (["{run}", "--plane", "banana"], "'--plane': 'banana' is not one of 'checkpoints', 'random'"),
    "pca of a lone model": (["{lone}", "--plane", "pca"], "--plane pca: lone has 0 other checkpoints before it"),
    "pca of the first steps": (["{run}@20", "--plane", "pca"], "run@step20 has 1 other checkpoints before it"),
    "pca of one": (["{run}", "--plane", "pca", "--checkpoints", "1"], "--checkpoints 1: expected a whole number"),
    "prev with pca": (["{run}", "--plane", "pca", "--prev", "@10"], "--prev with --plane pca: belongs to --plane ch"),
    "eigenvectors of none": (["{run}", "--plane", "eigenvectors"], "needs --vectors FILE"),
    "eigenvectors of one": (["{run}", "--plane", "eigenvectors", "--vectors", "{one}"], "one vector, two span a plane"),
    "missing vectors": (["{run}", "--plane", "eigenvectors", "--vectors", "nope"], "cannot be read (No such file"),
    "corrupt vectors": (["{run}", "--plane", "eigenvectors", "--vectors", "{short}"], "cannot be read ("),
    "vectors that are weights": (["{run}", "--plane", "eigenvectors", "--vectors", "{weights}"], "no eigenvectors;"),
    "vectors over less": (["{run}", "--plane", "eigenvectors", "--vectors", "{part}"], "holds no gpt_neox.embed_in"),
    "vectors with a line": (["{run}", "--plane", "line", "--vectors", "{one}"], "belongs to --plane eigenvectors"),
    "to with a plane": (["{run}", "--to", "@10"], "--to with --plane checkpoints: belongs to --plane line"),
    "line to nowhere": (["{run}", "--plane", "line", "--to", "@11"], "nearest: step10"),
    "line to itself": (["{run}", "--plane", "line", "--to", "@30"], "holds the same weights as run@step30"),
    "line to another architecture": (["{run}", "--plane", "line", "--to", "{other}"], "the same architecture"),
    "two quantizers": (["{run}", "--quant", "rtn-w3-g16,rtn-w4-g16"], "with --plane checkpoints: expected two names"),
    "one quantizer": (["{run}", "--plane", "quantizers"], "--quant rtn-w3-g16 with --plane quantizers: expected two"),
    "three quantizers": (["{run}", "--plane", "quantizers", "--quant", "a,b,c"], "expected two names"),
    "unknown of two": (["{run}", "--plane", "quantizers", "--quant", "rtn-w3-g16,x"], "unknown method 'x'"),
    "empty of two": (["{run}", "--plane", "quantizers", "--quant", "rtn-w3-g16,"], "unknown method ''"),
    "equal quantizers": (["{run}", "--plane", "quantizers", "--quant", "rtn-w3-g16,rtn-w3-g16"], "are parallel"),
    "like a file that is missing": (["{run}", "--like", "missing.h5"], "missing.h5: no such file"),
    "like no slice": (["{run}", "--like", "{short}"], "not a whole HDF5 file"),
    "like a plane": (["{run}", "--plane", "line", "--like", "{slice}"], "slice of a plane; expected that of a line"),
    "like a line": (["{run}", "--like", "{line}"], "the slice of a line; expected that of a plane"),
    "like both": (["{run}", "--like", "{both}"], "bounds of lines and of rectangles"),
    "like with bounds": (["{run}", "--like", "{slice}", "--bounds", "0,1,0,1"], "--bounds with --like: both give"),
    "bounds of a plane for a line": (["{run}", "--plane", "line", "--bounds", "0,1,0,1"], "expected two numbers"),
    "bounds of a line for a plane": (["{run}", "--bounds", "0,1"], "expected four numbers"),
    "grid of a plane for a line": (["{run}", "--plane", "line", "--grid", "9x9"], "expected one whole number"),
    "no reach": (["{run}", "--plane", "random", "--reach", "0"], "--reach 0.0: expected a number above 0"),
    "no range tolerance": (["{run}", "--range-tolerance", "0"], "--range-tolerance 0.0: expected a number above 0"),
    "odd range tolerance": (["{run}", "--range-tolerance", "nan"], "--range-tolerance nan: expected a number above 0"),
    "negative tolerance": (["{run}", "--loss-tolerance", "-1"], "--loss-tolerance -1.0: expected a number above 0"),
    "few evaluations": (["{run}", "--max-evaluations", "49"], "--max-evaluations 49: expected a whole number"),
    "unknown normalization": (["{run}", "--plane", "random", "--normalize", "nope"], "'nope' is not one of 'filter'"),
    "parameters of none": (["{run}", "--params", "nothing*"], "match none of 28 tensors"),
    "parameters that stay": (["{run}", "--plane", "line", "--params", "*norm*"], "direction of the plane is zero"),
}


@pytest.fixture(scope="module")
def things(run: Path, text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("things")
    (folder / "short.txt").write_text("the cat")
    build("llama-tied-gqa").save_pretrained(folder / "other")
    shutil.copytree(run / "step30", folder / "bare", ignore=shutil.ignore_patterns("tokenizer*"))
    large = build("gpt_neox", vocab_size=400)
    large.save_pretrained(folder / "large")
    tokenizer = make_tokenizer()
    tokenizer.add_tokens([f"the cat{i}" for i in range(50)] + ["cat and"])
    tokenizer.save_pretrained(folder / "large")
    names = {name: str(folder / name) for name in ("other", "bare", "large", "lone")}
    shutil.copytree(run / "step30", folder / "lone")
    theta = Weights.of(load_model(resolve(f"{run}@30")))
    for name, rows, patterns in (("one", 1, "*"), ("part", 2, "*mlp*")):
        space = ParameterSpace.select(theta, patterns)
        eigenvectors.write(folder / name, "top", space, torch.eye(rows, space.n))
    here = plane()
    for name, beta in (("slice.h5", np.linspace(0, 2, 3)), ("line.h5", np.zeros(1))):
        slices.create(folder / name, slices.Layout(here, np.arange(3.0), beta, np.zeros(0), NAMED, {}, {}, "key"))
    files = {name: str(folder / name) for name in ("one", "part", "slice.h5", "line.h5", "short.txt")}
    names |= {name.partition(".")[0]: path for name, path in files.items()}
    names |= {"both": f"{files['slice.h5']},{files['line.h5']}", "weights": str(run / "step30" / "model.safetensors")}
    return {"run": str(run), "text": str(text_file), **names}


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_one_line(case: str, landscape, things: dict[str, str], tmp_path: Path):
    arguments, expected = CASES[case]
    text = [] if "--text" in arguments else ["--text", things["text"]]
    quant = [] if "--quant" in arguments else ["--quant", "rtn-w3-g16"]
    with nothing_new(tmp_path):
        filled = [argument.format(**things) if argument.startswith("{") else argument for argument in arguments]
        said = complaint(landscape("slice", *filled, *text, *quant, "--out", tmp_path / "out.h5"))
    assert expected in said
    assert len(said) < 500


def test_stores_that_cannot_be_used_are_one_line(landscape, things: dict[str, str], tmp_path: Path):
    arguments = ["slice", things["run"], "--text", things["text"], "--quant", "rtn-w3-g16", "--grid", "3x3"]
    out = tmp_path / "s.h5"
    out.write_bytes(b"not hdf5")
    assert "not a whole HDF5 file" in complaint(landscape(*arguments, "--out", out))
    assert out.read_bytes() == b"not hdf5"
    with lock(tmp_path / "held.h5"):
        code = "import sys; sys.argv = ['landscape', *sys.argv[1:]];from landscape.cli import main; main()"
        process = subprocess.run(
            [sys.executable, "-c", code, *arguments, "--out", str(tmp_path / "held.h5")], capture_output=True, text=True
        )
    assert "being written by another process" in complaint((process.returncode, process.stdout, process.stderr))
    (tmp_path / "file").write_text("")
    assert "expected a directory" in complaint(landscape(*arguments, "--out", tmp_path / "file"))


def test_a_disk_that_fills_up_is_one_line(things: dict[str, str], tmp_path: Path):
    """The shell's limit on the size of a file stands in for a full disk: the same refusal by the same system calls."""
    arguments = [things["run"], "--text", things["text"], "--quant", "rtn-w3-g16", "--grid", "60x60"]
    command = [sys.executable, "-m", "landscape.cli", "slice", *arguments, "--out", str(tmp_path / "s.h5")]
    limited = ["bash", "-c", 'ulimit -f 16; exec "$@"', "bash", *command]
    # a report of what was run (make test COVERAGE=1) would not fit either
    around = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    with nothing_new(tmp_path):
        process = subprocess.run(limited, env=around, capture_output=True, text=True)
        assert "the disk is full" in complaint((process.returncode, process.stdout, process.stderr))


def test_interrupting_says_how_to_go_on(things: dict[str, str], tmp_path: Path):
    arguments = [things["run"], "--text", things["text"], "--quant", "rtn-w3-g16", "--grid", "90x90"]
    command = [sys.executable, "-m", "landscape.cli", "slice", *arguments, "--out", str(tmp_path / "s.h5")]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a test run in the background hands on SIGINT as ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None and not (tmp_path / "s.h5").exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "interrupted; the same command goes on where it stopped" in err
    assert "Traceback" not in err
    assert not slices.read(tmp_path / "s.h5").complete


def test_a_loss_that_is_not_finite_is_named_in_the_summary(landscape, things: dict[str, str], tmp_path: Path):
    arguments = ["slice", things["run"], "--text", things["text"], "--quant", "rtn-w3-g16", "--grid", "3x3"]
    code, out, _ = landscape(*arguments, "--bounds", "-1e30,1e30,-1e30,1e30", "--out", tmp_path)
    assert code == 0
    assert "of 9 cells have a non-finite loss" in out.replace("\n", " ")


def test_exit_code_and_stderr_of_the_installed_command(tmp_path: Path):
    script = Path(sys.executable).with_name("landscape")
    process = subprocess.run(
        [script, "slice", "./nowhere"], capture_output=True, text=True, cwd=tmp_path, env=os.environ
    )
    assert "no such directory" in complaint((process.returncode, process.stdout, process.stderr))
