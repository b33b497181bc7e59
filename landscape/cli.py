"""The command line: parse, call one function below, print.

Options are generated from the dataclasses of `landscape.config`; torch and transformers load only when a job runs.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Annotated, Any, get_type_hints

import typer

from landscape.config import (
    AverageConfig,
    CorrelateConfig,
    EvaluateConfig,
    FrontierConfig,
    QuantizeConfig,
    SharpnessConfig,
    SliceConfig,
    StudyConfig,
    TrainConfig,
)
from landscape.errors import LandscapeError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.callback()
def _root() -> None:
    """Loss-landscape geometry of quantized language models."""


def _takes(config: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of `config`: each field's type, default, help and panel."""
    types = get_type_hints(config)
    parameters = []
    named = [field for field in fields(config) if field.default is MISSING and field.default_factory is MISSING]
    options = [field for field in fields(config) if field not in named]
    own = [field for field in options if field.name in config.__annotations__]
    shared = [field for field in options if field.name not in config.__annotations__]
    for field in named + own + shared:  # what it is about, what belongs to this job, and what all jobs share
        about: dict[str, Any] = {"help": field.metadata["help"]}
        default = field.default if field.default_factory is MISSING else field.default_factory()
        is_argument = field.default is MISSING
        if is_argument:
            kind = typer.Argument(show_default=False, **about)
        else:
            flag = [f"--{field.name.replace('_', '-')}"]  # named, or typer adds a --no- form to every switch
            kind = typer.Option(*flag, **about)
        parameters.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if default is MISSING else default,
                annotation=Annotated[types[field.name], kind],
            )
        )

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def interruptible(**options: Any) -> None:
            try:
                command(**options)
            except KeyboardInterrupt:
                print("interrupted; the same command goes on where it stopped", file=sys.stderr)
                sys.exit(130)

        interruptible.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        interruptible.__doc__ = (command.__doc__ or "").replace(r"\b", "\b")  # click keeps lines after \b
        interruptible.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return interruptible

    return wrap


@app.command("slice")
@_takes(SliceConfig)
def _slice(**options: Any) -> None:
    r"""The loss on the plane through a checkpoint, an earlier one and the quantized weights.

    Writes an HDF5 grid, an interactive HTML page, and a PDF and PNG of its contour. Interrupted, the same command goes
    on where it stopped.

    \b
    A model of the Hub, the protocol of arXiv 2510.06213:
      landscape slice EleutherAI/pythia-160m@step143000 --prev @step142000 --quant gptq-w3-g128
          --text refinedweb --calibration allenai/c4:en:train
    Your own run, against the checkpoint before:
      landscape slice runs/mine@8000 --quant rtn-w4-g64-asym --text held-out.jsonl --tokens 20000
    A lone model, on a plane with a random direction, per story:
      landscape slice models/stories --quant rtn-w3-g32 --text stories.txt --packing documents --bos
    """
    config = SliceConfig(**options)
    _quiet_libraries()
    from rich.console import Console

    from landscape.basin import render_slice
    from landscape.terminal import TerminalReporter, print_summary

    started = time.monotonic()
    with TerminalReporter(Console(stderr=True)) as reporter:
        result = render_slice(config, reporter)
    print_summary(Console(), result, reporter.notes, time.monotonic() - started)


@app.command("sharpness")
@_takes(SharpnessConfig)
def _sharpness(**options: Any) -> None:
    r"""Curvature of the loss: Hessian eigenvalues, trace and spectral density, each with its error.

    Prints a table and writes an HDF5 file, and a PDF and PNG of the density. Interrupted, the same command goes
    on where it stopped, in the middle of a Lanczos iteration too.

    \b
    Sharpness as in arXiv 2510.06213, 100 windows of 2048 tokens:
      landscape sharpness EleutherAI/pythia-160m@step143000 --text refinedweb
    Without the embeddings, with the trace of every tensor:
      landscape sharpness runs/mine@8000 --text held-out.jsonl --params '*,!*embed*' --layers
    λ_max alone, along a training run: each checkpoint begins where the one before ended:
      landscape sharpness runs/mine@7000 --text held-out.jsonl --bottom 0 --density-steps 0 --vectors --out 7000.h5
      landscape sharpness runs/mine@8000 --text held-out.jsonl --bottom 0 --density-steps 0 --start 7000.top.safetensors
    What the second order says of a quantizer:
      landscape sharpness runs/mine --text held-out.jsonl --quant rtn-w4-g128
    """
    config = SharpnessConfig(**options)
    _quiet_libraries()
    from rich.console import Console

    from landscape.sharpness import measure_sharpness
    from landscape.sharpness_table import print_sharpness
    from landscape.terminal import TerminalReporter

    started = time.monotonic()
    with TerminalReporter(Console(stderr=True)) as reporter:
        result = measure_sharpness(config, reporter)
    print_sharpness(Console(), result, reporter.notes, time.monotonic() - started)


