"""One run of a plan: train it, average it, evaluate its checkpoints. A process of its own, started by `analyses.lab`.

python -m analyses.lab.worker SIZE LETTERS RUN FOLDER
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from pathlib import Path

import yaml

from analyses.lab.plan import Planned
from analyses.lab.sizes import SIZES, Size
from landscape.averaging import average_checkpoints
from landscape.config import AverageConfig, TrainConfig
from landscape.errors import LandscapeError
from landscape.evaluation import evaluate_model
from landscape.pretraining import train_model
from landscape.storage.files import write_whole
from landscape.training.recipe import to_dict

INDEX = "measured"


def index_of(folder: Path, run: str) -> Path:
    """Where a run's measurements are listed: {checkpoint: {quantizer: file}}."""
    return folder / INDEX / f"{run}.json"


def work(size: Size, run: Planned, folder: Path) -> None:
    """All of one run; what is there already is not done again."""
    place = folder / run.name
    with tempfile.TemporaryDirectory() as temporary:
        recipe = Path(temporary) / "recipe.yaml"
        recipe.write_text(yaml.safe_dump(to_dict(run.recipe(size.recipe))))
        fork = f"{folder / run.fork[0]}@{run.fork[1]}" if run.fork else None
        train_model(TrainConfig(str(recipe), fork=fork, out=place, data=folder / "tokens"))
    models = {f"step{step}": f"{place}@{step}" for step in sorted(run.measured)}
    for lawa in sorted(run.lawas, key=lambda each: (each.end, each.window * each.every)):
        name = f"{lawa}-at{lawa.end}"
        averaged = folder / "averages" / f"{run.name}-{name}"
        average_checkpoints(AverageConfig([f"{place}@{lawa.end}"], out=averaged, window=lawa.window, every=lawa.every))
        models[name] = str(averaged)
    index = {}
    for name, model in models.items():
        results = evaluate_model(size.evaluation(model, folder / INDEX / "evaluations"))
        index[name] = {result.quantizer: result.path.name for result in results}
        write_whole(folder / INDEX / f".{run.name}.progress", str(len(index)).encode())
    write_whole(index_of(folder, run.name), json.dumps(index, indent=1).encode())


def _end_with_the_lab() -> None:
    """Stop when whoever started this is gone, however it went: the pipe from it is closed then."""
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_lab, daemon=True).start()
    size_name, letters, name, out = sys.argv[1:]
    try:
        chosen = SIZES[size_name]
        work(chosen, chosen.plan(letters).runs[name], Path(out))
    except LandscapeError as error:
        sys.exit(str(error))
