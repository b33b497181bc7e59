"""Loading: float32 masters, complete or not at all, nothing executed that came with the weights."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from conftest import ARCHITECTURES, build
from landscape.errors import ModelError, OptionError
from landscape.models import context_length, load_model, load_tokenizer, pick_device, vocabulary_size
from landscape.models.references import resolve
from landscape.weights import Weights


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_comes_back_as_it_was_saved(name: str, tmp_path: Path):
    model = build(name)
    model.save_pretrained(tmp_path / "model")
    loaded = load_model(resolve(str(tmp_path / "model")))
    assert Weights.of(loaded).equal(Weights.of(model))
    assert not loaded.training


def test_half_precision_files_become_float32_masters(run: Path, tmp_path: Path):
    folder = tmp_path / "half"
    model = load_model(resolve(f"{run}@30"))
    model.save_pretrained(folder, state_dict={k: v.half() for k, v in model.state_dict().items()})
    loaded = Weights.of(load_model(resolve(str(folder))))
    assert {tensor.dtype for tensor in loaded.values()} == {torch.float32}
    assert (loaded - Weights.of(model)).norm() < 1e-3 * loaded.norm()


def test_a_missing_tensor_is_an_error_not_a_random_one(broken_copy):
    folder = broken_copy()
    tensors = load_file(folder / "model.safetensors")
    del tensors["gpt_neox.layers.1.mlp.dense_h_to_4h.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"1 tensors are not in the file.*layers\.1\.mlp\.dense_h_to_4h\.weight"):
        load_model(resolve(str(folder)))


def test_a_tensor_of_another_shape_is_an_error(broken_copy):
    with pytest.raises(ModelError, match=r"cannot be loaded|another shape"):
        load_model(resolve(str(broken_copy(intermediate_size=96))))


def test_truncated_weights_are_an_error(broken_copy):
    folder = broken_copy()
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ModelError, match="cannot be loaded") as error:
        load_model(resolve(str(folder)))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("kind", "where"), [("vit", "cannot be loaded"), ("no-such-architecture", "unreadable")])
def test_not_a_causal_language_model(broken_copy, kind: str, where: str):
    checkpoint = resolve(str(broken_copy(model_type=kind)))
    with pytest.raises(ModelError, match=where):
        context_length(checkpoint)
        load_model(checkpoint)


class Touch:
    """Creates a file when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_a_pickle_that_runs_code_is_refused(broken_copy, tmp_path: Path):
    folder, trace = broken_copy(), tmp_path / "executed"
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    assert Weights.of(load_model(resolve(str(folder)))).numel() > 0  # an honest pickle loads
    torch.save({**state, "evil": Touch(trace)}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_model(resolve(str(folder)))
    assert not trace.exists()
    pickle.loads(pickle.dumps(Touch(trace)))
    assert trace.exists()  # it would have


def test_code_in_the_repository_runs_only_when_allowed(broken_copy):
    folder = broken_copy(model_type="own", auto_map={"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Model"})
    (folder / "own.py").write_text("raise RuntimeError('the code ran')\n")
    with pytest.raises(ModelError, match=r"--remote-code|unreadable") as error:
        load_model(resolve(str(folder)))
    assert "the code ran" not in str(error.value)
    with pytest.raises(ModelError, match="the code ran"):
        load_model(resolve(str(folder)), remote_code=True)


def test_tokenizer_and_sizes(run: Path, broken_copy):
    checkpoint = resolve(f"{run}@30")
    assert load_tokenizer(checkpoint)("the cat")["input_ids"]
    assert context_length(checkpoint) == 64
    assert vocabulary_size(load_model(checkpoint)) == 300
    folder = broken_copy()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(ModelError, match=r"no tokenizer.*--tokenizer"):
        load_tokenizer(resolve(str(folder)))


def test_devices():
    assert pick_device("cpu") == "cpu"
    assert pick_device("auto") in ("cpu", "cuda")
    for name in ("gpu", "cuda:99", ""):
        with pytest.raises(OptionError, match="device"):
            pick_device(name)
