"""A state put back is the state that was saved, to the bit: the run goes on as if it had never stopped."""

from __future__ import annotations

import copy
import json
import resource
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from conftest import build as model_of
from landscape.errors import StoreError, TrainingError
from landscape.training import state
from landscape.training.optimizers import Updater, build

pytestmark = pytest.mark.usefixtures("process")
FACTS = {"step": 2, "begun": 0, "loss_sum": 0.1 + 0.2, "loss_count": 3}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw": {"kind": "adamw"},
    "adamw-unfused": {"kind": "adamw", "fused": False},
    "adamc": {"kind": "adamc", "peak": 2e-3},
    "sgd": {"kind": "sgd", "peak": 0.01},
    "sgd-without-momentum": {"kind": "sgd", "momentum": 0.0},
    "muon": {"kind": "muon"},
}


def train(model: nn.Module, updater: Updater, first: int, last: int) -> None:
    """Updates on data from the random numbers of the process."""
    for step in range(first, last):
        ids = torch.randint(300, (2, 12))
        model(input_ids=ids, labels=ids).loss.backward()
        updater.step(1e-3 / (step + 1))


def moments(updater: Updater) -> list[dict[int, dict[str, Any]]]:
    return copy.deepcopy([part.state_dict()["state"] for part in updater.parts])


def same(one: Any, two: Any) -> bool:
    """Equal to the bit, with the same types and shapes."""
    if isinstance(one, torch.Tensor):
        return type(one) is type(two) and one.dtype == two.dtype and one.shape == two.shape and torch.equal(one, two)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(same, one, two))
    return type(one) is type(two) and one == two


