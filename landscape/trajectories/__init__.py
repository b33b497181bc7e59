"""A model or a run → its checkpoints in order, with step, tokens and learning rate; and a choice of them.

    >>> from landscape.trajectories import family, parse
    >>> revision = parse("step143000")
    >>> pythia = family("EleutherAI/pythia-160m")
    >>> f"{pythia.tokens(revision):.3e} tokens, learning rate {pythia.learning_rate(revision):.0e}"
    '2.999e+11 tokens, learning rate 6e-05'

`points` lists a trajectory, `select` narrows it as `MODEL@SELECTION` says, which `split` takes apart.
"""

from landscape.trajectories.families import Family, family
from landscape.trajectories.points import Point, points
from landscape.trajectories.revisions import Revision, parse
from landscape.trajectories.selection import select, split

__all__ = ["Family", "Point", "Revision", "family", "parse", "points", "select", "split"]
