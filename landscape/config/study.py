"""Jobs over many checkpoints: study, and what is read off its table."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from landscape.config.text import DTYPES, TextConfig, option
from landscape.errors import OptionError

MEASUREMENTS = ("error", "step", "curvature", "layers")
ENGINES = ("local", "ray")


@dataclass(frozen=True)
class StudyConfig(TextConfig):
    """Which checkpoints to measure, with which quantizers, and what.

    `device`, `out`, `overwrite`, `remote_code` and those from `engine` on say how to run; every other field changes
    the numbers.

    Raises:
        OptionError: a number or a word that cannot be used.
    """

    model: str = field(
        metadata={
            "help": "A training run: a Hub id, a directory, or a directory of several runs; MODEL@SELECTION takes some "
            "of its checkpoints: @1000..8000, @every=4, @log=12, @apart=5000, @last=3, @'stage1-*', and several with "
            "colons, from left to right: @'stage1-*:log=12'."
        }
    )
    quant: list[str] = field(
        kw_only=True, metadata={"help": "Quantizers, such as gptq-w4-g128 gptq-w3-g128 rtn-w4-g128-asym int8."}
    )
    measure: str = option(
        "error,step,curvature,layers",
        "What, with commas: 'error' ΔL and ΔQ; 'step' Θ̂ − Θ, its second order and how far that holds; 'curvature' "
        "λ_max, λ_min, trace; 'layers' the trace of every tensor, and what it predicts.",
    )
    average: str = option(
        "",
        "Averages as checkpoints too, with commas: 'lawa-5' the last five checkpoints before each, 'lawa-5x500' those "
        "500 steps apart, 'soup:PATTERN' the mean of all whose revision fits.",
    )
    curvature_tokens: int | None = option(
        None, "Evaluation tokens of all second derivatives. Default: 204,800, or 4096 for a short context."
    )
    diagonal_probes: int | None = option(
        None, "Probes of ½ Σ H_ii δ_i², as in 'evaluate --second-order'; 0 leaves it out. Default: 4."
    )
    top: int = option(1, "Largest eigenvalues wanted.")
    trace_error: float = option(0.02, "Relative standard error at which a trace is good enough.")
    max_probes: int = option(200, "Probes of a trace at most.")
    density_steps: int = option(
        0, "Lanczos steps per probe of the spectral density of every checkpoint, such as 24; 0 for no density."
    )
    tasks: str | None = option(None, "Also the accuracy on these tasks of lm-eval, or on 'paper', as in 'evaluate'.")
    shots: int = option(5, "Worked examples before each question.")
    limit: int | None = option(None, "Ask the first questions of every task only.")
    task_folder: Path | None = option(None, "Task files of lm-eval of your own, as in 'evaluate'.")
    dtype: str = option("float32", "Forward passes of losses in float32, bfloat16 or float16; curvature stays float32.")
    engine: Literal["local", "ray"] = option(
        "local", "'local': one checkpoint after the other; 'ray': on a Ray cluster."
    )
    address: str | None = option(None, "Of the Ray cluster; without it one is begun on this machine.")
    gpus: float | None = option(
        None, "GPUs of a task on Ray, or a share of one. Default: what a model of this size needs where there are any."
    )
    retries: int = option(3, "How often a task is tried again when its worker is lost.")
    clean: bool = option(False, "Delete each checkpoint that this study brought from the Hub, once it is measured.")
    out: Path = option(
        Path("figures/study"),
        "Directory of study.parquet, layers.parquet, tensors.parquet, their CSV, and all they were made from.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "quant", [name for each in self.quant for name in each.split(",") if name])
        object.__setattr__(self, "task_folder", Path(self.task_folder) if self.task_folder else None)
        if not self.quant:
            raise OptionError("study: no quantizer named; expected at least one, such as gptq-w3-g128")
        for word in self.wanted:
            if word not in MEASUREMENTS:
                raise OptionError(f"--measure {word}: expected some of {', '.join(MEASUREMENTS)}")
        least = {"curvature_tokens": 1, "top": 1, "max_probes": 10, "density_steps": 0}
        least |= {"shots": 0, "limit": 1, "retries": 0}
        for name, number in least.items():
            self._at_least(name, number)
        if not 0 < self.trace_error < 1:
            raise OptionError(f"--trace-error {self.trace_error}: expected a fraction between 0 and 1")
        if self.gpus is not None and not 0 <= self.gpus <= 64:
            raise OptionError(f"--gpus {self.gpus}: expected a number from 0 to 64")
        self._one_of("dtype", DTYPES)
        self._one_of("engine", ENGINES)
        if self.address and self.engine != "ray":
            raise OptionError(f"--address {self.address}: belongs to --engine ray")

    @property
    def wanted(self) -> tuple[str, ...]:
        """`measure` taken apart."""
        return tuple(dict.fromkeys(word.strip() for word in self.measure.split(",") if word.strip())) or ("error",)


@dataclass(frozen=True)
class CorrelateConfig:
    """Which columns of a study's tables to hold against each other, and how.

    Raises:
        OptionError: a number or a word that cannot be used.
    """

    tables: list[str] = field(metadata={"help": "Folders that 'landscape study' wrote, or tables (.parquet) in them."})
    x: str = option(
        "trace,lambda_max,curvature_along,predicted,excess_kurtosis", "Columns, with commas, each held against Y."
    )
    y: str = option("delta_q", "The column to be explained.")
    quantizer: str = option("", "These alone, with commas. Default: each by itself.")
    given: str = option("step,loss", "Columns whose influence is taken out of the partial correlation.")
    lag: int = option(1, "Also X with Y so many checkpoints later; 0 for none.")
    where: str = option("", "Rows whose run fits one of these patterns, with commas: 'stable-*'.")
    ends: bool = option(False, "The last checkpoint of every run alone, runs as independent draws.")
    linear: bool = option(
        False, "Pearson's r of the numbers as they are. Default: of logarithms where all are positive."
    )
    draws: int = option(2000, "Resamplings behind every interval.")
    seed: int = option(0, "Of the resamplings.")
    out: Path | None = option(None, "Also write all coefficients to this .csv file.")

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", list(self.tables))
        object.__setattr__(self, "out", Path(self.out) if self.out else None)
        if not self.tables:
            raise OptionError("correlate: no table named; expected folders that 'landscape study' wrote")
        if self.draws < 100:
            raise OptionError(f"--draws {self.draws}: expected a whole number of at least 100")
        if self.out and self.out.suffix != ".csv":
            raise OptionError(f"--out {self.out}: expected a name that ends in .csv")


@dataclass(frozen=True)
class AllocateConfig(TextConfig):
    """How many bits there are for the layers of a model, and what tells where they are needed.

    Raises:
        OptionError: a number or a word that cannot be used.
    """

    quant: str = field(
        kw_only=True, metadata={"help": "The quantizer, such as gptq-w3-g64: its method and groups, at any bits."}
    )
    bits: float = option(3.5, "Bits of a quantized weight on average, scales included.")
    choices: str = option("2,3,4,6,8", "Bits that a layer may have, with commas.")
    by: Literal["outputs", "length", "grid"] = option(
        "outputs",
        "The sum over layers that predicts the loss (docs/studies.md): 'length' for methods that look at no inputs.",
    )
    curvature_tokens: int | None = option(
        None, "Evaluation tokens of the traces. Default: 204,800, or 4096 for a short context."
    )
    trace_error: float = option(0.02, "Relative standard error at which a trace is good enough.")
    max_probes: int = option(200, "Probes of the trace at most.")
    out: Path = option(Path("figures/allocate"), "Directory of the traces and evaluations it rests on.")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("curvature_tokens", 1), ("max_probes", 10)):
            self._at_least(name, least)
        self._one_of("by", ("outputs", "length", "grid"))
        if not 0 < self.trace_error < 1:
            raise OptionError(f"--trace-error {self.trace_error}: expected a fraction between 0 and 1")
        if not 1 < self.bits <= 16:
            raise OptionError(f"--bits {self.bits}: expected a number from 1 to 16, such as 3.5")
        if not self.levels or any(not 2 <= bits <= 8 for bits in self.levels):
            raise OptionError(f"--choices {self.choices}: expected whole numbers from 2 to 8, such as 2,3,4")

    @property
    def levels(self) -> tuple[int, ...]:
        """`choices` taken apart, ascending; empty where they are no numbers."""
        words = [word.strip() for word in self.choices.split(",")]
        return tuple(sorted({int(word) for word in words})) if all(word.isdecimal() for word in words) else ()
