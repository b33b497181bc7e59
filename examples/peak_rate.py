"""Two small training runs that differ in one number, the peak learning rate: which survives 3 bits, and is it flatter?

    python examples/peak_rate.py

The question of arXiv 2510.06213 in a minute and a half on two CPU cores: trains, quantizes, measures curvature, and
leaves pages to look at in figures/peak-rate. Two such runs prove nothing; `make lab` asks with seeds and error bars.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import transformers
import yaml

import landscape as ls

REFERENCE = Path(__file__).resolve().parent.parent / "data" / "reference"
OUT = Path("figures") / "peak-rate"
RECIPE = {
    "model": {
        "type": "gpt_neox",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 256,
    },
    "text": str(REFERENCE / "corpus" / "train.jsonl.xz"),
    "vocabulary": 512,
    "seq_len": 64,
    "batch_size": 16,
    "steps": 600,
    "schedule": {"kind": "wsd", "warmup": 0.05, "cooldown": 0.2},
    "optimizer": {"kind": "adamw", "peak": 1e-3, "weight_decay": 0.1},
    "every": 0.5,
}
MEASURED = {"text": str(REFERENCE / "corpus" / "validation.jsonl.xz"), "seq_len": 64, "tokens": 8192}


def main() -> None:
    """Train, measure and draw both."""
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        recipe = Path(folder) / "recipe.yaml"
        recipe.write_text(yaml.safe_dump(RECIPE))
        print(f"{'peak':>8}{'loss':>9}{'ΔQ at 3 bits':>16}{'λ_max':>16}{'tr H':>16}")
        for peak in (1e-3, 1e-2):
            run = Path(folder) / f"peak-{peak:g}"
            config = ls.TrainConfig(
                str(recipe), [f"optimizer.peak={peak}"], out=run, data=Path(folder) / "tokens", device="cpu"
            )
            ls.train_model(config)
            (found,) = ls.evaluate_model(
                ls.EvaluateConfig(str(run), quant="rtn-w3-g64", out=OUT / "evaluate", **MEASURED)
            )
            curved = ls.measure_sharpness(
                ls.SharpnessConfig(str(run), bottom=0, density_steps=0, out=OUT / "sharpness", **MEASURED)
            ).stored.sections
            page = ls.render_slice(ls.SliceConfig(str(run), quant="rtn-w3-g64", out=OUT / "slices", **MEASURED)).page
            top, trace, change = curved["eigenvalues/top"], curved["trace"], found.comparison.relative
            print(
                f"{peak:8g}{found.comparison.loss.value:9.4f}"
                f"{change.value:9.2%} ± {change.standard_error:.2%}"
                f"{top['values'][0]:9.2f} ± {top['residuals'][0]:.2f}"
                f"{trace['value']:9.0f} ± {trace['standard_error']:.0f}   {page}"
            )


if __name__ == "__main__":
    main()
