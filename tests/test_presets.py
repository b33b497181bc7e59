"""The recipes that come with the package."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from landscape.pretraining import PRESETS, find, presets
from landscape.training.recipe import read, to_yaml
from landscape.training.schedules import updates
from recipes import written

TWINS = {name: name.rsplit("-", 1)[0] for name in presets() if name.endswith(("-tiny", "-small"))}


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
