"""One of the processes that torchrun starts: python soak_rank.py JOB WORLD OUT."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from landscape.reporting import Silent
from soak_jobs import JOBS, World

torch.set_num_threads(1)
JOBS[sys.argv[1]].run(World(Path(sys.argv[2])), Path(sys.argv[3]), Silent())
