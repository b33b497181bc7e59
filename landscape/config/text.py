"""What every job that runs a model on a text needs to know, and how an option is declared."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from landscape.errors import OptionError

DTYPES = ("float32", "bfloat16", "float16")
PACKINGS = ("joined", "documents")


def option(default: Any, text: str) -> Any:
    """A field with what `--help` says of it."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class TextConfig:
    """What every job that runs a model on a text needs to know.

    Raises:
        OptionError: a number or a word that cannot be used.
    """

    model: str = field(
        metadata={
            "help": "Θ_K: a Hub id with or without @revision, a directory, or a training run "
            "(step500/, checkpoint-500/, …) with @step to choose."
        }
    )
    text: str = option(
        "wikitext",
        "Evaluation text: a .txt or .jsonl file (or .gz, .xz), a directory of them, or a datasets id with optional "
        ":configuration:split.",
    )
    calibration: str | None = option(
        None,
        "Calibration text, for methods that look at activations. Default: what follows the evaluation windows in TEXT.",
    )
    tokenizer: str | None = option(None, "Take the tokenizer of this model instead of MODEL's own.")
    seq_len: int | None = option(None, "Tokens per window. Default: 2048, or the model's context if shorter.")
    tokens: int | None = option(
        None,
        "Evaluation tokens. Default: 600,000 (204,800 for curvature), or 4096 where the context is below 2048.",
    )
    calibration_windows: int | None = option(None, "Default: 1024, or 128 where the context is below 2048.")
    calibration_packing: Literal["joined", "documents"] | None = option(
        None, "Default: 'documents' for a text of its own and a context of 2048 or more, otherwise as --packing."
    )
    packing: Literal["joined", "documents"] = option(
        "joined", "'joined': documents run on and are cut into windows; 'documents': a window each."
    )
    bos: bool = option(False, "Begin each document with the tokenizer's beginning-of-sequence token.")
    batch_size: int = option(8, "Windows per forward pass.")
    seed: int = option(0, "Of everything random.")
    device: str = option("auto", "auto, cpu, cuda, …")
    deterministic: bool = option(
        False, "Operations with the same bits every time alone; one that has none is an error (docs/reliability.md)."
    )
    out: Path = option(Path("figures/slices"), "Directory, or the .h5 file itself; page and figures go beside it.")
    overwrite: bool = option(False, "Begin anew where a file already holds a result.")
    remote_code: bool = option(False, "Run Python code that comes with the model.")

    def __post_init__(self) -> None:
        object.__setattr__(self, "out", Path(self.out))
        for name in ("tokens", "calibration_windows", "batch_size"):
            self._at_least(name, 1)
        if self.seq_len is not None and self.seq_len < 2:
            raise OptionError(f"--seq-len {self.seq_len}: a window needs at least 2 tokens to predict one")
        self._one_of("packing", PACKINGS)
        self._one_of("calibration_packing", (None, *PACKINGS))

    def _at_least(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if value is not None and value < least:
            raise OptionError(f"--{name.replace('_', '-')} {value}: expected a whole number of at least {least}")

    def _one_of(self, name: str, known: tuple[str | None, ...]) -> None:
        if getattr(self, name) not in known:
            words = ", ".join(word for word in known if word)
            raise OptionError(f"--{name.replace('_', '-')} {getattr(self, name)}: expected one of {words}")


@dataclass(frozen=True)
class MeasurementConfig(TextConfig):
    """And a job that moves some of the parameters.

    Raises:
        OptionError: a number or a word that cannot be used.
    """

    params: str = option(
        "*", "Patterns over parameter names, separated by commas; ! excludes: '*,!*embed*'. All others are held fixed."
    )

    @property
    def patterns(self) -> list[str]:
        """`params` taken apart."""
        return [pattern.strip() for pattern in self.params.split(",")]
