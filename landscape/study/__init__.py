"""A training run in; for every checkpoint its loss, quantization error, curvature and steps out, as one table.

`run_study` is the job. `table.read` gives rows back, `columns` says what they hold; `predictions` is what curvature and
step sizes expect without quantizing.
"""

from typing import TYPE_CHECKING

from landscape.lazily import lazily

if TYPE_CHECKING:
    from landscape.study.job import Study, run_study
    from landscape.study.predictions import predict
    from landscape.study.table import read, read_all

__all__ = ["Study", "predict", "read", "read_all", "run_study"]

__getattr__ = lazily(
    __name__,
    {
        "job": ("Study", "run_study"),
        "predictions": ("predict",),
        "table": ("read", "read_all"),
    },
)
