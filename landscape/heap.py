"""Keep freed memory for the next step, rather than give it back to the system."""

from __future__ import annotations

import ctypes

# of <malloc.h> of the GNU C library
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_MMAP_THRESHOLD = 32 << 20  # the most that it takes


def hold() -> bool:
    """Ask the C library, for the rest of the process, to hold on to what is freed; returns whether it will.

    A step of training, or a product with the Hessian, frees all its activations and the next one takes as much again.
    The GNU C library gives the end of its heap back to the system as soon as 128 KiB of it are free (or twice the
    largest block freed so far), so that every step would have its pages mapped and zeroed anew: a third of the time
    of small models on a CPU. Blocks above 32 MiB are mapped one by one, and given back, as ever. Other C libraries
    are left as they are; GPUs have torch's own cache.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # none of this name: macOS, Windows, musl
        return False
    held = mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD) == 1
    return mallopt(_M_TRIM_THRESHOLD, 2**31 - 1) == 1 and held
