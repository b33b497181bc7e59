"""What can go wrong through no fault of the code: one line each, naming the value, what was expected and what to do.

The command line turns a `LandscapeError` into that line on stderr and exit code 2; anything else is a bug and keeps
its traceback.
"""

from __future__ import annotations


class LandscapeError(Exception):
    """Base of every error a user can cause or mend. `str(error)` is one line."""

    def __init__(self, message: str) -> None:
        """Keep `message` on one line, whatever the libraries below put into it."""
        super().__init__(" ".join(str(message).split()))


class OptionError(LandscapeError):
    """An option has a value that cannot be used."""


class ModelError(LandscapeError):
    """A model reference cannot be resolved or loaded."""


class TextError(LandscapeError):
    """The text cannot be read, or does not give the windows asked for."""


class QuantizerError(LandscapeError):
    """A quantizer name is unknown, or does not fit the model."""


class PlaneError(LandscapeError):
    """The named points do not span a plane."""


class SliceError(LandscapeError):
    """A slice whose losses say nothing."""


class TrainingError(LandscapeError):
    """A recipe that cannot be trained, or a run that cannot go on."""


class StudyError(LandscapeError):
    """A table that does not hold what a statistic needs."""


class StoreError(LandscapeError):
    """A stored slice is of another schema, damaged, locked, or holds another slice."""


class MissingExtraError(LandscapeError):
    """An optional dependency is needed; the message names the extra that brings it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        """Say that `purpose` needs `package`, which `extra` brings."""
        super().__init__(f"{purpose} needs the package {package}: pip install 'landscape[{extra}]'")


class CurvatureError(LandscapeError):
    """A second derivative that cannot be taken: a random or non-finite loss, a kernel or a vector that does not fit."""


class RankError(LandscapeError):
    """One of several processes that do a job together has gone."""
