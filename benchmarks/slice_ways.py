"""Section `ways`: what else could make an evaluation faster, over a bare forward pass: compiled, captured, batched."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import nn
from torch.func import functional_call, vmap

from landscape.objective import cross_entropy, mean
from landscape.weights import Weights, move_to
from slice_cell import Clock, loss_of
from slice_planes import Problem, problem

_CELLS = 8  # at a time


def ways_section(args: argparse.Namespace) -> None:
    """Time per cell of each way, in turn with bare passes; and how far its losses are from those of a scan."""
    given = problem("mini-pythia", "3-bit", args.device)
    clock, weights = Clock(given), _cells(given)
    usual = torch.tensor([mean(given.objective, each) for each in weights])
    print(f"one cell of {given.name}, over a bare forward pass in float32; difference of its loss; {_CELLS} cells")
    for name, way in _ways(given, args.device).items():
        try:
            losses = way(weights)  # and whatever is compiled on the way
        except Exception as error:  # one way that does not work on a device leaves the others
            print(f"  {name:<44} fails: {type(error).__name__}: {str(error).splitlines()[0][:80]}")
            continue
        ratios = []
        for _ in range(args.repeats):
            clock.reset()
            for _ in weights:
                clock.bare()
            started = time.perf_counter()
            way(weights)
            clock.synchronize()
            ratios.append((time.perf_counter() - started) / clock.seconds)
        off = float((torch.tensor(losses) - usual).abs().max())
        print(f"  {name:<44} {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})  {off:.0e}")
    print()


def _cells(given: Problem) -> list[Weights]:
    plane = given.plane
    places = torch.linspace(*given.bounds.alpha, _CELLS).tolist()
    with torch.no_grad():
        return [move_to(plane.origin.clone(), plane.origin, a, plane.u, a / 2, plane.v) for a in places]


def _ways(given: Problem, device: str) -> dict[str, Callable[[Sequence[Weights]], list[float]]]:
    objective, model = given.objective, given.objective.model
    lower = replace(objective, dtype=torch.bfloat16)
    ways: dict[str, Callable[[Sequence[Weights]], list[float]]] = {
        "as in a scan": lambda cells: [mean(objective, cell) for cell in cells],
        "as in a scan, bfloat16": lambda cells: [mean(lower, cell) for cell in cells],
    }
    modes = {"torch.compile": "default"}
    if device == "cuda":
        modes["torch.compile, CUDA graphs"] = "reduce-overhead"
    for name, mode in modes.items():
        compiled = torch.compile(model, mode=mode)
        ways[name] = lambda cells, compiled=compiled: _loaded(compiled, given, cells)  # type: ignore[misc]
    for count in (2, 4, _CELLS):
        ways[f"vmap over {count} cells"] = lambda cells, count=count: _vmapped(given, cells, count)  # type: ignore[misc]
    return ways


def _loaded(compiled: nn.Module, given: Problem, cells: Sequence[Weights]) -> list[float]:
    """Weights copied into the model's own, whose addresses a captured graph holds."""
    model, losses = given.objective.model, []
    parameters = dict(model.named_parameters())
    for cell in [*cells, given.plane.origin]:
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(cell[name])
        if cell is not given.plane.origin:
            losses.append(loss_of(compiled, given.objective.batches))
    return losses


def _vmapped(given: Problem, cells: Sequence[Weights], count: int) -> list[float]:
    model, losses = given.objective.model, []
    for start in range(0, len(cells), count):
        stacked = {name: torch.stack([cell[name] for cell in cells[start : start + count]]) for name in cells[0]}
        sums = torch.zeros(count, dtype=torch.float64)
        for batch in given.objective.batches:

            def logits(weights: dict[str, torch.Tensor], ids: torch.Tensor = batch.ids) -> torch.Tensor:
                return functional_call(model, weights, (), {"input_ids": ids, "use_cache": False}).logits  # type: ignore[no-any-return]

            with torch.no_grad():
                for i, each in enumerate(vmap(logits)(stacked)):
                    sums[i] += cross_entropy(each, batch.ids, batch.lengths).sum().item()
        losses += (sums / sum(batch.n_targets for batch in given.objective.batches)).tolist()
    return losses
