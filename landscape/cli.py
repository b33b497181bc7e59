"""The commands: what each is for, in words; the one function that it calls; what it prints."""

from __future__ import annotations

from typing import Any

import typer

from landscape.config import (
    AllocateConfig,
    AverageConfig,
    CorrelateConfig,
    EvaluateConfig,
    FrontierConfig,
    PlanConfig,
    QuantizeConfig,
    SharpnessConfig,
    SliceConfig,
    StudyConfig,
    TrainConfig,
    VerifyConfig,
    ViewConfig,
)
from landscape.terminal.command import Printer, app, job, run


@app.callback()
def _root() -> None:
    """Loss-landscape geometry of quantized language models."""


@job("slice", SliceConfig, ranks=True)
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
    from landscape.terminal.slices import print_summary

    result = render_slice(config, reporter)
    return lambda console, notes, seconds: print_summary(console, result, notes, seconds)


@job("sharpness", SharpnessConfig, ranks=True)
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
    from landscape.terminal.sharpness import print_sharpness

    result = measure_sharpness(config, reporter)
    return lambda console, notes, seconds: print_sharpness(console, result, notes, seconds)


@job("evaluate", EvaluateConfig, ranks=True)
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
    from landscape.terminal.evaluation import print_evaluations

    result = evaluate_model(config, reporter)
    return lambda console, notes, seconds: print_evaluations(console, result, notes, seconds)


@job("quantize", QuantizeConfig)
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
    from landscape.quantizing import quantize_model
    from landscape.terminal.evaluation import print_quantized

    result = quantize_model(config, reporter)
    return lambda console, notes, seconds: print_quantized(console, result, notes, seconds)


@job("frontier", FrontierConfig, models=False)
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
    from landscape.evaluation.frontier import compare_sizes
    from landscape.terminal.evaluation import print_frontier

    result = compare_sizes(config)
    return lambda console, notes, seconds: print_frontier(console, result)


@job("train", TrainConfig, "", ranks=True)
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
    from landscape.terminal.training import print_trained

    result = train_model(config, reporter)
    return lambda console, notes, seconds: print_trained(console, result, notes, seconds)


@app.command("recipes")
def _recipes() -> None:
    """The recipes that come with the package."""
    from landscape.pretraining import presets

    for name, text in presets().items():
        print(f"{name:<20}{text}")


@job("average", AverageConfig)
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
    from landscape.terminal.training import print_averaged

    result = average_checkpoints(config, reporter)
    return lambda console, notes, seconds: print_averaged(console, result, notes)


@job("study", StudyConfig, "; fewer checkpoints (@every=4) take in proportion")
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
    from landscape.terminal.study import print_study

    result = run_study(config, reporter)
    return lambda console, notes, seconds: print_study(console, result, notes, seconds)


@job("allocate", AllocateConfig)
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
    from landscape.terminal.study import print_allocation

    result = allocate_bits(config, reporter)
    return lambda console, notes, seconds: print_allocation(console, result, notes, seconds)


@job("correlate", CorrelateConfig, models=False)
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
    from landscape.terminal.study import print_correlations

    result = correlate_tables(config)
    return lambda console, notes, seconds: print_correlations(console, result, not config.linear)


@job("view", ViewConfig, models=False)
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
    from landscape.terminal.view import begin

    finish = begin(config, reporter)
    return lambda console, notes, seconds: finish(console)


@job("plan", PlanConfig)
def _plan(config: PlanConfig, reporter: Any) -> Printer:
    r"""What a job would hold where, and how long it would take, before it is begun.

    The model's own code runs without numbers, on its configuration alone: operations and bytes are counted. Where a
    job does not fit, it says what would.

    \b
    The curvature of a model that is not here, on this machine:
      landscape plan sharpness EleutherAI/pythia-160m
    A larger one on eight GPUs of 80 GB, each of which does 50·10¹² operations a second in float32:
      landscape plan sharpness allenai/OLMo-2-0325-32B --ranks 32 --shard --memory 80 --tflops 50 --batch-size 1
    """
    from landscape.planning import plan_job
    from landscape.terminal.plan import print_plan

    found, remedies = plan_job(config)
    return lambda console, notes, seconds: print_plan(console, found, remedies)


@job("verify", VerifyConfig)
def _verify(config: VerifyConfig, reporter: Any) -> Printer:
    r"""Does this file tell the truth? Computes some of its numbers again and holds them to what is stored.

    Finds the inputs by the configuration in the file and tells them by their hashes, then computes named points, cells,
    windows, eigenvalues, probes and rows taken by chance. Prints what is stored, what came out, the difference, and
    how large it may be and why: none on the same machine, rounding elsewhere. Writes nothing. Exit code 0: the
    truth; 1: not the truth; 2: cannot be checked, as an input is missing or is another one.

    \b
    A slice of a model of the Hub, by what the file says:
      landscape verify pythia.h5
    What lay on a disk is known by its name only, and has to be named again:
      landscape verify figures/slices/mine.h5 --model runs/mine --text held-out.jsonl
    More of it, and the same choice as another time:
      landscape verify mine.h5 --model runs/mine --text held-out.jsonl --cells 100 --seed 7
    A study, with the files its rows were made from:
      landscape verify figures/study --model runs/mine --text held-out.jsonl --cells 2
    """
    from landscape.terminal.verdict import print_verdict
    from landscape.verifying import verify_file

    verdict = verify_file(config, reporter)

    def show(console: Any, notes: list[str], seconds: float) -> None:
        print_verdict(console, verdict, notes, seconds)
        if not verdict.holds:
            raise typer.Exit(1)

    return show


def main() -> None:
    """Run the command; a `LandscapeError` or a wrong option is one line on stderr and exit code 2."""
    run()


if __name__ == "__main__":
    main()
