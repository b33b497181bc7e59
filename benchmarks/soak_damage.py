"""Damage to stored files: bits flipped, files cut short, blocks of zeros, at random places in files of every kind.

Each damage must be found, by a line that names the file, or be without consequence: the very same numbers come out.
Anything else counts as wrong. Two ways to look: what only reads a file reads it; what goes on from files goes on.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import multiprocessing
import os
import random
import shutil
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import soak_jobs
from landscape import evaluation, pretraining, slices
from landscape.curvature import store
from landscape.errors import LandscapeError
from landscape.study import table
from landscape.training.run import Run
from soak_kills import REFUSED, Tally, Undisturbed, finish, last_line, quietly, start

AT_ONCE = 40  # damages that one process reads


def _reads_recipe(path: Path) -> str:
    """All but the name of the text, of whose tokens the run has a fingerprint."""
    return pretraining.find(str(path.parent))[0].fingerprint


Reader = Callable[[Path], Any]
READERS: Mapping[str, tuple[str, str, Reader]] = {  # kind of file: (job that writes it, pattern, what reads it)
    "slice, every cell": ("slice-dense", "*.h5", slices.read),
    "slice, reconstructed": ("slice-adaptive", "*.h5", slices.read),
    "curvature": ("sharpness", "*.h5", store.read),
    "evaluation": ("evaluate", "*.json", lambda path: dataclasses.replace(evaluation.read(path), path=Path())),
    "table of a study": ("study", "*.parquet", table.read),
    "run.json": ("train", "run/run.json", lambda path: Run(path.parent).facts()),
    "recipe of a run": ("train", "run/recipe.yaml", _reads_recipe),
}
# job: files from which an interrupted or finished one goes on, below the folder of the world or of the job
RESUMED: Mapping[str, tuple[str, ...]] = {
    "slice-dense": ("out/slice.h5", "run/step40/model.safetensors", "run/step40/tokenizer.json"),
    "slice-adaptive": ("out/slice.h5", "run/step40/config.json"),
    "sharpness": ("out/sharpness.h5", "out/.sharpness.state/*.npz", "run/step40/model.safetensors"),
    "evaluate": ("out/*.json", "run/step40/model.safetensors"),
    "train": ("out/run/state.safetensors", "out/run/log.jsonl", "out/run/run.json", "out-tokens/*/*", "recipe.yaml"),
    "study": ("out/done/*.json", "out/evaluations/*.json", "out/curvature/*.h5", "run/step30/model.safetensors"),
}


def damaged(content: bytes, draw: random.Random) -> bytes:
    """`content` with a bit flipped, cut short, or with a block of zeros: some change in any case."""
    if not content:
        return b"\0"
    changed, place = bytearray(content), draw.randrange(len(content))
    kind = draw.random()
    if kind < 0.7:
        changed[place] ^= 1 << draw.randrange(8)
    elif kind < 0.85:
        return bytes(changed[:place])
    else:
        end = min(len(content), place + draw.choice((1, 16, 512, 4096)))
        changed[place:end] = bytes(end - place)
    return bytes(changed) if changed != content else damaged(content, draw)


def read_damaged(name: str, world: Any, out: Path, seed: int) -> Tally:
    """AT_ONCE damages to a finished file, each read."""
    kind, pattern, _ = READERS[name]
    whole, scratch = world.folder / "whole" / kind, out.with_name(f"{out.name}-scratch")
    scratch.mkdir(exist_ok=True)
    path = random.Random(f"which {name} {seed}").choice(sorted(whole.glob(pattern)))
    tally, done = Tally(), 0
    while done < AT_ONCE:
        (scratch / "verdicts").unlink(missing_ok=True)
        process = multiprocessing.get_context("forkserver").Process(
            target=_examine, args=(name, path, scratch, seed, done)
        )
        process.start()
        ended = finish(process, scratch)
        verdicts = (scratch / "verdicts").read_text().splitlines() if (scratch / "verdicts").exists() else []
        for verdict in verdicts:
            _count(tally, ast.literal_eval(verdict), f"{name}, seed {seed}")
        done += len(verdicts)
        if done < AT_ONCE:
            tally.cases, tally.wrong, done = tally.cases + 1, tally.wrong + 1, done + 1
            tally.fail(f"{name}, seed {seed}, damage {done}: {last_line(ended.said)} (exit code {ended.code})")
    return tally


def _count(tally: Tally, verdict: str, where: str) -> None:
    tally.cases += 1
    if verdict == "found":
        tally.found += 1
    elif verdict == "harmless":
        tally.harmless += 1
    else:
        tally.wrong += 1
        tally.fail(f"{where}: {verdict}")


def _examine(name: str, path: Path, scratch: Path, seed: int, first: int) -> None:
    """The process: a line for each damage from the one numbered `first`."""
    quietly()
    shutil.rmtree(scratch / "spoiled", ignore_errors=True)
    spoiled = shutil.copytree(path.parent, scratch / "spoiled" / path.parent.name) / path.name
    read, content = READERS[name][2], path.read_bytes()
    expected = plain(read(spoiled))
    with open(scratch / "verdicts", "w", encoding="utf-8") as verdicts:
        for number in range(first, AT_ONCE):
            spoiled.write_bytes(damaged(content, random.Random(f"{name} {seed} {number}")))
            try:
                verdict = "harmless" if plain(read(spoiled)) == expected else f"damage {number}: not noticed"
            except LandscapeError as error:
                verdict = "found" if path.name in str(error) else f"damage {number}: not named: {error}"
            except Exception:
                verdict = f"damage {number}: {last_line(traceback.format_exc())}"
            print(ascii(verdict), file=verdicts, flush=True)  # messages may hold what is in a damaged file
    os._exit(0)


def plain(value: Any) -> Any:
    """What can be compared to the bit; times left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain({each.name: getattr(value, each.name) for each in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        return sorted((str(name), plain(each)) for name, each in value.items() if name not in soak_jobs.TIMES)
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tolist() if value.dtype == object else value.tobytes()
    return repr(value)


def resume_damaged(kind: str, world: Any, out: Path, known: Undisturbed, seed: int) -> Tally:
    """A job killed half-way, or finished; one of the files it goes on from damaged; then it goes on."""
    draw, tally = random.Random(f"damage {kind} {seed}"), Tally()
    own = soak_jobs.World(out.with_name(f"{out.name}-world"))
    job = own.folder / "out"
    shutil.rmtree(own.folder, ignore_errors=True)
    shutil.copytree(
        world.folder, own.folder, ignore=shutil.ignore_patterns("whole", "try-*"), copy_function=_keep_times
    )
    for text in own.folder.glob("*.yaml"):
        text.write_text(text.read_text().replace(str(world.folder), str(own.folder)))
    ended = start(kind, own, job, fatal=draw.randint(known.events // 3, 2 * known.events))
    tally.kills += ended.code < 0
    pattern = draw.choice([each for each in RESUMED[kind] if list(own.folder.glob(each))])
    path = draw.choice(sorted(own.folder.glob(pattern)))
    path.write_bytes(damaged(path.read_bytes(), draw))
    ended = start(kind, own, job)
    name = path.relative_to(own.folder)
    named = any(word in (ended.said or _skipped(job)) for word in _names(path, own.folder))
    if named and ended.code in (0, REFUSED):
        verdict = "found"
    elif ended.code:
        verdict = f"{name}: {last_line(ended.said)}"
    else:
        places = soak_jobs.differing(known.result, soak_jobs.JOBS[kind].result(job))
        verdict = f"{name}: differs in {', '.join(places[:3])}" if places else "harmless"
    _count(tally, verdict, f"damage, {kind}, seed {seed}")
    shutil.rmtree(own.folder, ignore_errors=True)
    return tally


def _names(path: Path, world: Path) -> list[str]:
    """What a line that names the file may call it: a part of a checkpoint or of a run goes by its folder too."""
    return [path.name, *(folder.name for folder in path.parents if folder.is_relative_to(world) and folder != world)]


def _skipped(job: Path) -> str:
    """What a study says of checkpoints that it could not measure."""
    path = job / "study.json"
    return json.dumps(json.loads(path.read_text(encoding="utf-8"))["skipped"]) if path.exists() else ""


def _keep_times(source: str, target: str) -> None:
    shutil.copy2(source, target)
