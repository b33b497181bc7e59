"""The examples run as they are written, and print what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_a_classifier_that_is_no_language_model():
    printed = subprocess.check_output([sys.executable, EXAMPLES / "mlp_classifier.py"], text=True)
    lines = [line for line in printed.splitlines() if "λ_max" in line]
    assert len(lines) == 4 and "eigenvalues above" in printed
    # close to a minimum the residuals are small, and the Gauss-Newton matrix is all there is to the top of the Hessian
    words = lines[-1].split()
    assert float(words[words.index("λ_max") + 1]) > 0
    assert abs(float(words[-1]) / float(words[words.index("λ_max") + 1]) - 1) < 0.05
