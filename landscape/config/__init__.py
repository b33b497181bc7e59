"""Jobs as dataclasses: the one place where an option has its name, default and explanation.

The command line is generated from these fields, Python callers fill them in, and the resolved one is stored in the
result. Imports nothing heavy, so that `--help` answers at once.
"""

from __future__ import annotations

from landscape.config.geometry import PLANES, RANDOM, WHOLE, SharpnessConfig, SliceConfig
from landscape.config.plan import PlanConfig
from landscape.config.quantization import PAPER, EvaluateConfig, FrontierConfig, QuantizeConfig
from landscape.config.study import AllocateConfig, CorrelateConfig, StudyConfig
from landscape.config.text import MeasurementConfig, TextConfig
from landscape.config.training import AverageConfig, TrainConfig
from landscape.config.verify import VerifyConfig
from landscape.config.view import ViewConfig

__all__ = [
    "PAPER",
    "PLANES",
    "RANDOM",
    "WHOLE",
    "AllocateConfig",
    "AverageConfig",
    "CorrelateConfig",
    "EvaluateConfig",
    "FrontierConfig",
    "MeasurementConfig",
    "PlanConfig",
    "QuantizeConfig",
    "SharpnessConfig",
    "SliceConfig",
    "StudyConfig",
    "TextConfig",
    "TrainConfig",
    "VerifyConfig",
    "ViewConfig",
]
