"""Checkpoints of a run, or models named one by one, and their mean as a checkpoint like any other."""

from landscape.averaging.job import Averaged, average_checkpoints

__all__ = ["Averaged", "average_checkpoints"]
