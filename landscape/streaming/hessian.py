"""Products by differences of gradients, where neither the model nor a vector of its size fits into memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from landscape.curvature import DifferenceHessian
from landscape.storage.scratch import Scratch
from landscape.streaming.gradient import add_gradient
from landscape.streaming.objective import StreamedCrossEntropy


class StreamedHessian(DifferenceHessian):
    """`DifferenceHessian` with gradients block by block, and all its vectors in `scratch`.

    Raises:
        ModelError: a model that cannot be differentiated block by block.
        CurvatureError: as `DifferenceHessian`.
        StoreError: no room for the vectors.
    """

    def __init__(
        self,
        objective: StreamedCrossEntropy,
        weights: Mapping[str, Tensor],
        only: str | Iterable[str],
        scratch: Scratch,
    ) -> None:
        self._streamed, self._scratch = objective, scratch
        super().__init__(objective, weights, only)

    def new(self, *shape: int) -> Tensor:
        """A tensor of zeros in scratch space."""
        return self._scratch.new(*shape, dtype=self.dtype)

    def room(self) -> int:
        """Bytes that are free on the disk."""
        return shutil.disk_usage(self._scratch.folder).free

    def _add_gradient(self, total: Tensor) -> tuple[float, int, Sequence[float]]:
        slope = add_gradient(self._streamed, self._weights, self.space.unflatten(total), self._scratch)
        return slope.loss, sum(batch.n_targets for batch in self._streamed.batches), slope.lengths
