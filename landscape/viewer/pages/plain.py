"""Numbers as a page holds them: JSON that loses no bit, and in which no word of a file can end the script."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np

from landscape.slices.polynomial import Polynomial
from landscape.slices.surface import Patch, Surface


def to_json(value: Any) -> str:
    """`value` as JSON that can stand in HTML; arrays become base64, a number that is not finite becomes its name."""
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def plain_surface(surface: Surface | None) -> Any:
    """A reconstruction as its tree of polynomials, patches and seams, which the page evaluates as Python does."""
    if surface is None:
        return None
    if isinstance(surface, Polynomial):
        b = surface.bounds
        rows, columns = surface.coefficients.shape
        return {
            "bounds": [*b.alpha, *b.beta],
            "rows": rows,
            "columns": columns,
            "coefficients": surface.coefficients,
        }
    if isinstance(surface, Patch):
        return {"alpha": surface.alpha, "beta": surface.beta, "loss": surface.loss}
    return {
        "axis": surface.axis,
        "start": surface.start,
        "end": surface.end,
        "low": plain_surface(surface.low),
        "high": plain_surface(surface.high),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.ndarray):
        kind = "f8" if value.dtype.kind == "f" else "u1"
        return {kind: base64.b64encode(np.ascontiguousarray(value, f"<{kind}").tobytes()).decode()}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value
