"""The job that checks a stored result."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from landscape.config.text import option
from landscape.errors import OptionError

_SEEDS = 2**32


@dataclass(frozen=True)
class VerifyConfig:
    """Which result to check, where its inputs are, and how much of it to compute again.

    Raises:
        OptionError: a number that cannot be used.
    """

    file: Path = field(
        metadata={"help": "A slice or curvature (.h5), an evaluation (.json), a study's table or its folder."}
    )
    model: str | None = option(
        None, "Where the model is, when the file knows it by its name only: a directory or a run. Of a study, the run."
    )
    text: str | None = option(None, "Where the evaluation text is, likewise.")
    calibration: str | None = option(None, "Where the calibration text is, likewise.")
    tokenizer: str | None = option(None, "The model whose tokenizer was taken, likewise.")
    prev: str | None = option(None, "Θ_{K−1}, likewise. Default: the checkpoint of that name in the run of MODEL.")
    to: str | None = option(None, "The other end of a line, likewise.")
    packed: str | None = option(None, "The packed checkpoint that was evaluated, likewise.")
    vectors: Path | None = option(None, "The eigenvectors that a plane was spanned by.")
    cells: int = option(
        12, "Cells, windows, probes, eigenvectors, layers or rows that are computed again, taken by chance."
    )
    seed: int | None = option(None, "Of that choice. Default: another one each time, which is printed.")
    batch_size: int | None = option(
        None, "Windows per forward pass of losses. Default: as when the file was made; curvature always takes as many."
    )
    device: str | None = option(None, "auto, cpu, cuda, … Default: of the kind that the file was made on.")
    remote_code: bool = option(False, "Run Python code that comes with the model.")

    def __post_init__(self) -> None:
        object.__setattr__(self, "file", Path(self.file))
        object.__setattr__(self, "vectors", Path(self.vectors) if self.vectors else None)
        for name in ("cells", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                word = name.replace("_", "-")
                raise OptionError(f"--{word} {value}: expected a whole number of at least 1")
        if self.seed is not None and not 0 <= self.seed < _SEEDS:
            raise OptionError(f"--seed {self.seed}: expected a whole number from 0 to below 2³²")
