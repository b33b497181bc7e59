"""Recipes: what is written is what is read, a base and its changes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from landscape.training.recipe import Recipe, read, to_dict, to_yaml
from recipes import ALL, LINES, made, refused, written


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

    @pytest.mark.parametrize("base", ["true", "[1]", "none.yaml", "[a]", "3", "."])
    def test_a_base_that_cannot_be_read_is_named(self, tmp_path: Path, base: str):
        refused(
            lambda: read(written(tmp_path, LINES + f"extends: {base}")), "recipe.yaml: extends=", "expected the name"
        )


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
