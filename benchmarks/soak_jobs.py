"""The jobs of the soak: small, complete, and known by what they store; and the run and text they work on.

A fork server imports this module once, so that a job in a new process begins at once.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet  # noqa: F401 (imported here, so that no job has to)
import transformers.models.gpt_neox.modeling_gpt_neox
import transformers.utils
from safetensors import safe_open

import landscape.viewer.pages
import landscape.viewer.printed  # noqa: F401
from landscape.basin import render_slice
from landscape.config import EvaluateConfig, SharpnessConfig, SliceConfig, StudyConfig, TrainConfig
from landscape.evaluation import evaluate_model
from landscape.pretraining import train_model
from landscape.reporting import Reporter
from landscape.sharpness import measure_sharpness
from landscape.study import run_study

WORDS = ("the", "cat", "and", "a", "dog", "sat", "on", "one", "mat", "while", "it", "rained", "over", "green", "hills")
RECIPE = """
model: {{type: gpt_neox, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, intermediate_size: 64}}
text: {text}
vocabulary: 300
seq_len: 32
batch_size: 8
steps: {steps}
schedule: {{kind: wsd, warmup: 4, cooldown: 8}}
optimizer: {{kind: adamw, peak: 1e-2}}
keep: {keep}
keep_state: [{keep[0]}]
log_every: 3
"""
SMALL: dict[str, Any] = {"tokens": 256, "seq_len": 32, "device": "cpu"}
TIMES = ("created", "finished", "seconds", "quantize_seconds", "digest", "seal")  # left out, with what holds times
LINKS = ("DIMENSION_LIST", "REFERENCE_LIST")  # HDF5's own addresses

Values = dict[str, Any]

transformers.utils.logging.disable_progress_bar()


@dataclass(frozen=True)
class World:
    """The folder with the text, the recipe and the run that all jobs work on."""

    folder: Path

    @property
    def text(self) -> str:
        """The text to train on and to measure with."""
        return str(self.folder / "text.txt")

    @property
    def run(self) -> Path:
        """A training run with three checkpoints."""
        return self.folder / "run"

    def make(self) -> None:
        """Write the text and the recipe, and train the run."""
        chosen = random.Random(0).choices(WORDS, k=4000)
        lines = [" ".join(chosen[start : start + 11]) + ".\n" for start in range(0, len(chosen), 11)]
        Path(self.text).write_text("".join(lines), encoding="utf-8")
        recipe = self.folder / "recipe.yaml"
        recipe.write_text(RECIPE.format(text=self.text, steps=12, keep=[6, 12]), encoding="utf-8")
        whole = self.folder / "run.yaml"
        whole.write_text(RECIPE.format(text=self.text, steps=40, keep=[20, 30, 40]), encoding="utf-8")
        train_model(TrainConfig(str(whole), out=self.run, data=self.folder / "tokens", device="cpu"))


@dataclass(frozen=True)
class Job:
    """One kind of job.

    Attributes:
        run: does it, or the rest of it, into a folder.
        result: what a finished one says, by name, times left out; two runs must agree to the bit.
        stored: what an unfinished one has stored so far, by name; none of it may vanish or be made again.
        calls: how many units of work are stored, where a unit is a call that can be counted; None where `stored` tells
            by itself that something was made again.
    """

    run: Callable[[World, Path, Reporter], object]
    result: Callable[[Path], Values]
    stored: Callable[[Path], Values]
    calls: Callable[[Path], int] | None = None


def slice_job(**more: Any) -> Job:
    """A slice in one file."""

    def run(world: World, out: Path, reporter: Reporter) -> object:
        path = out / "slice.h5"
        return render_slice(
            SliceConfig(f"{world.run}@40", quant="rtn-w3-g16", text=world.text, out=path, **SMALL, **more), reporter
        )

    return Job(
        run,
        lambda out: hdf5(out / "slice.h5"),
        lambda out: evaluated(out / "slice.h5"),
        lambda out: len(evaluated(out / "slice.h5")),
    )


def _sharpness(world: World, out: Path, reporter: Reporter) -> object:
    asked = SMALL | {"top": 2, "max_probes": 10, "density_steps": 4, "density_probes": 2, "batch_size": 4}
    asked |= {"quant": "rtn-w3-g16"}
    return measure_sharpness(
        SharpnessConfig(f"{world.run}@40", text=world.text, out=out / "sharpness.h5", **asked), reporter
    )


def _evaluate(world: World, out: Path, reporter: Reporter) -> object:
    quant = "none,rtn-w3-g16,gptq-w4-g16,int8"
    asked = SMALL | {"quant": quant, "calibration_windows": 8, "draws": 100}
    return evaluate_model(EvaluateConfig(f"{world.run}@40", text=world.text, out=out, **asked), reporter)


def _train(world: World, out: Path, reporter: Reporter) -> object:
    data = out.with_name(f"{out.name}-tokens")  # made by the job too
    recipe = str(world.folder / "recipe.yaml")
    return train_model(TrainConfig(recipe, out=out / "run", data=data, device="cpu", save_seconds=0), reporter)


def _study(world: World, out: Path, reporter: Reporter) -> object:
    asked = SMALL | {"quant": ["rtn-w3-g16", "gptq-w4-g16"], "calibration_windows": 8, "curvature_tokens": 64}
    asked |= {"max_probes": 10, "diagonal_probes": 2}
    return run_study(StudyConfig(f"{world.run}@30..40", text=world.text, out=out, **asked), reporter)


def hdf5(path: Path) -> Values:
    """Every dataset and attribute, by name."""
    found: Values = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item[()]
        for key, value in item.attrs.items():
            if key not in (*TIMES, *LINKS):
                found[f"{name}@{key}"] = value

    with h5py.File(path, "r", locking=False) as file:
        file.visititems(visit)
        visit("", file)
    return found


def evaluated(path: Path) -> Values:
    """Losses of a slice by place, and whether they were evaluated."""
    if not path.exists():
        return {}
    with h5py.File(path, "r", locking=False) as file:
        of_points = {f"point {name}": point["loss"][()] for name, point in file["points"].items() if point["done"][()]}
        done = file["done"][:] * file["evaluated"][:]
        cells = {f"cell {i} {j}": file["loss"][i, j] for i, j in np.argwhere(done)}
        rows = zip(*(file[f"nodes/{name}"][:].tolist() for name in ("kind", "alpha", "beta", "loss")), strict=True)
        nodes = {f"node {kind} {a} {b}": np.float64(loss) for kind, a, b, loss in rows if kind}
        complete = file.attrs["status"] == b"complete"
        along = {} if complete and nodes else dict(enumerate(file["profile/loss"][:]))
        profile = {f"profile {i}": loss for i, loss in along.items() if file["profile/done"][i]}
    return of_points | cells | nodes | profile


def sections(out: Path) -> Values:
    """Parts of a measurement with the time that each took; until it is complete, what the ledger holds as well."""
    path = out / "sharpness.h5"
    found: Values = {}
    complete = False
    if path.exists():
        with h5py.File(path, "r", locking=False) as file:
            complete = file.attrs["status"] == "complete"
            for name in ("eigenvalues/top", "eigenvalues/bottom", "trace", "density", "direction"):
                if name in file:
                    found[name] = repr(sorted(file[name].attrs.items()))
    if complete:
        return found | {"complete": True}
    ledger = out / ".sharpness.state"
    vectors, samples = _arrays(ledger / "krylov.npz", "projected"), _arrays(ledger / "trace.npz", "samples")
    for index in range(len(vectors)):  # a vector counts when the space knows of it
        found |= {f"ledger {each.name}": written(each) for each in ledger.glob(f"krylov-*-{index}.npz")}
    return found | {f"ledger probe {index}": sample for index, sample in enumerate(samples)}


def _arrays(path: Path, name: str) -> np.ndarray:
    if not path.exists():
        return np.zeros(0)
    with np.load(path) as file:
        return np.asarray(file[name])


def files(*patterns: str) -> Callable[[Path], Values]:
    """When, and as which inode, the files of these names came into being: made again, a file is another."""
    return lambda out: {
        str(path.relative_to(out)): written(path) for pattern in patterns for path in sorted(out.glob(pattern))
    }


def written(path: Path) -> str:
    """What changes when a file is replaced."""
    about = path.stat()
    return f"{about.st_ino} {about.st_mtime_ns}"


def evaluation_results(out: Path) -> Values:
    """What the evaluations say."""
    found: Values = {}
    for path in sorted(out.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        found |= {f"{path.name} {key}": repr(value) for key, value in content.items() if key not in TIMES}
        found[f"{path.name} windows"] = np.array([content["windows"][key] for key in ("sum", "sum_hat")])
    return found


def bytes_of(*patterns: str) -> Callable[[Path], Values]:
    """The files of these names, to the byte."""
    return lambda out: {
        str(path.relative_to(out)): np.frombuffer(path.read_bytes(), np.uint8)
        for pattern in patterns
        for path in sorted(out.glob(pattern))
        if path.is_file()
    }


def run_files(out: Path) -> Values:
    """The files of a run to the byte; of a state what it holds, as safetensors writes that in any order."""
    found = bytes_of("run/*", "run/step*/*")(out)
    for name in [name for name in found if name.endswith("state.safetensors")]:
        del found[name]
        with safe_open(out / name, framework="np") as file:
            found |= {f"{name} {key}": word for key, word in file.metadata().items()}
            found |= {f"{name} {key}": file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    return found


def steps(out: Path) -> int:
    """Updates that need not be made again."""
    facts = out / "run" / "run.json"
    if facts.exists() and json.loads(facts.read_text())["complete"]:
        return 12
    state = out / "run" / "state.safetensors"
    if not state.exists():
        return 0
    with safe_open(state, framework="np") as file:
        return int(json.loads(file.metadata()["facts"])["step"])


def trained(out: Path) -> Values:
    """Where a run would go on, as something that may not vanish."""
    return {f"step {step}": True for step in range(1, steps(out) + 1)}


JOBS: Mapping[str, Job] = {
    "slice-dense": slice_job(dense=True, grid="9x8"),
    "slice-adaptive": slice_job(bounds="-0.3,0.3,-0.5,0.5", grid="21x23"),
    "sharpness": Job(_sharpness, lambda out: hdf5(out / "sharpness.h5"), sections),
    "evaluate": Job(_evaluate, evaluation_results, files("*.json")),
    "train": Job(_train, run_files, trained, steps),
    "study": Job(_study, bytes_of("*.parquet", "*.csv"), files("done/*.json", "evaluations/*.json")),
}


def debris(out: Path) -> list[str]:
    """What a finished job should have cleared away: partial files, ledgers, locks."""
    hidden = [path for path in out.rglob(".*") if not path.name.endswith(".turn")]
    return sorted(str(path.relative_to(out)) for path in hidden)


def remove(out: Path) -> None:
    """Everything of one try."""
    for path in (out, out.with_name(f"{out.name}-tokens")):
        shutil.rmtree(path, ignore_errors=True)


def differing(one: Values, two: Values) -> list[str]:
    """The places in which two results differ, a cell each."""
    places = [name for name in {*one, *two} if name not in one or name not in two]
    for name in one.keys() & two.keys():
        a, b = np.asarray(one[name]), np.asarray(two[name])
        if a.shape != b.shape or a.dtype != b.dtype:
            places.append(name)
        elif a.dtype.kind == "f":
            bits = np.atleast_1d(a).view(f"u{a.itemsize}") != np.atleast_1d(b).view(f"u{b.itemsize}")
            places += [f"{name}{index}" for index in np.argwhere(bits).tolist()]
        else:
            places += [f"{name}{index}" for index in np.argwhere(np.atleast_1d(a != b)).tolist()]
    return sorted(places)
