"""The command line: parse, call one function below, print.

Options are generated from the dataclasses of `landscape.config`; torch and transformers load only when a job runs.
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Annotated, Any, get_type_hints

import typer

from landscape import interrupts
from landscape.config import (
    AllocateConfig,
    AverageConfig,
    CorrelateConfig,
    EvaluateConfig,
    FrontierConfig,
    QuantizeConfig,
    SharpnessConfig,
    SliceConfig,
    StudyConfig,
    TrainConfig,
    ViewConfig,
)
from landscape.errors import LandscapeError

Printer = Callable[[Any, list[str], float], None]  # a console, what to note, seconds that it took

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.callback()
def _root() -> None:
    """Loss-landscape geometry of quantized language models."""


def _job(
    name: str, config: type, shorter: str | None = None, models: bool = True
) -> Callable[[Callable[..., Printer]], None]:
    """A command with the options of `config`: runs the job, and the printer that it returns when progress is over.

    `shorter` says what takes less time, where that is not fewer tokens; `models`, whether any is loaded.
    """

    def wrap(job: Callable[..., Printer]) -> None:
        def command(**options: Any) -> None:
            resolved = config(**options)
            if models:
                _quiet_libraries()
            from rich.console import Console

            from landscape.terminal import TerminalReporter

            started = time.monotonic()
            advice = {} if shorter is None else {"shorter": shorter}
            try:
                with interrupts.heard(), TerminalReporter(Console(stderr=True), **advice) as reporter:
                    printer = job(resolved, reporter)
            except KeyboardInterrupt:
                print("interrupted; the same command goes on where it stopped", file=sys.stderr)
                sys.exit(130)
            printer(Console(), reporter.notes, time.monotonic() - started)

        parameters = _parameters(config)
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        command.__doc__ = (job.__doc__ or "").replace(r"\b", "\b")  # click keeps lines after \b
        app.command(name)(command)

    return wrap


def _parameters(config: type) -> list[inspect.Parameter]:
    """A job's fields with type, default and help: what it is about first, then its own options, then those of all."""
    types = get_type_hints(config)
    named = [field for field in fields(config) if field.default is MISSING and field.default_factory is MISSING]
    options = [field for field in fields(config) if field not in named]
    own = [field for field in options if field.name in config.__annotations__]
    shared = [field for field in options if field.name not in config.__annotations__]
    parameters = []
    for field in named + own + shared:
        about: dict[str, Any] = {"help": field.metadata["help"]}
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if field.default is MISSING:
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
    return parameters


@_job("slice", SliceConfig)
def _slice(config: SliceConfig, reporter: Any) -> Printer:
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
    from landscape.basin import render_slice
    from landscape.terminal import print_summary

    result = render_slice(config, reporter)
    return lambda console, notes, seconds: print_summary(console, result, notes, seconds)


@_job("sharpness", SharpnessConfig)
def _sharpness(config: SharpnessConfig, reporter: Any) -> Printer:
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
    from landscape.sharpness import measure_sharpness
    from landscape.sharpness_table import print_sharpness

    result = measure_sharpness(config, reporter)
    return lambda console, notes, seconds: print_sharpness(console, result, notes, seconds)


@_job("evaluate", EvaluateConfig)
def _evaluate(config: EvaluateConfig, reporter: Any) -> Printer:
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
    from landscape.evaluation import evaluate_model
    from landscape.evaluation_table import print_evaluations

    result = evaluate_model(config, reporter)
    return lambda console, notes, seconds: print_evaluations(console, result, notes, seconds)


@_job("quantize", QuantizeConfig)
def _quantize(config: QuantizeConfig, reporter: Any) -> Printer:
    r"""Quantize a model, say layer by layer what that did, and keep the dense result.

    \b
    Look at the layers:
      landscape quantize EleutherAI/pythia-160m@step143000 gptq-w3-g128 --calibration allenai/c4:en:train
    Keep Θ̂ as a checkpoint that transformers and every command here can load:
      landscape quantize runs/mine@8000 awq-w4-g64-asym-clip --text held-out.jsonl --save runs/mine-awq
    More bits where it hurts:
      landscape quantize runs/mine@8000 gptq-w3-g64+down_proj=w4+layers.0=w8 --text held-out.jsonl
    """
    from landscape.evaluation_table import print_quantized
    from landscape.quantizing import quantize_model

    result = quantize_model(config, reporter)
    return lambda console, notes, seconds: print_quantized(console, result, notes, seconds)


@_job("frontier", FrontierConfig, models=False)
def _frontier(config: FrontierConfig, reporter: Any) -> Printer:
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
    from landscape.evaluation_table import print_frontier
    from landscape.frontier import compare_sizes

    result = compare_sizes(config)
    return lambda console, notes, seconds: print_frontier(console, result)


