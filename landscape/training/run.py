"""A training run on disk: a directory of checkpoints that the whole suite reads as a trajectory.

recipe.yaml            what was trained
run.json               data, parent, versions; whether it is complete
log.jsonl              step, tokens, learning rate, loss, gradient and weight norm, a row every so many steps
step<N>/               checkpoints as transformers saves them, with the tokenizer and SHA256SUMS
step<N>/state.safetensors   where the recipe keeps it: a fork can begin there
state.safetensors      while it is not complete: where it goes on after a kill
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from landscape.errors import StoreError
from landscape.storage.digests import DIGEST, check_digest, with_digest, write_sums
from landscape.storage.files import disk_errors, write_whole
from landscape.training import recipe as recipes
from landscape.training import state
from landscape.training.optimizers import Updater
from landscape.training.recipe import Recipe

RECIPE, FACTS, LOG = "recipe.yaml", "run.json", "log.jsonl"


@dataclass(frozen=True)
class Run:
    """The directory of one run."""

    folder: Path

    @property
    def state(self) -> Path:
        """Where it goes on."""
        return self.folder / state.STATE

    def checkpoint(self, step: int) -> Path:
        """The checkpoint after this many steps."""
        return self.folder / f"step{step}"

    def facts(self) -> dict[str, Any] | None:
        """What `run.json` says; None where no run was begun.

        Raises:
            StoreError: damaged.
        """
        path = self.folder / FACTS
        if not path.exists():
            return None
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(facts, dict):
                raise ValueError("no mapping")
            if DIGEST in facts or facts.get("schema", 1) != 1:  # those of schema 1 have none
                check_digest(facts)
                del facts[DIGEST]
        except (OSError, ValueError, RecursionError) as error:
            raise StoreError(f"{path}: damaged ({error}); begin anew with --overwrite") from error
        return facts

    def begin(self, recipe: Recipe, facts: Mapping[str, Any]) -> None:
        """Write what is known before the first step."""
        write_whole(self.folder / RECIPE, recipes.to_yaml(recipe).encode())
        self.write_facts(facts)

    def write_facts(self, facts: Mapping[str, Any]) -> None:
        """Replace `run.json`."""
        write_whole(self.folder / FACTS, json.dumps(with_digest(facts), indent=1).encode())

    def rows(self) -> list[dict[str, Any]]:
        """The log; a row that a kill cut short is left out.

        Raises:
            StoreError: another row is damaged.
        """
        path = self.folder / LOG
        lines = path.read_bytes().splitlines() if path.exists() else []
        rows = []
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError("no mapping")
            except (ValueError, RecursionError) as error:
                if number == len(lines):
                    break
                raise StoreError(f"{path}: line {number} is damaged; begin anew with --overwrite") from error
            rows.append(row)
        return rows

    def cut_log(self, step: int) -> None:
        """Leave the rows up to `step`: those after it are made again."""
        kept = [json.dumps(row) + "\n" for row in self.rows() if row.get("step", 0) <= step]
        write_whole(self.folder / LOG, "".join(kept).encode())

    def digest(self, step: int) -> str:
        """SHA-256 over the rows of the log up to `step`."""
        kept = [row for row in self.rows() if row.get("step", 0) <= step]
        return hashlib.sha256(json.dumps(kept).encode()).hexdigest()

    def append(self, row: Mapping[str, Any]) -> None:
        """A row of the log."""
        path = self.folder / LOG
        with disk_errors(path), open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(dict(row)) + "\n")

    def keep(
        self, step: int, model: Any, tokenizer: Any, stored: str, updater: Updater | None, facts: Mapping[str, Any]
    ) -> None:
        """Write the checkpoint of `step`, with the state if `updater` is given; whole or not there."""
        folder = self.checkpoint(step)
        partial = folder.with_name(f".{folder.name}.partial")
        dtype = getattr(torch, stored)
        with disk_errors(folder):
            shutil.rmtree(partial, ignore_errors=True)
            try:
                if dtype is torch.float32:
                    model.save_pretrained(partial)
                else:
                    rounded = {name: _rounded(tensor, dtype) for name, tensor in model.state_dict().items()}
                    model.save_pretrained(partial, state_dict=rounded)
                tokenizer.save_pretrained(partial)
                write_sums(partial)
                if updater is not None:  # which holds a digest of its own, and its bytes in any order
                    state.save(partial / state.STATE, model, updater, facts)
                shutil.rmtree(folder, ignore_errors=True)
                partial.rename(folder)
            finally:
                shutil.rmtree(partial, ignore_errors=True)


def _rounded(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def weight_norm(model: nn.Module) -> float:
    """‖Θ‖₂, in float64."""
    squares = [torch.linalg.vector_norm(p.detach(), dtype=torch.float64) ** 2 for p in model.parameters()]
    return float(torch.stack(squares).sum().sqrt())
