"""One quantizer's file, read back: held against its digest and to what the tables and figures need."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from landscape.errors import StoreError
from landscape.losses import Comparison, Estimate
from landscape.storage.digests import DIGEST, check_digest

SCHEMA = 2
_READABLE = (1, SCHEMA)  # files of schema 1 have no digest
_FACTS: dict[type, tuple[str, ...]] = {
    str: (
        *("key", "model", "model_identity", "quantizer", "text", "tokens_fingerprint"),
        *("calibration_fingerprint", "dtype", "device"),
    ),
    int: ("total_parameters", "eval_tokens", "eval_windows", "seq_len", "predicted_bytes"),
    dict: ("comparison", "windows", "report", "tasks", "config", "versions"),
}


@dataclass(frozen=True)
class Evaluated:
    """One quantizer's file and its content.

    Attributes:
        facts: model, text and settings it was measured with, as stored.
        comparison: Θ̂ against Θ; of Θ with itself where nothing is quantized.
        tasks: accuracies and drops as `exam` stores them; empty where none were asked.
        report: the quantizer's report, as stored; empty for Θ alone.
        step: the second order along Θ̂ − Θ, as `step` stores it; empty where it was not asked.
    """

    path: Path
    quantizer: str
    facts: Mapping[str, Any]
    comparison: Comparison
    report: Mapping[str, Any]
    tasks: Mapping[str, Any]
    step: Mapping[str, Any]

    @property
    def bits(self) -> float:
        """What the whole model takes; 16 bits for what is not quantized."""
        return float(self.report["bits"] if self.report else 16 * self.facts["total_parameters"])


def read(path: str | Path) -> Evaluated:
    """A stored evaluation.

    Raises:
        StoreError: missing, damaged, or no evaluation.
    """
    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        _check(content)
        measured = {name: Estimate(**estimate) for name, estimate in content["comparison"].items()}
        return Evaluated(
            path,
            content["quantizer"],
            content,
            Comparison(**measured),
            content["report"],
            content["tasks"],
            content.get("step", {}),
        )
    except FileNotFoundError as error:
        raise StoreError(f"{path}: no such file; expected one that 'landscape evaluate' wrote") from error
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(f"{path}: not an evaluation; expected a file that 'landscape evaluate' wrote") from error


def _check(content: Any) -> None:
    """Raise `ValueError` where what the tables and figures need is not there, or of another kind."""
    if content["kind"] != "evaluation" or content["schema"] not in _READABLE:
        raise ValueError("kind")
    json.dumps(content, ensure_ascii=False).encode()  # which halves of a character in its names are not
    if content["schema"] == SCHEMA or DIGEST in content:
        check_digest(content)
    for kind, names in _FACTS.items():
        if odd := [name for name in names if not isinstance(content[name], kind)]:
            raise ValueError(odd[0])
    counts = [*content["windows"]["predicted"], *(content[name] for name in _FACTS[int])]
    if not all(isinstance(count, int) and 0 <= count < 1 << 62 for count in counts) or not content["predicted_bytes"]:
        raise ValueError("counts")
    numbers = [number for estimate in content["comparison"].values() for number in estimate.values()]
    if content["report"]:
        numbers += [content["report"]["bits"], content["report"]["bits_per_weight"]]
    if not all(
        isinstance(number, int | float) and (not isinstance(number, int) or number < 1 << 62) for number in numbers
    ):
        raise ValueError("numbers")
