"""A model larger than memory: evaluated, sliced, its trace and λ_max, under a limit that its weights alone exceed.

Every command runs three times: streamed within the limit, in memory without one, and in memory within it, to see it
fail. The limit is that of a control group: it holds everything, pages of files included, which the system gives up when
memory runs short. What it cannot give up is shown beside it.

    .venv/bin/python benchmarks/beyond_memory.py --layers 48 --limit 512
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from several import several

_ROOT = Path("/sys/fs/cgroup")
_CACHE = Path(__file__).parent / ".cache"
_V1 = ("memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes", "total_rss")
_V2 = ("", "memory.max", "memory.peak", "anon")
_SWAP = {"memory.memsw.limit_in_bytes", "memory.swap.max"}
_QUANTIZERS = "rtn-w4-g128,gptq-w4-g128"
_JOBS = ["evaluate", "slice", "sharpness"]
_IMPORTS = """import landscape.basin.job, landscape.evaluation.job, landscape.sharpness
import transformers.models.llama.modeling_llama"""


@dataclass(frozen=True)
class Done:
    """A command that ended: how, after how many seconds, and at most how many bytes it took."""

    code: int
    seconds: float
    held: int  # that no file stands for
    most: int  # of everything
    said: str

    @property
    def outcome(self) -> str:
        """In words."""
        if self.code == 0:
            return "done"
        if self.code == -signal.SIGKILL:
            return "killed by the system"
        return f"refused: {self.said.rpartition('landscape: ')[2][:90]}…"


def main() -> None:
    """Make a model, run everything, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=48, help="blocks of 3.2 million parameters")
    parser.add_argument("--limit", type=int, default=512, help="megabytes (2²⁰ bytes)")
    parser.add_argument("--only", type=several(_JOBS), default=_JOBS, help=f"of {', '.join(_JOBS)}, with commas")
    args = parser.parse_args()
    limit = args.limit << 20
    _CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="beyond-", dir=_CACHE) as name:  # /tmp may lie in memory
        folder = Path(name)
        if not _can_limit(limit):
            sys.exit("this needs a control group with a limit of memory, and may not make one here: run it as root")
        parameters = _make(folder, args.layers)
        base = _run([sys.executable, "-c", _IMPORTS], limit)
        print(
            f"limit {args.limit} MiB; {parameters / 1e6:.1f} million parameters, {parameters / 2**18:.0f} MiB in",
            end=" ",
        )
        print(f"float32, {parameters / 2**19:.0f} in the file; Python and its libraries alone hold {base.held >> 20}\n")
        print("| | limit | outcome | s | held, MiB | with files, MiB |\n|---|---|---|---|---|---|")
        for job in args.only:
            ways = {}
            for stream, most in (("always", limit), ("never", None), ("never", limit)):
                out = folder / f"{job}-{stream}"
                done = ways[stream, most] = _run(_command(job, folder, out, stream), most)
                words = "streamed" if stream == "always" else "in memory"
                bound = f"{args.limit} MiB" if most else "none"
                row = (f"{job}, {words}", bound, done.outcome, f"{done.seconds:.0f}", done.held >> 20, done.most >> 20)
                print(f"| {' | '.join(map(str, row))} |", flush=True)
            if ways["always", limit].code == 0 and ways["never", None].code == 0:
                print(f"\n{_compared(job, folder)}\n", flush=True)


