"""Numbers in words. Whatever a file does not say is "—"."""

from __future__ import annotations

import math
import re
from typing import Any

MISSING = "—"
LOSS_UNIT = "nats per token"
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


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


def bound(value: float) -> str:
    """An upper bound in two digits, rounded up so that it stays one.

    >>> bound(0.000414), bound(3.04e-6), bound(0.0), bound(12.3)
    ('0.00042', '3.1·10⁻⁶', '0', '13')
    """
    if not math.isfinite(value) or value <= 0:
        return number(value, ".0f")
    power = math.floor(math.log10(value))
    digits = math.ceil(value / 10.0 ** (power - 1) * (1 - 1e-9))
    if digits == 100:
        digits, power = 10, power + 1
    if power < -4:
        return f"{digits / 10:.1f}·10{str(power).translate(_RAISED)}"
    return f"{digits * 10.0 ** (power - 1):.{max(0, 1 - power)}f}"


def share(fraction: float) -> str:
    """A bound that is a fraction, as percent in two digits, rounded up.

    >>> share(0.00083), share(0.5)
    ('0.083 %', '50 %')
    """
    return f"{bound(100 * fraction)} %"


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


def measured(value: float, error: float, unit: str = "") -> str:
    """A value with its error, both to the digits that count.

    >>> measured(0.013234, 0.00042), measured(2.314e-5, 3e-7), measured(12.5, math.nan), measured(-40.1, 3, "°")
    ('0.0132 ± 0.0004', '(2.31 ± 0.03)·10⁻⁵', '12.5', '−40° ± 3°')
    """
    if not math.isfinite(value):
        return number(value, "") if math.isinf(value) else MISSING
    largest = max(abs(value), error if math.isfinite(error) else 0.0)
    power = math.floor(math.log10(largest)) if largest else 0
    power = power if not -4 < power < 6 else 0
    value, error = value / 10.0**power, error / 10.0**power
    if not math.isfinite(error) or error <= 1e-6 * abs(value):
        inner = f"{number(value, '.4g')}{unit}"
    else:
        lead = math.floor(math.log10(error))
        decimals = max(0, -lead + (error < 2 * 10.0**lead))
        inner = f"{number(value, f'.{decimals}f')}{unit} ± {error:.{decimals}f}{unit}"
    exponent = str(power).translate(_RAISED)
    return inner if not power else f"({inner})·10{exponent}" if "±" in inner else f"{inner}·10{exponent}"


def digits_within(error: float) -> int:
    """Digits after the point of a number that is off by `error`: one more than are certain.

    >>> digits_within(0.0004), digits_within(3.0)
    (5, 1)
    """
    return min(12, max(0, 1 - math.floor(math.log10(error)))) if error > 0 and math.isfinite(error) else 6


def listed(parts: list[str]) -> str:
    """Some parts of a sentence as one.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def shortened(reference: str) -> str:
    """`reference` with a long hash in it cut to what people compare.

    >>> shortened("org/name@0123456789abcdef0123456789abcdef01234567")
    'org/name@0123456789…'
    """
    return re.sub(r"\b([0-9a-f]{10})[0-9a-f]{22,}\b", r"\1…", reference)


def finite(value: Any) -> float | None:
    """`value` where it is a finite number."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
