"""A small study, as several files test it."""

from __future__ import annotations

from pathlib import Path

from landscape.config import StudyConfig
from landscape.study import Study, run_study
from landscape.study.table import FILES

QUANTIZERS = ["rtn-w3-g16", "gptq-w4-g16"]
SMALL = {"seq_len": 32, "tokens": 320, "curvature_tokens": 128, "calibration_windows": 8, "max_probes": 10}


class Notes:
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def stage(self, name: str):
        return lambda done, total: None

    def say(self, text: str) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)


def study(model: object, text: Path, out: Path, notes: Notes | None = None, **options: object) -> Study:
    asked = {"quant": QUANTIZERS, **SMALL, **options}
    return run_study(StudyConfig(str(model), text=str(text), out=out, **asked), notes)


def command(model: object, text: Path, out: Path, *more: object) -> list[str]:
    """The same at the command line."""
    options = [word for name, value in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return ["study", str(model), *QUANTIZERS, "--text", str(text), "--out", str(out), *options, *map(str, more)]


def tables(folder: Path) -> dict[str, bytes]:
    """The tables, byte for byte."""
    names = [f"{name}.{kind}" for name in FILES for kind in ("parquet", "csv")]
    return {name: (folder / name).read_bytes() for name in names}
