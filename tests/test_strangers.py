"""Files from strangers: what they claim is not believed, where they lead nobody goes, what they carry is not run."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from safetensors.torch import load_file

from landscape import slices
from landscape.curvature import store
from landscape.curvature.ledger import Ledger
from landscape.errors import LandscapeError, ModelError, OptionError, StoreError
from landscape.evaluation import read as read_evaluation
from landscape.models import context_length, load_model
from landscape.models.checkpoint import Checkpoint
from landscape.models.mapped import stored_parameters
from landscape.models.references import resolve
from landscape.study import table, work
from landscape.training import recipe
from landscape.training.run import Run
from made_studies import row
from viewer_slices import Recipe

PACKAGE = Path(__file__).parent.parent / "landscape"


def refused(action: Callable[[], object], *parts: str, kind: type[LandscapeError] = StoreError) -> None:
    """`action` ends in one line that holds `parts`."""
    with pytest.raises(kind) as error:
        action()
    assert "\n" not in str(error.value)
    for part in parts:
        assert part in str(error.value), str(error.value)


# HDF5


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("slice") / "whole.h5"
    Recipe(grid=(5, 5), adaptive=True).make(path)
    return path


def elsewhere(file: h5py.File) -> None:
    del file["loss"]
    file["loss"] = h5py.ExternalLink("other.h5", "/loss")


def soft(file: h5py.File) -> None:
    file["more"] = h5py.SoftLink("/loss")


def twice(file: h5py.File) -> None:
    file["points/theta/again"] = file["points"]


def outside(file: h5py.File) -> None:
    file.create_dataset("more", (10,), "f8", external=[("/etc/passwd", 0, 80)])


def virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout((10,), "f8")
    layout[:] = h5py.VirtualSource("other.h5", "x", (10,))
    file.create_virtual_dataset("more", layout)


def claimed(file: h5py.File) -> None:
    file.create_dataset("more", (10**13,), "f8", chunks=(1024,))


def compressed(file: h5py.File) -> None:
    file.create_dataset("more", data=np.zeros(10**6), compression="gzip")


def not_json(file: h5py.File) -> None:
    file.attrs["config"] = "{"


def not_utf8(file: h5py.File) -> None:
    file.attrs.create("title", b"\xff\xfe", dtype=h5py.string_dtype("utf-8", 2))


def other_shapes(file: h5py.File) -> None:
    del file["done"]
    file["done"] = np.zeros((2, 2), np.uint8)


def no_point(file: h5py.File) -> None:
    del file["points/theta"]


def flat_surface(file: h5py.File) -> None:
    name = "loss" if "loss" in file["surface"] else "coefficients"
    values = file["surface"][name][:]
    del file["surface"][name]
    file["surface"][name] = values.ravel()


ODD = (elsewhere, soft, twice, outside, virtual, claimed, compressed, not_json, not_utf8, other_shapes, no_point)


@pytest.mark.parametrize("damage", [*ODD, flat_surface])
def test_a_slice_holds_nothing_odd(whole: Path, tmp_path: Path, damage: Callable[[h5py.File], None]):
    path = tmp_path / "odd.h5"
    shutil.copy(whole, path)
    with h5py.File(path, "r+") as file:
        file.attrs["schema"] = 2  # which has no digest, so that only what is odd speaks against it
        del file.attrs["digest"]
        file.flush()
    slices.read(path)
    with h5py.File(path, "r+") as file:
        damage(file)
    refused(lambda: slices.read(path), "odd.h5: damaged")
    if damage is not flat_surface:  # which a writer does not look at
        refused(lambda: slices.SliceWriter(path, "key", "plane"), "odd.h5: damaged")


def test_a_heap_without_an_end_is_found_before_hdf5_walks_through_it(tmp_path: Path):
    path = tmp_path / "measured.h5"
    store.write(path, {"key": "k"}, {"layers": {"name": np.array(["a", "b"])}}, True)
    content = bytearray(path.read_bytes())
    start = content.index(b"GCOL\x01") + 16
    content[start : start + 64] = bytes(64)
    path.write_bytes(content)
    refused(lambda: store.read(path), "measured.h5: damaged (a heap that has no end)")


def test_a_string_is_as_long_as_the_file_at_most(tmp_path: Path):
    path = tmp_path / "measured.h5"
    store.write(path, {"key": "k"}, {"layers": {"name": np.array(["abcd", "efghi"])}}, True)
    with h5py.File(path) as file:
        place = file["layers/name"].id.get_offset()
    content = bytearray(path.read_bytes())
    assert content[place : place + 4] == (4).to_bytes(4, "little")
    for length, said in ((0x7FFFFFFF, "bytes of numbers and"), (4, None)):
        content[place : place + 4] = length.to_bytes(4, "little")
        path.write_bytes(content)
        if said:
            refused(lambda: store.read(path), "measured.h5: damaged (it claims", said)
    assert store.read(path).sections["layers"]["name"].tolist() == ["abcd", "efghi"]


@pytest.mark.parametrize("length", [0, 0x7FFFFFFF, 0x00FFFF08])
def test_nor_is_one_in_an_attribute_longer(tmp_path: Path, length: int):
    path = tmp_path / "measured.h5"
    store.write(path, {"key": "k" * 1234}, {}, True)
    content = bytearray(path.read_bytes())
    place = content.index((1234).to_bytes(4, "little") + content.index(b"GCOL").to_bytes(8, "little"))
    content[place : place + 4] = length.to_bytes(4, "little")
    path.write_bytes(content)
    refused(lambda: store.read(path), "measured.h5: damaged")


def test_pages_are_not_made_of_what_lies_elsewhere(whole: Path, tmp_path: Path, landscape: Any):
    path = tmp_path / "odd.h5"
    shutil.copy(whole, path)
    with h5py.File(path, "r+") as file:
        elsewhere(file)
    code, _, said = landscape("view", path)
    assert code == 2 and "loss leads elsewhere" in said and "Traceback" not in said


# checkpoints


@pytest.fixture
def model(run: Path, tmp_path: Path) -> Path:
    """A checkpoint as a stranger gives it."""
    folder = tmp_path / "model"
    shutil.copytree(run / "step30", folder, ignore=shutil.ignore_patterns("SHA256SUMS"))
    return folder


def change(folder: Path, **fields: object) -> Checkpoint:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    return Checkpoint("model", None, "sha256:0", folder, folder)


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "/etc/passwd", "a/b.safetensors", "..", "a\\b", "A" * 300, 3]
)
def test_an_index_names_files_beside_it(model: Path, name: object):
    (model / "model.safetensors").rename(model.parent / "secret.safetensors")
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    checkpoint = Checkpoint("model", None, "sha256:0", model, model)
    for action in (lambda: resolve(str(model)), lambda: stored_parameters(checkpoint)):
        refused(action, "model model: model.safetensors.index.json", kind=ModelError)


def test_a_shard_that_is_a_link_leads_nowhere_else(model: Path):
    (model / "model.safetensors").rename(model.parent / "secret.safetensors")
    (model / "shard.safetensors").symlink_to(model.parent / "secret.safetensors")
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "shard.safetensors"}}))
    refused(lambda: resolve(str(model)), "'shard.safetensors', which does not lie beside it", kind=ModelError)


def test_the_links_of_the_hubs_cache_are_followed(model: Path, tmp_path: Path):
    blobs, snapshot = tmp_path / "models--a" / "blobs", tmp_path / "models--a" / "snapshots" / "0"
    blobs.mkdir(parents=True), snapshot.mkdir(parents=True)
    shutil.copy(model / "config.json", snapshot)
    (model / "model.safetensors").rename(blobs / "1")
    (snapshot / "shard.safetensors").symlink_to(blobs / "1")
    (snapshot / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "shard.safetensors"}}))
    assert stored_parameters(Checkpoint("a", None, "", snapshot, snapshot)) > 0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"num_hidden_layers": 10**6}, "num_hidden_layers=1000000"),
        ({"text_config": {"num_layers": 10**9}}, "num_layers=1000000000"),
        ({"hidden_size": 10**5, "intermediate_size": 10**5}, "config.json asks for"),
        ({"vocab_size": 2**40}, "config.json asks for"),
        ({"transformers_weights": "other.safetensors"}, "other files"),
    ],
)
def test_a_configuration_is_held_against_its_files(model: Path, fields: dict[str, object], said: str):
    refused(lambda: load_model(change(model, **fields)), said, kind=ModelError)


def test_layers_are_counted_before_a_configuration_lists_them(model: Path):
    checkpoint = change(model, model_type="qwen3", num_hidden_layers=2**33)
    refused(lambda: context_length(checkpoint), "num_hidden_layers", kind=ModelError)


def test_an_adapter_is_no_model(model: Path):
    (model / "adapter_config.json").write_text('{"base_model_name_or_path": "../other"}')
    refused(lambda: load_model(change(model)), "other files", kind=ModelError)


class Program:
    """A pickle that runs a command when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.mark}",)


