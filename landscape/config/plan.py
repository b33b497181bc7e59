"""What a job would take, before it is begun."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from landscape.config.text import DTYPES, option
from landscape.errors import OptionError

JOBS = ("slice", "sharpness", "evaluate")
_MAY_BE_NONE = ("quantizers", "density")


@dataclass(frozen=True)
class PlanConfig:
    """Which job, of which model, on which machines.

    Raises:
        OptionError: a number or a word that cannot be used.
    """

    job: str = field(metadata={"help": "slice, sharpness or evaluate."})
    model: str = field(
        metadata={"help": "A Hub id, a directory, or one with a config.json alone: no weights are read."}
    )
    tokens: int | None = option(None, "Evaluation tokens. Default: as the job's.")
    seq_len: int | None = option(None, "Tokens per window. Default: as the job's.")
    batch_size: int | None = option(None, "Windows per batch. Default: 8; 2 for sharpness.")
    dtype: Literal["float32", "bfloat16", "float16"] = option("float32", "Arithmetic of a slice or an evaluation.")
    quantizers: int = option(1, "Of an evaluation: how many.")
    evaluations: int = option(
        100,
        "Of a slice: places evaluated; 40 to 100 do on planes of quantizers, up to 600 on others, --dense takes all.",
    )
    products: int = option(80, "Of sharpness: Hessian products for eigenvalues; about 20 do for λ_max alone.")
    density: int = option(96, "Of sharpness: products for the spectral density; 0 with --shard and --stream.")
    probes: int = option(50, "Of sharpness: probes of the trace.")
    product: Literal["reverse", "difference"] = option("reverse", "Of sharpness: exact products, or by differences.")
    checkpointing: bool = option(False, "Of sharpness: activations are computed again instead of kept.")
    shard: bool = option(False, "Of sharpness: weights and vectors are spread over the ranks; by differences.")
    stream: bool = option(False, "Blocks are read from their file one at a time, vectors lie on disk.")
    ranks: int = option(1, "Processes under torchrun, a device each.")
    memory: float | None = option(None, "GB that a device has. Default: what is free here.")
    tflops: float | None = option(
        None, "10¹² operations a second that a device does in large matrix products. Default: as measured here."
    )
    link: float = option(25.0, "GB a second between ranks.")

    def __post_init__(self) -> None:
        if self.job not in JOBS:
            raise OptionError(f"job {self.job}: expected one of {', '.join(JOBS)}")
        for name, value in vars(self).items():
            none = name in _MAY_BE_NONE
            if type(value) in (int, float) and not (math.isfinite(value) and (value > 0 or (none and value == 0))):
                expected = f"a number {'of at least' if none else 'above'} 0"
                raise OptionError(f"--{name.replace('_', '-')} {value}: expected {expected}")
        if self.dtype not in DTYPES:
            raise OptionError(f"--dtype {self.dtype}: expected one of {', '.join(DTYPES)}")
        if self.shard and self.job != "sharpness":
            raise OptionError(f"--shard with {self.job}: belongs to sharpness")
        if self.shard and self.stream:
            raise OptionError(
                "--shard with --stream: weights are spread over ranks, or read from their file; choose one"
            )
        if self.shard or self.stream:
            object.__setattr__(self, "density", 0)
