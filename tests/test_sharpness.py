"""The whole job: a checkpoint and a text in, a table, a file and a figure out; right, resumed, clear about mistakes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from landscape import cli
from landscape.config import SharpnessConfig
from landscape.curvature import store
from landscape.errors import StoreError
from landscape.models import load_tokenizer
from landscape.models.mapped import stored_parameters
from landscape.models.references import resolve
from landscape.objective import TokenCrossEntropy, batches
from landscape.sharpness import measure_sharpness
from landscape.texts import documents
from landscape.tokens import WindowReader

REFERENCE = Path(__file__).parent.parent / "data" / "reference"
WIDTH = 8  # of the truncated copy, small enough for a dense Hessian
SUBSET = "*,!*embed*,!lm_head*"


@pytest.fixture(scope="module")
def truncated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled run's last checkpoint with two of its layers and the first 8 of its 128 channels."""
    source = REFERENCE / "mini-pythia" / "step8000"
    folder = tmp_path_factory.mktemp("truncated") / "small"
    config = AutoConfig.from_pretrained(source)
    config.update({"hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_hidden_layers": 2})
    large = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).state_dict()
    small = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for name, tensor in small.state_dict().items():
            corner = tuple(slice(0, size) for size in tensor.shape)
            tensor.copy_(3 * large[name][corner])  # so narrow a model needs more curvature than rounding
    small.save_pretrained(folder)
    for path in source.glob("token*"):
        shutil.copy(path, folder)
    return folder


def options(**changes: object) -> dict[str, object]:
    return {
        "text": str(REFERENCE / "corpus" / "validation.jsonl.xz"),
        "tokens": 128,
        "seq_len": 32,
        "params": SUBSET,
        "tolerance": 1e-3,
        "top": 3,
        "max_probes": 60,
        "trace_error": 0.01,
        "density_steps": 12,
        "density_probes": 3,
        **changes,
    }


@pytest.fixture(scope="module")
def dense_hessian(truncated: Path) -> np.ndarray:
    """∂²L/∂Θ² over all but the embeddings in float64, by nothing of the engine's; one row at a time is fastest."""
    given = options()
    reader = WindowReader(documents(str(given["text"])), load_tokenizer(resolve(str(truncated))), 32)
    windows = reader.take_tokens(given["tokens"])
    model = AutoModelForCausalLM.from_pretrained(truncated, dtype=torch.float64, attn_implementation="eager").eval()
    chosen = {n: p for n, p in model.named_parameters() if "embed" not in n and "lm_head" not in n}
    (batch,) = batches(windows, len(windows))
    total, count = TokenCrossEntropy(model, [batch])(dict(model.named_parameters()), batch)
    gradient = torch.autograd.grad(total / count, list(chosen.values()), create_graph=True)
    flat = torch.cat([g.reshape(-1) for g in gradient])
    rows = [
        torch.cat([h.reshape(-1) for h in torch.autograd.grad(entry, list(chosen.values()), retain_graph=True)])
        for entry in flat
    ]
    return torch.stack(rows).numpy()


def test_agrees_with_the_dense_hessian_of_a_truncated_copy(truncated: Path, dense_hessian: np.ndarray, tmp_path: Path):
    exact = dense_hessian
    values = np.linalg.eigvalsh((exact + exact.T) / 2)
    result = measure_sharpness(SharpnessConfig(str(truncated), out=tmp_path, **options(layers=True)))
    found = result.stored
    assert found.complete and found.attributes["parameters"] == len(values)
    top, bottom = found.sections["eigenvalues/top"], found.sections["eigenvalues/bottom"]
    assert top["values"] == pytest.approx(values[:-4:-1], rel=1e-3)
    assert bottom["values"] == pytest.approx(values[:1], rel=1e-2)
    assert top["converged"].all() and (top["residuals"] < 1e-3 * abs(top["values"])).all()
    trace = found.sections["trace"]
    assert abs(trace["value"] - np.trace(exact)) < 4 * trace["standard_error"] < 0.5 * abs(np.trace(exact))
    assert found.sections["trace/layers"]["value"].sum() == pytest.approx(trace["value"])
    density = found.sections["density"]
    assert density["density"].sum() * np.diff(density["points"])[0] == pytest.approx(1, abs=5e-3)
    first = (density["nodes"] * density["weights"]).sum(axis=1)
    assert abs(first.mean() - np.trace(exact) / len(exact)) < 5 * first.std(ddof=1) / np.sqrt(len(first)) + 1e-12
    assert (
        abs(density["above"][-1] - (values > density["thresholds"][-1]).sum())
        < 5 * density["above_standard_error"][-1] + 2
    )
    by_losses = measure_sharpness(SharpnessConfig(str(truncated), out=tmp_path, **options()))
    trace = by_losses.stored.sections["trace"]
    assert trace["method"] == "second differences" and by_losses.path != result.path
    assert abs(trace["value"] - np.trace(exact)) < 4 * trace["standard_error"]


