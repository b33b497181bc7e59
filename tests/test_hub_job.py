"""The whole job on a model and a text of the Hub, served on the loopback interface."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import hub
from conftest import prose
from hub import commit

CALL = """
import contextlib, io, sys
from landscape import cli, slices
sys.argv = ["landscape", "slice", *{arguments!r}]
out, err = io.StringIO(), io.StringIO()
with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    try:
        cli.main()
    except SystemExit as end:
        code = end.code or 0
import pathlib
files = sorted(pathlib.Path({folder!r}).glob("*.h5"), key=lambda path: path.stat().st_mtime)
facts = {{}}
if files:
    stored = slices.read(files[-1])
    facts = dict(stored.attributes, previous=stored.point("theta_prev").what)
keep = ("model", "model_identity", "previous", "sources", "text", "status", "calibration_tokens", "config")
report([code, out.getvalue(), err.getvalue(), {{name: facts.get(name) for name in keep}}])
"""


@pytest.fixture
def repositories(run: Path, tmp_path: Path):
    pandas = pytest.importorskip("pandas")
    text = tmp_path / "wikitext"
    data = text / "wikitext-2-raw-v1"
    data.mkdir(parents=True)
    for split, seed in (("test", 1), ("train", 2)):
        rows = ["", *(prose(30, seed=seed * 100 + n) + "\n" for n in range(60))]
        pandas.DataFrame({"text": rows}).to_parquet(data / f"{split}-00000-of-00001.parquet")
    (text / "README.md").write_text(
        "---\nconfigs:\n- config_name: wikitext-2-raw-v1\n  data_files:\n"
        "  - split: test\n    path: wikitext-2-raw-v1/test-*\n"
        "  - split: train\n    path: wikitext-2-raw-v1/train-*\n---\n"
    )
    main = tmp_path / "main"
    shutil.copytree(run / "step30", main)
    folders = {"step141000": run / "step10", "step142000": run / "step20"}
    folders |= {"step143000": run / "step30", "main": main}
    model = {
        "refs": {name: commit(name) for name in folders},
        "files": {commit(name): folder for name, folder in folders.items()},
    }
    data_set = {"refs": {"main": commit("wikitext")}, "files": {commit("wikitext"): text}}
    return {"EleutherAI/pythia-160m": model}, {"Salesforce/wikitext": data_set}


def test_the_command_of_the_readme(repositories, tmp_path: Path):
    folder = tmp_path / "out"
    small = ["--tokens", "256", "--seq-len", "32", "--grid", "3x3", "--out", str(folder)]
    wanted = ["--quant", "gptq-w3-g16", "--text", "wikitext", *small]
    with hub.serve(*repositories) as served:

        def call(*arguments: str):
            return hub.run(
                CALL.format(arguments=[*arguments, *wanted], folder=str(folder)), served.address, tmp_path / "home"
            )

        code, out, err, facts = call("EleutherAI/pythia-160m@step143000", "--prev", "@step142000")
        assert code == 0, err
        assert facts["model"] == "EleutherAI/pythia-160m@step143000"
        assert facts["model_identity"] == f"commit:{commit('step143000')}"
        assert facts["previous"] == "EleutherAI/pythia-160m@step142000"
        assert json.loads(facts["sources"])["others"] == [f"commit:{commit('step142000')}"]
        assert facts["text"] == "Salesforce/wikitext:wikitext-2-raw-v1:test"
        assert facts["calibration_tokens"] > 0
        assert "pythia-160m-step143000-gptq-w3-g16" in out
        assert str(tmp_path) not in json.dumps(facts)

        # the branch main holds the same weights as step143000: the predecessor is the one before
        code, _, err, facts = call("EleutherAI/pythia-160m")
        assert code == 0, err
        assert (facts["model"], facts["previous"]) == ("EleutherAI/pythia-160m", "EleutherAI/pythia-160m@step142000")

        code, _, err, _ = call("EleutherAI/pythia-160m@step143001")
        assert code == 2
        said = err.rstrip().splitlines()[-1]
        assert said.startswith("landscape: model EleutherAI/pythia-160m: no revision step143001 on the Hub")
        assert "nearest: step143000, step142000" in said
