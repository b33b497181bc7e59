"""Jobs that look at the landscape: slice and sharpness."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from landscape.config.quantization import STREAMS
from landscape.config.text import DTYPES, MeasurementConfig, option
from landscape.errors import OptionError

ROUGH = ("auto", "bfloat16", "none")
PRODUCTS = ("reverse", "forward", "difference")
PLANES = ("checkpoints", "random", "pca", "eigenvectors", "gradient", "quantizers", "line")
WHOLE = ("gradient", "eigenvectors")  # planes that take products with the Hessian of a model in memory
RANDOM = "random"


@dataclass(frozen=True)
class SliceConfig(MeasurementConfig):
    """What to slice, on which text, how well.

    `device`, `out`, `overwrite`, `remote_code` and `stream` say how to run; every other field changes the numbers.

    Raises:
        OptionError: a number or a word that cannot be used.
    """

    plane: Literal["checkpoints", "random", "pca", "eigenvectors", "gradient", "quantizers", "line"] = option(
        "checkpoints",
        "What spans it from Θ_K: 'checkpoints' Θ_{K−1} and Θ̂_K; 'random' two seeded directions; 'pca' the principal "
        "components of the run's last checkpoints; 'eigenvectors' the two of --vectors; 'gradient' −∇L and Θ̂_K; "
        "'quantizers' the two of --quant; 'line' one direction, to Θ̂_K or --to.",
    )
    prev: str | None = option(
        None,
        "Θ_{K−1}: @revision in the same run, any other reference, or 'random' for a seeded, filter-normalized "
        "direction; a packed checkpoint of MODEL too (GPTQ, AWQ, GGUF, …). Default: the one before MODEL in its run.",
    )
    quant: str = option(
        "gptq-w3-g128",
        "Quantizer: gptq-w3-g128, rtn-w4-g64-asym, awq-w4-g128, hqq-w4-g64, smoothquant-w8-channel, int8, nf4, … "
        "(docs/quantizers.md); two with a comma for --plane quantizers.",
    )
    to: str | None = option(None, "The other end of --plane line: as --prev.")
    vectors: Path | None = option(
        None, "Directions of --plane eigenvectors: a file of 'landscape sharpness --vectors'."
    )
    checkpoints: int = option(8, "Checkpoints before MODEL that --plane pca looks at.")
    normalize: Literal["filter", "layer"] = option("filter", "What gets the norm it has in Θ, of a random direction.")
    grid: str | None = option(
        None, "Cells along α and β. Default: 101x101; with --dense 31x31, or 21x21 for a short context."
    )
    margin: float = option(0.5, "Room around the points, as a fraction of their spread.")
    reach: float | None = option(
        None,
        "Half the width where no points give it, as a share of ‖Θ‖. Default: 1 for random; for eigenvectors where the "
        "loss should have risen by 0.1 nats.",
    )
    bounds: str | None = option(
        None,
        "α_low,α_high,β_low,β_high instead of a margin (α_low,α_high for a line), so that several slices share axes.",
    )
    like: str | None = option(
        None, "The rectangle of another slice: its .h5 file, or several with commas for one that holds them all."
    )
    dense: bool = option(False, "Evaluate every cell instead of reconstructing the picture from a few places.")
    range_tolerance: float = option(1e-3, "Largest error of the picture, as a share of the range of its losses …")
    loss_tolerance: float = option(1e-4, "… and of the loss at Θ_K; the smaller one counts.")
    max_evaluations: int = option(
        1000,
        "About how many places are evaluated at most; where that is not enough, the picture states a larger error.",
    )
    dtype: str = option(
        "float32", "Forward pass in float32, bfloat16 or float16; weights, named points and check points stay float32."
    )
    stream: Literal["auto", "always", "never"] = option(
        "auto",
        "Leave Θ and the plane on the disk, in scratch space beside the result, and take one block at a time into "
        "memory, for many places at once. 'auto': where memory does not hold them. The numbers are the same.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "vectors", Path(self.vectors) if self.vectors else None)
        if not (math.isfinite(self.margin) and self.margin >= 0):
            raise OptionError(f"--margin {self.margin}: expected a fraction of at least 0, such as 0.5")
        for name in ("range_tolerance", "loss_tolerance", "reach"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                word = name.replace("_", "-")
                raise OptionError(f"--{word} {value}: expected a number above 0, such as 0.001")
        self._at_least("checkpoints", 2)
        self._at_least("max_evaluations", 50)
        self._one_of("dtype", DTYPES)
        self._one_of("plane", PLANES)
        self._one_of("normalize", ("filter", "layer"))
        self._one_of("stream", STREAMS)
        if self.stream == "always" and self.plane in WHOLE:
            raise OptionError(f"--stream always with --plane {self.plane}: needs the whole model in memory")
        if self.bounds and self.like:
            raise OptionError("--bounds with --like: both give the rectangle; leave one out")
        for name, plane in (("prev", "checkpoints"), ("to", "line"), ("vectors", "eigenvectors")):
            if getattr(self, name) is not None and self.plane != plane:
                raise OptionError(f"--{name} with --plane {self.plane}: belongs to --plane {plane}")
        if self.plane == "eigenvectors" and self.vectors is None:
            raise OptionError(
                "--plane eigenvectors: needs --vectors FILE, as 'landscape sharpness --vectors' writes it"
            )
        if len(self.quant.split(",")) != (2 if self.plane == "quantizers" else 1):
            raise OptionError(
                f"--quant {self.quant} with --plane {self.plane}: expected two names with a comma for --plane "
                "quantizers, one for any other"
            )


@dataclass(frozen=True)
class SharpnessConfig(MeasurementConfig):
    """Which curvature to measure, how well, on which text.

    `device`, `out`, `overwrite`, `remote_code` and `checkpointing` say how to run; every other field changes the
    numbers.

    Raises:
        OptionError: a number or a word that cannot be used.
    """

    top: int = option(1, "Largest eigenvalues wanted.")
    bottom: int = option(1, "Smallest (most negative) eigenvalues wanted; 0 for none.")
    rough: Literal["auto", "bfloat16", "none"] = option(
        "auto",
        "Where the top alone is wanted (--bottom 0 --density-steps 0): look in bfloat16 first, confirm in float32. "
        "'auto': where a timing says that it is faster.",
    )
    tolerance: float = option(0.01, "An eigenvalue is taken when its residual is below this share of the largest.")
    max_products: int = option(100, "Hessian products at most, for each end of the spectrum.")
    trace_error: float = option(0.02, "Relative standard error at which the trace is good enough.")
    max_probes: int = option(200, "Probes of the trace at most.")
    layers: bool = option(False, "The trace of every tensor too, from products instead of losses.")
    vectors: bool = option(False, "Keep the eigenvectors too, as NAME.top.safetensors and NAME.bottom.safetensors.")
    start: Path | None = option(
        None, "Begin at the eigenvectors in this file: those of the checkpoint before save products."
    )
    density_steps: int = option(24, "Lanczos steps per probe of the spectral density; 0 for no density.")
    density_probes: int = option(4, "Probes of the spectral density.")
    quant: str | None = option(None, "Also the quadratic model along Θ̂ − Θ of this quantizer, such as gptq-w3-g128.")
    adam: bool = option(
        False, "Curvature as Adam sees it, P^{−1/2} H P^{−1/2}, with P estimated from the gradients of the batches."
    )
    product: Literal["reverse", "forward", "difference"] = option(
        "reverse", "Exact products in reverse mode (fast) or forward mode, or differences of gradients."
    )
    checkpointing: bool = option(
        False,
        "Recompute the activations of every block instead of holding them: a fraction of the memory, twice the time.",
    )
    stream: Literal["always", "never"] = option(
        "never",
        "Leave Θ and all vectors on the disk, in scratch space beside the result, and take one block at a time into "
        "memory. Implies --product difference and --density-steps 0.",
    )
    shard: bool = option(
        False,
        "Under torchrun: spread Θ and all vectors over the ranks (FSDP2), which gather one block at a time. Implies "
        "--product difference and --density-steps 0.",
    )
    batch_size: int = option(2, "Windows per batch. Every batch has its own graph, and its own probes of the trace.")
    out: Path = option(Path("figures/sharpness"), "Directory, or the .h5 file itself; the figure goes beside it.")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "start", Path(self.start) if self.start else None)
        least = {"top": 1, "bottom": 0, "max_products": 1, "max_probes": 10, "density_steps": 0, "density_probes": 2}
        for name, number in least.items():
            self._at_least(name, number)
        for name in ("tolerance", "trace_error"):
            if not 0 < getattr(self, name) < 1:
                word = name.replace("_", "-")
                raise OptionError(f"--{word} {getattr(self, name)}: expected a fraction between 0 and 1")
        self._one_of("stream", STREAMS[1:])
        for name, is_so in (("stream always", self.stream == "always"), ("shard", self.shard)):
            if is_so:
                self._in_parts(name)
        self._one_of("product", PRODUCTS)
        self._one_of("rough", ROUGH)
        if self.checkpointing and self.product == "forward":
            raise OptionError("--checkpointing with --product forward: blocks are recomputed in reverse mode only")
        if self.adam and self.quant:
            raise OptionError("--adam with --quant: the quadratic model is that of the loss itself; leave one out")
        if self.layers and self.adam:
            raise OptionError("--adam with --layers: per-layer traces are those of the loss itself; leave one out")

    def _in_parts(self, way: str) -> None:
        """What is possible where memory does not hold Θ."""
        others = ("layers", "adam", "quant", "start", "checkpointing")
        for name in (*others, "vectors") if self.shard else others:
            if getattr(self, name):
                raise OptionError(f"--{way} with --{name}: needs the whole model in memory; leave one out")
        if self.shard and self.stream == "always":
            raise OptionError("--shard with --stream always: weights are on other ranks or on the disk; leave one out")
        object.__setattr__(self, "product", "difference")
        object.__setattr__(self, "density_steps", 0)