def test_errors_by_the_choice_of_windows_are_those_of_double_precision(truncated: Path, tmp_path: Path):
    """‖g‖ and λ_max along their own directions: every window's share by autograd, and the spread of the shares."""
    given = options(top=1, density_steps=0, bottom=1, max_probes=10, vectors=True)
    result = measure_sharpness(SharpnessConfig(str(truncated), out=tmp_path, **given))
    given = options()
    reader = WindowReader(documents(str(given["text"])), load_tokenizer(resolve(str(truncated))), 32)
    windows = reader.take_tokens(given["tokens"])
    model = AutoModelForCausalLM.from_pretrained(truncated, dtype=torch.float64, attn_implementation="eager").eval()
    chosen = {n: p for n, p in model.named_parameters() if "embed" not in n and "lm_head" not in n}
    parameters, tokens = list(chosen.values()), 31 * len(windows)
    gradients, products = [], {"top": [], "bottom": []}
    directions = {
        which: [tensors[f"{which}.0.{name}"].double() for name in chosen]
        for which, tensors in zip(products, map(load_file, result.vectors), strict=True)
    }
    for row in windows.ids:
        logits = model(input_ids=row[None]).logits[0, :-1]
        loss = torch.nn.functional.cross_entropy(logits, row[1:], reduction="sum")
        gradient = torch.autograd.grad(loss, parameters, create_graph=True)
        gradients.append(torch.cat([g.detach().flatten() for g in gradient]))
        for which, direction in directions.items():
            slope = sum((g * v).sum() for g, v in zip(gradient, direction, strict=True))
            product = torch.autograd.grad(slope, parameters, retain_graph=True)
            products[which].append(sum((h * v).sum().item() for h, v in zip(product, direction, strict=True)))
    whole = torch.stack(gradients).sum(0)
    shares = {"gradient": (torch.stack(gradients) @ (whole / whole.norm())).numpy()}
    shares |= {which: np.array(own) for which, own in products.items()}
    expected = {name: own.std(ddof=1) * np.sqrt(len(own)) / tokens for name, own in shares.items()}
    assert result.stored.attributes["gradient_norm_standard_error"] == pytest.approx(expected["gradient"], rel=0.01)
    for which in products:
        section = result.stored.sections[f"eigenvalues/{which}"]
        assert section["values"][0] == pytest.approx(shares[which].sum() / tokens, rel=1e-3)
        assert section["standard_errors"][0] == pytest.approx(expected[which], rel=0.03)


@pytest.mark.parametrize("product", ["forward", "difference"])
def test_the_other_products_agree(truncated: Path, tmp_path: Path, product: str):
    given = options(top=1, density_steps=0, bottom=0, tokens=128)
    usual = measure_sharpness(SharpnessConfig(str(truncated), out=tmp_path, **given)).stored
    other = measure_sharpness(SharpnessConfig(str(truncated), out=tmp_path, product=product, **given)).stored
    place = "eigenvalues/top"
    assert other.sections[place]["values"] == pytest.approx(usual.sections[place]["values"], rel=3e-3)