@_job("train", TrainConfig, "")
def _train(config: TrainConfig, reporter: Any) -> Printer:
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
    from landscape.pretraining import train_model
    from landscape.training_table import print_trained

    result = train_model(config, reporter)
    return lambda console, notes, seconds: print_trained(console, result, notes, seconds)


@app.command("recipes")
def _recipes() -> None:
    """The recipes that come with the package."""
    from landscape.pretraining import presets

    for name, text in presets().items():
        print(f"{name:<20}{text}")


@_job("average", AverageConfig)
def _average(config: AverageConfig, reporter: Any) -> Printer:
    r"""The mean of several checkpoints, as a checkpoint: LAWA, an exponential moving average, a soup.

    \b
    The last five checkpoints of a run, 500 steps apart (arXiv 2510.06213), and one such mean at every checkpoint:
      landscape average runs/stable@4000 --every 500 --out runs/lawa-4000
      landscape average runs/stable --every 500 --along --out runs/stable-lawa
    A soup of models of the Hub:
      landscape average allenai/OLMo-2-0425-1B@stage2-ingredient1-step23000-tokens50B
          allenai/OLMo-2-0425-1B@stage2-ingredient2-step23000-tokens50B --kind soup --out soup
    """
    from landscape.averaging import average_checkpoints
    from landscape.training_table import print_averaged

    result = average_checkpoints(config, reporter)
    return lambda console, notes, seconds: print_averaged(console, result, notes)


@_job("study", StudyConfig, "; fewer checkpoints (@every=4) take in proportion")
def _study(config: StudyConfig, reporter: Any) -> Printer:
    r"""A whole training run: loss, quantization error, curvature and steps of every checkpoint, as one table.

    Writes study.parquet, layers.parquet and tensors.parquet, with CSV beside them. Interrupted, the same command goes
    on where it stopped; a checkpoint that is missing is skipped and named.

    \b
    All checkpoints of your own run, or of all runs in a directory:
      landscape study runs/mine gptq-w4-g128 gptq-w3-g128 --text held-out.jsonl
    A run of the Hub, twenty checkpoints, with the two probes of arXiv 2604.15167; each is deleted once measured:
      landscape study 'EleutherAI/pythia-160m@log=20' rtn-w4-g128-asym rtn-w8-channel --tokens 65536 --clean
    One stage, with averages of checkpoints beside them, on a Ray cluster:
      landscape study 'allenai/OLMo-2-0425-1B@stage1-*:every=4' gptq-w3-g128 --average lawa-3 --engine ray
    """
    from landscape.study import run_study
    from landscape.study_table import print_study

    result = run_study(config, reporter)
    return lambda console, notes, seconds: print_study(console, result, notes, seconds)


@_job("allocate", AllocateConfig)
def _allocate(config: AllocateConfig, reporter: Any) -> Printer:
    r"""Which layers need more bits: those where curvature and rounding errors meet, for a budget of bits.

    Prints the bits of every layer, what they are predicted to cost, and what they do: the choice is quantized and
    evaluated beside all layers alike. Its name works wherever a quantizer does.

    \b
    Three and a half bits, scales included:
      landscape allocate runs/mine@8000 gptq-w3-g64 --bits 3.5 --text held-out.jsonl
    Round to nearest, two to four bits:
      landscape allocate runs/mine rtn-w3-g64-asym --bits 3.2 --choices 2,3,4 --by length --text held-out.jsonl
    """
    from landscape.allocation import allocate_bits
    from landscape.study_table import print_allocation

    result = allocate_bits(config, reporter)
    return lambda console, notes, seconds: print_allocation(console, result, notes, seconds)


@_job("correlate", CorrelateConfig, models=False)
def _correlate(config: CorrelateConfig, reporter: Any) -> Printer:
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
    from landscape.correlations import correlate_tables
    from landscape.study_table import print_correlations

    result = correlate_tables(config)
    return lambda console, notes, seconds: print_correlations(console, result, not config.linear)


@_job("view", ViewConfig, models=False)
def _view(config: ViewConfig, reporter: Any) -> Printer:
    r"""Show what is stored: pages to explore in a browser, and an index where there are several.

    A slice becomes one file that works alone, without a network, and can be mailed. A folder becomes a folder of pages:
    an index with a picture of each result, a page for every slice, slices that belong together side by side, and
    training runs checkpoint by checkpoint. What has not changed is not drawn again.

    \b
    One slice, as one file:
      landscape view figures/slices/mine.h5 --out mine.html --open
    All that was made so far, with a PDF of each view:
      landscape view figures --out figures/view --figures
    Watch a slice while it is evaluated:
      landscape view figures/slices --serve 8000 --open
    """
    from landscape.serving import begin

    finish = begin(config, reporter)
    return lambda console, notes, seconds: finish(console)


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
