"""Studies of a run on the Hub, served on the loopback interface: rates, what is missing, what is deleted, offline."""

from __future__ import annotations

from pathlib import Path

import pytest

import hub
from hub import commit
from studies import command

pytest.importorskip("pyarrow")

CALL = """
import contextlib, io, sys, pathlib
from landscape import cli
from landscape.study import read
from huggingface_hub import scan_cache_dir
sys.argv = ["landscape", *{arguments!r}]
out, err = io.StringIO(), io.StringIO()
with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    try:
        cli.main()
    except SystemExit as end:
        code = end.code or 0
folder = pathlib.Path({folder!r})
rows = read(folder) if (folder / "study.parquet").exists() else []
keep = ("checkpoint", "step", "tokens", "learning_rate", "previous", "quantizer", "identity", "distance", "delta_q")
kept = [revision.commit_hash for repo in scan_cache_dir().repos for revision in repo.revisions]
report([code, out.getvalue() + err.getvalue(), [{{name: row[name] for name in keep}} for row in rows], kept])
"""


@pytest.fixture
def repository(run: Path, tmp_path: Path):
    """A Pythia whose step20 lost its weights."""
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "config.json").write_bytes((run / "step20" / "config.json").read_bytes())
    folders = {"step142000": run / "step10", "step142500": empty, "step143000": run / "step30", "main": run / "step30"}
    refs = {name: commit(name) for name in folders}
    return {"EleutherAI/pythia-160m": {"refs": refs, "files": {refs[name]: folders[name] for name in folders}}}


def test_a_run_of_the_hub(repository, text_file: Path, tmp_path: Path):
    folder = tmp_path / "study"

    def call(*more: str, offline: bool = False):
        words = command("EleutherAI/pythia-160m", text_file, folder, "--measure", "error,step", *more)
        code = CALL.format(arguments=words, folder=str(folder))
        return hub.run(code, served.address, tmp_path / "home", offline)

    with hub.serve(repository) as served:
        code, said, rows, kept = call("--clean")
        assert code == 0, said
        assert [row["checkpoint"] for row in rows] == ["step142000", "step142000", "step143000", "step143000"]
        assert "skipped error of EleutherAI/pythia-160m@step142500" in " ".join(said.split())
        last = rows[-1]
        assert last["identity"] == f"commit:{commit('step143000')}" and last["step"] == 143000
        assert last["tokens"] == 143000 * 2_097_152 and last["learning_rate"] == pytest.approx(6e-5)
        assert last["previous"] is None and last["distance"] is None  # the one before has no weights
        assert kept == []  # nothing that this study brought is left

        asked = len(served.requests)
        code, said, again, _ = call()
        assert code == 0 and again == rows
        fetched = {request for request in served.requests[asked:] if request.endswith("model.safetensors")}
        assert fetched and not any(commit("step143000") in request for request in fetched)  # step142500 is tried again

        _, _, _, kept = call("--curvature-tokens", "64")
        assert {commit("step142000"), commit("step143000")} <= set(kept)  # without --clean they stay
        before = len(served.requests)
    code, said, rows, _ = call("--curvature-tokens", "96", offline=True)
    assert code == 0 and len(rows) == 4, said
    assert len(served.requests) == before
