"""Section `pictures`: reconstructed pictures beside those evaluated cell by cell."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from landscape import slices
from landscape.weights import Weights, move_to
from slice_planes import Problem, problem

# The error asked for: as a share of the range of the picture, and of the loss at Θ.
_ASKED = {"far": (1e9, 1e-3), "random": (1e9, 1e-3)}
_USUAL = (1e-3, 1e9)


def pictures_section(args: argparse.Namespace) -> None:
    print(
        f"{args.cells}×{args.cells} pictures: errors as shares of what was asked for: of the range, for far and random"
    )
    print("planes of the loss; time over that of evaluating every cell in float32, in the same process")
    head = ("plane", "loss", "dtype", "evaluations", "stated", "true", "asked", "pieces", "cells", "time", "1 /")
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for model in args.models:
        for plane in args.planes:
            picture(problem(model, plane, args.device), _ASKED.get(plane, _USUAL), args)
    print()


def picture(given: Problem, asked: tuple[float, float], args: argparse.Namespace) -> None:
    """Two lines, float32 and bfloat16, beside the dense picture."""
    with tempfile.TemporaryDirectory() as folder:
        dense, dense_time = timed(given, Path(folder) / "dense.h5", args, torch.float32, slices.scan)
        if args.keep:
            args.keep.mkdir(parents=True, exist_ok=True)
            grid = {"alpha": dense.alpha, "beta": dense.beta, "loss": dense.loss.astype(np.float32)}
            np.savez_compressed(args.keep / f"{given.name.replace(', ', '-')}.npz", **grid)
        for dtype in (torch.float32, torch.bfloat16):

            def sample(writer: slices.SliceWriter, plane: slices.Plane, losses: slices.Losses) -> None:
                slices.sample(writer, plane, losses, asked, 0)

            found, seconds = timed(given, Path(folder) / f"{dtype}.h5", args, dtype, sample)
            certificate = found.certificate
            assert certificate is not None
            true = float(np.abs(found.loss - dense.loss).max())
            unit = float(np.ptp(dense.loss)) if asked[0] < 1 else dense.points[0].loss
            row = (
                given.name,
                f"{dense.loss.min():.2f} to {dense.loss.max():.2f}",
                str(dtype).removeprefix("torch."),
                str(certificate.evaluations),
                f"{certificate.error / unit:.1e}",
                f"{true / unit:.1e}",
                f"{min(asked):.0e}" + ("" if certificate.reached else " not reached"),
                str(certificate.pieces),
                str(certificate.cells),
                f"{seconds:.1f} s",
                f"{dense_time / seconds:.1f}",
            )
            print("| " + " | ".join(row) + " |", flush=True)


def timed(
    given: Problem,
    path: Path,
    args: argparse.Namespace,
    dtype: torch.dtype,
    fill: Callable[[slices.SliceWriter, slices.Plane, slices.Losses], object],
) -> tuple[slices.StoredSlice, float]:
    """The slice that `fill` makes, named points apart, and the seconds it took."""
    shape = (args.cells, args.cells)
    alpha, beta = slices.evenly(*given.bounds.alpha, shape[0]), slices.evenly(*given.bounds.beta, shape[1])
    named = {name: slices.Named(name) for name in given.plane.points}
    rows = shape[0] * shape[1]
    slices.create(path, slices.Layout(given.plane, alpha, beta, np.zeros(0), named, {}, {}, "key", rows))
    losses = given.losses(dtype)
    with slices.SliceWriter(path, "key", given.plane.fingerprint()) as writer:
        for name, place in given.plane.points.items():
            writer.write_point(name, losses.exact(_at(given.plane, place)))
        started = time.perf_counter()
        fill(writer, given.plane, losses)
        seconds = time.perf_counter() - started
    return slices.read(path), seconds


def _at(plane: slices.Plane, place: slices.Coordinates) -> Weights:
    weights = plane.origin.clone()
    return move_to(weights, plane.origin, place.alpha, plane.u, place.beta, plane.v)
