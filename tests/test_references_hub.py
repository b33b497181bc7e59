"""What a model reference on the Hub means, or in the Hub's cache, and the one line that says why it means none."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkpoints import save, save_shards
from hub import Hub, commit, run, serve

SNIPPET = """
import os, time
from landscape.errors import ModelError
from landscape.models.references import predecessors, resolve

def outcome(reference, near=None, **options):
    start = time.monotonic()
    try:
        found = resolve(reference, near, **options)
    except ModelError as error:
        return {"error": str(error), "seconds": time.monotonic() - start}
    return {
        "text": str(found), "revision": found.revision, "step": found.step, "identity": found.identity,
        "files": sorted(os.listdir(found.folder)), "before": list(predecessors(found)),
        "seconds": time.monotonic() - start,
    }
"""


def outcomes(address: str, home: Path, *references: str, offline: bool = False) -> list[dict[str, Any]]:
    code = f"{SNIPPET}\nreport([outcome(reference) for reference in {list(references)!r}])"
    found: list[dict[str, Any]] = run(code, address, home, offline=offline)
    assert all("\n" not in outcome.get("error", "") for outcome in found)
    return found


def repository(folders: dict[str, Path], **more: Any) -> dict[str, Any]:
    """A repository with one commit for each named revision."""
    return {
        "refs": {name: commit(name) for name in folders},
        "files": {commit(name): folder for name, folder in folders.items()},
        **more,
    }


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    top = tmp_path_factory.mktemp("repositories")
    main = save(top / "main", b"final")
    save(main, b"pickled", "pytorch_model.bin")
    for name in ("tokenizer.json", "tokenizer.model", "merges.txt", "modeling_own.py", "README.md", "training.log"):
        (main / name).write_text(name)
    save(main / "onnx", file="model.safetensors")
    save(main / "original", file="consolidated.safetensors")
    run_of_one = {
        "main": main,
        "step900": save(top / "step900", b"900"),
        "step1000": save(top / "step1000", b"1000", "pytorch_model.bin"),
        "step2000": save_shards(
            top / "step2000", "pytorch_model.bin", {"pytorch_model-1.bin": b"1", "pytorch_model-2.bin": b"2"}
        ),
        "step3000": save_shards(
            top / "step3000", "model.safetensors", {"model-1.safetensors": b"1", "model-2.safetensors": b"2"}
        ),
    }
    stages = ("main", "stage1-step1000-tokens2B", "stage1-step2000-tokens4B", "stage2-ingredient1-step1500-tokens3B")
    return {
        "org/run": repository(run_of_one),
        "org/stages": repository({name: save(top / "stages" / name, name.encode()) for name in stages}),
        "org/gated": repository({"main": main}, gated=True),
        "org/branches": repository({name: run_of_one[name] for name in ("step900", "step1000")}),
        "org/weightless": repository({"main": main / "original"}),
        "alone": repository({"main": main}),
    }


@pytest.fixture
def hub(models: dict[str, dict[str, Any]]) -> Iterator[Hub]:
    with serve(models) as served:
        yield served


def test_hub_revisions_and_what_is_downloaded(hub: Hub, tmp_path: Path) -> None:
    main, alone = outcomes(hub.address, tmp_path, "org/run", "alone")

    assert (main["text"], main["revision"], main["step"]) == ("org/run", None, None)
    assert main["identity"] == f"commit:{commit('main')}"
    assert main["files"] == ["config.json", "merges.txt", "model.safetensors", "tokenizer.json", "tokenizer.model"]
    assert hub.downloaded() == set(main["files"])  # no pickles, nothing from folders, no code
    assert alone["text"] == "alone" and alone["files"] == main["files"]


def test_hub_pickles_where_there_is_nothing_else(hub: Hub, tmp_path: Path) -> None:
    whole, shards, safe_shards = outcomes(
        hub.address, tmp_path, "org/run@step1000", "org/run@step2000", "org/run@step3000"
    )

    assert whole["files"] == ["config.json", "pytorch_model.bin"]
    assert (whole["text"], whole["step"]) == ("org/run@step1000", 1000)
    assert whole["identity"] == f"commit:{commit('step1000')}"
    assert [name for name in shards["files"] if name.endswith(".bin")] == ["pytorch_model-1.bin", "pytorch_model-2.bin"]
    assert [name for name in safe_shards["files"] if "safetensors" in name] == [
        "model-1.safetensors",
        "model-2.safetensors",
        "model.safetensors.index.json",
    ]


def test_hub_identity_follows_a_branch_that_moves(models: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    moving = {**models["org/run"], "refs": {"main": commit("step900")}}
    with serve({"org/moving": moving}) as hub:
        (first,) = outcomes(hub.address, tmp_path, "org/moving")
        moving["refs"]["main"] = commit("main")
        (second,) = outcomes(hub.address, tmp_path, "org/moving")
        (pinned,) = outcomes(hub.address, tmp_path, f"org/moving@{commit('step900')}")

    assert first["identity"] == pinned["identity"] == f"commit:{commit('step900')}"
    assert second["identity"] == f"commit:{commit('main')}"


def test_hub_predecessors(hub: Hub, tmp_path: Path) -> None:
    main, third, stages, stage = outcomes(
        hub.address, tmp_path, "org/run", "org/run@step3000", "org/stages", "org/stages@stage1-step2000-tokens4B"
    )

    assert main["before"] == ["@step3000", "@step2000", "@step1000", "@step900"]
    assert third["before"] == ["@step2000", "@step1000", "@step900"]
    assert stages["before"] == []  # which of the stages led to main is not known
    assert stage["before"] == ["@stage1-step1000-tokens2B"]


def test_hub_a_step_near_a_checkpoint_and_code_on_request(hub: Hub, tmp_path: Path) -> None:
    code = (
        SNIPPET
        + 'main = resolve("org/run")\nreport([outcome("@step2000", main), outcome("org/run", remote_code=True)])'
    )
    near, with_code = run(code, hub.address, tmp_path)

    assert near["text"] == "org/run@step2000"
    assert "modeling_own.py" in with_code["files"]


def test_hub_what_is_not_there(hub: Hub, tmp_path: Path) -> None:
    references = (
        "org/nothing",
        "org/run@step1100",
        "org/run@mian",
        "org/gated",
        "org/branches",
        "org/weightless",
        "a--b",
    )
    found = [outcome["error"] for outcome in outcomes(hub.address, tmp_path, *references)]
    nothing, step, spelling, gated, branches, weightless, invalid = found

    assert "model org/nothing: no such directory, and no such model on the Hub; check the spelling" in nothing
    assert "model org/run: no revision step1100 on the Hub; nearest: step1000, step900, step2000" in step
    assert "model org/run: no revision mian on the Hub; nearest: main" in spelling
    assert "model org/gated: gated; accept its terms on the Hub and log in with `hf auth login`" in gated
    assert "model org/branches: no revision main on the Hub; nearest: step" in branches
    assert "model org/weightless: it has no model.safetensors; expected config.json and" in weightless
    assert "model a--b: no such directory, and not a Hub id such as org/name" in invalid


def test_hub_cache_serves_without_the_hub(models: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    references = ("org/run", "org/run@step1000", f"org/run@{commit('step900')}")
    with serve(models) as hub:
        online = outcomes(hub.address, tmp_path, *references)
        asked = len(hub.requests)
        offline = outcomes(hub.address, tmp_path, *references, offline=True)
        assert len(hub.requests) == asked
    gone = outcomes(hub.address, tmp_path, *references)

    for outcome in (*offline, *gone):
        assert outcome["seconds"] < 5  # refused at once, and not tried again and again
    for key in ("text", "identity", "files"):
        assert [outcome[key] for outcome in online] == [outcome[key] for outcome in offline]
        assert [outcome[key] for outcome in online] == [outcome[key] for outcome in gone]
    assert offline[0]["before"] == gone[0]["before"] == ["@step1000"]  # the others are not here


def test_hub_out_of_reach_and_nothing_cached(models: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    with serve(models) as hub:
        outcomes(hub.address, tmp_path, "org/run@step900", "org/run@step1000")
    references = ("org/run@step2000", "org/other", f"org/other@{commit('x')}")
    for offline, reason in ((True, "HF_HUB_OFFLINE is set"), (False, "the Hub gives none (ConnectError: ")):
        step, other, pinned = outcomes(hub.address, tmp_path, *references, offline=offline)

        assert "model org/run@step2000: no such directory, no complete copy in the local cache" in step["error"]
        assert "(it knows step1000, step900)" in step["error"]
        assert "model org/other: no such directory, no complete copy in the local cache, and" in other["error"]
        for outcome in (step, other, pinned):
            assert reason in outcome["error"]
            assert "check the spelling and the network, or download it where there is one" in outcome["error"]
            assert outcome["seconds"] < 10


def cache_by_hand(home: Path, name: str, folders: dict[str, Path]) -> Path:
    """The Hub's cache as people copy it between machines: refs, snapshots and blobs, nothing more."""
    top = home / "huggingface" / "hub" / f"models--{name.replace('/', '--')}"
    for revision, folder in folders.items():
        snapshot = top / "snapshots" / commit(revision)
        snapshot.mkdir(parents=True)
        (top / "blobs").mkdir(exist_ok=True)
        (top / "refs").mkdir(exist_ok=True)
        (top / "refs" / revision).write_text(commit(revision))
        for file in folder.iterdir():
            blob = top / "blobs" / commit(f"{revision} {file.name}")
            shutil.copyfile(file, blob)
            (snapshot / file.name).symlink_to(Path("..") / ".." / "blobs" / blob.name)
    return top


