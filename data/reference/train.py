"""Train the bundled reference run: Pythia's architecture, scaled down to one million parameters.

The run shows in miniature what the suite is for: a long phase of constant learning rate, then a linear cooldown,
with checkpoints kept on both sides. Weights are stored in float16, as EleutherAI stores Pythia's.

    python data/reference/train.py --out data/reference/mini-pythia        # what `make reference` does

Everything is seeded. On one kind of processor the run repeats to the bit; on another, floating-point sums come in
another order and the run is a statistically equal one.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
from pathlib import Path

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast

HERE = Path(__file__).parent

VOCAB, WIDTH, LAYERS, HEADS, CONTEXT = 1024, 128, 3, 2, 256  # heads of 64, as in Pythia-160m
STEPS, WARMUP, COOLDOWN = 8000, 80, 1600  # 1 % warm-up and 20 % cooldown: the ratios of arXiv 2510.06213, figure 6
PEAK_LR, WEIGHT_DECAY, BETAS, EPS, CLIP = 3e-3, 0.1, (0.9, 0.95), 1e-8, 1.0
BATCH, SEED = 8, 100
KEEP = (4800, 6400, 7200, 8000)  # within the stable phase, at its end, half-way down, and at the end


def documents(split: str) -> list[str]:
    """The texts of one split of the bundled corpus."""
    with lzma.open(HERE / "corpus" / f"{split}.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def train_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE like Pythia's, small enough for a small embedding."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    end = "<|endoftext|>"
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=end, bos_token=end, unk_token=end)


def learning_rate(step: int) -> float:
    """Warm-up, constant, linear cooldown to zero (WSD), as a function of the number of steps taken."""
    return PEAK_LR * min(1.0, (step + 1) / WARMUP, (STEPS - step) / COOLDOWN)


def build_model() -> GPTNeoXForCausalLM:
    """GPT-NeoX with Pythia's choices: parallel residual, a quarter of each head rotated, untied head."""
    config = GPTNeoXConfig(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH,
        max_position_embeddings=CONTEXT,
        rotary_pct=0.25,
        use_parallel_residual=True,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPTNeoXForCausalLM(config)


def main() -> None:
    """Train, and write `step<N>/` checkpoints and `log.jsonl` below --out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "mini-pythia")
    args = parser.parse_args()
    torch.manual_seed(SEED)

    texts = documents("train")
    tokenizer = train_tokenizer(texts)
    ids = torch.tensor([i for text in texts for i in tokenizer(text, add_special_tokens=False)["input_ids"]])
    model = build_model()
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    plain = [p for p in model.parameters() if p.ndim < 2]  # norms and biases are not decayed
    groups = [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=PEAK_LR, betas=BETAS, eps=EPS)
    order = torch.Generator().manual_seed(SEED)
    args.out.mkdir(parents=True, exist_ok=True)

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[loss]}"), TimeRemainingColumn())
    with open(args.out / "log.jsonl", "w", encoding="utf-8") as log, Progress(*columns) as progress:
        bar = progress.add_task("training", total=STEPS, loss="")
        running = math.log(VOCAB)
        for step in range(STEPS):
            lr = learning_rate(step)
            for group in optimizer.param_groups:
                group["lr"] = lr
            starts = torch.randint(len(ids) - CONTEXT, (BATCH,), generator=order)
            batch = torch.stack([ids[s : s + CONTEXT] for s in starts.tolist()])  # (BATCH, CONTEXT)
            loss = model(input_ids=batch, labels=batch, use_cache=False).loss
            loss.backward()
            grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

            done = step + 1
            running += 0.02 * (loss.item() - running)
            progress.update(bar, completed=done, loss=f"loss {running:.4f}")
            if done % 100 == 0:
                row = {"step": done, "tokens": done * BATCH * CONTEXT, "learning_rate": lr}
                row |= {"loss": round(running, 5), "grad_norm": round(grad_norm.item(), 5)}
                print(json.dumps(row), file=log, flush=True)
            if done in KEEP:
                folder = args.out / f"step{done}"
                half = {name: tensor.to(torch.float16) for name, tensor in model.state_dict().items()}
                model.save_pretrained(folder, state_dict=half)
                tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main()
