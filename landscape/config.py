"""Jobs as dataclasses: the one place where an option has its name, default and explanation.

The command line is generated from these fields, Python callers fill them in, and the resolved one is stored in the
result. Imports nothing heavy, so that `--help` answers at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from landscape.errors import OptionError

DTYPES = ("float32", "bfloat16", "float16")
PACKINGS = ("joined", "documents")
RANDOM = "random"


def option(default: Any, text: str) -> Any:
    """A field with what `--help` says of it."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class SliceConfig:
    """What to slice, on which text, how finely.

    `device`, `out`, `overwrite` and `remote_code` say how to run; every other field changes the numbers.

    Raises:
        OptionError: a number or a word that cannot be used.
    """

    model: str = field(
        metadata={
            "help": "Θ_K: a Hub id with or without @revision, a directory, or a training run "
            "(step500/, checkpoint-500/, …) with @step to choose."
        }
    )
    prev: str | None = option(
        None,
        "Θ_{K−1}: @revision in the same run, any other reference, or 'random' for a seeded, filter-normalized "
        "direction. Default: the checkpoint before MODEL in its run.",
    )
    quant: str = option("gptq-w3-g128", "Quantizer: rtn or gptq, -w2 to -w8, -g{size} or -channel, -asym, …")
    text: str = option(
        "wikitext",
        "Evaluation text: a .txt or .jsonl file (or .gz, .xz), a directory of them, or a datasets id with optional "
        ":configuration:split.",
    )
    calibration: str | None = option(
        None, "Calibration text for GPTQ. Default: what follows the evaluation windows in TEXT."
    )
    tokenizer: str | None = option(None, "Take the tokenizer of this model instead of MODEL's own.")
    seq_len: int | None = option(None, "Tokens per window. Default: 2048, or the model's context if shorter.")
    tokens: int | None = option(None, "Evaluation tokens. Default: 600,000, or 4096 where the context is below 2048.")
    calibration_windows: int | None = option(None, "Default: 1024, or 128 where the context is below 2048.")
    calibration_packing: Literal["joined", "documents"] | None = option(
        None, "Default: 'documents' for a text of its own and a context of 2048 or more, otherwise as --packing."
    )
    packing: Literal["joined", "documents"] = option(
        "joined", "'joined': documents run on and are cut into windows; 'documents': a window each."
    )
    bos: bool = option(False, "Begin each document with the tokenizer's beginning-of-sequence token.")
    grid: str | None = option(None, "Cells along α and β. Default: 31x31, or 21x21 where the context is below 2048.")
    margin: float = option(0.5, "Room around the points, as a fraction of their spread.")
    bounds: str | None = option(
        None, "α_low,α_high,β_low,β_high instead of a margin, so that several slices share axes."
    )
    dtype: str = option("float32", "Forward pass in float32, bfloat16 or float16; weights stay float32.")
    batch_size: int = option(8, "Windows per forward pass.")
    seed: int = option(0, "Of the random direction.")
    device: str = option("auto", "auto, cpu, cuda, …")
    out: Path = option(Path("figures/slices"), "Directory, or the .h5 file itself; page and figures go beside it.")
    overwrite: bool = option(False, "Begin anew where a file already holds a slice.")
    remote_code: bool = option(False, "Run Python code that comes with the model.")

    def __post_init__(self) -> None:
        object.__setattr__(self, "out", Path(self.out))
        for name in ("tokens", "calibration_windows", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"--{name.replace('_', '-')} {value}: expected a whole number of at least 1")
        if self.seq_len is not None and self.seq_len < 2:
            raise OptionError(f"--seq-len {self.seq_len}: a window needs at least 2 tokens to predict one")
        if not (math.isfinite(self.margin) and self.margin >= 0):
            raise OptionError(f"--margin {self.margin}: expected a fraction of at least 0, such as 0.5")
        for name, known in (("dtype", DTYPES), ("packing", PACKINGS), ("calibration_packing", (None, *PACKINGS))):
            if getattr(self, name) not in known:
                words = ", ".join(word for word in known if word)
                raise OptionError(f"--{name.replace('_', '-')} {getattr(self, name)}: expected one of {words}")
