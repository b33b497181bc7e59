"""The places of a slice that were evaluated off its grid."""

from __future__ import annotations

import numpy as np

from landscape.slices.stored import StoredSlice


def node_places(stored: StoredSlice) -> np.ndarray:
    """(n, 3) α, β, loss: all evaluations off the grid but the check points, of which some became nodes later."""
    checked = {(alpha, beta) for alpha, beta, *_ in stored.checks.tolist()}
    rows = np.concatenate(list(stored.nodes.values()))
    # Where the scan is less precise than float32, a check point has an evaluation of either kind.
    return rows[[(alpha, beta) not in checked for alpha, beta, _ in rows.tolist()]]
