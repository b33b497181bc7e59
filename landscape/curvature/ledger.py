"""What a measurement needs to go on after a kill: a directory of small arrays and the vectors of a Krylov space.

Each file is written under a temporary name and renamed. A product adds one vector on the disk, not a copy of all.
"""

from __future__ import annotations

import io
import math
import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from landscape.curvature.lanczos import Krylov
from landscape.machine.ranks import ALONE, Ranks
from landscape.storage.files import disk_errors, reading, writing_whole

_AT_ONCE = 1 << 20  # elements


class Ledger:
    """Arrays by name in `folder`, for the run with `key`; what another run left there is thrown away.

    Of several ranks the first one keeps and reads, and tells the others; vectors that it has a piece of are not kept.
    """

    def __init__(self, folder: Path, key: str, ranks: Ranks = ALONE, in_pieces: bool = False) -> None:
        self._folder, self._ranks, self._in_pieces = folder, ranks, in_pieces
        if not ranks.leads:
            return
        owner = folder / "key"
        if folder.exists() and not (owner.exists() and owner.read_bytes() == key.encode()):
            shutil.rmtree(folder)
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            owner.write_text(key, encoding="utf-8")

    def save(self, name: str, **arrays: np.ndarray) -> None:
        """Keep `arrays` under `name`."""
        if not self._ranks.leads:
            return
        with writing_whole(self._folder / f"{name}.npz") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    def load(self, name: str) -> dict[str, np.ndarray] | None:
        """The arrays under `name`; None where there are none."""
        return self._ranks.told(self._read(name) if self._ranks.leads else None)

    def _read(self, name: str) -> dict[str, np.ndarray] | None:
        path = self._folder / f"{name}.npz"
        if not path.exists():
            return None
        with reading(path, f"delete {self._folder.name} and run the same command again"):
            return _arrays(path)

    def save_krylov(self, name: str, krylov: Krylov) -> None:
        """Keep a space under `name`: a step adds one vector, a restart writes those that stay."""
        if self._in_pieces:
            return
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
        if generation and not goes_on and self._ranks.leads:
            for old in self._folder.glob(f"{name}-{generation - 1}-*.npz"):
                old.unlink()

    def load_krylov(
        self, name: str, like: torch.Tensor, new: Callable[..., torch.Tensor] | None = None
    ) -> Krylov | None:
        """The space as it was kept, with vectors of the dtype and on the device of `like`, or as `new` makes them."""
        state = self.load(name)
        if state is None:
            return None
        with reading(self._folder / f"{name}.npz", f"delete {self._folder.name} and run the same command again"):
            return self._krylov(name, state, new or like.new_empty)

    def _krylov(self, name: str, state: dict[str, np.ndarray], new: Callable[..., torch.Tensor]) -> Krylov | None:
        m, exhausted, generation = len(state["projected"]), bool(state["exhausted"]), int(state["generation"])
        paths = [self._folder / f"{name}-{generation}-{index}.npz" for index in range(m + (not exhausted))]
        n = self._ranks.told(_length(paths) if self._ranks.leads else 0)
        if not n:
            return None
        basis, following = new(m, n), None if exhausted else new(n)
        for path, row in zip(paths, [*basis, *([] if following is None else [following])], strict=True):
            if self._ranks.leads:
                _read_into(row, path)
            self._ranks.spread(row)
        dropped = [tuple(state[f"dropped-{i}-{j}"] for j in range(4)) for i in range(generation)]
        products = int(state["products"])
        return Krylov(basis, state["projected"], following, float(state["beta"]), dropped, products)

    def discard(self) -> None:
        """Throw everything away: the measurement is complete."""
        if self._ranks.leads:
            shutil.rmtree(self._folder, ignore_errors=True)


def _length(paths: Sequence[Path]) -> int:
    """Elements of each of the vectors that `paths` hold; 0 where one of them is missing."""
    if not all(path.exists() for path in paths):
        return 0
    with _vector(paths[0]) as (_, n, _):
        return n


def _read_into(row: torch.Tensor, path: Path) -> None:
    """Read a vector some at a time: it may be as long as memory is large."""
    with _vector(path) as (stream, n, dtype):
        if n != len(row):
            raise ValueError(f"a vector of {n} elements; expected {len(row)}")
        for some in row.split(_AT_ONCE):
            values = np.frombuffer(stream.read(len(some) * dtype.itemsize), dtype, len(some))
            some.copy_(torch.from_numpy(values.copy()))


@contextmanager
def _vector(path: Path) -> Iterator[tuple[IO[bytes], int, np.dtype[Any]]]:
    """The content of the vector in a file, its length and dtype."""
    with zipfile.ZipFile(path) as file, file.open("v.npy") as stream:
        part = file.getinfo("v.npy")
        if part.compress_type != zipfile.ZIP_STORED or np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError("it is compressed, or an array of another version")
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
        size = math.prod(shape) * dtype.itemsize
        if dtype.kind != "f" or len(shape) != 1 or stream.tell() + size != part.file_size or size > path.stat().st_size:
            raise ValueError(f"an array of shape {shape} in {part.file_size} bytes")
        yield stream, shape[0], dtype


def _arrays(path: Path) -> dict[str, np.ndarray]:
    """What `np.savez` wrote; numpy itself would make room for what a header claims, and unpack what is compressed."""
    with zipfile.ZipFile(path) as file:
        parts = file.infolist()
        if any(each.compress_type != zipfile.ZIP_STORED for each in parts):
            raise ValueError("it is compressed")
        if sum(each.file_size for each in parts) > path.stat().st_size:
            raise ValueError("its arrays lie in one place")
        return {each.filename.removesuffix(".npy"): _array(file.read(each)) for each in parts}


def _array(content: bytes) -> np.ndarray:
    header = io.BytesIO(content)
    if np.lib.format.read_magic(header) != (1, 0):
        raise ValueError("an array of another version")
    shape, in_columns, dtype = np.lib.format.read_array_header_1_0(header)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(content) - header.tell():
        raise ValueError(f"an array of shape {shape} in {len(content)} bytes")
    values = np.frombuffer(content, dtype, math.prod(shape), header.tell())
    return values.reshape(shape, order="F" if in_columns else "C").copy()