def _make(folder: Path, layers: int) -> int:
    """A Llama with random weights in bfloat16, two steps of a run, a tokenizer, and a text; its parameters."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()
    words = [f"w{i}" for i in range(1000)]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    config = LlamaConfig(
        hidden_size=512, intermediate_size=1408, num_hidden_layers=layers, num_attention_heads=8, vocab_size=len(words)
    )
    for step in (1, 2):
        torch.manual_seed(step)
        model = LlamaForCausalLM(config).bfloat16()
        model.save_pretrained(folder / "run" / f"step{step}")
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w0").save_pretrained(
            folder / "run" / f"step{step}"
        )
    chosen = random.Random(0).choices(words, k=6000)
    (folder / "text.txt").write_text(" ".join(chosen))
    return sum(parameter.numel() for parameter in model.parameters())


def _command(job: str, folder: Path, out: Path, stream: str) -> list[str]:
    common = ["--text", folder / "text.txt", "--seq-len", 64, "--tokens", 128, "--batch-size", 1, "--overwrite"]
    own = {
        "evaluate": ["--quant", _QUANTIZERS, "--calibration-windows", 32, "--out", out],
        "slice": [
            "--plane",
            "checkpoints",
            "--quant",
            "rtn-w4-g128",
            "--grid",
            "5x5",
            "--dense",
            "--out",
            out / "x.h5",
        ],
        "sharpness": ["--bottom", 0, "--max-products", 4, "--trace-error", 0.5, "--max-probes", 10],
    }
    own["sharpness"] += ["--product", "difference", "--density-steps", 0, "--out", out / "x.h5"]
    command = [sys.executable, "-W", "ignore", "-m", "landscape", job, f"{folder / 'run'}@step2"]
    return [*map(str, [*command, *common, *own[job], "--stream", stream])]


def _compared(job: str, folder: Path) -> str:
    """What came out streamed beside what came out in memory."""
    import numpy as np

    from landscape import slices
    from landscape.curvature import store

    streamed, held = folder / f"{job}-always", folder / f"{job}-never"
    if job == "evaluate":
        pairs = [
            (json.loads(path.read_text()), json.loads((held / path.name).read_text())) for path in streamed.iterdir()
        ]
        same = all(one["windows"] == two["windows"] for one, two in pairs)
        losses = ", ".join(f"{one['quantizer']} {one['comparison']['loss_hat']['value']:.6f}" for one, _ in pairs)
        return f"Losses of every window: {'the same bits' if same else 'DIFFERENT'} ({losses})."
    if job == "slice":
        one, two = (slices.read(path / "x.h5") for path in (streamed, held))
        same = np.array_equal(one.loss, two.loss) and one.points == two.points
        return f"{one.loss.size} cells and {len(one.points)} points: {'the same bits' if same else 'DIFFERENT'}."
    one, two = (store.read(path / "x.h5").sections for path in (streamed, held))
    rows = []
    for place, name in (("eigenvalues/top", "values"), ("trace", "value")):
        a, b = (float(np.ravel(sections[place][name])[0]) for sections in (one, two))
        rows.append(f"{place} {a:.7g} and {b:.7g}, {abs(a / b - 1):.1e} apart")
    return f"{'; '.join(rows)}."


def _can_limit(limit: int) -> bool:
    try:
        with _group(limit):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def _group(limit: int | None) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """A control group of this program's own, and the names of its files."""
    files = _V1 if (_ROOT / _V1[0] / _V1[1]).exists() else _V2
    group = _ROOT / files[0] / f"beyond-{os.getpid()}"
    group.mkdir()
    try:
        if limit is not None:
            (group / files[1]).write_text(str(limit))
            for swap in _SWAP:
                with contextlib.suppress(OSError):
                    (group / swap).write_text("0" if swap.endswith("max") else str(limit))
        yield group, files
    finally:
        for _ in range(100):
            try:
                group.rmdir()
                break
            except OSError:  # what ended is still being taken away
                time.sleep(0.1)


def _run(command: list[str], limit: int | None) -> Done:
    """Run a command in a control group."""
    with _group(limit) as (group, (_, _, peak, held)), tempfile.TemporaryFile("w+") as said:
        begin = time.monotonic()

        def enter() -> None:
            (group / "cgroup.procs").write_text(str(os.getpid()))

        process = subprocess.Popen(command, preexec_fn=enter, stdout=subprocess.DEVNULL, stderr=said)
        most = 0
        while process.poll() is None:
            lines = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            most = max(most, int(lines[held]))
            time.sleep(0.02)
        seconds = time.monotonic() - begin
        said.seek(0)
        words = " ".join(said.read().split())
        return Done(process.returncode, seconds, most, int((group / peak).read_text()), words)


if __name__ == "__main__":
    main()
