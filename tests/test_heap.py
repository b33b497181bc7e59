"""What one step frees, the next one finds."""

import platform
import subprocess
import sys

import pytest

STEPS = """
import ctypes, resource, sys
from landscape.machine import heap
if sys.argv[1] == "held":
    assert heap.hold()
libc, size = ctypes.CDLL(None), 30 << 20
libc.malloc.restype = ctypes.c_void_p
def steps(count):
    for _ in range(count):
        blocks = [ctypes.c_void_p(libc.malloc(ctypes.c_size_t(size))) for _ in range(8)]
        for block in blocks:
            ctypes.memset(block, 1, size)
        for block in reversed(blocks):
            libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(-steps(3) + steps(5))
"""
PAGES = 8 * (30 << 20) // 4096  # of one step


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the GNU C library is asked to hold its memory")
def test_no_page_is_mapped_anew():
    faults = {
        how: int(subprocess.run([sys.executable, "-c", STEPS, how], check=True, capture_output=True, text=True).stdout)
        for how in ("held", "free")
    }
    assert faults["free"] > 5 * PAGES / 2, faults
    assert faults["held"] < PAGES / 100, faults
