"""What the experiments are measured with at each size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analyses.lab.experiments import planned
from analyses.lab.plan import Plan
from landscape.config import EvaluateConfig
from landscape.training import recipe
from landscape.training.recipe import Recipe

HERE = Path(__file__).parent
_CORPUS = "data/reference/corpus"
_METHODS = (("gptq-w4", ""), ("gptq-w3", ""), ("rtn-w4", "-asym"))


@dataclass(frozen=True)
class Size:
    """What one size is measured with; its recipe lies in recipes/.

    Attributes:
        tokens: of the evaluation text.
        windows: of the calibration text.
        group: of the quantizers.
        peaks_until: where the runs of B end, as a share of the steps: their order shows early, and they cost the most.
    """

    name: str
    seeds: tuple[int, ...]
    text: str
    calibration: str
    tokens: int
    windows: int
    group: int = 128
    peaks_until: float = 1.0

    @property
    def quantizers(self) -> tuple[str, ...]:
        """GPTQ as in arXiv 2510.06213, and the probe of arXiv 2604.15167."""
        return tuple(f"{name}-g{self.group}{rest}" for name, rest in _METHODS)

    @property
    def recipe(self) -> Recipe:
        """The base recipe, which every experiment changes."""
        return recipe.read(HERE / "recipes" / f"{self.name}.yaml")

    def plan(self, letters: str) -> Plan:
        """The runs of these experiments at this size."""
        return planned(self.recipe, letters, self.seeds, self.peaks_until)

    def evaluation(self, model: str, out: Path) -> EvaluateConfig:
        """How a checkpoint is measured: always on the same windows."""
        return EvaluateConfig(
            model,
            quant=",".join(self.quantizers),
            text=self.text,
            calibration=self.calibration,
            tokens=self.tokens,
            calibration_windows=self.windows,
            seq_len=self.recipe.seq_len,
            batch_size=32,
            out=out,
        )


SIZES = {
    size.name: size
    for size in (
        Size("trial", (1,), f"{_CORPUS}/validation.jsonl.xz", f"{_CORPUS}/train.jsonl.xz", 1_024, 16, 32),
        Size("tiny", (1, 2), f"{_CORPUS}/validation.jsonl.xz", f"{_CORPUS}/train.jsonl.xz", 32_768, 128, 64, 0.5),
        Size("short", (1,), f"{_CORPUS}/validation.jsonl.xz", f"{_CORPUS}/train.jsonl.xz", 32_768, 128, 64, 0.5),
        Size("small", (1, 2), "refinedweb", "c4", 262_144, 256),
        Size("160m", (100,), "refinedweb", "c4", 600_000, 1024),
    )
}
