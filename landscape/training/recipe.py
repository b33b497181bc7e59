"""A recipe: everything that decides which weights a training run leaves, as one dataclass and one YAML file.

    model:     {type: gpt_neox, hidden_size: 128, num_hidden_layers: 3, num_attention_heads: 2}
    text:      corpus/train.jsonl.xz
    steps:     4000
    schedule:  {kind: wsd, cooldown: 0.2}
    optimizer: {kind: adamw, peak: 3e-3}

A field that is left out has its default. Lengths in steps (every, keep, warmup, cooldown, …) are shares of the run
below one and steps from one on, so that a recipe keeps its proportions when `steps` changes. How a run is computed
(device, micro-batches, compilation, ranks) is not in here: it changes the numbers by rounding only.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from landscape.errors import OptionError
from landscape.training import optimizers, schedules
from landscape.training.schedules import Schedule

PRECISIONS = ("float32", "bfloat16")
STORED = ("float32", "bfloat16", "float16")
_LONGEST, _MOST = 1 << 20, 10_000  # bytes of a recipe, values in it
ORDERS = ("shuffled", "drawn")
COUNTS = ("start", "fork")


@dataclass(frozen=True)
class Recipe:
    """What to train, on what, how.

    Attributes:
        model: a configuration of transformers: `type` and its fields, or `like` (a model reference) and fields to
            change. Weights begin at random in either case.
        text: as everywhere: a file, a directory, a data set's id.
        tokenizer: model reference; None for a byte-pair tokenizer of `vocabulary` tokens trained on the text.
        tokens: of the text to use at most; None for all.
        separate: put the end-of-text token after each document.
        seq_len: tokens per window.
        batch_size: windows per update, over all ranks and micro-batches.
        steps: updates in all, a fork's counted from the start of the run it comes from.
        schedule: `kind` and what the function of that name in `landscape.training.schedules` takes.
        counted_from: whether the schedule spans the whole run (start) or what a fork adds to it (fork).
        optimizer: `kind` and the settings of `landscape.training.optimizers`, among them `peak`, the peak rate.
        clip: largest norm of a gradient; 0 for no bound.
        sam: radius ρ of sharpness-aware minimization (arXiv 2010.01412); 0 for none.
        precision: of the forward pass, by autocast; weights and optimizer stay float32.
        attention: transformers' name of the kernel.
        order: shuffled: an epoch takes every window once, in an order of its own; drawn: windows begin anywhere.
        seed: of the initial weights and, without `data_seed`, of the order of the data.
        data_seed: of the order of the data alone.
        every: steps from one checkpoint to the next; 0 for none between.
        keep: steps of further checkpoints; the last one is always kept.
        keep_state: steps whose checkpoints keep the optimizer's state too, so that a fork can begin there.
        log_every: steps from one row of the log to the next.
        stored: how checkpoints hold their weights.
    """

    model: Mapping[str, Any]
    text: str
    steps: int
    schedule: Mapping[str, Any] = field(default_factory=lambda: {"kind": "wsd"})
    optimizer: Mapping[str, Any] = field(default_factory=lambda: {"kind": "adamw", "peak": 3e-3})
    tokenizer: str | None = None
    vocabulary: int = 1024
    tokens: int | None = None
    separate: bool = True
    seq_len: int = 256
    batch_size: int = 16
    counted_from: str = "start"
    clip: float = 1.0
    sam: float = 0.0
    precision: str = "float32"
    attention: str = "sdpa"
    order: str = "shuffled"
    seed: int = 0
    data_seed: int | None = None
    every: float = 0
    keep: Sequence[float] = ()
    keep_state: Sequence[float] = ()
    log_every: float = 0.0025
    stored: str = "float32"

    def __post_init__(self) -> None:
        for name in ("keep", "keep_state"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("model", "schedule", "optimizer"):
            value = getattr(self, name)
            if not isinstance(value, Mapping) or not any(key in value for key in _NEEDED[name]):
                raise OptionError(f"recipe: {name}={value}; expected a mapping with {' or '.join(_NEEDED[name])}")
            self._check(name, all(isinstance(key, str) for key in value), "words for the names of its fields")
        self._check("text", _word(self.text), "a file, a directory or a data set's id")
        self._check("tokenizer", self.tokenizer is None or _word(self.tokenizer), "a model reference, or null")
        kernel = _word(self.attention) and "/" not in self.attention  # others are programs from the Hub
        self._check("attention", kernel, "the name of a kernel of transformers, such as sdpa or eager")
        self._check("separate", isinstance(self.separate, bool), "true or false")
        for name, least in (("steps", 1), ("batch_size", 1), ("seq_len", 2), ("vocabulary", 257)):
            self._check(name, _whole(getattr(self, name)) and getattr(self, name) >= least, f"a whole number ≥ {least}")
        some = self.tokens is None or (_whole(self.tokens) and self.tokens >= 1)
        self._check("tokens", some, "a whole number ≥ 1, or null")
        self._check("seed", _seed(self.seed), "a whole number from 0 to below 2⁶³")
        own = self.data_seed is None or _seed(self.data_seed)
        self._check("data_seed", own, "a whole number from 0 to below 2⁶³, or null")
        for name in ("clip", "sam", "every", "log_every"):
            self._check(name, _number(getattr(self, name)) and getattr(self, name) >= 0, "a number of at least 0")
        for name, known in _WORDS.items():
            self._check(name, getattr(self, name) in known, f"one of {', '.join(known)}")
        for name in ("keep", "keep_state"):
            self._check(name, all(_number(at) and at >= 0 for at in getattr(self, name)), "steps, or shares below 1")
            for step in self._steps(getattr(self, name)):
                self._check(name, step <= self.steps, f"no step after the last, {self.steps}")
        self.rate()
        optimizers.check(self.optimizer)

    def rate(self) -> Schedule:
        """The schedule as a function of the step.

        Raises:
            OptionError: its kind or a setting is not known, or cannot be.
        """
        settings = dict(self.schedule)
        return schedules.make(str(settings.pop("kind")), **settings)

    @property
    def kept(self) -> list[int]:
        """Steps after which a checkpoint is written, in order; 0 is before the first update."""
        every = schedules.updates(self.every, self.steps)
        regular = range(every, self.steps + 1, every) if every else ()
        return sorted({*regular, *self._steps(self.keep), *self.kept_states, self.steps})

    @property
    def kept_states(self) -> list[int]:
        """Steps whose checkpoints keep the optimizer's state."""
        return self._steps(self.keep_state)

    @property
    def logged(self) -> int:
        """Steps from one row of the log to the next."""
        return max(1, schedules.updates(self.log_every, self.steps))

    @property
    def fingerprint(self) -> str:
        """SHA-256 over all fields but `text`, whose content has a fingerprint of its own."""
        own = {name: _canonical(value) for name, value in asdict(self).items() if name != "text"}
        return hashlib.sha256(json.dumps(own, sort_keys=True, default=str).encode()).hexdigest()

    def changed(self, changes: Sequence[str]) -> Recipe:
        """With fields replaced as on a command line: `seed=2`, `optimizer.peak=1e-3`, values in YAML.

        A new `kind`, `type` or `like` begins without the settings of the old one, but for the peak rate; whole mappings
        and then these are therefore set first.

        Raises:
            OptionError: not of this form, or no such field.
        """
        content = to_dict(self)
        for change in sorted(changes, key=_rank):
            path, equals, text = change.partition("=")
            if not equals or not path:
                raise OptionError(f"{change}: expected FIELD=VALUE, such as seed=2 or optimizer.peak=1e-3")
            *outer, last = path.split(".")
            place = content
            for name in outer:
                if not isinstance(place.get(name), dict):
                    raise OptionError(f"{change}: {name} has no fields; expected FIELD=VALUE")
                place = place[name]
            value = _parse(text, change)
            if outer and last in _TAGS and value != place.get(last):
                kept = {name: place[name] for name in ("peak",) if name in place}
                place.clear()
                place.update(kept)
            place[last] = value
        return from_dict(content, "changes")

    def _steps(self, lengths: Sequence[float]) -> list[int]:
        return sorted({schedules.updates(length, self.steps) for length in lengths})

    def _check(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            raise OptionError(f"recipe: {name}={getattr(self, name)}; expected {expected}")


_TAGS = ("kind", "type", "like")  # what the other fields of a mapping belong to
_NEEDED = {"model": ("type", "like"), "schedule": ("kind",), "optimizer": ("kind",)}
_WORDS = {"precision": PRECISIONS, "order": ORDERS, "stored": STORED, "counted_from": COUNTS}


def read(path: Path) -> Recipe:
    """The recipe in a YAML file; `extends: FILE` begins with another one, beside it.

    Raises:
        OptionError: no such file, not YAML, or not a recipe.
    """
    content = _content(path)
    try:
        return from_dict(content, path.name)
    except OptionError as error:
        said = str(error).removeprefix(f"recipe {path.name}: ").removeprefix("recipe: ")
        raise OptionError(f"recipe {path.name}: {said}") from error


def from_dict(content: Mapping[str, Any], name: str) -> Recipe:
    """The recipe that has these fields.

    Raises:
        OptionError: a field is missing or unknown, or has a value that cannot be.
    """
    known = [each.name for each in fields(Recipe)]
    for key in content:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.0)
            raise OptionError(f"recipe {name}: no field {key}; the nearest is {near[0]}")
    for key in ("model", "text", "steps"):
        if key not in content:
            raise OptionError(f"recipe {name}: lacks {key}")
    types = get_type_hints(Recipe)
    listed = {key for key in content if types[key] == Sequence[float]}
    for key in listed:
        if not isinstance(content[key], list | tuple):
            raise OptionError(f"recipe {name}: {key}={content[key]}; expected a list, such as [0.5, 4000]")
    return Recipe(**content)


