"""Curvature of a model that no rank holds: weights, gradients and vectors in pieces, one on each."""

from landscape.sharded.hessian import ShardedHessian, ShardedProbes
from landscape.sharded.model import Pieces, cut_evenly, load_sharded
from landscape.sharded.objective import ShardedCrossEntropy

__all__ = ["Pieces", "ShardedCrossEntropy", "ShardedHessian", "ShardedProbes", "cut_evenly", "load_sharded"]
