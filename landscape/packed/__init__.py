"""Packed checkpoints: Θ̂ as somebody's quantizer stored it → dense weights in the coordinates of Θ, and a report.

`load_dense(locate(reference), theta, model)` does all, for the formats in `FORMATS`; `is_packed(checkpoint)` names the
format.
"""

from landscape.packed.formats import is_packed
from landscape.packed.load import FORMATS, load_dense
from landscape.packed.locate import find, locate
from landscape.packed.report import PackedLayer, PackedReport

__all__ = ["FORMATS", "PackedLayer", "PackedReport", "find", "is_packed", "load_dense", "locate"]