@pytest.mark.parametrize("product", ["reverse", "difference"])
def test_recomputing_changes_nothing_but_the_memory(truncated: Path, tmp_path: Path, product: str):
    given = options(top=2, density_steps=0, bottom=0, tokens=128, product=product)
    usual = measure_sharpness(SharpnessConfig(str(truncated), out=tmp_path / "a", **given))
    lean = measure_sharpness(SharpnessConfig(str(truncated), out=tmp_path / "b", checkpointing=True, **given))
    assert lean.path.name == usual.path.name  # the same inputs, so the same key
    one, other = (result.stored.sections["eigenvalues/top"] for result in (usual, lean))
    assert one["values"] == pytest.approx(other["values"], rel=1e-3)
    assert one["converged"].all() and other["converged"].all()


def test_the_top_by_way_of_bfloat16(truncated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    given = options(top=2, density_steps=0, bottom=0, tolerance=0.03, max_probes=10)
    usual = measure_sharpness(SharpnessConfig(str(truncated), out=tmp_path, rough="none", **given)).stored
    config = SharpnessConfig(str(truncated), out=tmp_path, rough="bfloat16", **given)
    with pytest.raises(KeyboardInterrupt):
        measure_sharpness(config, Interrupting("top in bfloat16", 3))
    found = measure_sharpness(config).stored
    top, expected = found.sections["eigenvalues/top"], usual.sections["eigenvalues/top"]
    assert top["precision"] == "bfloat16, refined in float32" and expected["precision"] == "float32"
    assert top["values"] == pytest.approx(expected["values"], rel=2e-3) and top["converged"].all()
    strict = SharpnessConfig(str(truncated), out=tmp_path, rough="bfloat16", **(given | {"tolerance": 1e-4}))
    again = Interrupting("nothing", 0)
    top = measure_sharpness(strict, again).stored.sections["eigenvalues/top"]
    assert "too coarse" in again.notes[0] and top["precision"] == "float32"
    assert (top["residuals"] < 1e-4 * top["values"]).all() and top["values"] == pytest.approx(expected["values"], 1e-3)
    for ratio, precision in ((0.5, "bfloat16, refined in float32"), (0.9, "float32")):
        clock = iter([1.0, 1.0, ratio, ratio])
        monkeypatch.setattr("landscape.sharpness.spectrum._seconds", lambda *_, clock=clock: next(clock))
        config = SharpnessConfig(str(truncated), out=tmp_path / str(ratio), **given)
        assert measure_sharpness(config).stored.sections["eigenvalues/top"]["precision"] == precision


def test_vectors_are_kept_and_are_the_next_start(truncated: Path, dense_hessian: np.ndarray, tmp_path: Path):
    given = options(top=2, bottom=1, density_steps=0, max_probes=10, vectors=True)
    first = measure_sharpness(SharpnessConfig(str(truncated), out=tmp_path / "first.h5", **given))
    assert [path.name for path in first.vectors] == ["first.top.safetensors", "first.bottom.safetensors"]
    exact = torch.from_numpy(dense_hessian)
    parameters = [name for name, _ in AutoModelForCausalLM.from_pretrained(truncated).named_parameters()]
    for path, which in zip(first.vectors, ("top", "bottom"), strict=True):
        tensors = load_file(path)
        section = first.stored.sections[f"eigenvalues/{which}"]
        for index, (value, residual) in enumerate(zip(section["values"], section["residuals"], strict=True)):
            prefix = f"{which}.{index}."
            named = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
            v = torch.cat([named[name].flatten() for name in parameters if name in named]).double()
            assert v.norm() == pytest.approx(1, abs=1e-5)
            assert (exact @ v - value * v).norm() <= 1.1 * residual + 1e-4 * abs(value)
    again = given | {"bottom": 0, "vectors": False, "rough": "none"}
    cold = measure_sharpness(SharpnessConfig(str(truncated), out=tmp_path / "cold.h5", **again))
    warm = measure_sharpness(SharpnessConfig(str(truncated), out=tmp_path / "warm.h5", start=first.vectors[0], **again))
    one, other = (result.stored.sections["eigenvalues/top"] for result in (cold, warm))
    assert other["products"] < one["products"] and other["values"] == pytest.approx(one["values"], rel=1e-5)
    assert warm.stored.attributes["config"]["start"] == "first.top.safetensors" and not warm.vectors
    overwritten = SharpnessConfig(str(truncated), out=tmp_path / "first.h5", overwrite=True, **again)
    assert not measure_sharpness(overwritten).vectors


def test_a_model_that_memory_cannot_hold_is_refused_before_it_is_loaded(
    run: Path, text_file: Path, tmp_path: Path, monkeypatch, landscape
):
    parameters = stored_parameters(resolve(f"{run}@step30"))
    monkeypatch.setattr("landscape.inputs.available", lambda device: 11 * parameters)
    code, _, err = landscape(
        "sharpness", f"{run}@step30", "--text", text_file, "--tokens", 64, "--out", tmp_path / "x.h5"
    )
    assert code == 2 and not (tmp_path / "x.h5").exists()
    assert "3 copies of Θ take" in err and "--stream always, or --shard" in err


def test_little_memory_means_restarts_and_the_same_eigenvalues(
    truncated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    given = options(top=2, density_steps=0, tolerance=1e-4)
    whole = measure_sharpness(SharpnessConfig(str(truncated), out=tmp_path / "whole.h5", **given)).stored
    config = SharpnessConfig(str(truncated), out=tmp_path / "short.h5", **given)
    monkeypatch.setattr("landscape.curvature.operators.available", lambda device: 0)
    with pytest.raises(KeyboardInterrupt):
        measure_sharpness(config, Interrupting("bottom", 9))
    with np.load(tmp_path / ".short.state" / "krylov.npz") as state:
        assert state["generation"] >= 1 and len(state["projected"]) <= 10
    last = Interrupting("nothing", 0)
    short = measure_sharpness(config, last).stored
    assert any("restarts" in note for note in last.notes)
    for place in ("eigenvalues/top", "eigenvalues/bottom"):
        one, other = short.sections[place], whole.sections[place]
        assert one["converged"].all() and other["converged"].all()
        assert one["values"] == pytest.approx(other["values"], rel=1e-5)


class Interrupting:
    """A reporter that is interrupted at the n-th progress of a stage."""

    def __init__(self, stage: str, at: int) -> None:
        self.wanted, self.at, self.stages, self.notes = stage, at, [], []

    def stage(self, name: str):
        self.stages.append(name)
        seen = 0

        def update(done: int, total: int) -> None:
            nonlocal seen
            seen += 1
            if self.wanted in name and seen == self.at:
                raise KeyboardInterrupt

        return update

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_interrupted_anywhere_it_ends_as_if_it_had_not_been(truncated: Path, tmp_path: Path):
    config = SharpnessConfig(str(truncated), out=tmp_path / "whole.h5", **options(tolerance=1e-4))
    whole = measure_sharpness(config).stored
    broken = SharpnessConfig(str(truncated), out=tmp_path / "broken.h5", **options(tolerance=1e-4))
    for stage, at in (("top", 3), ("top", 1), ("trace", 5), ("density", 14)):
        with pytest.raises(KeyboardInterrupt):
            measure_sharpness(broken, Interrupting(stage, at))
    last = Interrupting("nothing", 0)
    resumed = measure_sharpness(broken, last).stored
    assert not any("eigenvalues" in stage or stage == "trace" for stage in last.stages)
    assert resumed.sections.keys() == whole.sections.keys()
    for place, section in whole.sections.items():
        for name, value in section.items():
            if name != "seconds":
                np.testing.assert_array_equal(resumed.sections[place][name], value, err_msg=f"{place}/{name}")
    assert not list(tmp_path.glob(".*")), "the ledger goes away when all is done"


def test_a_complete_measurement_is_not_repeated(truncated: Path, tmp_path: Path):
    given = options(density_steps=0, bottom=0, top=1, tokens=128)
    config = SharpnessConfig(str(truncated), out=tmp_path / "a.h5", **given)
    before = measure_sharpness(config).path.read_bytes()
    again = Interrupting("nothing", 0)
    assert measure_sharpness(config, again).path.read_bytes() == before
    assert not any("gradient" in stage for stage in again.stages)
    with pytest.raises(StoreError, match="other inputs"):
        measure_sharpness(SharpnessConfig(str(truncated), out=tmp_path / "a.h5", **(given | {"tokens": 160})))
    (tmp_path / "a.h5").write_bytes(before[: len(before) // 2])
    with pytest.raises(StoreError, match="not a whole HDF5 file"):
        measure_sharpness(config)


def test_the_quadratic_model_along_a_quantizer_and_adams_view(truncated: Path, tmp_path: Path):
    given = options(density_steps=0, bottom=0, top=1, tokens=128, params="*")
    stored = measure_sharpness(SharpnessConfig(str(truncated), out=tmp_path, quant="rtn-w8-channel", **given)).stored
    section = stored.sections["direction"]
    assert section["predicted"] == pytest.approx(section["slope"] + 0.5 * section["quadratic"])
    assert section["predicted"] == pytest.approx(section["actual"], rel=0.2, abs=2e-6)  # eight bits: a small step
    assert stored.sections["direction/layers"]["slope"].sum() == pytest.approx(section["slope"])
    adam = measure_sharpness(SharpnessConfig(str(truncated), out=tmp_path, adam=True, **given)).stored
    plain = stored.sections["eigenvalues/top"]["values"][0]
    assert adam.sections["eigenvalues/top"]["values"][0] > plain and "Adam" in adam.attributes["operator"]


def test_the_command_prints_every_number_with_its_error(capsys, monkeypatch, tmp_path: Path):
    text = str(REFERENCE / "corpus" / "validation.jsonl.xz")
    words = ["sharpness", str(REFERENCE / "mini-pythia"), "--text", text, "--tokens", "512", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["landscape", *words, "--density-steps", "6", "--density-probes", "2"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    printed = capsys.readouterr().out
    assert stop.value.code == 0, printed
    for word in ("λ_max", "λ_min", "trace", "±", "λ >", "n = 857,216", "512 tokens"):
        assert word in printed
    (data,) = tmp_path.glob("*.h5")
    with h5py.File(data) as file:
        assert file["density/nodes"].shape == (2, 6) and file.attrs["status"] == "complete"
        assert str(tmp_path) not in str(dict(file.attrs))
    (figure,) = tmp_path.glob("*.png")
    assert figure.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--params", "nothing*"], "parameters nothing*: match none of 40 tensors"),
        (["--top", "0"], "--top 0: expected a whole number of at least 1"),
        (["--tolerance", "2"], "--tolerance 2.0: expected a fraction between 0 and 1"),
        (["--product", "sideways"], "sideways"),
        (["--checkpointing", "--product", "forward"], "--checkpointing with --product forward"),
        (["--rough", "often"], "often"),
        (["--start", "/nowhere.safetensors"], "--start /nowhere.safetensors: cannot be read (No such file"),
        (["--start", __file__], "cannot be read (Error while deserializing header"),
        (["--start", str(REFERENCE / "mini-pythia" / "step8000" / "model.safetensors")], "no eigenvectors; expected"),
        (["--adam", "--layers"], "--adam with --layers"),
        (["--quant", "rtn-w99"], "rtn-w99"),
        (["--max-probes", "3"], "--max-probes 3: expected a whole number of at least 10"),
        (["--out", "/proc/nowhere/a.h5"], "/proc/nowhere"),
    ],
)
def test_mistakes_are_one_line(capsys, monkeypatch, tmp_path: Path, given: list[str], message: str):
    text = str(REFERENCE / "corpus" / "validation.jsonl.xz")
    place = [] if "--out" in given else ["--out", str(tmp_path)]
    words = ["sharpness", str(REFERENCE / "mini-pythia"), "--text", text, "--tokens", "256", *place, *given]
    monkeypatch.setattr(sys, "argv", ["landscape", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    shown = capsys.readouterr().err.strip().splitlines()[-1]
    assert stop.value.code == 2 and shown.startswith("landscape: ") and message in shown
    assert not list(tmp_path.iterdir()), "nothing is left behind"


def test_other_files_are_refused(tmp_path: Path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs["schema"] = 1
    with pytest.raises(StoreError, match="not a file of curvature"):
        store.read(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.attrs.update({"schema": 99, "kind": "sharpness", "status": "complete"})
    with pytest.raises(StoreError, match="schema 99"):
        store.read(tmp_path / "a.h5")
    with pytest.raises(StoreError, match="no such file"):
        store.read(tmp_path / "b.h5")
