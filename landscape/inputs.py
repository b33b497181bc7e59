"""What a job needs before it can begin: windows of text, the model on its device, and the checkpoint before it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from landscape import models, packed
from landscape.config import RANDOM, SharpnessConfig, SliceConfig, TextConfig
from landscape.errors import ModelError, OptionError, TextError
from landscape.machine import heap
from landscape.machine.memory import available
from landscape.machine.ranks import Ranks
from landscape.machine.words import byte_size
from landscape.models.checkpoint import Checkpoint
from landscape.models.mapped import load_mapped, masters, stored_parameters
from landscape.models.references import predecessors, resolve
from landscape.objective import TokenCrossEntropy, batches
from landscape.sharded import ShardedCrossEntropy, cut_evenly, load_sharded
from landscape.storage.scratch import Scratch
from landscape.streaming import StreamedCrossEntropy
from landscape.texts import display_name, documents
from landscape.tokens import WindowReader, Windows, check_vocabulary
from landscape.weights import Weights, check_same_space


@dataclass(frozen=True)
class Defaults:
    """How much to measure where nothing is asked for."""

    seq_len: int
    tokens: int
    curvature_tokens: int
    calibration_windows: int
    grid: str


PROTOCOL = Defaults(2048, 600_000, 204_800, 1024, "31x31")  # arXiv 2510.06213: slices; 100 sequences for curvature
SMALL = Defaults(2048, 4096, 4096, 128, "21x21")  # for models whose context is shorter than the protocol's windows

_FILLED = 0.8  # of the free memory, by weights

Note = Callable[[str], None]


@dataclass(frozen=True)
class Text:
    """Evaluation windows, and calibration windows that share no token with them; None where none are needed.

    `defaults` are those that fit the model.
    """

    evaluation: Windows
    calibration: Windows | None
    defaults: Defaults


@dataclass(frozen=True)
class Loaded:
    """A model on its device, its weights Θ (sharing the model's memory) and the objective.

    With `streams` its blocks stay in the file, and Θ with them; with `scratch` Θ lies there, and what is made of it.
    """

    model: nn.Module
    theta: Weights
    objective: TokenCrossEntropy
    streams: bool = False
    scratch: Scratch | None = None


def load_tokenizer(config: TextConfig, checkpoint: Checkpoint) -> Any:
    """The tokenizer of `checkpoint`, or that of the model `config` names.

    Raises:
        ModelError: there is none.
    """
    belongs_to = resolve(config.tokenizer, checkpoint, config.remote_code) if config.tokenizer else checkpoint
    return models.load_tokenizer(belongs_to, config.remote_code)


def read_text(config: TextConfig, checkpoint: Checkpoint, calibrate: bool, note: Note) -> Text:
    """The windows `config` asks for, in the tokens of `checkpoint`.

    Raises:
        ModelError: `checkpoint` is packed: its codes are no weights to measure.
        TextError: the text gives no window, or leaves none for calibration.
        OptionError: windows longer than the model's context.
    """
    if packing := packed.is_packed(checkpoint):
        raise ModelError(
            f"model {checkpoint}: packed ({packing}); name the float checkpoint it was made from as MODEL, and "
            "this one with --packed, --prev or --to"
        )
    tokenizer = load_tokenizer(config, checkpoint)
    context = models.context_length(checkpoint, remote_code=config.remote_code)
    defaults = PROTOCOL if context >= PROTOCOL.seq_len else SMALL
    seq_len = config.seq_len or min(defaults.seq_len, context)
    if seq_len > context:
        raise OptionError(f"--seq-len {seq_len}: longer than the {context} tokens this model was built for")

    texts = documents(config.text)
    reader = WindowReader(texts, tokenizer, seq_len, config.packing, config.bos)
    usual = defaults.curvature_tokens if isinstance(config, SharpnessConfig) else defaults.tokens
    evaluation = reader.take_tokens(config.tokens or usual)
    name = display_name(config.text)
    if not len(evaluation):
        raise TextError(
            f"text {name}: too short for one window of {seq_len} tokens; give more text or a smaller --seq-len"
        )
    if not calibrate:
        return Text(evaluation, None, defaults)

    wanted = config.calibration_windows or defaults.calibration_windows
    source = f"{name} after the evaluation windows"
    cut = config.calibration_packing or ("documents" if defaults is PROTOCOL and config.calibration else config.packing)
    if config.calibration:
        source, texts = display_name(config.calibration), documents(config.calibration)
    if config.calibration or cut != config.packing:
        reader = WindowReader(texts, tokenizer, seq_len, cut, config.bos)
    calibration = reader.take(wanted)
    if not len(calibration):
        raise TextError(
            f"calibration text {source}: not one window of {seq_len} tokens; give --calibration TEXT or fewer --tokens"
        )
    if len(calibration) < wanted:
        note(f"calibrated on {len(calibration)} windows, {wanted} wanted: {source} has no more")
    return Text(evaluation, calibration, defaults)


def load(
    config: TextConfig,
    checkpoint: Checkpoint,
    text: Text,
    device: str,
    dtype: str,
    recomputes: bool = False,
    streams: bool = False,
) -> Loaded:
    """The model at `checkpoint`, and the objective over the evaluation windows, computed in `dtype`.

    With `streams` its blocks stay in the file (`landscape.models.mapped`).

    Raises:
        ModelError: it cannot be loaded, or memory does not hold it.
        TextError: the tokenizer's ids go beyond the model's vocabulary.
    """
    if streams:
        heap.give_back()
    else:
        check_room(checkpoint, 1, device)
    read = load_mapped if streams else models.load_model
    model = read(checkpoint, device, remote_code=config.remote_code)
    for windows in (text.evaluation, text.calibration):
        if windows is not None:
            check_vocabulary(windows, models.vocabulary_size(model))
    cut = batches(text.evaluation, config.batch_size, device)
    return Loaded(model, Weights.of(model), TokenCrossEntropy(model, cut, getattr(torch, dtype), recomputes), streams)


def load_to_scratch(
    config: TextConfig, checkpoint: Checkpoint, text: Text, device: str, dtype: str, folder: Path
) -> Loaded:
    """As `load`, for jobs that need more copies of Θ than memory holds: all of them are in scratch space in `folder`.

    Raises:
        ModelError, TextError: as `load`.
        StoreError: `folder` has no room for them.
    """
    loaded = load(config, checkpoint, text, device, dtype, streams=True)
    scratch = Scratch(folder)
    theta = masters(loaded.model, device, scratch)
    streamed = StreamedCrossEntropy(loaded.model, loaded.objective.batches, loaded.objective.dtype)
    return Loaded(loaded.model, theta, streamed, True, scratch)


def load_in_pieces(config: TextConfig, checkpoint: Checkpoint, text: Text, ranks: Ranks) -> Loaded:
    """As `load`, a piece of Θ on every rank; Θ itself is a copy of what the model computes with.

    Raises:
        ModelError, TextError: as `load`.
        OptionError: fewer windows than ranks.
    """
    cut = cut_evenly(text.evaluation, config.batch_size, ranks)
    model = load_sharded(checkpoint, ranks, config.remote_code)
    check_vocabulary(text.evaluation, models.vocabulary_size(model))
    objective = ShardedCrossEntropy(model, cut, ranks)
    return Loaded(model, Weights(objective.pieces.rows).clone(), objective)


def too_large(checkpoint: Checkpoint, copies: int, device: str, note: Note) -> bool:
    """Whether memory does not hold so many copies of Θ in float32; says so."""
    needed, free = 4 * copies * stored_parameters(checkpoint), available(device)
    if needed <= _FILLED * free:
        return False
    note(f"streamed block by block: {_room(copies, needed, free)}")
    return True


def check_room(checkpoint: Checkpoint, copies: int, device: str) -> None:
    """Refuse what memory cannot hold before it is loaded.

    Raises:
        ModelError: there is no room for so many copies of Θ in float32.
    """
    needed, free = 4 * copies * stored_parameters(checkpoint), available(device)
    if needed > free:
        raise ModelError(
            f"model {checkpoint}: {_room(copies, needed, free)}; use --stream always, or --shard under torchrun, where "
            "a job has them ('landscape plan' says what each takes)"
        )


def _room(copies: int, needed: float, free: float) -> str:
    said = "Θ takes" if copies == 1 else f"{copies} copies of Θ take"
    return f"{said} {byte_size(needed)}, and {byte_size(free)} are free"


def earlier(config: SliceConfig, checkpoint: Checkpoint) -> Iterator[Checkpoint | None]:
    """What may be Θ_{K−1}, the best first; None stands for a random direction.

    Without --prev these are the three checkpoints before: the last of a run is often `main` under another name.
    """
    if config.prev == RANDOM or config.plane != "checkpoints":
        yield None
    elif config.prev is not None:
        yield packed.find(config.prev, checkpoint, config.remote_code)
    else:
        references = list(itertools.islice(predecessors(checkpoint), 3))
        yield from (resolve(reference, checkpoint, config.remote_code) for reference in references)
        if not references:
            yield None


class SameWeights(ModelError):
    """Two checkpoints that span nothing."""


def load_other(
    config: SliceConfig, previous: Checkpoint, checkpoint: Checkpoint, loaded: Loaded, device: str
) -> Weights:
    """The weights of another checkpoint of the same model; of a packed one, what its codes stand for.

    Raises:
        ModelError: another architecture.
        SameWeights: they are Θ_K.
    """
    theta = loaded.theta
    if packed.is_packed(previous):
        return packed.load_dense(previous, theta, loaded.model)[0]
    if loaded.scratch is not None:
        weights = loaded.scratch.weights(Weights.of(load_mapped(previous, remote_code=config.remote_code)))
    else:
        weights = Weights.of(models.load_model(previous, device, remote_code=config.remote_code))
    try:
        check_same_space(theta, weights)
    except ModelError as error:
        raise ModelError(f"{checkpoint} and {previous}: {error}") from error
    if weights.equal(theta):
        raise SameWeights(f"{previous}: holds the same weights as {checkpoint}; name another checkpoint")
    return weights
