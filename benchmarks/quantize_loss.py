"""Section `loss`: what every method costs a model, at 4, 3 and 2 bits."""

from __future__ import annotations

import argparse
from pathlib import Path

from landscape.config import EvaluateConfig
from landscape.evaluation import Evaluated, evaluate_model

_REFERENCE = Path(__file__).parents[1] / "data" / "reference"
_BITS = (4, 3, 2)
_METHODS = (
    "rtn-w{b}-tensor",
    "rtn-w{b}-channel",
    "rtn-w{b}-channel-rot",
    "rtn-w{b}-g{g}",
    "rtn-w{b}-g{g}-asym",
    "rtn-w{b}-g{g}-minmax",
    "rtn-w{b}-g{g}-clip",
    "rtn-w{b}-g{g}-rot",
    "rtn-w{b}-g{g}-outliers0.02",
    "hqq-w{b}-g{g}",
    "smoothquant-w{b}-g{g}",
    "awq-w{b}-g{g}",
    "awq-w{b}-g{g}-asym-clip",
    "gptq-w{b}-g{g}",
    "gptq-w{b}-g{g}-asym",
    "gptq-w{b}-g{g}-clip",
    "gptq-w{b}-g{g}-rot",
    "gptq-w{b}-g{g}-outliers0.02",
)
_OTHERS = ("rtn-w8-channel", "smoothquant-w8-channel", "int8", "nf4", "nf4-dq", "nf4-rot", "fp4")


def loss_section(args: argparse.Namespace) -> None:
    """A row for each method, ΔQ in percent with half the width of its interval; results are kept and taken up again."""
    names = [method.format(b=bits, g=args.group) for bits in _BITS for method in _METHODS] + list(_OTHERS)
    corpus = _REFERENCE / "corpus"
    text = (
        {"text": args.text}
        if args.model
        else {
            "text": str(corpus / "validation.jsonl.xz"),
            "calibration": str(corpus / "train.jsonl.xz"),
        }
    )
    packing = {"packing": "documents", "bos": True} if args.documents else {}
    config = EvaluateConfig(
        model=args.model or str(_REFERENCE / "mini-pythia"),
        quant=",".join(names),
        tokens=args.tokens,
        seq_len=args.seq_len,
        device=args.device,
        **text,
        **packing,
    )
    results = {result.quantizer: result for result in evaluate_model(config)}
    facts, loss = next(iter(results.values())).facts, next(iter(results.values())).comparison.loss
    print(f"{facts['model']}: {loss.value:.4f} ± {loss.standard_error:.4f} nats on {facts['eval_tokens']:,} tokens")
    print("ΔQ in %, ± half of its 95 % interval, and bits a weight with scales\n")
    print("| method | " + " | ".join(f"{bits} bits" for bits in _BITS) + " |\n|---|" + "---|" * len(_BITS))
    for method in _METHODS:
        cells = [_cell(results[method.format(b=bits, g=args.group)]) for bits in _BITS]
        print(f"| `{method.format(b='N', g=args.group)}` | " + " | ".join(cells) + " |")
    print("\n| method | ΔQ |\n|---|---|")
    for name in _OTHERS:
        print(f"| `{name}` | {_cell(results[name])} |")
    print()


def _cell(result: Evaluated) -> str:
    found = result.comparison.relative
    digits = 3 if abs(found.value) < 0.01 else 2 if abs(found.value) < 0.1 else 1
    half = (found.high - found.low) / 2
    return f"{100 * found.value:.{digits}f} ± {100 * half:.{digits}f} ({result.report['bits_per_weight']:.2f})"
