"""Keep freed memory for the next step, or give it back to the system at once."""

from __future__ import annotations

import ctypes

# of <malloc.h> of the GNU C library
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_MMAP_THRESHOLD = 32 << 20  # the most that it takes
_LARGE = 1 << 20


def hold() -> bool:
    """Ask the C library, for the rest of the process, to hold on to what is freed; returns whether it will.

    A step of training, or a product with the Hessian, frees all its activations and the next one takes as much again.
    The GNU C library gives the end of its heap back to the system as soon as 128 KiB of it are free (or twice the
    largest block freed so far), so that every step would have its pages mapped and zeroed anew: a third of the time
    of small models on a CPU. Blocks above 32 MiB are mapped one by one, and given back, as ever. Other C libraries
    are left as they are; GPUs have torch's own cache.
    """
    return _set(_LARGEST_MMAP_THRESHOLD, 2**31 - 1)


def give_back() -> bool:
    """Ask the C library, for the rest of the process, to give back every large block; returns whether it will.

    By itself it takes blocks of up to 32 MiB from its heap once such a block was freed. A tensor that is freed between
    small objects which stay leaves a hole that the next one may not fit into: copies of a model of 400 MB, each made
    tensor by tensor and put into files, left 750 MB of holes.
    """
    return _set(_LARGE, _LARGE)


def _set(mapped: int, trimmed: int) -> bool:
    """Blocks from `mapped` bytes on are mapped one by one; the heap's end is given back when `trimmed` are free."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # none of this name: macOS, Windows, musl
        return False
    done = mallopt(_M_MMAP_THRESHOLD, mapped) == 1
    return mallopt(_M_TRIM_THRESHOLD, trimmed) == 1 and done
