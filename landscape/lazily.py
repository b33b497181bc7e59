"""Names of a package that load when first used: who reads stored results does not wait for torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazily(package: str, homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """A `__getattr__` for the module `package`.

    Args:
        package: `__name__` of the package.
        homes: names by the module in the package that defines them.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def opened(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{home_of[name]}")
        # All at once: importing `scan.py` leaves the module where the function `scan` is asked for next time.
        vars(sys.modules[package]).update({each: getattr(module, each) for each in homes[home_of[name]]})
        return getattr(module, name)

    return opened