@pytest.mark.parametrize("offline", [True, False])
def test_hub_cache_copied_by_hand(tmp_path: Path, offline: bool) -> None:
    shards = {"model-1.safetensors": b"1", "model-2.safetensors": b"2"}
    partial = save_shards(tmp_path / "partial", "model.safetensors", shards)
    (partial / "model-2.safetensors").unlink()
    folders = {
        "main": save(tmp_path / "a"),
        "step10": save(tmp_path / "b", file="pytorch_model.bin"),
        "step20": partial,
    }
    top = cache_by_hand(tmp_path, "org/copied", folders)
    # Some tools leave a listing of the whole repository beside it, and huggingface_hub then wants every file of it.
    listing = {name: {"size": 2, "blob_id": "0" * 40} for name in ("config.json", "model.safetensors", "vocab.json")}
    (top / "trees").mkdir()
    (top / "trees" / f"{commit('main')}.json").write_text(json.dumps({"format_version": 1, "files": listing}))

    with serve({}) as gone:
        pass
    references = ("org/copied", "org/copied@step10", f"org/copied@{commit('main')}", "org/copied@step20")
    main, pickled, pinned, incomplete = outcomes(gone.address, tmp_path, *references, offline=offline)
    assert main["identity"] == pinned["identity"] == f"commit:{commit('main')}"
    assert main["files"] == ["config.json", "model.safetensors"]
    assert (pickled["text"], pickled["files"]) == ("org/copied@step10", ["config.json", "pytorch_model.bin"])
    assert "model org/copied@step20: no such directory, no complete copy in the local cache" in incomplete["error"]


