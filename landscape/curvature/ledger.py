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

    def save_krylov(self, krylov: Krylov) -> None:
        """Keep a space that is never restarted: each step adds one vector."""
        m, before = krylov.size, self.load("krylov")
        done = 0 if before is None else len(before["projected"]) + 1
        for index in range(done, m):
            self.save(f"vector-{index}", v=krylov.basis[index].cpu().numpy())
        if krylov.following is not None:
            self.save(f"vector-{m}", v=krylov.following.cpu().numpy())
        exhausted = np.array(krylov.following is None)
        self.save("krylov", projected=krylov.projected, beta=np.array(krylov.beta), exhausted=exhausted)

    def load_krylov(self, like: torch.Tensor) -> Krylov | None:
        """The space as it was kept, with vectors in the dtype and on the device of `like`."""
        state = self.load("krylov")
        if state is None:
            return None
        m, exhausted = len(state["projected"]), bool(state["exhausted"])
        loaded = [self.load(f"vector-{index}") for index in range(m + (not exhausted))]
        rows = [torch.from_numpy(arrays["v"]).to(like) for arrays in loaded if arrays is not None]
        if len(rows) < len(loaded):
            return None
        following = None if exhausted else rows.pop()
        return Krylov(torch.stack(rows), state["projected"], following, float(state["beta"]))

    def discard(self) -> None:
        """Throw everything away: the measurement is complete."""
        shutil.rmtree(self._folder, ignore_errors=True)
