"""Recipes: what is written is what is read, a base and its changes, and one line for all that cannot be."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import torch
import yaml

from landscape.errors import OptionError
from landscape.pretraining import PRESETS, find, presets
from landscape.training.recipe import Recipe, from_dict, read, to_dict, to_yaml
from landscape.training.schedules import updates

MINIMAL = {"model": {"type": "gpt_neox"}, "text": "a.txt", "steps": 100}
LINES = "model: {type: gpt_neox}\ntext: a.txt\nsteps: 100\n"
ALL = [each.name for each in fields(Recipe)]
TWINS = {name: name.rsplit("-", 1)[0] for name in presets() if name.endswith(("-tiny", "-small"))}


def made(**own: object) -> Recipe:
    return from_dict({**MINIMAL, **own}, "test")


def written(folder: Path, content: str, name: str = "recipe.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def refused(action, *parts: str) -> None:
    """`action` ends in one line that holds `parts`."""
    with pytest.raises(OptionError) as error:
        action()
    assert "\n" not in str(error.value)
    for part in parts:
        assert part in str(error.value)


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"clip": 0.5, "sam": 1e-2, "every": 0.05, "log_every": 7, "tokens": 10_000_000, "data_seed": 1996},
        {"keep": [0, 0.25, 4, 99.0], "keep_state": [0.5, 100]},
        {"optimizer": {"kind": "adamw", "peak": 3e-3, "eps": 1e-8, "betas": [0.9, 0.95], "fused": False}},
        {"optimizer": {"kind": "sgd", "peak": 1e20, "weight_decay": 1e-300, "nesterov": True}},
        {"schedule": {"kind": "wsd", "warmup": 1e-3, "cooldown": 20, "shape": "sqrt", "end": 0.1 + 0.2}},
        {"model": {"type": "llama", "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}, "layers": [1, 2]}},
        {"model": {"like": "EleutherAI/pythia-160m", "tie_word_embeddings": False, "head_dim": None}},
        {"text": "Bücher & more: λ.txt", "tokenizer": "yes", "attention": "eager"},
        {"text": "123", "tokenizer": "null"},
        {"separate": False, "order": "drawn", "stored": "float16", "precision": "bfloat16", "counted_from": "fork"},
    ],
)
def test_a_recipe_read_back_is_the_same(tmp_path: Path, own: dict[str, object]):
    recipe = made(**own)
    again = read(written(tmp_path, to_yaml(recipe)))
    assert again == recipe
    assert again.fingerprint == recipe.fingerprint
    assert list(yaml.safe_load(to_yaml(recipe))) == ALL
    for name, value in own.items():
        assert to_dict(again)[name] == value


def test_a_word_that_looks_like_a_number_is_read_back_as_a_word(tmp_path: Path):
    recipe = made(text="7e5", model={"like": "1e3"})
    assert read(written(tmp_path, to_yaml(recipe))) == recipe


def test_numbers_are_numbers_in_every_notation_and_words_are_words(tmp_path: Path):
    model = "{type: gpt_neox, a: 3e-3, b: 1E5, c: -2e+1, d: 1.5e-8, e: '3e-3', f: v1, g: 1e, h: sha256, i: inf, j: 12}"
    found = dict(read(written(tmp_path, f"model: {model}\ntext: b2\nsteps: 3\n")).model)
    assert found.pop("type") == "gpt_neox"
    assert found == {
        "a": 0.003,
        "b": 100_000.0,
        "c": -20.0,
        "d": 1.5e-8,
        "e": "3e-3",
        "f": "v1",
        "g": "1e",
        "h": "sha256",
        "i": "inf",
        "j": 12,
    }
    assert made().changed(["optimizer.peak=3e-4"]).optimizer["peak"] == 3e-4


def test_what_is_left_out_has_the_default(tmp_path: Path):
    assert read(written(tmp_path, LINES)) == Recipe({"type": "gpt_neox"}, "a.txt", 100)


class TestExtends:
    def test_fields_are_replaced_and_mappings_merged(self, tmp_path: Path):
        written(
            tmp_path,
            LINES + "keep: [1, 2]\ntokenizer: some\nschedule: {kind: wsd, warmup: 0.1, end: 0.2}\n"
            "optimizer: {kind: adamw, peak: 1e-3, eps: 1e-6}\n",
            "base.yaml",
        )
        own = "extends: base.yaml\nsteps: 50\nkeep: [3]\ntokenizer: null\nmodel: {hidden_size: 8}\n"
        own += "schedule: {kind: wsd, warmup: 5}\noptimizer: {peak: 2e-3}\n"
        found = read(written(tmp_path, own))
        assert found == made(
            steps=50,
            keep=[3],
            model={"type": "gpt_neox", "hidden_size": 8},
            schedule={"kind": "wsd", "warmup": 5, "end": 0.2},
            optimizer={"kind": "adamw", "peak": 2e-3, "eps": 1e-6},
        )

    @pytest.mark.parametrize(
        ("base", "own"),
        [
            ("schedule: {kind: wsd, cooldown: 0.1}", {"schedule": {"kind": "decay", "end": 0.0}}),
            ("optimizer: {kind: adamw, peak: 1, eps: 1e-6}", {"optimizer": {"kind": "sgd", "peak": 0.5}}),
            ("model: {like: some/model, hidden_size: 8}", {"model": {"like": "another/model"}}),
            ("model: {like: some/model, hidden_size: 8}", {"model": {"type": "llama"}}),
            ("model: {type: gpt_neox, hidden_size: 8}", {"model": {"like": "some/model"}}),
            ("model: {type: gpt_neox, hidden_size: 8}", {"model": {"type": "llama"}}),
        ],
    )
    def test_a_mapping_of_another_kind_replaces_the_old_one(self, tmp_path: Path, base: str, own: dict):
        written(tmp_path, "text: a.txt\nsteps: 100\nmodel: {type: gpt_neox}\n" + base, "base.yaml")
        found = read(written(tmp_path, yaml.safe_dump({"extends": "base.yaml", **own})))
        assert found == made(**own)

    def test_a_chain_over_folders_lies_beside_each_file(self, tmp_path: Path):
        written(tmp_path, LINES + "seed: 1\nclip: 0.5\nsam: 0.1\n", "a.yaml")
        written(tmp_path, "extends: ../a.yaml\nclip: 0.25\nsam: 0.2\n", "deep/b.yaml")
        assert read(written(tmp_path, "extends: b.yaml\nsam: 0.3\n", "deep/c.yaml")) == made(seed=1, clip=0.25, sam=0.3)

    def test_no_file_extends_itself(self, tmp_path: Path):
        refused(lambda: read(written(tmp_path, LINES + "extends: recipe.yaml")), "recipe.yaml: extends itself")
        written(tmp_path, "extends: sub/../b.yaml\n", "a.yaml")
        (tmp_path / "sub").mkdir()
        refused(lambda: read(written(tmp_path, "extends: a.yaml\n", "b.yaml")), "b.yaml: extends itself")

    @pytest.mark.parametrize("base", ["none.yaml", "[a]", "3", "."])
    def test_a_base_that_cannot_be_read_is_named(self, tmp_path: Path, base: str):
        refused(lambda: read(written(tmp_path, LINES + f"extends: {base}")), "cannot be read", "expected a YAML file")


class TestChanged:
    def test_fields_and_fields_of_fields(self):
        changes = ["seed=2", "optimizer.peak=1e-3", "model.rope={a: 1, b: [2, x]}", "model.rope.b=null", "text=a=b"]
        changes += ["keep=[0.5, 4]", "separate=no", "schedule={kind: constant}", "tokenizer=", "optimizer.eps= 1e-6"]
        assert made(tokenizer="some").changed(changes) == made(
            seed=2,
            optimizer={"kind": "adamw", "peak": 1e-3, "eps": 1e-6},
            model={"type": "gpt_neox", "rope": {"a": 1, "b": None}},
            text="a=b",
            keep=[0.5, 4],
            separate=False,
            schedule={"kind": "constant"},
        )

    def test_later_changes_win_and_the_recipe_stays(self):
        recipe = made()
        before = to_yaml(recipe)
        assert recipe.changed(["seed=2", "seed=3", "model.hidden_size=8"]).seed == 3
        assert to_yaml(recipe) == before
        assert recipe.changed([]) == recipe

    def test_a_new_kind_drops_the_old_settings_but_the_peak(self):
        recipe = made(optimizer={"kind": "adamw", "peak": 6e-4, "eps": 1e-6}, schedule={"kind": "wsd", "cooldown": 0.1})
        assert recipe.changed(["optimizer.kind=sgd"]).optimizer == {"kind": "sgd", "peak": 6e-4}
        assert recipe.changed(["schedule.kind=sgdr"]).schedule == {"kind": "sgdr"}
        later = recipe.changed(["optimizer.kind=sgd", "optimizer.momentum=0.5", "optimizer.peak=0.1"])
        assert later.optimizer == {"kind": "sgd", "peak": 0.1, "momentum": 0.5}

    def test_a_new_kind_keeps_what_is_changed_beside_it_in_any_order(self):
        recipe = made(schedule={"kind": "wsd", "cooldown": 0.1, "warmup": 1})
        changes = ["schedule.warmup=3", "schedule.kind=constant"]
        assert recipe.changed(changes) == recipe.changed(changes[::-1])
        assert recipe.changed(changes).schedule == {"kind": "constant", "warmup": 3}
        refused(lambda: recipe.changed(["schedule.cooldown=3", "schedule.kind=constant"]), "has no cooldown")

    def test_the_same_kind_drops_nothing(self):
        recipe = made(optimizer={"kind": "adamw", "peak": 6e-4, "eps": 1e-6})
        assert recipe.changed(["optimizer.kind=adamw"]) == recipe

    @pytest.mark.parametrize(
        ("change", "parts"),
        [
            ("seed", ["seed: expected FIELD=VALUE", "optimizer.peak=1e-3"]),
            ("=3", ["=3: expected FIELD=VALUE"]),
            ("sead=3", ["no field sead; the nearest is seed"]),
            ("seed=", ["seed=None; expected a whole number"]),
            ("optimizer.peak=abc", ["peak=abc; expected a number above 0"]),
            ("optimizer.peek=1", ["has no peek; expected some of peak"]),
            ("optimizer.peak.x=3", ["optimizer.peak.x=3: peak has no fields"]),
            ("keep.0=3", ["keep.0=3: keep has no fields"]),
            ("nothing.x=3", ["nothing has no fields"]),
            ("keep=3", ["keep=3; expected a list"]),
            ("seed=[1", ["seed=[1: the value is not YAML"]),
            ("seed=a: b: c", ["the value is not YAML"]),
            ("seed=!!python/object:os.system {}", ["the value is not YAML"]),
            ("extends=a.yaml", ["no field extends"]),
            ("optimizer.kind=adam", ["optimizer adam: expected one of adamw, adamlh"]),
            ("seed=!!int abc", ["seed=!!int abc: the value is not YAML"]),
            ("text=2001-02-30", ["text=2001-02-30: the value is not YAML"]),
            ("optimizer.kind=[sgd]", ["['sgd']", "expected one of adamw"]),
        ],
    )
    def test_what_cannot_be_is_one_line(self, change: str, parts: list[str]):
        refused(lambda: made().changed([change]), *parts)


class TestLengths:
    def test_shares_below_one_and_steps_from_one_on(self):
        recipe = made(steps=200, every=0.25, keep=[0.01, 7, 0], keep_state=[0.5, 1], log_every=0.1)
        assert recipe.kept == [0, 1, 2, 7, 50, 100, 150, 200]
        assert recipe.kept_states == [1, 100]
        assert recipe.logged == 20
        again = recipe.changed(["steps=400"])
        assert again.kept == [0, 1, 4, 7, 100, 200, 300, 400]
        assert (again.kept_states, again.logged) == ([1, 200], 40)

    def test_only_the_last_where_nothing_is_asked_for(self):
        assert (made().kept, made().kept_states) == ([100], [])

    def test_every_so_many_steps_and_the_last(self):
        assert made(every=30).kept == [30, 60, 90, 100]
        assert made(every=1000).kept == [100]

    @pytest.mark.parametrize(("log_every", "steps", "logged"), [(0.0025, 100, 1), (0, 100, 1), (0.0025, 4000, 10)])
    def test_the_log_has_a_row_at_least_every_step(self, log_every: float, steps: int, logged: int):
        assert made(log_every=log_every, steps=steps).logged == logged

    def test_the_schedule_is_that_of_the_settings(self):
        rate = made(schedule={"kind": "wsd", "warmup": 2, "cooldown": 0.5}).rate()
        assert [rate(step, 8) for step in range(8)] == [0.5, 1, 1, 1, 1, 0.75, 0.5, 0.25]


OTHERS: dict[str, object] = {
    "model": {"type": "llama"},
    "steps": 101,
    "schedule": {"kind": "constant"},
    "optimizer": {"kind": "adamw", "peak": 2e-3},
    "tokenizer": "some",
    "vocabulary": 300,
    "tokens": 1000,
    "separate": False,
    "seq_len": 8,
    "batch_size": 2,
    "counted_from": "fork",
    "clip": 2.0,
    "sam": 0.1,
    "precision": "bfloat16",
    "attention": "eager",
    "order": "drawn",
    "seed": 1,
    "data_seed": 0,
    "every": 5,
    "keep": [5],
    "keep_state": [5],
    "log_every": 5,
    "stored": "float16",
}


class TestFingerprint:
    def test_every_field_but_the_text_changes_it(self):
        assert {*OTHERS, "text"} == set(ALL)
        found = [made().fingerprint, *(made(**{name: value}).fingerprint for name, value in OTHERS.items())]
        assert len(set(found)) == len(found)

    def test_the_place_of_the_text_does_not(self):
        assert made(text="elsewhere/a.txt").fingerprint == made().fingerprint

    def test_the_order_in_a_mapping_does_not(self):
        one = made(model={"type": "llama", "a": 1, "b": {"c": 2, "d": 3}})
        assert one.fingerprint == made(model={"b": {"d": 3, "c": 2}, "a": 1, "type": "llama"}).fingerprint

    def test_it_reaches_into_settings(self):
        assert made(model={"type": "gpt_neox", "a": {"b": 1}}) != made(model={"type": "gpt_neox", "a": {"b": 2}})
        one, two = (made(model={"type": "gpt_neox", "a": {"b": b}}).fingerprint for b in (1, 2))
        assert one != two

    def test_labels_by_number_are_no_hindrance(self, tmp_path: Path):
        recipe = made(model={"type": "gpt_neox", "id2label": {0: "a", "b": 1}})
        assert read(written(tmp_path, to_yaml(recipe))).fingerprint == recipe.fingerprint != made().fingerprint

    def test_equal_recipes_have_equal_ones(self):
        for one, two in [({"clip": 1}, {"clip": 1.0}), ({"keep": [1, 2]}, {"keep": [1.0, 2.0]})]:
            assert made(**one) == made(**two)
            assert made(**one).fingerprint == made(**two).fingerprint


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


class TestPresets:
    def test_they_are_those_of_the_folder_and_each_says_what_it_is(self):
        files = {each.name for each in PRESETS.iterdir()}
        assert files == {f"{name}.yaml" for name in presets()}
        assert {"p1-160m", "p2-160m", "kumar-70m", "p1-160m-tiny"} <= set(presets())
        assert all(len(line) > 10 and not line.startswith("#") for line in presets().values())

    @pytest.mark.parametrize("name", presets())
    def test_each_reads_and_is_read_back_the_same(self, tmp_path: Path, name: str):
        recipe, called = find(name)
        assert called == name
        assert read(written(tmp_path, to_yaml(recipe))) == recipe

    def test_every_preset_has_a_twin(self):
        assert {*TWINS.values(), *TWINS} == set(presets())

    @pytest.mark.parametrize("name", TWINS)
    def test_a_twin_keeps_the_proportions(self, name: str):
        twin, full = find(name)[0], find(TWINS[name])[0]
        assert twin.optimizer == full.optimizer
        assert (twin.clip, twin.sam, twin.counted_from) == (full.clip, full.sam, full.counted_from)
        assert (twin.order, twin.separate) == (full.order, full.separate)
        one, two = (
            {
                key: updates(value, each.steps) / each.steps if key in ("warmup", "cooldown") else value
                for key, value in each.schedule.items()
            }
            for each in (twin, full)
        )
        assert one.keys() == two.keys()
        for key, value in two.items():
            assert one[key] == (pytest.approx(value, rel=0.01) if isinstance(value, float) else value), key
        for share in (0.005, 0.05, 0.3, 0.5, 0.79, 0.82, 0.9, 0.99):
            rates = [each.rate()(int(share * each.steps), each.steps) for each in (twin, full)]
            assert rates[0] == pytest.approx(rates[1], abs=0.03), share

    @pytest.mark.parametrize(
        ("name", "parameters", "tokens"),
        [
            ("p1-160m-tiny", 166e3, 37e6),
            ("p1-160m-small", 13e6, 131e6),
            ("p1-decay-160m-tiny", 166e3, 37e6),
            ("p2-160m-tiny", 166e3, 37e6),
            ("kumar-70m-tiny", 106e3, 37e6),
        ],
    )
    def test_a_twin_is_as_large_as_it_says(self, name: str, parameters: float, tokens: float):
        from transformers import AutoConfig, AutoModelForCausalLM

        recipe, _ = find(name)
        own = {"vocab_size": recipe.vocabulary, "max_position_embeddings": recipe.seq_len, **recipe.model}
        configuration = AutoConfig.for_model(own.pop("type"), **own)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(configuration)
        assert sum(each.numel() for each in model.parameters()) == pytest.approx(parameters, rel=0.2)
        assert recipe.steps * recipe.batch_size * recipe.seq_len == pytest.approx(tokens, rel=0.06)
        assert recipe.tokenizer is None

    @pytest.mark.parametrize("name", [name for name in presets() if find(name)[0].tokens])
    def test_no_window_comes_twice(self, name: str):
        recipe, _ = find(name)
        windows = (recipe.tokens - recipe.seq_len) // recipe.seq_len
        assert windows >= recipe.steps * recipe.batch_size