@app.command("evaluate")
@_takes(EvaluateConfig)
def _evaluate(**options: Any) -> None:
    r"""What quantization costs: the loss of a model and of each quantized version of it, on the same text.

    Prints a row for each quantizer, with its size and a 95 % interval for the quantization error, and keeps each
    as a file. Interrupted, the same command goes on with the quantizers that are missing.

    \b
    A model of the Hub, as in arXiv 2510.06213:
      landscape evaluate EleutherAI/pythia-160m@step143000 --quant gptq-w4-g128,gptq-w3-g128
          --text refinedweb --calibration allenai/c4:en:train
    The two probes of arXiv 2604.15167:
      landscape evaluate EleutherAI/pythia-160m@step143000 --quant rtn-w4-g128-asym,rtn-w8-channel --tokens 65536
    Your own run, several methods:
      landscape evaluate runs/mine@8000 --text held-out.jsonl --quant rtn-w4-g64,awq-w4-g64-asym-clip,hqq-w4-g64,nf4
    """
    config = EvaluateConfig(**options)
    _quiet_libraries()
    from rich.console import Console

    from landscape.evaluation import evaluate_model
    from landscape.evaluation_table import print_evaluations
    from landscape.terminal import TerminalReporter

    started = time.monotonic()
    with TerminalReporter(Console(stderr=True)) as reporter:
        results = evaluate_model(config, reporter)
    print_evaluations(Console(), results, reporter.notes, time.monotonic() - started)


@app.command("quantize")
@_takes(QuantizeConfig)
def _quantize(**options: Any) -> None:
    r"""Quantize a model, say layer by layer what that did, and keep the dense result.

    \b
    Look at the layers:
      landscape quantize EleutherAI/pythia-160m@step143000 gptq-w3-g128 --calibration allenai/c4:en:train
    Keep Θ̂ as a checkpoint that transformers and every command here can load:
      landscape quantize runs/mine@8000 awq-w4-g64-asym-clip --text held-out.jsonl --save runs/mine-awq
    More bits where it hurts:
      landscape quantize runs/mine@8000 gptq-w3-g64+down_proj=w4+layers.0=w8 --text held-out.jsonl
    """
    config = QuantizeConfig(**options)
    _quiet_libraries()
    from rich.console import Console

    from landscape.evaluation_table import print_quantized
    from landscape.quantizing import quantize_model
    from landscape.terminal import TerminalReporter

    started = time.monotonic()
    with TerminalReporter(Console(stderr=True)) as reporter:
        result = quantize_model(config, reporter)
    print_quantized(Console(), result, reporter.notes, time.monotonic() - started)


@app.command("frontier")
@_takes(FrontierConfig)
def _frontier(**options: Any) -> None:
    r"""Loss against size, over evaluations of several models and quantizers: is larger and quantized better?

    Prints a row for each by rising size, marks those that nothing smaller beats, and draws them.

    \b
    All that was evaluated so far on one text:
      landscape frontier figures/evaluate
    Two models:
      landscape evaluate EleutherAI/pythia-70m --quant rtn-w8-channel,gptq-w4-g128 --out sizes
      landscape evaluate EleutherAI/pythia-160m --quant gptq-w4-g128,gptq-w3-g128 --out sizes
      landscape frontier sizes --out figures/pythia
    """
    config = FrontierConfig(**options)
    from rich.console import Console

    from landscape.evaluation_table import print_frontier
    from landscape.frontier import compare_sizes

    print_frontier(Console(), compare_sizes(config))


@app.command("train")
@_takes(TrainConfig)
def _train(**options: Any) -> None:
    r"""Train a recipe: a run of checkpoints that every other command reads, with its log.

    Interrupted or killed, the same command goes on where it stopped, to the same losses. Under torchrun it is
    data-parallel: torchrun --nproc-per-node 2 -m landscape train RECIPE

    \b
    A preset (landscape recipes lists them) on your own text, on two seeds:
      landscape train p1-160m-tiny text=corpus.jsonl
      landscape train p1-160m-tiny text=corpus.jsonl seed=2
    With another schedule or peak rate:
      landscape train p1-160m-tiny text=corpus.jsonl schedule.kind=decay optimizer.peak=1e-2
    A cooldown from a checkpoint of a stable run that keeps its state there:
      landscape train stable.yaml keep_state=[3000] --out runs/stable
      landscape train runs/stable --fork runs/stable@3000 steps=3500 schedule.kind=wsd schedule.cooldown=500
          --out runs/cooled
    """
    config = TrainConfig(**options)
    _quiet_libraries()
    from rich.console import Console

    from landscape.pretraining import train_model
    from landscape.terminal import TerminalReporter
    from landscape.training_table import print_trained

    started = time.monotonic()
    with TerminalReporter(Console(stderr=True), shorter="") as reporter:
        trained = train_model(config, reporter)
    print_trained(Console(), trained, reporter.notes, time.monotonic() - started)


