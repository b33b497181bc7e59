"""Weights as one float64 vector, and orthonormal bases of such vectors; written apart from the project's own."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch


def flat(weights: Mapping[str, torch.Tensor]) -> np.ndarray:
    return torch.cat([tensor.double().flatten() for tensor in weights.values()]).numpy()


def basis(first: np.ndarray, second: np.ndarray | None) -> np.ndarray:
    """Gram and Schmidt, in float64: (1 or 2, n)."""
    u = first / np.linalg.norm(first)
    if second is None:
        return u[None]
    rest = second - (second @ u) * u
    return np.stack([u, rest / np.linalg.norm(rest)])