def test_a_pickle_that_is_a_program_is_not_run(model: Path, tmp_path: Path):
    tensors = load_file(model / "model.safetensors")
    (model / "model.safetensors").unlink()
    torch.save(tensors, model / "pytorch_model.bin")
    assert load_model(change(model)) is not None
    torch.save({**tensors, "more": Program(tmp_path / "ran")}, model / "pytorch_model.bin")
    refused(lambda: load_model(change(model)), "cannot be loaded", kind=ModelError)
    bare = pickle.dumps(Program(tmp_path / "ran"))
    (model / "pytorch_model.bin").write_bytes(bare + bytes(100_000))
    refused(lambda: load_model(change(model)), "cannot be loaded", kind=ModelError)
    assert not (tmp_path / "ran").exists()


# everything else


def npz(path: Path, raw: bytes, how: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", how) as file:
        file.writestr("v.npy", raw)


def test_a_ledger_is_plain_arrays_of_the_size_they_claim(tmp_path: Path):
    ledger = Ledger(tmp_path / "ledger", "key")
    ledger.save("trace", v=np.arange(3.0))
    path = tmp_path / "ledger" / "trace.npz"
    with zipfile.ZipFile(path) as file:
        raw = file.read("v.npy")
    assert ledger.load("trace")["v"].tolist() == [0, 1, 2]
    npz(path, raw.replace(b"(3,)", b"(9999999999999,)".ljust(4)))
    refused(lambda: ledger.load("trace"), "trace.npz: damaged")
    npz(path, raw, zipfile.ZIP_DEFLATED)
    refused(lambda: ledger.load("trace"), "compressed")
    np.savez(path, v=np.array([Program(tmp_path / "ran")], dtype=object))
    refused(lambda: ledger.load("trace"), "trace.npz: damaged")
    assert not (tmp_path / "ran").exists()


LINES = "model: {type: gpt_neox}\ntext: a.txt\nsteps: 100\n"
LAUGHS = "".join(f"{y}: &{y} [{', '.join([f'*{x}'] * 9)}]\n" for x, y in pairwise("abcdefghi"))
MERGED = "".join(f"{y}: &{y} {{<<: [{', '.join([f'*{x}'] * 9)}]}}\n" for x, y in pairwise("abcdefghi"))


@pytest.mark.parametrize(
    "more",
    [
        f"a: &a [x]\n{LAUGHS}keep: *i\n",
        f"a: &a {{x: 1}}\n{MERGED}",
        "keep: &k [*k]\n",
        "seed: !!python/object/apply:os.system ['touch ran']\n",
        "extends: /dev/zero\n",
    ],
)
def test_a_recipe_is_short_and_plain(tmp_path: Path, more: str):
    path = tmp_path / "recipe.yaml"
    path.write_text(LINES + more)
    refused(lambda: recipe.read(path), "recipe", kind=OptionError)
    assert not Path("ran").exists()


def test_a_recipe_names_no_kernel_of_the_hub(tmp_path: Path):
    path = tmp_path / "recipe.yaml"
    path.write_text(LINES + "attention: somebody/fast-attention\n")
    refused(lambda: recipe.read(path), "attention=somebody/fast-attention", kind=OptionError)


@pytest.mark.parametrize("name", ["../../other.h5", "/etc/passwd", 3, None])
def test_a_note_names_files_of_its_study(tmp_path: Path, name: object):
    class Task:
        note = "note.json"

    (tmp_path / "study" / "done").mkdir(parents=True)
    (tmp_path / "other.h5").touch()
    (tmp_path / "study" / "done" / "note.json").write_text(json.dumps({"files": {"curvature": name}}))
    assert work.read_note(Task(), tmp_path / "study") is None and not work.is_done(Task(), tmp_path / "study")


def test_a_note_that_names_what_no_file_can_be_called_is_of_a_task_to_be_done(tmp_path: Path):
    class Task:
        note = "note.json"

    (tmp_path / "done").mkdir()
    (tmp_path / "done" / "note.json").write_text(json.dumps({"files": {"curvature": "A" * 5000}}))
    assert not work.is_done(Task(), tmp_path)


def test_a_log_is_not_read_past_a_damaged_row(tmp_path: Path):
    run = Run(tmp_path)
    (tmp_path / "log.jsonl").write_bytes(b'{"step": 1}\n{"step": 2}\n{"st')
    assert [each["step"] for each in run.rows()] == [1, 2]  # cut short by a kill
    (tmp_path / "log.jsonl").write_bytes(b'{"step": 1}\n{"st\xff\n{"step": 3}\n')
    refused(run.rows, "log.jsonl: line 2 is damaged")


def test_a_table_has_the_columns_and_rows_of_a_study(tmp_path: Path):
    table.write(tmp_path, "study", [row("run", 1)], {})
    path = tmp_path / "study.parquet"
    found = parquet.read_table(path)
    about = {b"landscape": b'{"kind": "study", "schema": 1}'}
    place = found.column_names.index("step")
    other = found.set_column(place, "step", pa.array(["x"])).replace_schema_metadata(about)
    parquet.write_table(other, path)
    refused(lambda: table.read(path), "study.parquet: not a table of a study")
    long = found.select(["step"]).take(pa.array(np.zeros(2_000_000, np.int64))).replace_schema_metadata(about)
    parquet.write_table(long, path)
    assert path.stat().st_size < 100_000
    refused(lambda: table.read(path), "study.parquet: not a table of a study")


def test_an_evaluation_has_its_numbers(tmp_path: Path):
    path = tmp_path / "evaluation.json"
    path.write_text('{"kind": "evaluation", "schema": 1, "comparison": ' + "[" * 5000)
    refused(lambda: read_evaluation(path), "evaluation.json: not an evaluation")


@pytest.mark.parametrize("name", ["~nobody-of-that-name/model", "A" * 400, "a\0b"])
def test_odd_names_are_no_paths(name: str, landscape: Any):
    code, _, said = landscape("slice", name)
    assert code == 2 and said.strip().splitlines()[-1].startswith(f"landscape: model {name}: no such directory")


# the source

FORBIDDEN = {
    r"\bpickle\b(?!s|d)": "pickle",
    r"torch\.load\((?![^)]*weights_only=True)": "torch.load without weights_only=True",
    r"(?<![\w.])eval\(": "eval",
    r"(?<![\w.])exec\(": "exec",
    r"yaml\.(unsafe_|full_)?load\((?!.*Loader=_Loader\))": "yaml.load without the SafeLoader of recipes",
    r"allow_pickle=True": "pickled arrays",
    r"os\.(system|popen)|shell=True": "a shell",
    r"trust_remote_code=(?!remote_code|False)": "remote code without the flag",
    r"(?<!\w)0\.0\.0\.0(?!\w)": "a server for others",
}


def test_the_package_calls_nothing_dangerous():
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        code = re.sub(r'"""[\s\S]*?"""|#.*', "", path.read_text(encoding="utf-8"))
        found += [f"{path.name}: {what}" for pattern, what in FORBIDDEN.items() if re.search(pattern, code)]
    assert found == []
