"""Training runs made on purpose: a recipe with its schedule, optimizer and data; a loop; a run on disk that goes on."""

from landscape.training.schedules import SCHEDULES, SHAPES, make

__all__ = ["SCHEDULES", "SHAPES", "make"]
