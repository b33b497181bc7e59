"""Training runs made on purpose: one thing changed, everything else equal. So far, their learning rates."""

from landscape.training.schedules import SCHEDULES, SHAPES, make

__all__ = ["SCHEDULES", "SHAPES", "make"]
