"""Loss-landscape geometry of quantized language models.

>>> import landscape as ls
>>> config = ls.SliceConfig("EleutherAI/pythia-160m@step143000", quant="gptq-w3-g128", text="wikitext")
>>> config.dtype
'float32'

`ls.render_slice(config)` makes the slice, `ls.measure_sharpness(ls.SharpnessConfig(…))` measures curvature,
`ls.evaluate_model(ls.EvaluateConfig(…))` what quantizers cost; `ls.quantize_model(ls.QuantizeConfig(…))` keeps Θ̂;
`ls.train_model(ls.TrainConfig(…))` trains a recipe, `ls.average_checkpoints(ls.AverageConfig(…))` averages a run.
`ls.run_study(ls.StudyConfig(…))` measures a whole run, and `ls.read_study(path)` gives its rows.
`ls.read_slice(path)`, `ls.read_sharpness(path)` and `ls.read_evaluation(path)` open what is stored;
`landscape.curvature` and `landscape.quantize` have the engines. Names load when first used, so that importing the
package does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from landscape.averaging import Averaged, average_checkpoints
    from landscape.basin import SliceResult, render_slice
    from landscape.config import (
        AverageConfig,
        EvaluateConfig,
        QuantizeConfig,
        SharpnessConfig,
        SliceConfig,
        StudyConfig,
        TrainConfig,
    )
    from landscape.curvature.store import StoredSharpness
    from landscape.curvature.store import read as read_sharpness
    from landscape.errors import LandscapeError
    from landscape.evaluation import Evaluated, evaluate_model
    from landscape.evaluation import read as read_evaluation
    from landscape.models import load_model, load_tokenizer
    from landscape.models.checkpoint import Checkpoint
    from landscape.models.references import resolve
    from landscape.objective import Objective, TokenCrossEntropy, mean
    from landscape.pretraining import Trained, train_model
    from landscape.quantizing import Quantized, quantize_model
    from landscape.sharpness import SharpnessResult, measure_sharpness
    from landscape.slices import Plane, StoredSlice, span
    from landscape.slices import read as read_slice
    from landscape.study import Study, run_study
    from landscape.study import read as read_study
    from landscape.weights import Weights

_HOME = {
    "AverageConfig": "config",
    "Averaged": "averaging",
    "Checkpoint": "models",
    "EvaluateConfig": "config",
    "Evaluated": "evaluation",
    "LandscapeError": "errors",
    "Objective": "objective",
    "Plane": "slices",
    "QuantizeConfig": "config",
    "Quantized": "quantizing",
    "SharpnessConfig": "config",
    "SharpnessResult": "sharpness",
    "SliceConfig": "config",
    "SliceResult": "basin",
    "StoredSharpness": "curvature.store",
    "StoredSlice": "slices",
    "Study": "study",
    "StudyConfig": "config",
    "TokenCrossEntropy": "objective",
    "TrainConfig": "config",
    "Trained": "pretraining",
    "Weights": "weights",
    "average_checkpoints": "averaging",
    "evaluate_model": "evaluation",
    "load_model": "models",
    "load_tokenizer": "models",
    "mean": "objective",
    "measure_sharpness": "sharpness",
    "quantize_model": "quantizing",
    "read_evaluation": "evaluation",
    "read_sharpness": "curvature.store",
    "read_slice": "slices",
    "read_study": "study",
    "render_slice": "basin",
    "resolve": "models",
    "run_study": "study",
    "span": "slices",
    "train_model": "pretraining",
}
_ELSEWHERE = {"read_evaluation": "read", "read_sharpness": "read", "read_slice": "read", "read_study": "read"}

__all__ = [
    "AverageConfig",
    "Averaged",
    "Checkpoint",
    "EvaluateConfig",
    "Evaluated",
    "LandscapeError",
    "Objective",
    "Plane",
    "QuantizeConfig",
    "Quantized",
    "SharpnessConfig",
    "SharpnessResult",
    "SliceConfig",
    "SliceResult",
    "StoredSharpness",
    "StoredSlice",
    "Study",
    "StudyConfig",
    "TokenCrossEntropy",
    "TrainConfig",
    "Trained",
    "Weights",
    "average_checkpoints",
    "evaluate_model",
    "load_model",
    "load_tokenizer",
    "mean",
    "measure_sharpness",
    "quantize_model",
    "read_evaluation",
    "read_sharpness",
    "read_slice",
    "read_study",
    "render_slice",
    "resolve",
    "run_study",
    "span",
    "train_model",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'landscape' has no attribute {name!r}")
    return getattr(import_module(f"landscape.{_HOME[name]}"), _ELSEWHERE.get(name, name))


def __dir__() -> list[str]:
    return sorted(__all__)
