"""What somebody packed, as a point of a plane."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import landscape as ls
from landscape import packed, viewer
from landscape.config import EvaluateConfig
from landscape.evaluation import evaluate_model
from landscape.models import load_model
from landscape.models.references import resolve
from landscape.slices import StoredSlice
from landscape.weights import Weights
from test_basin import config

pytestmark = [pytest.mark.usefixtures("process"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def eight_bits(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The end of the run, by bitsandbytes."""
    pytest.importorskip("bitsandbytes")
    pytest.importorskip("accelerate")
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    folder = tmp_path_factory.mktemp("packed") / "theirs"
    quantization = BitsAndBytesConfig(load_in_8bit=True)
    model = AutoModelForCausalLM.from_pretrained(run / "step30", quantization_config=quantization, dtype=torch.float32)
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def render(run: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def render(**changes: object) -> StoredSlice:
        for draw in ("write_page", "write_figure"):
            monkeypatch.setattr(viewer, draw, lambda stored, path: None)
        result = ls.render_slice(config(run, text_file, tmp_path, dense=True, **changes))
        assert str(tmp_path).encode() not in result.path.read_bytes()
        return result.slice

    return render


def test_a_line_to_it(render, run: Path, text_file: Path, eight_bits: Path, tmp_path: Path):
    stored = render(plane="line", to=str(eight_bits), grid="9")
    theta, other = stored.points
    assert (theta.name, other.name, other.label) == ("theta", "theta_to", "Θ̂_{theirs}")
    model = load_model(resolve(f"{run}@30"))
    dense, _ = packed.load_dense(packed.locate(str(eight_bits)), Weights.of(model), model)
    assert other.alpha == pytest.approx((dense - Weights.of(model)).norm(), rel=1e-6)
    found = evaluate_model(
        EvaluateConfig(
            model=f"{run}@30",
            text=str(text_file),
            tokens=256,
            seq_len=32,
            quant="none",
            packed=str(eight_bits),
            out=tmp_path,
        )
    )
    assert other.loss == pytest.approx(found[1].comparison.loss_hat.value, rel=1e-6)
    assert other.loss != theta.loss


def test_a_plane_through_it_and_our_own(render, eight_bits: Path):
    stored = render(prev=str(eight_bits), quant="rtn-w3-g16")
    theirs, ours = stored.points[1:]
    assert (theirs.name, theirs.label, theirs.role) == ("theta_prev", "Θ̂_{theirs}", "quantized")
    assert (ours.name, ours.label) == ("theta_hat", "Θ̂_K")
    assert theirs.alpha > 0 and theirs.beta == pytest.approx(0, abs=1e-9) and abs(ours.beta) > 0
    assert "weights that somebody packed, Θ̂_{theirs}" in stored.attributes["about"]
    assert "Θ_{K−1}" not in stored.attributes["about"] + stored.attributes["alpha_title"]
    assert np.isfinite(stored.loss).all()


def test_of_another_model(render, run: Path, eight_bits: Path, landscape, text_file: Path, tmp_path: Path):
    code, _, err = landscape(
        "slice", f"{run}@20", "--plane", "line", "--to", eight_bits, "--text", text_file, "--out", tmp_path / "out"
    )
    assert code == 2 and "expected a quantization of this very checkpoint" in " ".join(err.split())
    assert not list((tmp_path / "out").glob("*"))
