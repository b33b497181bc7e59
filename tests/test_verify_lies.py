"""Files that do not tell the truth, sealed as if they did: every lie is found, and called by what it is about.

One copy of each kind holds many lies at once, each in another number, and is checked whole.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import results
from landscape.config import VerifyConfig
from landscape.slices.surface import from_plain, on_grid, to_plain
from landscape.study import table
from landscape.verifying import Verdict, verify_file
from results import changed, stretch

pytest.importorskip("pyarrow")
pytestmark = pytest.mark.usefixtures("process")


@pytest.fixture
def verify(run: Path, text_file: Path):
    def check(file: Path, **options: object) -> Verdict:
        return verify_file(VerifyConfig(file, model=str(run), text=str(text_file), cells=1000, **options))

    return check


def lies(verdict: Verdict) -> list[str]:
    return [item.what for item in verdict.lies]


def told(words: str, found: list[str]) -> bool:
    return any(each.startswith(words) for each in found)


def below(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


def test_of_an_adaptive_slice(run: Path, text_file: Path, verify, tmp_path: Path):
    path = results.adaptive(run, text_file, tmp_path)

    def lie(file: h5py.File) -> None:
        kinds = file["nodes/kind"][:]
        node, check = int(np.flatnonzero(kinds == 1)[2]), int(np.flatnonzero(kinds == 2)[3])
        stretch(file["nodes/loss"], node, 1 + 1e-6)
        stretch(file["nodes/loss"], check, 1 + 1e-6)
        stretch(file["points/theta_hat/loss"], (), 1 + 1e-6)
        stretch(file["loss"], (7, 0), 1 + 1e-7)
        stretch(file["profile/loss"], 30, 1 + 1e-7)
        stretch(file["checks/reconstructed"], 0, 1 + 1e-7)
        stretch(file["tables/layers/weight_error"], 1, 1 + 1e-9)
        file["points/theta_hat"].attrs["alpha"] *= 1 + 1e-9
        file.attrs["direction_lengths"] = np.array(file.attrs["direction_lengths"]) * (1 + 1e-9)
        file.attrs["weight_norm"] *= 1 + 1e-6
        file.attrs["eval_tokens"] += 32
        file.attrs["plane_fingerprint"] = "0" * 64
        file["certificate"].attrs["worst_check"] /= 2
        name = next(name for name, value in file["reading"].attrs.items() if np.isfinite(value) and value)
        file["reading"].attrs[name] *= 1.001

    found = lies(verify(changed(path, below(tmp_path, "lies"), lie)))
    for words in (
        "plane, to the bit", "place of Θ̂_K", "directions", "model", "text", "layers", "loss at Θ̂_K", "loss at node 2",
        "loss at check 3", "picture as its surface gives it", "profile as the surface gives it",
        "check points as the surface gives them", "check points as evaluated", "largest error at check points",
        "what is read off the picture",
    ):  # fmt: skip
        assert told(words, found), (words, found)
    assert not told("loss at Θ_K", found) and not told("loss at node 1", found)


def test_of_a_picture_drawn_from_another_surface(run: Path, text_file: Path, verify, tmp_path: Path):
    """All that follows from the surface follows from the false one; what was evaluated contradicts it."""
    path = results.adaptive(run, text_file, tmp_path)

    def lie(file: h5py.File) -> None:
        coefficients = file["surface/coefficients"]
        coefficients[0] *= 1.01
        plain = {"bounds": [*np.ravel(file["surface/bounds"][:]).tolist()], "coefficients": coefficients[:].tolist()}
        surface = from_plain(plain)
        assert to_plain(surface) == plain
        alpha, beta = file["alpha"][:], file["beta"][:]
        file["loss"][...] = on_grid(surface, alpha, beta)
        checks = file["checks"]
        checks["reconstructed"][...] = surface(checks["alpha"][:], checks["beta"][:])
        worst = float(np.abs(checks["loss"][:] - checks["reconstructed"][:]).max())
        file["certificate"].attrs["worst_check"] = worst
        file["profile/loss"][...] = np.nan

    found = lies(verify(changed(path, below(tmp_path, "lies"), lie)))
    assert told("which the error stated covers", found) and told("as it covers the nodes", found)
    assert told("loss at cell", found) and not told("picture as its surface gives it", found)


def test_of_a_dense_slice(run: Path, text_file: Path, verify, tmp_path: Path):
    path = results.dense(run, text_file, tmp_path)

    def lie(file: h5py.File) -> None:
        stretch(file["loss"], (2, 1), 1 + 1e-7)
        file["loss"][0, 2] = np.nan
        stretch(file["profile/loss"], 4, 1 + 1e-7)
        stretch(file["points/theta_prev/loss"], (), 1 + 1e-7)
        file["points/theta_prev"].attrs["residual"] += 1e-6

    found = lies(verify(changed(path, below(tmp_path, "lies"), lie)))
    expected = ("loss at cell 2, 1", "loss at cell 0, 2", "loss at profile 4", "loss at Θ_{K−1}", "place of Θ_{K−1}")
    assert len(found) == 5 and all(told(words, found) for words in expected)


def test_of_a_measurement_of_curvature(run: Path, text_file: Path, verify, tmp_path: Path):
    path = results.curvature(run, text_file, tmp_path)

    def lie(file: h5py.File) -> None:
        stretch(file["eigenvalues/top/values"], 1, 1.0001)
        stretch(file["eigenvalues/bottom/residuals"], 0, 1.0001)
        stretch(file["trace/samples"], 5, 1.0001)
        file["trace"].attrs["value"] = float(file["trace/samples"][:].mean())  # as an honest mean of false samples
        file["trace"].attrs["rounds"] += 1
        for probe in range(2):
            stretch(file["density/nodes"], (probe, int(np.argmax(file["density/weights"][probe]))), 1.001)
        stretch(file["density/above"], 0, 1.01)
        file["direction"].attrs["quadratic"] *= 1.0001
        stretch(file["direction/layers/slope"], int(np.argmax(np.abs(file["direction/layers/slope"]))), 1.0001)
        file.attrs["gradient_norm"] *= 1.0001
        file.attrs["loss"] *= 1.0001
        file.attrs["parameters"] += 1

    found = lies(verify(changed(path, below(tmp_path, "lies"), lie)))
    for words in (
        "model and text", "loss", "‖g‖", "eigenvalue top 1", "residual bottom 0", "trace: sample 5", "trace: rounds",
        "density as its nodes give it", "density: first moment", "along the step of rtn-w3-g16", "shares of the layers",
    ):  # fmt: skip
        assert told(words, found), (words, found)
    assert not told("eigenvalue top 0", found) and not told("trace: sample 4", found)


def test_of_eigenvectors_and_traces_by_products(run: Path, text_file: Path, verify, tmp_path: Path):
    path = results.curvature(run, text_file, tmp_path, vectors=True, layers=True, quant=None, density_steps=0)
    assert verify(path).holds

    def lie(file: h5py.File) -> None:
        stretch(file["eigenvalues/top/values"], 0, 1.001)
        stretch(file["eigenvalues/bottom/values"], 0, 1.001)
        stretch(file["trace/samples"], 3, 1.001)
        stretch(file["trace/layers/value"], 0, 1.01)

    copy = changed(path, below(tmp_path, "lies"), lie)
    vectors = copy.with_name(f"{copy.stem}.top.safetensors")
    tensors = load_file(vectors)
    name = next(name for name in tensors if name.startswith("top.1."))
    tensors[name] = tensors[name] + 0.01 * torch.ones_like(tensors[name])
    with safe_open(vectors, "pt") as file:
        metadata = file.metadata()
    save_file(tensors, vectors, metadata)
    found = lies(verify(copy))
    for words in (
        "eigenvectors, top: off orthonormal", "eigenvalue top 0", "eigenvalue bottom 0", "residual top 1",
        "trace: sample 3", "trace, the mean of its samples", "trace, the sum of its tensors",
    ):  # fmt: skip
        assert told(words, found), (words, found)
    assert not told("residual top 0", found)


def test_of_an_evaluation(run: Path, text_file: Path, verify, tmp_path: Path):
    path = results.evaluated(run, text_file, tmp_path)

    def lie(content: dict[str, Any]) -> None:
        content["windows"]["sum"][3] *= 1 + 1e-7
        content["windows"]["sum_hat"][8] *= 1 + 1e-7
        content["windows"]["predicted"][0] -= 1
        content["comparison"]["relative"]["low"] *= 1.001
        content["report"]["layers"][2]["weight_error"] *= 1 + 1e-9
        content["report"]["bits"] *= 0.99
        content["step"]["slope"] *= 1.0001
        content["total_parameters"] += 1

    found = lies(verify(changed(path, below(tmp_path, "lies"), lie)))
    for words in (
        "model and text", "layers", "size", "tokens predicted", "window 3 under Θ", "window 8 under Θ̂",
        "relative over all windows", "second order",
    ):  # fmt: skip
        assert told(words, found), (words, found)
    assert "window 3 under Θ̂" not in found and "window 8 under Θ" not in found and not told("window 4", found)


def test_of_a_study(run: Path, text_file: Path, verify, tmp_path: Path):
    folder = results.table(run, text_file, tmp_path, quant=["rtn-w3-g16"], measure="error").parent
    facts = json.loads(table_facts(folder))
    rows = table.read(folder)
    rows[1]["delta_q"] *= 1 + 1e-6
    table.write(folder, "study", rows, facts)
    layers = table.read(folder / "layers.parquet")
    layers[0]["weight_error"] *= 1 + 1e-6
    table.write(folder, "layers", layers, facts)
    found = [item.what for item in verify_file(VerifyConfig(folder, cells=1000)).lies]
    assert len(found) == 2 and "step20 rtn-w3-g16" in found[0] + found[1] and "delta_q" in found[0] + found[1]
    assert any("weight_error" in each and "step10" in each for each in found)

    def lie(content: dict[str, Any]) -> None:
        content["comparison"]["loss"]["value"] *= 1 + 1e-6

    path = next(folder.glob("evaluations/run-step30-*.json"))
    shutil.copy(changed(path, below(tmp_path, "lies"), lie), path)
    rows = table.read(folder)
    rows[1]["delta_q"] /= 1 + 1e-6
    rows[2]["loss"] *= 1 + 1e-6  # as the false file says
    table.write(folder, "study", rows, facts)
    alone = verify_file(VerifyConfig(folder, cells=1000))
    assert not any("step30" in item.what for item in alone.lies)
    with_files = lies(verify(folder))
    assert any(path.name in each and "loss over all windows" in each for each in with_files)


def table_facts(folder: Path) -> str:
    from pyarrow import parquet

    about = json.loads(parquet.read_schema(folder / "study.parquet").metadata[b"landscape"])
    return json.dumps(
        {name: value for name, value in about.items() if name not in ("kind", "schema", "digest", "rows")}
    )
