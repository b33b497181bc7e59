"""The job that shows what is stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from landscape.config.text import option
from landscape.errors import OptionError

_PORTS = 65535


@dataclass(frozen=True)
class ViewConfig:
    """Which results to show as pages, and where the pages go.

    Raises:
        OptionError: nothing named, or a port that there is not.
    """

    paths: list[str] = field(
        metadata={
            "help": "Results: a slice (.h5), a table (study.parquet), or folders of them; folders are searched to the "
            "bottom."
        }
    )
    out: Path | None = option(
        None,
        "Of one file: the page, NAME.html. Else the folder of the pages. Default: beside the file; 'pages' in the one "
        "folder named; figures/view for several, or where nothing can be written.",
    )
    open: bool = option(False, "Open what was made in the browser.")
    serve: int | None = option(
        None,
        "Serve the pages on this port of 127.0.0.1, to this machine alone, until Ctrl-C. They follow their results: a "
        "slice that is being evaluated grows under the reader's eyes. 0 takes any port that is free.",
    )
    figures: bool = option(
        False, "Also a PDF of every view, one column of a paper wide, in the folder 'figures' there."
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", list(self.paths))
        object.__setattr__(self, "out", Path(self.out).expanduser() if self.out else None)
        if not self.paths:
            raise OptionError("view: nothing named; expected a slice (.h5), a table (study.parquet) or folders of them")
        if self.serve is not None and not 0 <= self.serve <= _PORTS:
            raise OptionError(f"--serve {self.serve}: expected a port from 0 to {_PORTS}; 0 takes any that is free")
