"""What a slice file says of how it was made, as names and values."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from landscape.slices.stored import StoredSlice
from landscape.viewer.described.points import QUANTIZED, PointRow
from landscape.viewer.described.words import MISSING, finite, listed, number, percent, text

_PLANES = {
    "checkpoints": "checkpoint and quantization",
    "random": "random directions",
    "pca": "principal components of the run",
    "eigenvectors": "eigenvectors of the Hessian",
    "gradient": "gradient and quantization",
    "quantizers": "two quantizers",
    "line": "a line",
}


def facts(stored: StoredSlice, points: tuple[PointRow, ...], losses: str) -> tuple[tuple[str, str], ...]:
    """(name, value) of what the slice was made from; `losses` says where its losses come from."""
    a = stored.attributes
    rows, columns = stored.loss.shape
    every = (
        ("Model", text(a.get("model"))),
        ("Plane", _PLANES.get(plane := text(a.get("plane")), plane)),
        ("Variance shown", _explained(a)),
        ("Quantizer", text(a.get("quantizer"), "")),
        ("Evaluated on", f"{_count(a.get('eval_tokens'))} tokens in {_count(a.get('eval_windows'))} windows"),
        ("Text", text(a.get("text"))),
        ("Arithmetic", _arithmetic(a)),
        ("Weights, ‖Θ‖", number(finite(a.get("weight_norm")), ".5g")),
        ("Quantization step, ‖δ‖/‖Θ‖", _steps(stored, points)),
        ("Parameters moved", text(a.get("params"), "").replace(",", ", ") if a.get("params") != "*" else ""),
        ("Angle of directions", "" if stored.is_line else _angle(finite(a.get("cosine")))),
        ("Grid", f"{rows:,} places" if stored.is_line else f"{rows} × {columns} cells, α × β"),
        ("Losses", losses),
        ("Seed", text(a.get("seed"))),
        ("Status", _status(stored)),
    )
    return tuple((name, value) for name, value in every if value)


def share_of_weights(length: float | None, stored: StoredSlice) -> str:
    """A length in weight space as percent of ‖Θ‖."""
    norm = finite(stored.attributes.get("weight_norm"))
    return percent(length / norm).lstrip("+") if length is not None and norm else MISSING


def _steps(stored: StoredSlice, points: tuple[PointRow, ...]) -> str:
    quantized = [point for point in points if point.role == QUANTIZED]
    return listed([share_of_weights(point.distance, stored) for point in quantized])


def _arithmetic(a: dict[str, Any]) -> str:
    dtype = text(a.get("dtype"))
    return dtype if dtype in ("float32", MISSING) else f"{dtype}, named points in float32"


def _explained(a: dict[str, Any]) -> str:
    shares = [finite(a.get(name)) for name in ("explained_first", "explained_second")]
    known = [f"{100 * share:.1f} %" for share in shares if share is not None]
    return " + ".join(known)


def _angle(cosine: float | None) -> str:
    if cosine is None:
        return MISSING
    angle = math.degrees(math.acos(max(-1.0, min(1.0, cosine))))
    return f"{angle:.1f}°, cosine {number(cosine, '.4f')}"


def _status(stored: StoredSlice) -> str:
    status = text(stored.attributes.get("status"))
    try:
        return f"{status}, {datetime.fromisoformat(str(stored.attributes.get('finished'))):%Y-%m-%d %H:%M %Z}"
    except ValueError:
        return status


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else text(value)
