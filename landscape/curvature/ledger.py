"""What a measurement needs to go on after a kill: a directory of small arrays and the vectors of a Krylov space.

Each file is written under a temporary name and renamed. A product adds one vector on the disk, not a copy of all.
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
import torch

from landscape.curvature.lanczos import Krylov
from landscape.files import disk_errors, write_whole


class Ledger:
    """Arrays by name in `folder`, for the run with `key`; what another run left there is thrown away."""

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        owner = folder / "key"
        if folder.exists() and not (owner.exists() and owner.read_text(encoding="utf-8") == key):
            shutil.rmtree(folder)
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            owner.write_text(key, encoding="utf-8")

    def save(self, name: str, **arrays: np.ndarray) -> None:
        """Keep `arrays` under `name`."""
        memory = io.BytesIO()
        np.savez(memory, **arrays)  # type: ignore[arg-type]
        write_whole(self._folder / f"{name}.npz", memory.getvalue())

    def load(self, name: str) -> dict[str, np.ndarray] | None:
        """The arrays under `name`; None where there are none."""
        path = self._folder / f"{name}.npz"
        if not path.exists():
            return None
        with np.load(path) as file:
            return dict(file)

    def save_krylov(self, name: str, krylov: Krylov) -> None:
        """Keep a space under `name`: a step adds one vector, a restart writes those that stay."""
        m, generation, before = krylov.size, len(krylov.dropped), self.load(name)
        goes_on = before is not None and int(before["generation"]) == generation
        done = len(before["projected"]) + 1 if before is not None and goes_on else 0
        for index in range(done, m):
            self.save(f"{name}-{generation}-{index}", v=krylov.basis[index].cpu().numpy())
        if krylov.following is not None:
            self.save(f"{name}-{generation}-{m}", v=krylov.following.cpu().numpy())
        state = {"projected": krylov.projected, "beta": krylov.beta, "exhausted": krylov.following is None}
        state |= {"generation": generation, "products": krylov.products}
        state |= {f"dropped-{i}-{j}": a for i, arrays in enumerate(krylov.dropped) for j, a in enumerate(arrays)}
        self.save(name, **{key: np.asarray(value) for key, value in state.items()})
        if generation and not goes_on:
            for old in self._folder.glob(f"{name}-{generation - 1}-*.npz"):
                old.unlink()

    def load_krylov(self, name: str, like: torch.Tensor) -> Krylov | None:
        """The space as it was kept, with vectors in the dtype and on the device of `like`."""
        state = self.load(name)
        if state is None:
            return None
        m, exhausted, generation = len(state["projected"]), bool(state["exhausted"]), int(state["generation"])
        loaded = [self.load(f"{name}-{generation}-{index}") for index in range(m + (not exhausted))]
        rows = [torch.from_numpy(arrays["v"]).to(like) for arrays in loaded if arrays is not None]
        if len(rows) < len(loaded):
            return None
        following = None if exhausted else rows.pop()
        dropped = [tuple(state[f"dropped-{i}-{j}"] for j in range(4)) for i in range(generation)]
        products = int(state["products"])
        return Krylov(torch.stack(rows), state["projected"], following, float(state["beta"]), dropped, products)

    def discard(self) -> None:
        """Throw everything away: the measurement is complete."""
        shutil.rmtree(self._folder, ignore_errors=True)