def to_dict(recipe: Recipe) -> dict[str, Any]:
    """Plain lists, mappings, numbers and words, as YAML has them."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(recipe).items()}


def to_yaml(recipe: Recipe) -> str:
    """The file that `read` reads, every field named."""
    return str(yaml.dump(to_dict(recipe), Dumper=_Dumper, sort_keys=False, allow_unicode=True))


def _content(path: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    if path.resolve() in seen:
        raise OptionError(f"recipe {path.name}: extends itself")
    try:
        if path.exists() and not (path.is_file() and path.stat().st_size <= _LONGEST):  # a device has no end
            raise OptionError(f"recipe {path}: cannot be read (no file, or a long one); expected a YAML file")
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # a SafeLoader
        _check_size(content)
    except OSError as error:
        raise OptionError(f"recipe {path}: cannot be read ({error.strerror}); expected a YAML file") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # also of bytes, dates and numbers
        raise OptionError(f"recipe {path.name}: not YAML ({error})") from error
    if not isinstance(content, dict):
        raise OptionError(f"recipe {path.name}: expected FIELD: VALUE lines, found {type(content).__name__}")
    if not (base := content.pop("extends", None)):
        return content
    if not (isinstance(base, str) and _is_file(path.parent / base)):
        raise OptionError(f"recipe {path.name}: extends={base!r}; expected the name of a recipe beside it")
    return _merged(_content(path.parent / base, (*seen, path.resolve())), content)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long
        return False


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Mappings field by field, unless they are of another kind."""
    merged = dict(base)
    for key, value in own.items():
        old = base.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            alike = all(value.get(tag, old.get(tag)) == old.get(tag) for tag in _TAGS)
            merged[key] = {**old, **value} if alike else value
        else:
            merged[key] = value
    return merged


