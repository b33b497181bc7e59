"""Jobs that make checkpoints: train a recipe, average what a run left."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from landscape.config.text import option
from landscape.errors import OptionError

KINDS = ("lawa", "ema", "soup")
TRACKERS = ("wandb", "trackio")


@dataclass(frozen=True)
class TrainConfig:
    """Which recipe to train, and how to run it; what changes the numbers is in the recipe.

    Raises:
        OptionError: a number or a word that cannot be used.
    """

    recipe: str = field(
        metadata={"help": "A recipe: a YAML file, the name of a preset (landscape recipes lists them), or a run."}
    )
    changes: list[str] = field(
        default_factory=list,
        metadata={"help": "Fields to change, as in seed=2 optimizer.peak=1e-3 schedule.kind=constant."},
    )
    fork: str | None = option(
        None, "Go on from this checkpoint of another run, RUN@step, kept with its optimizer state (keep_state)."
    )
    out: Path | None = option(None, "Directory of the run. Default: runs/NAME, after the recipe.")
    data: Path = option(Path("runs/tokens"), "Where tokenized texts are kept, for all runs.")
    device: str = option("auto", "auto, cpu, cuda, …")
    deterministic: bool = option(
        False, "Operations with the same bits every time alone; one that has none is an error (docs/reliability.md)."
    )
    micro_batch: int | None = option(
        None, "Windows per forward pass, where memory does not hold the batch; gradients are accumulated."
    )
    compile: bool = option(False, "Compile the model (torch.compile): a minute at the start, faster steps.")
    save_seconds: float = option(
        120.0, "At most this much is lost when the run is killed (more where writing takes long); 0 for nothing."
    )
    tracker: Literal["wandb", "trackio"] | None = option(None, "Send the log there too.")
    overwrite: bool = option(False, "Begin anew where a run of another recipe lies.")
    remote_code: bool = option(False, "Run Python code that comes with a model the recipe names.")

    def __post_init__(self) -> None:
        object.__setattr__(self, "changes", list(self.changes))
        object.__setattr__(self, "out", Path(self.out) if self.out else None)
        object.__setattr__(self, "data", Path(self.data))
        if self.micro_batch is not None and self.micro_batch < 1:
            raise OptionError(f"--micro-batch {self.micro_batch}: expected a whole number of at least 1")
        if not self.save_seconds >= 0:
            raise OptionError(f"--save-seconds {self.save_seconds}: expected seconds of at least 0")
        if self.tracker not in (None, *TRACKERS):
            raise OptionError(f"--tracker {self.tracker}: expected one of {', '.join(TRACKERS)}")


@dataclass(frozen=True)
class AverageConfig:
    """Which checkpoints to average, how, and where the result goes.

    Raises:
        OptionError: a number or a word that cannot be used.
    """

    models: list[str] = field(
        metadata={
            "help": "A training run, on disk or on the Hub, with @step to end there (lawa, ema); or the checkpoints "
            "themselves (soup)."
        }
    )
    out: Path | None = option(
        None,
        "Directory of the averaged checkpoint; with --along, of a run. Default: runs/NAME-KIND, after the first model.",
    )
    kind: Literal["lawa", "ema", "soup"] = option(
        "lawa",
        "'lawa': the mean of the last --window checkpoints, --every steps apart; 'ema': all up to there, a checkpoint "
        "counting --decay of the one after it; 'soup': the mean of the models named, each a reference.",
    )
    window: int = option(5, "Checkpoints in a mean of lawa.")
    every: int | None = option(None, "Steps between them. Default: all checkpoints there are.")
    decay: float = option(0.9, "What a checkpoint of ema counts beside the one after it.")
    along: bool = option(False, "One average at every checkpoint of the run from which the window reaches back.")
    overwrite: bool = option(False, "Begin anew where something lies at --out.")
    remote_code: bool = option(False, "Run Python code that comes with the model.")

    def __post_init__(self) -> None:
        object.__setattr__(self, "models", list(self.models))
        object.__setattr__(self, "out", Path(self.out) if self.out else None)
        if not self.models:
            raise OptionError("average: no model named; expected a run, or the checkpoints of a soup")
        if self.kind not in KINDS:
            raise OptionError(f"--kind {self.kind}: expected one of {', '.join(KINDS)}")
        for name, least in (("window", 2), ("every", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise OptionError(f"--{name} {value}: expected a whole number of at least {least}")
        if not 0 < self.decay < 1:
            raise OptionError(f"--decay {self.decay}: expected a number between 0 and 1, such as 0.9")
        if self.kind == "soup":
            if len(self.models) < 2:
                raise OptionError(f"--kind soup with {self.models[0]} alone: name at least two checkpoints")
            if self.along:
                raise OptionError("--along with --kind soup: follows one run; leave it out")
        elif len(self.models) > 1:
            raise OptionError(
                f"--kind {self.kind} with {len(self.models)} models: follows one run; name that, or use --kind soup"
            )
