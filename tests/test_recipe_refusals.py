"""One line for all that cannot be a recipe."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from landscape.training.recipe import read
from recipes import LINES, MINIMAL, refused, written


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        ("stepps: 3", ["recipe.yaml: no field stepps; the nearest is steps"]),
        ("batchsize: 3", ["no field batchsize; the nearest is batch_size"]),
        ("3: 4", ["no field 3"]),
        ("steps: many", ["steps=many; expected a whole number ≥ 1"]),
        ("steps: 1.5", ["steps=1.5; expected a whole number ≥ 1"]),
        ("steps: 0", ["steps=0; expected a whole number ≥ 1"]),
        ("steps: true", ["steps=True; expected a whole number"]),
        ("steps: null", ["steps=None; expected a whole number"]),
        ("steps: .nan", ["steps=nan; expected a whole number"]),
        ("batch_size: 0", ["batch_size=0; expected a whole number ≥ 1"]),
        ("batch_size: [16]", ["batch_size=[16]; expected a whole number ≥ 1"]),
        ("batch_size: '16'", ["batch_size=16; expected a whole number ≥ 1"]),
        ("seq_len: 1", ["seq_len=1; expected a whole number ≥ 2"]),
        ("vocabulary: 256", ["vocabulary=256; expected a whole number ≥ 257"]),
        ("tokens: -1", ["tokens=-1; expected a whole number"]),
        ("tokens: 1.5e6", ["tokens=1500000.0; expected a whole number"]),
        ("tokens: 0", ["tokens=0; expected a whole number"]),
        ("seed: 1.5", ["seed=1.5; expected a whole number"]),
        ("seed: true", ["seed=True; expected a whole number"]),
        ("seed: -1", ["seed=-1; expected a whole number"]),
        ("seed: 100000000000000000000", ["seed=100000000000000000000; expected a whole number"]),
        ("data_seed: -1", ["data_seed=-1; expected a whole number"]),
        ("data_seed: 100000000000000000000", ["data_seed=100000000000000000000; expected a whole number"]),
        ("keep: 3", ["keep=3; expected a list"]),
        ("keep: null", ["keep=None; expected a list"]),
        ("keep: last", ["keep=last; expected a list"]),
        ("keep: [a]", ["keep=", "expected steps, or shares below 1"]),
        ("keep: [true]", ["expected steps, or shares below 1"]),
        ("keep: [-1]", ["expected steps, or shares below 1"]),
        ("keep: [.nan]", ["expected steps, or shares below 1"]),
        ("keep: [0.5, 101]", ["101", "expected no step after the last, 100"]),
        ("keep_state: 3", ["keep_state=3; expected a list"]),
        ("keep_state: [[1]]", ["keep_state=", "expected steps, or shares below 1"]),
        ("keep_state: [200]", ["keep_state=", "expected no step after the last, 100"]),
        ("clip: -1", ["clip=-1; expected a number of at least 0"]),
        ("clip: true", ["clip=True; expected a number"]),
        ("clip: .nan", ["clip=nan; expected a number"]),
        ("clip: .inf", ["clip=inf; expected a number"]),
        ("sam: wide", ["sam=wide; expected a number"]),
        ("sam: -0.1", ["sam=-0.1; expected a number"]),
        ("every: -5", ["every=-5; expected a number"]),
        ("log_every: null", ["log_every=None; expected a number"]),
        (f"clip: {10**400}", ["clip=", "expected a number"]),
        ("precision: float16", ["precision=float16; expected one of float32, bfloat16"]),
        ("precision: {a: b}", ["precision=", "expected one of float32, bfloat16"]),
        ("order: 3", ["order=3; expected one of shuffled, drawn"]),
        ("stored: int8", ["stored=int8; expected one of float32, bfloat16, float16"]),
        ("counted_from: [fork]", ["counted_from=", "expected one of start, fork"]),
        ("model: gpt_neox", ["model=gpt_neox; expected a mapping with type or like"]),
        ("model: {hidden_size: 8}", ["model=", "expected a mapping with type or like"]),
        ("model: {type: gpt_neox, 3: 4}", ["model=", "expected"]),
        ("schedule: wsd", ["schedule=wsd; expected a mapping with kind"]),
        ("schedule: [kind]", ["schedule=['kind']; expected a mapping with kind"]),
        ("schedule: {warmup: 3}", ["schedule=", "expected a mapping with kind"]),
        ("schedule: {kind: triangle}", ["schedule triangle: expected one of constant, decay, wsd"]),
        ("schedule: {kind: [wsd]}", ["expected one of constant, decay, wsd"]),
        ("schedule: {kind: wsd, cooldwon: 3}", ["has no cooldwon; expected some of warmup, cooldown"]),
        ("schedule: {kind: wsd, warmup: -1}", ["warmup=-1; expected a share"]),
        ("schedule: {kind: wsd, 3: 4}", ["3", "expected"]),
        ("schedule: {kind: wsd, shape: [linear]}", ["shape=['linear']; expected one of linear"]),
        ("optimizer: adamw", ["optimizer=adamw; expected a mapping with kind"]),
        ("optimizer: {peak: 1}", ["optimizer=", "expected a mapping with kind"]),
        ("optimizer: {kind: adam}", ["optimizer adam: expected one of adamw, adamlh"]),
        ("optimizer: {kind: adamw, peak: .nan}", ["peak=nan; expected a number above 0"]),
        ("optimizer: {kind: adamw, momentum: 0.9}", ["has no momentum; expected some of peak"]),
        ("optimizer: {kind: [adamw]}", ["['adamw']", "expected one of adamw"]),
        ("text: null", ["text=None; expected"]),
        ("text: 3", ["text=3; expected"]),
        ("text: [a.txt, b.txt]", ["text=", "expected"]),
        ("tokenizer: 3", ["tokenizer=3; expected"]),
        ("separate: 'no'", ["separate=no; expected true or false"]),
        ("separate: 3", ["separate=3; expected true or false"]),
        ("attention: 3", ["attention=3; expected"]),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path: Path, lines: str, parts: list[str]):
    name = lines.split(":")[0]
    kept = "".join(line + "\n" for line in LINES.splitlines() if not line.startswith(f"{name}:"))
    refused(lambda: read(written(tmp_path, kept + lines)), *parts)


@pytest.mark.parametrize("lacking", ["model", "text", "steps"])
def test_a_field_without_default_is_asked_for(tmp_path: Path, lacking: str):
    content = yaml.safe_dump({name: value for name, value in MINIMAL.items() if name != lacking})
    refused(lambda: read(written(tmp_path, content)), f"recipe.yaml: lacks {lacking}")


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"[1, 2]", "expected FIELD: VALUE lines, found list"),
        (b"", "expected FIELD: VALUE lines, found NoneType"),
        (b"just words", "expected FIELD: VALUE lines, found str"),
        (b"model: {type: gpt_neox\nsteps: 3", "not YAML"),
        (b"\tmodel: 3", "not YAML"),
        (b"a: 1\n---\nb: 2\n", "not YAML"),
        ("text: über".encode("latin-1"), "not YAML"),
        (LINES.encode("utf-16"), "not YAML"),
        (b"text: !!python/object/apply:os.getcwd []", "not YAML"),
        (b"text: 2001-02-30", "not YAML"),
        (b"steps: !!int many", "not YAML"),
    ],
)
def test_a_file_that_is_no_recipe_is_one_line(tmp_path: Path, content: bytes, part: str):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(content)
    refused(lambda: read(path), "recipe.yaml", part)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path):
    refused(lambda: read(tmp_path / "none.yaml"), "none.yaml", "No such file", "expected a YAML file")
    refused(lambda: read(tmp_path), "cannot be read")
