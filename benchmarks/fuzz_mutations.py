"""Damage: bytes flipped, cut, swapped and multiplied; texts, JSON and YAML that say something else.

Every function takes a seeded `random.Random` and the bytes of a whole file, and gives the bytes of a damaged one.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from landscape.storage import digests

Damage = Callable[[random.Random, bytes], bytes]

HUGE = (0, 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1)
NUMBERS: tuple[Any, ...] = (0, -1, 1, 2.5, 1e308, 1e999, -1e999, float("nan"), 10**30, 2**31, 2**63, -(2**63), 10**400)
WORDS = (
    "",
    " ",
    "\0",
    "\ud800",
    "..",
    "../../x",
    "/etc/passwd",
    "A" * 5000,
    "Θ",
    "null",
    "1e999",
    "<b>",
    "%s{0}",
    "\n",
)
PLAIN: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], {"": None}, [1, "a"], {"a": {"b": []}})


def flip(rng: random.Random, content: bytes) -> bytes:
    """A few bits."""
    damaged = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8, 64)) if damaged else 0):
        damaged[_place(rng, content)] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def set_numbers(rng: random.Random, content: bytes) -> bytes:
    """Whole numbers of 1, 2, 4 or 8 bytes that are as large or as odd as can be."""
    damaged = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        size, at = rng.choice((1, 2, 4, 8)), _place(rng, content)
        number = rng.choice((*HUGE, rng.getrandbits(64), rng.randrange(len(content) + 1))) % (1 << 8 * size)
        damaged[at : at + size] = number.to_bytes(size, "little")
    return bytes(damaged)


def cut(rng: random.Random, content: bytes) -> bytes:
    """The beginning only, or the beginning and what is no part of it."""
    kept = content[: rng.choice((rng.randrange(len(content) + 1), rng.randrange(min(64, len(content)) + 1)))]
    return kept + rng.choice((b"", b"\0" * rng.randrange(1, 4096), rng.randbytes(rng.randrange(1, 256))))


def splice(rng: random.Random, content: bytes) -> bytes:
    """A piece put in the place of another, inserted, removed, or filled with one byte."""
    start, size = _place(rng, content), rng.choice((1, 8, 64, 512, 4096))
    piece, way, at = content[start : start + size], rng.randrange(5), _place(rng, content)
    if way == 0:
        return content[:at] + piece + content[at:]
    if way == 1:
        return content[:at] + content[at + size :]
    if way == 2:
        return content[:at] + rng.choice((b"\0", b"\xff", b"a")) * size + content[at + size :]
    if way == 3:  # two pieces change places
        low, high = sorted((start, at))
        size = min(size, high - low)
        a, b = content[low : low + size], content[high : high + size]
        return content[:low] + b + content[low + size : high] + a + content[high + size :]
    return content[:at] + piece + content[at + size :]


BYTES: tuple[Damage, ...] = (flip, set_numbers, cut, splice)


def any_of(*ways: Damage) -> Damage:
    """One of them."""
    return lambda rng, content: rng.choice(ways)(rng, content)


def _place(rng: random.Random, content: bytes) -> int:
    """Anywhere, but every other time among the first bytes or beside a signature of HDF5, where the structure is."""
    if not content:
        return 0
    if rng.random() < 0.5:
        marks = [found.start() for found in re.finditer(rb"TREE|HEAP|SNOD|GCOL|OHDR|PAR1|\x89HDF", content)]
        return min(rng.choice((0, *marks, *marks)) + rng.randrange(600), len(content) - 1)
    return rng.randrange(len(content))


def text(rng: random.Random, content: bytes) -> bytes:
    """Words and lines of a text: other numbers, other signs, doubled, removed, moved."""
    words = re.split(r"(\W)", content.decode("utf-8", "replace"))
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(words))
        way = rng.randrange(4)
        if way == 0:
            words[at] = str(rng.choice((*NUMBERS[:-1], *WORDS, "{", "}", "[", "]", ":", ",", "- ", '"', "'", "\t")))
        elif way == 1:
            words.insert(at, words[rng.randrange(len(words))])
        elif way == 2:
            del words[at : at + rng.choice((1, 2, 10))]
            words = words or [""]
        else:
            other = rng.randrange(len(words))
            words[at], words[other] = words[other], words[at]
    return "".join(words).encode("utf-8", "surrogatepass")


def json_values(rng: random.Random, content: bytes) -> bytes:
    """Values of the wrong type, keys that are missing, doubled or new, nesting without end."""
    try:
        tree = json.loads(content)
    except ValueError:
        return flip(rng, content)
    return changed_json(rng, tree).encode("utf-8", "surrogatepass")


def json_numbers(rng: random.Random, content: bytes) -> bytes:
    """An object whose numbers are others."""
    tree = json.loads(content)
    names = [name for name, value in tree.items() if isinstance(value, int | float)]
    for name in rng.sample(names, rng.choice((1, 1, 2))):
        tree[name] = rng.choice((0, -1, 1, 2, 3, 1000, 10**5, 10**7, 2**31, 2**40, 2**63, 1e30, True, None))
    return json.dumps(tree).encode()


def changed_json(rng: random.Random, tree: Any) -> str:
    """`tree` with something changed in it, as text."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        tree = _changed(rng, tree)
    if isinstance(tree, dict) and digests.DIGEST in tree and rng.random() < 0.8:  # as one would who means harm
        with contextlib.suppress(ValueError, TypeError):
            tree = digests.with_digest(tree)
    written = json.dumps(tree, ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.03:
        deep = rng.choice((50, 900, 100_000))
        written = written.replace("1", "[" * deep + "]" * rng.choice((0, deep)), 1)
    if rng.random() < 0.05 and written.startswith("{") and len(written) > 2:  # a key twice
        written = written[:-1] + "," + written[1:]
    return written


def _changed(rng: random.Random, tree: Any) -> Any:
    """`tree` with one value changed somewhere in it."""
    if isinstance(tree, dict | list) and tree and rng.random() < 0.9:
        keys = list(tree) if isinstance(tree, dict) else range(len(tree))
        key = rng.choice(list(keys))
        changed: Any = tree.copy()
        way = rng.random()
        if way < 0.12:
            del changed[key]
        elif way < 0.16 and isinstance(changed, dict):
            changed[rng.choice((*WORDS, "extra"))] = changed[key]
        elif way < 0.18 and isinstance(changed, list):
            changed *= rng.choice((0, 2, 50))
        else:
            changed[key] = _changed(rng, tree[key])
        return changed
    return rng.choice((rng.choice(NUMBERS), rng.choice(WORDS), rng.choice(PLAIN), _near(rng, tree)))


def _near(rng: random.Random, value: Any) -> Any:
    """Something of the same type."""
    if isinstance(value, str):
        return rng.choice((value[1:], value * 2, value.upper(), value + "\0"))
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return rng.choice((-value, value + 1, value * 1000, value // 2))
    return [value]


def json_lines(rng: random.Random, content: bytes) -> bytes:
    """One line of JSON changed."""
    lines = content.splitlines() or [b"{}"]
    at = rng.randrange(len(lines))
    lines[at] = json_values(rng, lines[at])
    return b"\n".join(lines) + b"\n"


_YAML = (
    "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
    "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n"
    "g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: &h [*g,*g,*g,*g,*g,*g,*g,*g,*g]\nkeep: *h\n",
    "keep: &k [*k]\n",
    "model: &m {type: gpt_neox, x: *m}\n",
    "extends: .\n",
    "extends: ../../../../etc/passwd\n",
    "extends: recipe.yaml\n",
    "text: !!python/object/apply:os.system ['true']\n",
    "seed: !!binary aGVsbG8=\n",
    "seed: 2001-12-14t21:59:43.10-05:00\n",
    "seed: 0x7fffffffffffffffffffffffff\n",
    "steps: 190:20:30\n",
    "steps: .inf\n",
    "keep: " + "[" * 2000 + "]" * 2000 + "\n",
    "? [a, b]\n: c\n",
    "<<: *m\n",
    "a: &a {x: 1}\n" + "".join(f"{y}: &{y} {{<<: [{', '.join([f'*{x}'] * 9)}]}}\n" for x, y in pairwise("abcdefghi")),
    "extends: /dev/zero\n",
    "<<: [{steps: 3}, {seed: 4}]\n",
    "keep: !!set {1, 2}\n",
    "every: 1e9999\n",
    "--- \n--- \n",
    "%YAML 9.9\n---\n",
)


def yaml_lines(rng: random.Random, content: bytes) -> bytes:
    """Lines of the kind that YAML makes much of, put in or in the place of another."""
    lines = content.decode().splitlines(keepends=True)
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(lines) + 1)
        lines[at : at + rng.randrange(2)] = [rng.choice(_YAML)]
    return "".join(lines).encode()
