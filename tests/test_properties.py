"""What must hold of every parser, tried on texts made by hypothesis."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from landscape import texts
from landscape.errors import LandscapeError, ModelError, OptionError, QuantizerError, TextError
from landscape.models.checkpoint import step_of
from landscape.models.references import resolve
from landscape.models.shards import is_beside
from landscape.quantize.names import parse
from landscape.slices.axes import Bounds, around, evenly, parse_bounds, parse_grid, with_zero
from landscape.tokens import WindowReader
from landscape.training import recipe
from landscape.trajectories import Point, select, split
from landscape.trajectories.revisions import parse as parse_revision

few = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
some = settings(max_examples=100, deadline=None)
anything = st.text(max_size=40)
finite = st.floats(-1e12, 1e12)


def words(*known: str) -> st.SearchStrategy[str]:
    """Texts out of pieces of a grammar and a few that are none."""
    return st.lists(st.sampled_from([*known, "", " ", "x", "0", "-", "é", "9" * 30]), max_size=8).map("".join)


# quantizer names

_GRID = ["g1", "g32", "g128", "channel", "tensor"]
_WORDS = {
    "rtn": ["asym", "minmax", "clip", "rot", "outliers.01"],
    "gptq": ["asym", "minmax", "clip", "rot", "outliers.5", "noact", "static", "damp.01"],
    "awq": ["asym", "minmax", "clip", "outliers.25"],
    "smoothquant": ["asym", "minmax", "clip", "a.25", "a1"],
    "hqq": ["rot", "outliers.125"],
    "int8": ["t6", "t2.5"],
    "nf4": ["b128", "dq", "rot", "outliers.01"],
    "fp4": ["b32", "dq", "rot"],
}


@st.composite
def names(draw: st.DrawFn) -> str:
    """Quantizers of the grammar, in all of its words."""
    method = draw(st.sampled_from(sorted(_WORDS)))
    own = draw(st.lists(st.sampled_from(_WORDS[method]), unique=True))
    own = [word for word in own if word != "minmax" or "asym" not in own]  # one word for the levels
    own = [word for word in own if word != "a1" or "a.25" not in own]
    own = [word for word in own if word != "t2.5" or "t6" not in own]
    if method in ("rtn", "gptq", "awq", "smoothquant", "hqq"):
        own = [f"w{draw(st.integers(2, 8))}", draw(st.sampled_from(_GRID)), *own]
    name = "-".join([method, *draw(st.permutations(own))])
    over = draw(st.lists(st.sampled_from(["down_proj=float", "layers.0=float"]), max_size=2, unique=True))
    return "+".join([name, *over]) + draw(st.sampled_from(["", "@gptqmodel"]))


@some
@given(names())
def test_a_quantizers_name_says_all_of_it(name: str):
    quantizer = parse(name)
    assert parse(str(quantizer)) == quantizer and str(parse(str(quantizer))) == str(quantizer)


@some
@given(anything | words("rtn", "gptq", "nf4", "-w4", "-g128", "-asym", "+a=w8", "+*=float", "@gptqmodel", "-damp.1"))
def test_any_text_is_a_quantizer_or_refused(name: str):
    try:
        assert parse(str(parse(name))) == parse(name)
    except QuantizerError as error:
        assert "\n" not in str(error)


# references, revisions, selections

_RUN = [Point(f"run@step{step}", f"step{step}", "", step, None, None, "run") for step in (0, 1, 10, 100, 1000, 5000)]


@few
@given(words("a/b", "@", "step1", "main", "..", "/", "org/name", ".", "~", "\0", "a" * 300) | anything)
def test_any_text_is_a_reference_or_refused(reference: str):
    with pytest.raises(ModelError) as refused:
        resolve(reference)
    assert "\n" not in str(refused.value)


@some
@given(anything | words("step", "1", "000", "-", "tokens", "B", "stage1", "iter_", "main"))
def test_revisions_have_parts(name: str):
    found = parse_revision(name)
    assert found.name == name and found.step == step_of(name)
    assert found.tokens is None or found.tokens >= 0


@some
@given(words("every=", "log=", "last=", "apart=", "..", ":", ",", "2", "100", "step", "step10", "*", "["))
def test_a_selection_is_a_part_of_the_run_in_order_or_refused(selection: str):
    try:
        chosen = select(_RUN, selection)
    except LandscapeError as error:
        assert "\n" not in str(error)
    else:
        assert chosen and chosen == [point for point in _RUN if point in chosen]


@few
@given(st.integers(1, 9), st.sampled_from(["every", "log", "last", "apart"]))
def test_counted_selections_keep_their_promise(count: int, word: str):
    chosen = select(_RUN, f"{word}={count}")
    assert chosen[-1] == _RUN[-1]
    if word in ("log", "last"):
        assert len(chosen) <= count


@few
@given(anything, anything)
def test_a_trajectory_is_split_at_its_last_sign(model: str, selection: str):
    assume("@" not in selection and not Path(f"{model}@{selection}"[:50].replace("\0", "")).exists())
    try:
        assert split(f"{model}@{selection}") == (model, selection)
    except OptionError:
        assert not model or not selection


@some
@given(words("..", "/", "a", "\\", "\0", "model.safetensors", "\ud800"))
def test_only_names_of_files_beside_are_beside(name: str):
    with tempfile.TemporaryDirectory() as folder:
        if is_beside(Path(folder), name):
            assert (Path(folder) / name).resolve().parent == Path(folder).resolve()


# grids, rectangles, lines


@some
@given(words("x", "X", "2", "41", "-", "٣", "1e3") | anything, st.booleans())
def test_a_grid_has_two_sides_or_is_refused(text: str, is_line: bool):
    try:
        first, second = parse_grid(text, is_line)
        assert first >= 2 and (second == 1 if is_line else second >= 2)
    except OptionError as error:
        assert "\n" not in str(error)


@some
@given(words(",", "1", "-2.5", "1e3", "nan", "inf", "-1e999", "0") | anything, st.booleans())
def test_bounds_are_finite_and_in_order_or_refused(text: str, is_line: bool):
    try:
        found = parse_bounds(text, is_line)
    except OptionError as error:
        assert "\n" not in str(error)
    else:
        assert found.alpha[0] < found.alpha[1] and np.isfinite([*found.alpha, *found.beta]).all()


@some
@given(st.lists(st.tuples(finite, finite), min_size=2, max_size=5), st.floats(0, 2))
def test_a_rectangle_around_points_holds_them(points: list[tuple[float, float]], margin: float):
    spread = np.ptp(np.array(points), axis=0).max()
    assume(spread > 1e-6 * max(1.0, np.abs(points).max()))
    found, slack = around(points, margin), 1e-9 * np.abs(points).max()
    wide = Bounds(*((low - slack, high + slack) for low, high in (found.alpha, found.beta)))
    assert all(wide.hold(*point) for point in points)


@some
@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(2, 60))
def test_lines_cover_what_they_are_asked_to(low: float, width: float, n: int):
    high = low + width
    for line in (evenly(low, high, n), with_zero(low, high, n)):
        assert len(line) == n and (np.diff(line) > 0).all()
        slack = 1e-9 * max(abs(low), abs(high))
        assert line[0] <= low + slack and line[-1] >= high - slack
    if low < 0 < high and n >= 3:
        assert 0.0 in with_zero(low, high, n)


# recipes

_BASE = recipe.from_dict({"model": {"type": "gpt_neox"}, "text": "a.txt", "steps": 100}, "base")
_plain = st.none() | st.booleans() | st.integers() | st.floats() | anything
_value = st.recursive(
    _plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(anything, inner, max_size=3), max_leaves=6
)
_fields = st.sampled_from(
    ["model", "text", "steps", "schedule", "optimizer", "keep", "seed", "tokens", "every", "stored"]
)


@few
@given(st.integers(1, 10**6), st.integers(0, 2**63 - 1), st.floats(0, 1), st.lists(st.floats(0, 1), max_size=3))
def test_a_recipe_comes_back_out_of_its_file(steps: int, seed: int, clip: float, keep: list[float]):
    made = replace(_BASE, steps=steps, seed=seed, clip=clip, keep=keep)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recipe.yaml"
        path.write_text(recipe.to_yaml(made), encoding="utf-8")
        assert recipe.read(path) == made and recipe.read(path).fingerprint == made.fingerprint


@some
@given(st.dictionaries(_fields | anything, _value, max_size=4))
def test_any_yaml_is_a_recipe_or_refused(fields: dict[str, object]):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recipe.yaml"
        path.write_text(yaml.safe_dump({**recipe.to_dict(_BASE), **fields}), encoding="utf-8")
        try:
            found = recipe.read(path)
        except OptionError as error:
            assert "recipe.yaml" in str(error) and "\n" not in str(error)
        else:
            assert recipe.from_dict(recipe.to_dict(found), "again") == found


@some
@given(
    words("seed", "=", "2", "optimizer.", "peak", ".", "{", "&a", "*a", "<<", ": ", "[1e-3]", "kind", "steps")
    | anything
)
def test_any_change_is_made_or_refused(change: str):
    try:
        _BASE.changed([change])
    except LandscapeError as error:
        assert "\n" not in str(error)


# texts and windows


@few
@given(st.text(alphabet=":/.~ abc-_0", max_size=30))
def test_what_a_text_is_called_says_no_place(name: str):
    said = texts.display_name(name)
    assert said in (name, texts.ALIASES.get(name)) or "/" not in said


@some
@given(st.binary(max_size=200), st.sampled_from([".txt", ".jsonl", ".txt.gz", ".jsonl.xz", ".json"]))
def test_any_bytes_are_documents_or_refused(content: bytes, suffix: str):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"text{suffix}"
        path.write_bytes(content)
        try:
            assert all(isinstance(document, str) for document in texts.documents(str(path)))
        except TextError as error:
            assert "text" + suffix in str(error) and "\n" not in str(error)


class Letters:
    """A token a letter."""

    bos_token_id = 0

    def __call__(self, text: str, **_: object) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) for letter in text]}


@some
@given(st.lists(st.text("abcdefgh", max_size=30), max_size=6), st.integers(2, 9), st.booleans(), st.data())
def test_joined_windows_take_every_token_once_and_in_order(
    documents: list[str], size: int, bos: bool, data: st.DataObject
):
    reader = WindowReader(documents, Letters(), size, bos=bos)
    expected = [token for text in documents for token in [*([0] if bos else []), *map(ord, text)]]
    parts = data.draw(st.lists(st.integers(0, 3), max_size=4))
    taken = torch.cat([reader.take(n).ids.flatten() for n in [*parts, 10**6]]).tolist()
    assert taken == expected[: len(expected) // size * size]


@some
@given(st.lists(st.text("abcdefgh", max_size=30), max_size=6), st.integers(2, 9))
def test_windows_of_documents_are_their_beginnings(documents: list[str], size: int):
    windows = WindowReader(documents, Letters(), size, "documents").take(10**6)
    rows = [ids[:n].tolist() for ids, n in zip(windows.ids, windows.lengths.tolist(), strict=True)]
    assert rows == [[ord(letter) for letter in text[:size]] for text in documents if len(text) >= 2]
