"""The job: a model, a text and quantizers in; the losses of Θ and each Θ̂, and what quantization costs, out.

`job` decides and writes, `ways` makes Θ̂, `step` looks at Θ̂ − Θ, `exam` asks questions, `stored` reads a file back,
`frontier` sets many of them against their size.
"""

from typing import TYPE_CHECKING

from landscape.lazily import lazily

if TYPE_CHECKING:
    from landscape.evaluation.job import evaluate_model
    from landscape.evaluation.stored import Evaluated, read
    from landscape.evaluation.ways import NONE, quantized, stored_report

__all__ = [
    "NONE",
    "Evaluated",
    "evaluate_model",
    "quantized",
    "read",
    "stored_report",
]

__getattr__ = lazily(
    __name__,
    {
        "job": ("evaluate_model",),
        "stored": (
            "Evaluated",
            "read",
        ),
        "ways": (
            "NONE",
            "quantized",
            "stored_report",
        ),
    },
)
