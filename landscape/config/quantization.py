"""Jobs that quantize: evaluate, quantize, compare by size."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from landscape.config.text import DTYPES, TextConfig, option
from landscape.errors import OptionError

STREAMS = ("auto", "always", "never")
PAPER = "paper"


@dataclass(frozen=True)
class EvaluateConfig(TextConfig):
    """Which quantizers to evaluate a model with, on which text.

    `device`, `out`, `overwrite`, `remote_code` and `stream` say how to run; every other field changes the numbers.

    Raises:
        OptionError: a number or a word that cannot be used.
    """

    quant: str = option(
        "rtn-w4-g128,gptq-w4-g128,gptq-w3-g128",
        "Quantizers, separated by commas (docs/quantizers.md), or 'none' for the model alone.",
    )
    packed: str | None = option(
        None,
        "Checkpoints of MODEL that somebody quantized (GPTQ, AWQ, bitsandbytes, compressed-tensors, torchao, GGUF), "
        "separated by commas: directories, GGUF files or Hub ids. Dense weights are read out of them.",
    )
    dtype: str = option("float32", "Forward pass in float32, bfloat16 or float16, the same for Θ and every Θ̂.")
    tasks: str | None = option(
        None,
        "Also the accuracy on these tasks of lm-eval, separated by commas, or on 'paper', the twelve of "
        "arXiv 2510.06213.",
    )
    shots: int = option(5, "Worked examples before each question.")
    limit: int | None = option(None, "Ask the first questions of every task only.")
    task_folder: Path | None = option(
        None, "Task files of lm-eval (YAML) of your own, with their data; such files may name code to run."
    )
    second_order: bool = option(
        False,
        "Also g·δ + ½ δᵀHδ of δ = Θ̂ − Θ beside the change it predicts, the losses along δ, and its critical sharpness.",
    )
    curvature_tokens: int | None = option(
        None, "Evaluation tokens that the second order is taken on. Default: 204,800, or 4096 for a short context."
    )
    diagonal_probes: int | None = option(
        None,
        "Probes for ½ Σ H_ii δ_i², what the same rounding errors would cost with signs by chance; each costs an exact "
        "product, 0 leaves it out. Default: 4.",
    )
    prev: str | None = option(
        None, "With --second-order: Θ_{K−1}, as @revision or any reference, whose distance and angle to δ are wanted."
    )
    draws: int = option(2000, "Resamplings of the windows, and of the questions, behind every interval.")
    stream: Literal["auto", "always", "never"] = option(
        "auto",
        "Leave the model in its file and take its blocks into memory one at a time, reading all of it once for Θ and "
        "once for every Θ̂. 'auto': where memory does not hold Θ and Θ̂. The numbers are the same.",
    )
    out: Path = option(Path("figures/evaluate"), "Directory of the results, one .json a quantizer.")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "task_folder", Path(self.task_folder) if self.task_folder else None)
        for name, least in (("draws", 100), ("shots", 0), ("limit", 1)):
            self._at_least(name, least)
        self._at_least("curvature_tokens", 1)
        self._at_least("diagonal_probes", 0)
        if self.diagonal_probes == 1:
            raise OptionError("--diagonal-probes 1: expected 0, or at least 2 so that they tell how sure they are")
        self._one_of("dtype", DTYPES)
        self._one_of("stream", STREAMS)
        if not self.second_order:
            for name in ("curvature_tokens", "diagonal_probes", "prev"):
                if getattr(self, name) is not None:
                    word = name.replace("_", "-")
                    raise OptionError(f"--{word} {getattr(self, name)}: belongs to --second-order")
        elif self.stream == "always":
            raise OptionError("--stream always with --second-order: needs the whole model in memory; leave one out")
        if self.stream == "always":
            for name in ("tasks", "packed"):
                if getattr(self, name) is not None:
                    raise OptionError(f"--stream always with --{name}: needs the whole model in memory; leave one out")
        if self.task_folder and self.tasks is None:
            raise OptionError(f"--task-folder {self.task_folder}: name what to ask from it with --tasks")


@dataclass(frozen=True)
class QuantizeConfig(TextConfig):
    """What to quantize, how, and where to keep it.

    Raises:
        OptionError: a number or a word that cannot be used.
    """

    quant: str = field(kw_only=True, metadata={"help": "The quantizer, such as gptq-w3-g128 (docs/quantizers.md)."})
    save: Path | None = option(
        None, "Keep Θ̂ in this directory: dense float32 weights that transformers loads, the tokenizer, report.json."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "save", Path(self.save) if self.save else None)


@dataclass(frozen=True)
class FrontierConfig:
    """Which evaluations to compare by size.

    Raises:
        OptionError: none named.
    """

    results: list[str] = field(
        metadata={"help": "Files that 'landscape evaluate' wrote, or directories of them; of one text, any models."}
    )
    out: Path = option(Path("figures/frontier"), "Where to write: NAME.pdf, NAME.png and NAME.csv.")

    def __post_init__(self) -> None:
        object.__setattr__(self, "out", Path(self.out))
        if not self.results:
            raise OptionError("frontier: no results named; expected files or directories of 'landscape evaluate'")
