"""The training loop: it reads from top to bottom."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from landscape.errors import TrainingError
from landscape.machine import heap
from landscape.machine.ranks import Ranks
from landscape.training import optimizers, state
from landscape.training.data import Order
from landscape.training.optimizers import Updater
from landscape.training.recipe import Recipe
from landscape.training.run import Run, weight_norm

_SHARE_OF_TIME = 0.05  # at most, for writing the state in case of a kill


@dataclass
class Progress:
    """Where the run stands: what a kill must not change.

    Attributes:
        step: updates done.
        begun: the step at which this run began: 0, or where it was forked.
        loss_sum: of the batch losses since the last row of the log.
        loss_count: how many these are.
    """

    step: int = 0
    begun: int = 0
    loss_sum: float = 0.0
    loss_count: int = 0


@dataclass(frozen=True)
class Computing:
    """How a run is computed: this changes its numbers by rounding only.

    Attributes:
        ranks: the processes, and the device of this one.
        micro_batch: windows in one forward pass; None for all that this process has of a batch.
        compiled: whether torch compiles the model.
        save_seconds: at least so long from one state in case of a kill to the next; 0 for every step.
    """

    ranks: Ranks
    micro_batch: int | None = None
    compiled: bool = False
    save_seconds: float = 120.0


@dataclass(frozen=True)
class Hearing:
    """Who hears how the run goes on: (steps done, in all, how it stands), and every row of the log."""

    progress: Callable[[int, int, str], None] = lambda done, total, words: None
    row: Callable[[dict[str, Any]], None] = lambda row: None


def train(
    model: Any,
    updater: Updater,
    recipe: Recipe,
    order: Order,
    run: Run,
    tokenizer: Any,
    progress: Progress,
    computing: Computing,
    hearing: Hearing | None = None,
) -> None:
    """Train `model` from `progress` to the last step, writing checkpoints, the log and the state into `run`.

    The loss of a window is the mean cross-entropy of its tokens after the first, in nats, as everywhere in the suite.

    Raises:
        TrainingError: the loss is no longer finite.
    """
    heap.hold()
    hearing, ranks = hearing or Hearing(), computing.ranks
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    forward = torch.compile(model) if computing.compiled else model
    schedule, peak = recipe.rate(), float(optimizers.check(recipe.optimizer)["peak"])
    origin = progress.begun if recipe.counted_from == "fork" else 0
    kept, with_state = set(recipe.kept), set(recipe.kept_states)
    loss_sum = torch.tensor(progress.loss_sum, dtype=torch.float64, device=ranks.device)
    saved = began = time.monotonic()
    saving, first, words = 0.0, progress.step, ""
    model.train()

    def gradient(step: int) -> Tensor:
        """Put the gradient of the mean loss over the batch of `step` into the parameters; returns the loss."""
        starts = order.starts(step)[ranks.rank :: ranks.size]
        size = computing.micro_batch or len(starts)
        loss = torch.zeros((), device=ranks.device)
        for begin in range(0, len(starts), size):
            ids = _moved(order.batch(starts[begin : begin + size]), ranks.device)  # (windows, seq_len)
            with _cast(recipe.precision, ranks.device):
                part = forward(input_ids=ids, labels=ids, use_cache=False).loss
            part = part * (len(ids) / len(starts))
            part.backward()
            loss += part.detach()
        ranks.mean([*(p.grad for p in parameters if p.grad is not None), loss])
        return loss

    def keep() -> None:
        """Write the checkpoint of this step where the recipe wants one."""
        if ranks.leads and progress.step in kept:
            progress.loss_sum = float(loss_sum)
            holds = updater if progress.step in with_state else None
            run.keep(progress.step, model, tokenizer, recipe.stored, holds, vars(progress))

    if progress.step == 0:
        keep()
    while progress.step < recipe.steps:
        step = progress.step
        rate = peak * schedule(step - origin, recipe.steps - origin)
        loss = gradient(step)
        if recipe.sam:
            with optimizers.ascended(parameters, recipe.sam):
                gradient(step)
        norm = nn.utils.clip_grad_norm_(parameters, recipe.clip or math.inf)
        updater.step(rate)

        progress.step = done = step + 1
        loss_sum += loss
        progress.loss_count += 1
        if done % recipe.logged == 0 or done == recipe.steps:
            mean = float(loss_sum) / progress.loss_count
            if not math.isfinite(mean):
                raise TrainingError(
                    f"step {done}: the loss is {mean}; lower optimizer.peak ({peak}) or lengthen schedule.warmup"
                )
            row = {"step": done, "tokens": done * recipe.batch_size * recipe.seq_len, "learning_rate": rate}
            row |= {"loss": round(mean, 6), "grad_norm": round(float(norm), 6), "weight_norm": weight_norm(model)}
            loss_sum.zero_()
            progress.loss_count = 0
            speed = (done - first) * recipe.batch_size * recipe.seq_len / (time.monotonic() - began)
            words = f"loss {mean:.3f} lr {rate:.1e} {speed:,.0f} tok/s"
            if ranks.leads:
                run.append(row)
                hearing.row(row)
        keep()
        if ranks.leads:
            hearing.progress(done - progress.begun, recipe.steps - progress.begun, words)
            now = time.monotonic()
            apart = max(computing.save_seconds, saving / _SHARE_OF_TIME) if computing.save_seconds else 0.0
            if now - saved >= apart and done < recipe.steps:
                progress.loss_sum = float(loss_sum)
                state.save(run.state, model, updater, vars(progress) | {"log": run.digest(done)})
                saved = time.monotonic()
                saving = saved - now


@contextlib.contextmanager
def _cast(precision: str, device: str) -> Iterator[None]:
    if precision == "float32":
        yield
        return
    with torch.autocast(torch.device(device).type, dtype=getattr(torch, precision)):
        yield


def _moved(ids: Tensor, device: str) -> Tensor:
    if torch.device(device).type != "cuda":
        return ids.to(device)
    return ids.pin_memory().to(device, non_blocking=True)
