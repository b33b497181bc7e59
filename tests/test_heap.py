"""What one step frees, the next one finds."""

import platform
import subprocess
import sys

import pytest

STEPS = """
import resource, sys, torch
from landscape import heap
if sys.argv[1] == "held":
    assert heap.hold()
network = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU()) for _ in range(12)))
inputs = torch.randn(8192, 256)
def steps(count):
    for _ in range(count):
        network(inputs).square().mean().backward()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(-steps(3) + steps(5))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only the GNU C library is asked to hold its memory")
def test_no_page_is_mapped_anew():
    faults = {
        how: int(subprocess.run([sys.executable, "-c", STEPS, how], check=True, capture_output=True, text=True).stdout)
        for how in ("held", "free")
    }
    assert faults["free"] > 5000, faults
    assert faults["held"] < 500, faults
