"""Processor time of whole commands, with and without Python's search for garbage while they begin and end.

    make bench-begin
    python benchmarks/begin.py --repeats 9

A small slice of the bundled run, and a name that no model has. *searched* is the same command with `gc.disable` and
`gc.freeze` taken away; *imported* is the floor, torch and the model's code imported by a process that ends at once.
In turn; the smallest of each counts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

REFERENCE = Path("data/reference")
MAIN = "from landscape.cli import main; main()"
WAYS = {"as it is": MAIN, "searched": f"import gc; gc.disable = gc.freeze = lambda: None; {MAIN}"}
IMPORTED = """import gc, os
gc.disable()
import landscape.basin.job, transformers.models.gpt_neox.modeling_gpt_neox
os._exit(0)"""


def processor_time(code: str, arguments: Sequence[str]) -> float:
    """Seconds of all threads, user and system."""
    before = os.times()
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, *arguments], capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    """Time them, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        text = str(REFERENCE / "corpus" / "validation.jsonl.xz")
        few = ["--plane", "line", "--quant", "rtn-w3-g64", "--tokens", "1024", "--device", "cpu"]
        asked = {
            "slice": ["slice", str(REFERENCE / "mini-pythia"), "--text", text, *few],
            "wrong": ["slice", "./nowhere"],
        }
        found: dict[tuple[str, str], list[float]] = {}
        for repeat in range(args.repeats):
            found.setdefault(("imported", ""), []).append(processor_time(IMPORTED, []))
            for command, arguments in asked.items():
                for way, code in WAYS.items():
                    out = ["--out", f"{folder}/{command}-{way}-{repeat}.h5"] if command == "slice" else []
                    found.setdefault((command, way), []).append(processor_time(code, [*arguments, *out]))
    print("| command | as it is, s | searched, s | ratio |\n|---|---|---|---|")
    for command in asked:
        ours, theirs = (min(found[command, way]) for way in WAYS)
        print(f"| {command} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f} |")
    print(f"| imported | {min(found['imported', '']):.2f} | | |")


if __name__ == "__main__":
    main()
