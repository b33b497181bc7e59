"""Numbers in words, and what a slice file says of how it was made. Whatever a file does not say is "—"."""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Any

from landscape.slices.stored import StoredSlice

MISSING = "—"
LOSS_UNIT = "nats per token"


def text(value: Any, otherwise: str = MISSING) -> str:
    """`value` in words, or `otherwise` where there is none."""
    return otherwise if value is None or value == "" else str(value)


def number(value: float | None, form: str) -> str:
    """`value` formatted with `form`, a true minus, and words for what is not a number.

    >>> number(-0.5, ".2f"), number(math.inf, ".2f"), number(None, ".2f")
    ('−0.50', '+∞', '—')
    """
    if value is None:
        return MISSING
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("+∞" if value > 0 else "−∞")
    written = format(value, form)
    if not any(digit in written for digit in "123456789"):
        written = written.lstrip("-")  # rounded away, and its sign with it
    return written.replace("-", "−")


def shortened(reference: str) -> str:
    """`reference` with a long hash in it cut to what people compare.

    >>> shortened("org/name@0123456789abcdef0123456789abcdef01234567")
    'org/name@0123456789…'
    """
    return re.sub(r"\b([0-9a-f]{10})[0-9a-f]{22,}\b", r"\1…", reference)


def percent(fraction: float | None) -> str:
    """A fraction as percent, with its sign and three digits that count.

    >>> percent(0.029868), percent(5.17)
    ('+2.99 %', '+517 %')
    """
    if fraction is None or not math.isfinite(fraction):
        return number(fraction, "")
    value = 100 * fraction
    digits = min(6, max(0, 2 - math.floor(math.log10(abs(value))))) if value else 0
    return f"{number(value, f'+.{digits}f')} %"


def share_of_weights(length: float | None, stored: StoredSlice) -> str:
    """A length in weight space as percent of ‖Θ‖."""
    norm = _number(stored.attributes.get("weight_norm"))
    return percent(length / norm).lstrip("+") if length is not None and norm else MISSING


def facts(stored: StoredSlice, step: float | None) -> tuple[tuple[str, str], ...]:
    """(name, value) of what the slice was made from; `step` is the length of the quantization step."""
    a = stored.attributes
    cosine = _number(a.get("cosine"))
    angle = math.degrees(math.acos(max(-1.0, min(1.0, cosine)))) if cosine is not None else None
    rows, columns = stored.loss.shape
    return (
        ("Model", text(a.get("model"))),
        ("Previous checkpoint", text(a.get("previous"))),
        ("Quantizer", text(a.get("quantizer"))),
        ("Evaluated on", f"{_count(a.get('eval_tokens'))} tokens in {_count(a.get('eval_windows'))} windows"),
        ("Text", text(a.get("text"))),
        ("Arithmetic", text(a.get("dtype"))),
        ("Weights, ‖Θ‖", number(_number(a.get("weight_norm")), ".5g")),
        ("Quantization step, ‖δ‖/‖Θ‖", share_of_weights(step, stored)),
        ("Angle of directions", MISSING if angle is None else f"{angle:.1f}°, cosine {number(cosine, '.4f')}"),
        ("Grid, α × β", f"{rows} × {columns} cells"),
        ("Seed", text(a.get("seed"))),
        ("Status", _status(stored)),
    )


def _status(stored: StoredSlice) -> str:
    status = text(stored.attributes.get("status"))
    try:
        return f"{status}, {datetime.fromisoformat(str(stored.attributes.get('finished'))):%Y-%m-%d %H:%M %Z}"
    except ValueError:
        return status


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else text(value)
