"""The one grammar of quantizer names: a method, its words, and what differs in some layers.

rtn-w4-g128             round to nearest, 4 bits, groups of 128 inputs, symmetric
rtn-w4-g128-asym        the same with an integer zero point
rtn-w4-g32-minmax       levels from the smallest to the largest weight of a group, the offset a real number
rtn-w8-channel          one scale per output channel; -tensor: one for the whole matrix
rtn-w3-g64-clip         grids shrunk to where the squared error is smallest
rtn-w4-channel-rot      rounded in a randomized Hadamard basis of the inputs
rtn-w3-g64-outliers0.01 the 1 % of input channels whose rounding costs most stay as they are
gptq-w3-g128            GPTQ as in arXiv 2510.06213: activation order, damping 0.05
gptq-w3-g128-noact      columns in their own order
gptq-w3-g128-static     grids fixed before the columns are reordered
gptq-w3-g128-damp0.01   another damping
awq-w4-g128-asym-clip   AWQ: inputs scaled by their activations before rounding
smoothquant-w8-channel  SmoothQuant (weight half), migration strength -a0.5
hqq-w4-g64              half-quadratic: offsets fitted to an ℓ_0.7 error, no calibration
int8                    LLM.int8 (weight half), outlier inputs from -t6 on kept
nf4, fp4                bitsandbytes' 4-bit codes in blocks of -b64; -dq quantizes the scales too

gptq-w3-g128+down_proj=w8+layers.0=float
3 bits, but 8 in every down_proj, and block 0 as it is
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from landscape.errors import QuantizerError

BITS = range(2, 9)


@dataclass(frozen=True)
class Quantizer:
    """What a name says.

    Attributes:
        method: `rtn`, `gptq`, `awq`, `smoothquant`, `hqq`, `int8`, `nf4` or `fp4`.
        bits: b, so that a weight takes one of 2^b levels.
        group_size: inputs that share a scale; None for one scale per output channel.
        per_tensor: one scale for the whole matrix.
        levels: `symmetric` around zero; `asym` between the extremes of the group, zero among the levels;
            `minmax` between the extremes.
        clip: shrink each grid to where its error is smallest.
        rotate: round in a randomized Hadamard basis of the inputs.
        outliers: share of a layer's input channels that are kept as they are.
        act_order: GPTQ rounds the inputs of largest second moment first.
        static_groups: GPTQ fits the grids before it reorders, so that groups stay contiguous.
        damping: fraction of the mean diagonal that GPTQ adds to the diagonal of XᵀX.
        migration: SmoothQuant's α: how much of the activations' range goes over to the weights.
        threshold: LLM.int8 keeps the inputs whose activations reach it.
        block: consecutive weights that share a scale of a 4-bit code.
        double: the scales of those blocks are quantized to 8 bits.
        engine: who does it: `gptqmodel` or `llmcompressor`; nobody but us if empty.
        overrides: (pattern over layer names, words) of layers that differ; `float` for one that is not quantized.
    """

    method: str
    bits: int
    group_size: int | None = None
    per_tensor: bool = False
    levels: str = "symmetric"
    clip: bool = False
    rotate: bool = False
    outliers: float = 0.0
    act_order: bool = True
    static_groups: bool = False
    damping: float = 0.05
    migration: float = 0.5
    threshold: float = 6.0
    block: int = 64
    double: bool = False
    overrides: tuple[tuple[str, str], ...] = ()
    engine: str = ""

    def __str__(self) -> str:
        """The canonical name: parses back to an equal quantizer."""
        spoken = (word.say(self) for word in _METHODS[self.method])
        name = "-".join([self.method, *(said for said in spoken if said)])
        name = "+".join([name, *(f"{pattern}={words}" for pattern, words in self.overrides)])
        return f"{name}@{self.engine}" if self.engine else name

    def at(self, layer: str) -> Quantizer | None:
        """What holds for the layer of this name; None where it is not quantized. The last override that fits counts.

        A pattern fits a layer when it is, with its wildcards, some consecutive parts of the layer's name.

        >>> parse("rtn-w4-g128+down_proj=w8+layers.0=float").at("model.layers.3.mlp.down_proj").bits
        8
        >>> parse("rtn-w4-g128+down_proj=w8+layers.0=float").at("model.layers.0.mlp.down_proj")
        """
        words = next((words for pattern, words in reversed(self.overrides) if fits(pattern, layer)), None)
        if words == FLOAT:
            return None
        return replace(_spoken(self, words) if words else self, overrides=())

    @property
    def needs_calibration(self) -> bool:
        """Whether the method looks at activations."""
        return self.method in ("gptq", "awq", "smoothquant", "int8") or self.outliers > 0

    @property
    def weight_half(self) -> bool:
        """Whether the method would also quantize activations, of which Θ̂ knows nothing."""
        return self.method in ("smoothquant", "int8")


FLOAT = "float"
ENGINES = ("gptqmodel", "llmcompressor")


def fits(pattern: str, layer: str) -> bool:
    """Whether `pattern` is some consecutive dotted parts of the name `layer`."""
    parts, wanted = layer.split("."), pattern.split(".")
    starts = range(len(parts) - len(wanted) + 1)
    return any(all(map(fnmatchcase, parts[i : i + len(wanted)], wanted)) for i in starts)


_SHARE, _COUNT, _NUMBER = r"(0?\.\d+)", r"([1-9]\d*)", r"(\d+(?:\.\d+)?)"


@dataclass(frozen=True)
class _Word:
    """One place in a name: `pattern` with a group, the fields its match sets, and how they are said."""

    pattern: str
    sets: Callable[[str], dict[str, Any]]
    say: Callable[[Quantizer], str]
    needed: str = ""  # what is missing without it


def _flag(word: str, name: str, value: Any = True) -> _Word:
    return _Word(f"({word})", lambda _: {name: value}, lambda q: word if getattr(q, name) == value else "")


def _number(letter: str, name: str, default: float, number: str = _SHARE) -> _Word:
    kind = int if number == _COUNT else float
    return _Word(
        letter + number,
        lambda said: {name: kind(said)},
        lambda q: "" if getattr(q, name) == default else f"{letter}{getattr(q, name):g}",
    )


def _granularity(said: str) -> dict[str, Any]:
    size = int(said[1:]) if said.startswith("g") else None
    return {"group_size": size, "per_tensor": said == "tensor"}


def _say_granularity(q: Quantizer) -> str:
    return f"g{q.group_size}" if q.group_size else "tensor" if q.per_tensor else "channel"


_BITS = _Word(r"w([2-8])", lambda said: {"bits": int(said)}, lambda q: f"w{q.bits}", "w2 to w8")
_GROUP = _Word(r"(g[1-9]\d*|channel|tensor)", _granularity, _say_granularity, "g{size}, channel or tensor")
_LEVELS = _Word(
    "(sym|asym|minmax)",
    lambda said: {"levels": "symmetric" if said == "sym" else said},
    lambda q: "" if q.levels == "symmetric" else q.levels,
)
_CLIP, _ROT = _flag("clip", "clip"), _flag("rot", "rotate")
_OUTLIERS = _number("outliers", "outliers", 0.0)
_UNIFORM = (_BITS, _GROUP, _LEVELS, _CLIP)
_CODES = (_number("b", "block", 64, _COUNT), _flag("dq", "double"), _ROT, _OUTLIERS)
_METHODS: dict[str, tuple[_Word, ...]] = {
    "rtn": (*_UNIFORM, _ROT, _OUTLIERS),
    "gptq": (
        *_UNIFORM,
        _ROT,
        _OUTLIERS,
        _flag("noact", "act_order", False),
        _flag("static", "static_groups"),
        _number("damp", "damping", 0.05),
    ),
    "awq": (*_UNIFORM, _OUTLIERS),
    "smoothquant": (*_UNIFORM, _number("a", "migration", 0.5, r"(0|1|0?\.\d+)")),
    "hqq": (_BITS, _GROUP, _ROT, _OUTLIERS),
    "int8": (_number("t", "threshold", 6.0, _NUMBER),),
    "nf4": _CODES,
    "fp4": _CODES,
}
_FIXED_BITS = {"int8": 8, "nf4": 4, "fp4": 4}
GRAMMAR = (
    "(rtn|gptq|awq|smoothquant)-w{2..8}-(g{size}|channel|tensor)[-asym|-minmax][-clip], hqq-w{2..8}-(g{size}|channel), "
    "int8, nf4 or fp4, with more words in docs/quantizers.md; for example rtn-w4-g128-asym, gptq-w3-g128, nf4"
)


def parse(name: str) -> Quantizer:
    """The quantizer called `name`.

    >>> parse("gptq-w3-g128").damping
    0.05
    >>> str(parse("rtn-w4-g32-asym+down_proj=w8"))
    'rtn-w4-g32-asym+down_proj=w8'

    Raises:
        QuantizerError: not in the grammar; the message lists it.
    """
    ours, at, engine = name.partition("@")
    if at and engine not in ENGINES:
        raise QuantizerError(f"quantizer {name}: unknown engine {engine!r}; expected @{' or @'.join(ENGINES)}")
    spoken, *rest = ours.split("+")
    method, *words = spoken.split("-")
    if method not in _METHODS:
        near = difflib.get_close_matches(method, _METHODS, n=1)
        hint = f", did you mean {near[0]}?" if near else ";"
        raise QuantizerError(f"quantizer {name}: unknown method {method!r}{hint} expected {GRAMMAR}")
    base = Quantizer(method, _FIXED_BITS.get(method, 0))
    found = _take(name, base, words, complete=True)
    overrides = []
    for override in rest:
        pattern, equals, words_there = override.partition("=")
        if not (pattern and equals and words_there):
            raise QuantizerError(f"quantizer {name}: {override!r} is no +PATTERN=words, such as +down_proj=w8")
        if words_there != FLOAT:
            _spoken(found, words_there, name)
        overrides.append((pattern, words_there))
    return replace(found, overrides=tuple(overrides), engine=engine)


def _spoken(quantizer: Quantizer, words: str, name: str = "") -> Quantizer:
    return _take(name, quantizer, words.split("-"), complete=False)


def _take(name: str, quantizer: Quantizer, words: list[str], complete: bool) -> Quantizer:
    """`quantizer` with what `words` say, in any order, each at most once."""
    known = list(_METHODS[quantizer.method])
    changes: dict[str, Any] = {}
    for said in words:
        word = next((word for word in known if re.fullmatch(word.pattern, said)), None)
        if word is None:
            raise QuantizerError(f"quantizer {name}: {said!r} does not fit {quantizer.method}; expected {GRAMMAR}")
        match = re.fullmatch(word.pattern, said)
        assert match is not None
        changes |= word.sets(match[1])
        known.remove(word)
    missing = [word.needed for word in known if word.needed]
    if complete and missing:
        raise QuantizerError(f"quantizer {name}: expected {missing[0]}, which it does not say; expected {GRAMMAR}")
    return replace(quantizer, **changes)