def _rank(change: str) -> int:
    """Whole fields first, then what a mapping is, then its other fields."""
    path = change.partition("=")[0]
    return 0 if "." not in path else 1 if path.rpartition(".")[2] in _TAGS else 2


def _parse(text: str, change: str) -> Any:
    try:
        value = yaml.load(text, Loader=_Loader)
        _check_size(value)
        return value
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # also of dates and numbers
        raise OptionError(f"{change}: the value is not YAML") from error


def _check_size(content: Any) -> None:
    """Raise `ValueError` where aliases make a short text endless."""
    left, parts = _MOST, [content]
    while parts:
        part, left = parts.pop(), left - 1
        if not left:
            raise ValueError(f"more than {_MOST} values")
        if isinstance(part, dict):
            parts += part.values()
        elif isinstance(part, list | tuple | set):
            parts += part


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML 1.1 takes 3e-3 for a word; here it is a number."""

    def flatten_mapping(self, node: Any) -> None:
        """Refuse `<<`, which can make a short text endless while it is read."""
        if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
            raise yaml.constructor.ConstructorError(None, None, "<< is not read; use extends", node.start_mark)


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Puts quotes around a word that `_Loader` would take for a number."""


for _each in (_Loader, _Dumper):
    _each.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$", re.ASCII), list("-+.0123456789")
    )


def _canonical(value: Any) -> Any:
    """Equal numbers alike, whatever their type, and words for all names, which JSON sorts."""
    if isinstance(value, Mapping):
        return {str(name): _canonical(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _word(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _seed(value: Any) -> bool:
    return _whole(value) and 0 <= value < 1 << 63


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
