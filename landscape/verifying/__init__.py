"""The job that checks a stored result: its inputs found again, some numbers computed again, a verdict on each."""

from landscape.verifying.job import verify_file
from landscape.verifying.verdict import Item, Verdict

__all__ = ["Item", "Verdict", "verify_file"]
