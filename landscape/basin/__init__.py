"""The job: a model and what spans a plane with it in; the slice and its page out.

`sources` reads what was asked for, `decided` names it, `workshop` makes weights, `planes` spans them, `layout` says
what the file holds, `job` does it all.
"""

from typing import TYPE_CHECKING

from landscape.lazily import lazily

if TYPE_CHECKING:
    from landscape.basin.job import SliceResult, render_slice
    from landscape.basin.workshop import furnished, losses_of

__all__ = [
    "SliceResult",
    "furnished",
    "losses_of",
    "render_slice",
]

__getattr__ = lazily(
    __name__,
    {
        "job": (
            "SliceResult",
            "render_slice",
        ),
        "workshop": (
            "furnished",
            "losses_of",
        ),
    },
)