@pytest.mark.parametrize("cached", [False, True])
def test_hub_that_accepts_and_never_answers(tmp_path: Path, cached: bool) -> None:
    """A firewall that swallows packets looks like this; without a limit the wait has no end."""
    if cached:
        cache_by_hand(tmp_path, "org/run", {name: save(tmp_path / name) for name in ("main", "step10")})
    with socket.create_server(("127.0.0.1", 0)) as mute:
        limit = "import landscape.models.hub\nlandscape.models.hub._PATIENCE = 0.3"
        address = f"http://127.0.0.1:{mute.getsockname()[1]}"
        found = run(f"{SNIPPET}\n{limit}\nreport(outcome('org/run'))", address, tmp_path)

    assert found["seconds"] < 5
    if cached:
        assert (found["identity"], found["before"]) == (f"commit:{commit('main')}", ["@step10"])
    else:
        assert "the Hub gives none (ReadTimeout" in found["error"]


def test_hub_models_load(tmp_path: Path) -> None:
    """From the Hub to logits, for safetensors and for pickles: the same numbers as the model that was saved."""
    code = """
import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM
from landscape.models import load_model
from landscape.models.references import resolve

torch.manual_seed(0)
sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
model = GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=64, max_position_embeddings=32, **sizes)).eval()
model.save_pretrained(FOLDER + "/safe")
model.config.save_pretrained(FOLDER + "/pickled")
torch.save(model.state_dict(), FOLDER + "/pickled/pytorch_model.bin")
loaded = [load_model(resolve(name)) for name in ("org/tiny", "org/tiny@step5")]
with torch.no_grad():
    logits = [tiny(torch.arange(8)[None]).logits for tiny in (model, *loaded)]
report([float((other - logits[0]).abs().max()) for other in logits[1:]] + [float(logits[0].abs().max())])
"""
    with serve({"org/tiny": repository({"main": tmp_path / "safe", "step5": tmp_path / "pickled"})}) as hub:
        safe, pickled, size = run(f"FOLDER = {str(tmp_path)!r}\n{code}", hub.address, tmp_path)
        assert hub.downloaded() >= {"model.safetensors", "pytorch_model.bin"}
    assert safe < 1e-6 and pickled < 1e-6 and size > 1e-3


def test_a_damaged_weight_file_in_the_cache_is_named(tmp_path: Path) -> None:
    """The Hub names large files after their SHA-256."""
    top = cache_by_hand(
        tmp_path, "org/large", {"main": save(tmp_path / "a", b"weights"), "step10": save(tmp_path / "b")}
    )
    for revision, content in (("main", b"weights"), ("step10", b"weightz")):
        link = top / "snapshots" / commit(revision) / "model.safetensors"
        blob = link.resolve().rename(top / "blobs" / hashlib.sha256(b"weights").hexdigest())
        blob.write_bytes(content)
        link.unlink()
        link.symlink_to(Path("..") / ".." / "blobs" / blob.name)
        (outcome,) = outcomes("http://127.0.0.1:9", tmp_path, f"org/large@{revision}", offline=True)
        if revision == "main":
            assert outcome["identity"] == f"commit:{commit('main')}"
        else:
            assert "model org/large@step10: model.safetensors in the local cache is damaged" in outcome["error"]
