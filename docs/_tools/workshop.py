"""Where the blocks of the documentation run: copies of the repository, with what its pages take for granted.

That is a training run in runs/mine, texts of one's own, and a Hub, which is a small one on the loopback interface whose
models are the bundled run under other names. No request leaves the machine.
"""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from hub import Hub, commit, serve  # noqa: E402

_REFERENCE = ROOT / "data" / "reference"
_TEXTS = {"held-out.jsonl": "validation", "corpus.jsonl": "train"}
_MODELS = {  # the Hub's name and revisions → a checkpoint of the bundled run
    "EleutherAI/pythia-160m": {"step141000": 4800, "step142000": 7200, "step143000": 8000, "main": 8000},
    "EleutherAI/pythia-12b": {"main": 8000},
}
_PARSED = ("landscape", "torchrun", "python", "make", "srun")  # of a block that is rehearsed; the others do nothing
_IDLE = ("scontrol", "sbatch", "ip", "ray", "pip", "ruff", "mypy", "pytest", "mkdocs")
_SLURM = {"SLURM_JOB_NODELIST": "node[1-4]", "SLURM_NNODES": "4", "SLURM_JOB_ID": "1"}


@dataclass(frozen=True)
class Workshop:
    """What every copy is made of."""

    home: Path
    files: Sequence[str]
    hub: Hub

    @contextmanager
    def copy(self) -> Iterator[Path]:
        """A copy of the repository, gone afterwards."""
        with tempfile.TemporaryDirectory(dir=self.home) as name:
            folder = Path(name) / "landscape"
            for file in self.files:
                target = folder / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, target)
            (folder / ".venv").symlink_to(ROOT / ".venv")
            for name in ("pyproject.toml", "constraints.txt"):  # newer than .venv, they would be installed anew
                os.utime(folder / name, (0, 0))
            shutil.copytree(_REFERENCE / "mini-pythia", folder / "runs" / "mine")
            for name, split in _TEXTS.items():
                (folder / name).write_bytes(lzma.decompress((_REFERENCE / "corpus" / f"{split}.jsonl.xz").read_bytes()))
            yield folder

    def environment(self, folder: Path, rehearse: bool = False) -> dict[str, str]:
        """What a block sees: the project's commands first, this Hub alone, no browser."""
        places = [str(ROOT / ".venv" / "bin"), os.environ["PATH"]]
        if rehearse:
            places.insert(0, str(self.home / "shims"))
        return (_SLURM if rehearse else {}) | {
            "PATH": os.pathsep.join(places),
            "LANG": "C.UTF-8",
            "HOME": str(self.home),
            "HF_HOME": str(self.home / "huggingface"),
            "HF_ENDPOINT": self.hub.address,
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "100",
            "BROWSER": "true",
            "PYTHONPATH": str(folder),
            "no_proxy": "127.0.0.1",
            **dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), self.hub.address),
        }


@contextmanager
def workshop(home: Path) -> Iterator[Workshop]:
    """Lay it out in `home`, and serve the Hub."""
    listed = subprocess.check_output(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True
    ).splitlines()
    files = [name for name in listed if (ROOT / name).is_file()]
    (home / "shims").mkdir()
    for name in (*_PARSED, *_IDLE):
        shim = home / "shims" / name
        shim.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).with_name("rehearsal.py")}" {name} "$@"\n'
        )
        shim.chmod(0o755)
    models = {}
    for name, revisions in _MODELS.items():
        commits = {revision: commit(f"{name}{revision}") for revision in revisions}
        folders = {commits[each]: _REFERENCE / "mini-pythia" / f"step{step}" for each, step in revisions.items()}
        models[name] = {"refs": commits, "files": folders}
    texts = {
        "Salesforce/wikitext": {"refs": {"main": commit("wikitext")}, "files": {commit("wikitext"): _wikitext(home)}}
    }
    with serve(models, texts) as hub:
        yield Workshop(home, files, hub)


def _wikitext(home: Path) -> Path:
    """A data set of that name and layout, of the bundled text."""
    import json

    import pyarrow as pa
    import pyarrow.parquet as pq

    folder, name = home / "wikitext", "wikitext-2-raw-v1"
    (folder / name).mkdir(parents=True)
    for split, file in (("test", "validation"), ("train", "train")):
        lines = lzma.decompress((_REFERENCE / "corpus" / f"{file}.jsonl.xz").read_bytes()).decode().splitlines()
        table = pa.table({"text": [json.loads(line)["text"] for line in lines]})
        pq.write_table(table, folder / name / f"{split}-00000-of-00001.parquet")
    (folder / "README.md").write_text(
        f"---\nconfigs:\n- config_name: {name}\n  data_files:\n  - split: test\n    path: {name}/test-*\n"
        f"  - split: train\n    path: {name}/train-*\n---\n"
    )
    return folder
