"""Slices: how many evaluations a picture takes and how wrong it then is, what one evaluation costs, and memory.

    make bench-slices                                   # everything: an hour and a half on two CPU cores
    make bench-slices ARGS='--only cell'
    make bench-slices ARGS='--only pictures --models gpt_neox --planes 3-bit,random'

Sections:

* pictures: 51×51 pictures of planes through small trained models, reconstructed, and evaluated cell by cell in the same
  process: evaluations, stated and true error, time. In bfloat16 too.
* cell: one cell of a dense scan, in turn with a bare forward pass and with other ways to set weights, cell by cell, so
  that a machine that speeds up or slows down does so for all.
* memory: the peak of a fresh process that evaluates a plane, over one that only evaluates the model.
* ways: compiled, captured in CUDA graphs, several cells at once under vmap.

A scan does for each cell what a bare pass does, plus 3 reads and 1 write of every weight: 16 bytes a parameter against
2 floating-point operations a parameter and token, so beyond a few dozen tokens the floor of the ratio is 1.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import transformers

from slice_cell import cell_section
from slice_memory import memory_section
from slice_pictures import pictures_section
from slice_planes import MODELS, PLANES
from slice_ways import ways_section

SECTIONS = {"pictures": pictures_section, "cell": cell_section, "memory": memory_section, "ways": ways_section}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, separated by commas")
    parser.add_argument("--models", default=",".join(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument("--planes", default=",".join(PLANES), help=f"of {', '.join(PLANES)}")
    parser.add_argument("--cells", type=int, default=51, help="cells along each axis of a picture")
    parser.add_argument("--keep", type=Path, help="a folder for the dense pictures (tests/planes has two)")
    parser.add_argument("--repeats", type=int, default=5, help="of the cell section")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    args.models, args.planes = args.models.split(","), args.planes.split(",")
    transformers.utils.logging.disable_progress_bar()
    for section in args.only.split(","):
        SECTIONS[section](args)


if __name__ == "__main__":
    main()
