"""Quantizers: what each costs in loss, in time and in memory, and what evaluating costs over bare forward passes.

    make bench-quantize                                  # the bundled run: a quarter of an hour on two CPU cores
    make bench-quantize ARGS='--only loss --model DIR --text FILE --group 32'
    make bench-quantize ARGS='--only evaluation'

Sections:

* loss: ΔQ of every method at 4, 3 and 2 bits, with its 95 % interval, as a table for docs/quantizers.md.
* time: seconds per million quantized parameters, on a GPT-NeoX of 13 million with 8,192 calibration tokens.
* memory: the peak of a fresh process that quantizes, over one that only loads the model.
* evaluation: losses by window, in turn with bare forward passes.
* race: GPTQ here and by llm-compressor or GPTQModel, whichever the environment has; not run unless asked for.
"""

from __future__ import annotations

import argparse

import transformers

from quantize_loss import loss_section
from quantize_speed import evaluation_section, memory_section, race_section, time_section

SECTIONS = {
    "loss": loss_section,
    "time": time_section,
    "memory": memory_section,
    "evaluation": evaluation_section,
    "race": race_section,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="loss,time,memory,evaluation", help="sections, with commas")
    parser.add_argument("--model", help="of the loss section; the bundled run otherwise")
    parser.add_argument("--text", help="that it is evaluated on")
    parser.add_argument("--documents", action="store_true", help="a window for each document, with BOS")
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--group", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    for section in args.only.split(","):
        SECTIONS[section](args)


if __name__ == "__main__":
    main()
