"""What jobs write names no person, no machine, no place on it and no token."""

from __future__ import annotations

import re
import shutil
import socket
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import parquet

from landscape.averaging import average_checkpoints
from landscape.basin import render_slice
from landscape.config import (
    AverageConfig,
    EvaluateConfig,
    FrontierConfig,
    SharpnessConfig,
    SliceConfig,
    StudyConfig,
    TrainConfig,
    ViewConfig,
)
from landscape.evaluation import evaluate_model
from landscape.evaluation.frontier import compare_sizes
from landscape.pretraining import train_model
from landscape.sharpness import measure_sharpness
from landscape.study import run_study
from landscape.viewing import view_results

SECRETS = ("user7f3a", "host9c1d", "hf_tokenSECRET", "place5b2e")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, run: Path, text_file: Path) -> Iterator[Path]:
    """What all jobs wrote, in a home that is easily told; `inputs` is beside it."""
    home = tmp_path_factory.mktemp("homes") / "user7f3a"
    inputs, out = home / "place5b2e", home / "results"
    shutil.copytree(run, inputs / "run")
    shutil.copy(text_file, inputs / "prose.txt")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "HOME": str(home),
            "USER": "user7f3a",
            "LOGNAME": "user7f3a",
            "HOSTNAME": "host9c1d",
        }.items():
            patch.setenv(name, value)
        patch.setenv("HF_TOKEN", "hf_tokenSECRET")
        patch.setattr(socket, "gethostname", lambda: "host9c1d")
        patch.setattr("platform.node", lambda: "host9c1d")
        patch.chdir(home)
        model, text = str(inputs / "run" / "step30"), str(inputs / "prose.txt")
        shared = {"text": text, "tokens": 256, "seq_len": 32, "device": "cpu"}
        small = {"max_probes": 10, "trace_error": 0.5, **shared}
        render_slice(SliceConfig(model, quant="rtn-w3-g16", dense=True, grid="3x3", out=out / "slices", **shared))
        measured = {"density_steps": 3, "density_probes": 2, "layers": True, "vectors": True}
        measure_sharpness(SharpnessConfig(model, out=out / "sharpness", **measured, **small))
        evaluate_model(EvaluateConfig(model, quant="gptq-w4-g16", calibration=text, out=out / "evaluations", **shared))
        compare_sizes(FrontierConfig([str(out / "evaluations")], out=out / "frontier" / "sizes"))
        run_study(StudyConfig(f"{inputs / 'run'}@last=1", quant=["rtn-w4-g16"], out=out / "study", **small))
        average_checkpoints(AverageConfig([str(inputs / "run")], out=out / "mean", window=2))
        recipe = inputs / "recipe.yaml"
        recipe.write_text(
            "model: {type: gpt_neox, hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2}\n"
            f"text: {text}\nvocabulary: 270\nseq_len: 16\nbatch_size: 2\nsteps: 2\nkeep_state: [1]\n"
        )
        train_model(TrainConfig(str(recipe), out=out / "trained", data=out / "tokens", device="cpu"))
        view_results(ViewConfig([str(out)], out=out / "pages", figures=True))
    yield out


def contents(path: Path) -> Iterator[bytes]:
    """The bytes of a file, and what is compressed in it."""
    raw = path.read_bytes()
    yield path.name.encode()
    yield raw
    if path.suffix == ".pdf":
        for stream in re.findall(rb"stream\r?\n(.*?)endstream", raw, re.DOTALL):
            try:
                yield zlib.decompress(stream)
            except zlib.error:
                continue
    if path.suffix == ".png":
        for kind, text in re.findall(rb"(tEXt|zTXt|iTXt|eXIf)(.{0,2000})", raw, re.DOTALL):
            start = text.find(b"\0") + 2
            yield zlib.decompressobj().decompress(text[start:]) if kind == b"zTXt" else text
    if path.suffix == ".parquet":
        table = parquet.read_table(path)
        yield repr(table.to_pylist()).encode() + repr(table.schema.metadata).encode()


def test_results_name_no_person_machine_place_or_token(written: Path):
    files = [path for path in written.rglob("*") if path.is_file()]
    kinds = {path.suffix for path in files}
    assert {".h5", ".json", ".parquet", ".csv", ".pdf", ".png", ".html", ".yaml", ".safetensors", ".jsonl"} <= kinds
    found = {
        f"{path.relative_to(written)}: {secret}"
        for path in files
        for content in contents(path)
        for secret in SECRETS
        if secret.encode() in content or secret.encode("utf-16-be") in content
    }
    assert found == set()


def test_the_search_finds_what_is_compressed(tmp_path: Path):
    packed = zlib.compress(b"(user7f3a)")
    (tmp_path / "a.pdf").write_bytes(b"stream\n" + packed + b"\nendstream")
    assert b"user7f3a" not in packed and any(b"user7f3a" in content for content in contents(tmp_path / "a.pdf"))