@app.command("recipes")
def _recipes() -> None:
    """The recipes that come with the package."""
    from landscape.pretraining import presets

    for name, text in presets().items():
        print(f"{name:<20}{text}")


@app.command("average")
@_takes(AverageConfig)
def _average(**options: Any) -> None:
    r"""The mean of several checkpoints, as a checkpoint: LAWA, an exponential moving average, a soup.

    \b
    The last five checkpoints of a run, 500 steps apart (arXiv 2510.06213), and one such mean at every checkpoint:
      landscape average runs/stable@4000 --every 500 --out runs/lawa-4000
      landscape average runs/stable --every 500 --along --out runs/stable-lawa
    A soup of models of the Hub:
      landscape average allenai/OLMo-2-0425-1B@stage2-ingredient1-step23000-tokens50B
          allenai/OLMo-2-0425-1B@stage2-ingredient2-step23000-tokens50B --kind soup --out soup
    """
    config = AverageConfig(**options)
    _quiet_libraries()
    from rich.console import Console

    from landscape.averaging import average_checkpoints
    from landscape.terminal import TerminalReporter
    from landscape.training_table import print_averaged

    with TerminalReporter(Console(stderr=True)) as reporter:
        averaged = average_checkpoints(config, reporter)
    print_averaged(Console(), averaged, reporter.notes)


@app.command("study")
@_takes(StudyConfig)
def _study(**options: Any) -> None:
    r"""A whole training run: loss, quantization error, curvature and steps of every checkpoint, as one table.

    Writes study.parquet and layers.parquet, with CSV beside them. Interrupted, the same command goes on where it
    stopped; a checkpoint that is missing is skipped and named.

    \b
    All checkpoints of your own run, or of all runs in a directory:
      landscape study runs/mine gptq-w4-g128 gptq-w3-g128 --text held-out.jsonl
    A run of the Hub, twenty checkpoints, with the two probes of arXiv 2604.15167; each is deleted once measured:
      landscape study 'EleutherAI/pythia-160m@log=20' rtn-w4-g128-asym rtn-w8-channel --tokens 65536 --clean
    One stage, with averages of checkpoints beside them, on a Ray cluster:
      landscape study 'allenai/OLMo-2-0425-1B@stage1-*:every=4' gptq-w3-g128 --average lawa-3 --engine ray
    """
    config = StudyConfig(**options)
    _quiet_libraries()
    from rich.console import Console

    from landscape.study import run_study
    from landscape.study_table import print_study
    from landscape.terminal import TerminalReporter

    started = time.monotonic()
    with TerminalReporter(
        Console(stderr=True), shorter="; fewer checkpoints (@every=4) take in proportion"
    ) as reporter:
        study = run_study(config, reporter)
    print_study(Console(), study, reporter.notes, time.monotonic() - started)


@app.command("correlate")
@_takes(CorrelateConfig)
def _correlate(**options: Any) -> None:
    r"""How columns of a study hang together: Pearson, Spearman and Kendall, with intervals that know of drift.

    Raw coefficients prove little along a run, where everything drifts. Beside them stand those of changes from one
    checkpoint to the next, and those with step and loss taken out.

    \b
    Does the trace mirror the quantization error?
      landscape correlate figures/study --x trace,lambda_max
    In the stable phases alone, at three bits:
      landscape correlate figures/study --where 'stable-*' --quantizer gptq-w3-g64
    Between runs, by their last checkpoints:
      landscape correlate figures/study --ends --x trace,predicted --given ''
    """
    config = CorrelateConfig(**options)
    from rich.console import Console

    from landscape.correlations import correlate_tables
    from landscape.study_table import print_correlations

    print_correlations(Console(), correlate_tables(config), not config.linear)


def _quiet_libraries() -> None:
    """Leave the terminal to our own progress: the libraries' bars and advice stay away, their errors do not."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    for name in ("torchao", "torch.utils._pytree"):  # transformers imports torchao where it is, for all models
        logging.getLogger(name).setLevel(logging.ERROR)
    import transformers

    transformers.utils.logging.disable_progress_bar()


def main() -> None:
    """Run the command; a `LandscapeError` or a wrong option is one line on stderr and exit code 2."""
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except LandscapeError as error:
        sys.exit(_fail(str(error)))
    except Exception as error:
        if not hasattr(error, "format_message"):  # a usage error of typer's, whichever click it carries
            raise
        sys.exit(_fail(error.format_message().replace("Value error, ", "")))  # a choice's, left over by typer


def _fail(message: str) -> int:
    if message:
        print(f"landscape: {' '.join(message.split())}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
