"""Models of about five million parameters, trained a few hundred steps on the bundled corpus, kept in .cache.

Curvature of a model at its initialization says nothing about curvature where people measure it, and these train in a
few minutes on two CPU cores. Seeded; on one kind of processor they repeat to the bit.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from rich.progress import track
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from landscape.models import load_tokenizer
from landscape.models.references import resolve
from landscape.texts import documents
from landscape.tokens import WindowReader, Windows

HERE = Path(__file__).parent
REFERENCE = HERE.parent / "data" / "reference"
CACHE = HERE / ".cache"

_SIZES = {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 8, "vocab_size": 1024}
_COMMON = {**_SIZES, "max_position_embeddings": 256, "bos_token_id": 0, "eos_token_id": 0}
CONFIGS = {
    "llama": {**_COMMON, "intermediate_size": 688, "num_key_value_heads": 4, "tie_word_embeddings": False},
    "gpt_neox": {**_COMMON, "intermediate_size": 1024, "tie_word_embeddings": False},
}
STEPS, WARMUP, PEAK_LR, BATCH, SEQ_LEN = 400, 20, 2e-3, 8, 128
STABLE, DECAYED = 450, 550  # the rate is constant up to the first, then falls to 0
KEPT = (50, 150, STEPS, STABLE, 500, DECAYED)  # from both ends, 50 and 400 steps back: the near and far steps of planes


def windows(split: str, n: int, seq_len: int = SEQ_LEN) -> Windows:
    """The first `n` windows of a split of the bundled corpus."""
    tokenizer = load_tokenizer(resolve(str(REFERENCE / "mini-pythia")))
    return WindowReader(documents(str(REFERENCE / "corpus" / f"{split}.jsonl.xz")), tokenizer, seq_len).take(n)


def trained(name: str, steps: int = STEPS) -> nn.Module:
    """The model `name` after `steps` steps, one of `KEPT`; trained now unless the cache has it."""
    folder = CACHE / f"{name}-{steps}"
    if not folder.exists():
        train(name)
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()


def train(name: str) -> None:
    """AdamW, a linear warm-up, a constant rate and a linear decay, seeded; leaves the steps in `KEPT` in the cache."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **CONFIGS[name])).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_LR, betas=(0.9, 0.95), weight_decay=0.1)
    data = windows("train", BATCH * KEPT[-1])
    for step in track(range(KEPT[-1]), f"training {name}"):
        ids = data.ids[step * BATCH : (step + 1) * BATCH]
        for group in optimizer.param_groups:
            group["lr"] = PEAK_LR * min(1.0, (step + 1) / WARMUP, (DECAYED - step) / (DECAYED - STABLE))
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step + 1 in KEPT:
            model.save_pretrained(CACHE / f"{name}-{step + 1}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(CONFIGS))
    for chosen in parser.parse_args().names:
        print(f"{chosen}: {sum(p.numel() for p in trained(chosen).parameters()):,} parameters")