def everything(model: nn.Module, updater: Updater) -> dict[str, Any]:
    weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    return {"weights": weights, "moments": moments(updater), "random": torch.get_rng_state()}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Two steps of AdamW."""
    model = model_of("gpt_neox")
    updater = build(model, OPTIMIZERS["adamw"])
    torch.manual_seed(5)
    train(model, updater, 0, 2)
    path = tmp_path / "run" / state.STATE
    path.parent.mkdir()
    state.save(path, model, updater, FACTS)
    return path


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("name", ["gpt_neox", "llama-tied-gqa"])
def test_two_steps_and_two_more_through_a_file_are_four(tmp_path: Path, name: str, kind: str):
    path = tmp_path / state.STATE
    model = model_of(name)
    updater = build(model, OPTIMIZERS[kind])
    torch.manual_seed(5)
    train(model, updater, 0, 2)
    before = everything(model, updater)
    state.save(path, model, updater, FACTS)
    assert same(everything(model, updater), before)  # saving changes nothing
    train(model, updater, 2, 4)
    after = everything(model, updater)
    assert not same(after["weights"], before["weights"])

    other = model_of(name, seed=1)
    resumed = build(other, OPTIMIZERS[kind])
    torch.manual_seed(99)
    train(other, resumed, 0, 1)  # moments of its own, which go
    assert state.load(path, other, resumed) == FACTS
    assert same(everything(other, resumed), before)
    train(other, resumed, 2, 4)
    assert same(everything(other, resumed), after)
    held = [len(part) for part in after["moments"]]
    assert all(held) != (kind == "sgd-without-momentum")


def test_a_state_before_the_first_step(tmp_path: Path):
    model = model_of("gpt_neox")
    updater = build(model, OPTIMIZERS["muon"])
    state.save(tmp_path / state.STATE, model, updater, {})
    other = model_of("gpt_neox", seed=1)
    resumed = build(other, OPTIMIZERS["muon"])
    assert state.load(tmp_path / state.STATE, other, resumed) == {}
    assert same(everything(other, resumed), everything(model, updater))


def test_buffers_that_checkpoints_hold_come_back_and_others_stay(tmp_path: Path):
    def net(value: float) -> nn.Module:
        module = nn.Linear(3, 2)
        module.register_buffer("kept", torch.full((4,), value))
        module.register_buffer("left", torch.full((4,), value), persistent=False)
        return module

    one, two = net(1.0), net(2.0)
    state.save(tmp_path / state.STATE, one, build(one, OPTIMIZERS["sgd"]), {})
    state.load(tmp_path / state.STATE, two, build(two, OPTIMIZERS["sgd"]))
    assert two.kept.tolist() == [1.0] * 4 and two.left.tolist() == [2.0] * 4
    assert torch.equal(one.weight, two.weight)


def test_the_settings_stay_those_of_the_optimizer_that_goes_on(saved: Path):
    model = model_of("gpt_neox", seed=1)
    updater = build(model, {"kind": "adamw", "peak": 0.5, "betas": [0.7, 0.8], "weight_decay": 0.3, "fused": False})
    before = copy.deepcopy([part.state_dict()["param_groups"] for part in updater.parts])
    state.load(saved, model, updater)
    assert [part.state_dict()["param_groups"] for part in updater.parts] == before
    assert updater.parts[0].param_groups[0]["betas"] == (0.7, 0.8)


class TestForks:
    """Another optimizer: weights and random numbers come, moments only where they are of the same kind."""

    def load(self, saved: Path, settings: dict[str, Any]) -> tuple[nn.Module, Updater]:
        model = model_of("gpt_neox", seed=1)
        updater = build(model, settings)
        train(model, updater, 0, 1)
        torch.manual_seed(99)
        state.load(saved, model, updater)
        return model, updater

    def test_another_kind_begins_with_fresh_moments(self, saved: Path):
        model, updater = self.load(saved, OPTIMIZERS["sgd"])
        assert moments(updater) == [{}]
        like_saved, _ = self.load(saved, OPTIMIZERS["adamw"])
        assert same(dict(model.named_parameters()), dict(like_saved.named_parameters()))
        train(model, updater, 0, 1)
        state.save(saved, model, updater, {})
        _, updater = self.load(saved, OPTIMIZERS["adamw"])
        assert moments(updater) == [{}]

    def test_another_rule_for_the_decay_keeps_them(self, saved: Path):
        _, adamc = self.load(saved, OPTIMIZERS["adamc"])
        _, adamw = self.load(saved, OPTIMIZERS["adamw"])
        assert len(moments(adamc)[0]) == 28 and same(moments(adamc), moments(adamw))

    def test_muon_takes_what_is_adams_and_begins_fresh_in_between(self, saved: Path):
        _, updater = self.load(saved, OPTIMIZERS["muon"])
        adam, muon = moments(updater)
        assert len(adam) == 20 and muon == {}
        train(*self.load(saved, OPTIMIZERS["muon"]), 2, 3)


class TestFile:
    def test_it_is_tensors_and_words_and_nothing_else(self, saved: Path):
        content = saved.read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        about = header.pop("__metadata__")
        assert json.loads(about["facts"]) == FACTS
        assert 8 + length + max(each["data_offsets"][1] for each in header.values()) == len(content)
        assert "random/cpu" in header and "model/gpt_neox.embed_in.weight" in header
        assert sum(name.endswith("/exp_avg") for name in header) == 28

    def test_nothing_else_is_left_beside_it(self, saved: Path):
        assert [path.name for path in saved.parent.iterdir()] == [state.STATE]

    def test_who_reads_the_old_one_while_a_new_one_is_written_reads_it_whole(self, saved: Path):
        before = saved.read_bytes()
        model = model_of("gpt_neox", seed=1)
        with open(saved, "rb") as reader:
            state.save(saved, model, build(model, OPTIMIZERS["sgd"]), {})
            assert reader.read() == before
        assert saved.read_bytes() != before

    def test_a_place_that_is_taken_is_one_line_and_nothing_is_left(self, tmp_path: Path):
        (tmp_path / state.STATE).mkdir()
        model = model_of("gpt_neox")
        with pytest.raises(StoreError, match=r"state\.safetensors: cannot be written \(Is a directory\)"):
            state.save(tmp_path / state.STATE, model, build(model, OPTIMIZERS["sgd"]), {})
        assert [path.name for path in tmp_path.iterdir()] == [state.STATE]

    def test_what_cannot_be_saved_leaves_the_old_one(self, saved: Path):
        before = saved.read_bytes()
        model = model_of("gpt_neox", seed=1)
        with pytest.raises(TypeError):
            state.save(saved, model, build(model, OPTIMIZERS["sgd"]), {"step": object()})
        assert saved.read_bytes() == before
        assert [path.name for path in saved.parent.iterdir()] == [state.STATE]

    def test_a_full_disk_is_one_line_and_leaves_the_old_one(self, saved: Path):
        before = saved.read_bytes()
        model = model_of("gpt_neox", seed=1)
        updater = build(model, OPTIMIZERS["sgd"])
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
        try:
            with pytest.raises(StoreError, match="the disk is full"):
                state.save(saved, model, updater, {})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert saved.read_bytes() == before
        assert [path.name for path in saved.parent.iterdir()] == [state.STATE]

    def test_a_place_that_is_not_there_is_one_line(self, tmp_path: Path):
        model = model_of("gpt_neox")
        with pytest.raises(StoreError, match=r"state\.safetensors: cannot be written"):
            state.save(tmp_path / "none" / state.STATE, model, build(model, OPTIMIZERS["sgd"]), {})


class TestRefused:
    def refuse(self, path: Path, *parts: str, model: nn.Module | None = None) -> None:
        """Loading ends in one line, and nothing was put anywhere."""
        model = model or model_of("gpt_neox", seed=1)
        updater = build(model, OPTIMIZERS["adamw"])
        before = everything(model, updater)
        with pytest.raises(TrainingError) as error:
            state.load(path, model, updater)
        assert "\n" not in str(error.value)
        for part in (path.name, path.parent.name, *parts):
            assert part in str(error.value)
        assert same(everything(model, updater), before)

    @pytest.mark.parametrize("length", [0, 5, 8, 1000, 100_000, -1])
    def test_a_file_cut_short(self, saved: Path, length: int):
        saved.write_bytes(saved.read_bytes()[:length])
        self.refuse(saved, "cannot be read", "remove it")

    @pytest.mark.parametrize("content", [b"words", bytes(1000), b"\xff" * 1000])
    def test_a_file_of_something_else(self, saved: Path, content: bytes):
        saved.write_bytes(content)
        self.refuse(saved, "cannot be read")

    def test_a_damaged_header(self, saved: Path):
        content = saved.read_bytes()
        saved.write_bytes(content.replace(b"model/gpt_neox.embed_in", b'model"gpt_neox.embed_in', 1))
        self.refuse(saved, "cannot be read")

    def test_no_file_and_a_folder(self, tmp_path: Path):
        self.refuse(tmp_path / "none.safetensors", "cannot be read")
        self.refuse(tmp_path, "cannot be read")

    @pytest.mark.parametrize(
        "about",
        [None, {}, {"facts": "{}"}, {"facts": "{", "numbers": "[]"}, {"facts": "{}", "numbers": "["}],
    )
    def test_tensors_without_the_words(self, saved: Path, about: dict[str, str] | None):
        save_file({"model/a": torch.zeros(2)}, saved, about)
        self.refuse(saved, "cannot be read")

    def test_no_random_numbers(self, saved: Path):
        model = model_of("gpt_neox")
        tensors = {f"model/{name}": parameter.detach() for name, parameter in model.named_parameters()}
        save_file(tensors, saved, {"facts": "{}", "numbers": "[]"})
        self.refuse(saved, "cannot be read")

    @pytest.mark.parametrize("changes", [{"hidden_size": 16}, {"num_hidden_layers": 1}, {"num_hidden_layers": 3}])
    def test_another_size(self, saved: Path, changes: dict[str, int]):
        self.refuse(saved, "the state of another model", model=model_of("gpt_neox", **changes))

    def test_another_architecture(self, saved: Path):
        self.refuse(saved, "the state of another model", model=model_of("olmo"))
