"""Imported once by the fork server: what a job would spend its first second on, done before it is forked.

No gradient is taken here: autograd's threads do not survive a fork.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import torch
from matplotlib import pyplot
from transformers import AutoConfig, AutoModelForCausalLM

import soak_jobs  # noqa: F401 (with all that it imports)

torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as folder:
    config = AutoConfig.for_model("gpt_neox", hidden_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=8)
    AutoModelForCausalLM.from_config(config).save_pretrained(Path(folder))
    AutoModelForCausalLM.from_pretrained(folder)
for kind in ("pdf", "png"):
    figure, axes = pyplot.subplots()
    axes.set_title("$\\hat\\Theta$")
    figure.savefig(io.BytesIO(), format=kind)
    pyplot.close(figure)
