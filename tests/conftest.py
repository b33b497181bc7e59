"""Small real things to test on: transformers models built from configurations, a tokenizer trained on the spot."""

from __future__ import annotations

import atexit
import gc
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import torch

gc.disable()  # until all modules are there, of which nothing is garbage
atexit.register(gc.freeze)
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch.set_num_threads(1 if "PYTEST_XDIST_WORKER" in os.environ else 2)

VOCABULARY = 300
TEXT = "the cat and a dog sat on one mat while it rained over green hills far away from every town"
WORDS = TEXT.split()

_WIDE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_COMMON = {**_WIDE, "vocab_size": VOCABULARY, "max_position_embeddings": 64}
_IDS = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
ARCHITECTURES = {
    "gpt_neox": {**_COMMON, **_IDS, "tie_word_embeddings": False},
    "llama-tied-gqa": {**_COMMON, **_IDS, "num_key_value_heads": 2, "tie_word_embeddings": True},
    "olmo": {**_COMMON, **_IDS},
    "olmo2": {**_COMMON, **_IDS},
    "smollm3": {**_COMMON, **_IDS, "num_key_value_heads": 2},
    "apertus": {**_COMMON, **_IDS, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": VOCABULARY, "n_positions": 64, **_IDS},
    "qwen2": {**_COMMON, **_IDS, "num_key_value_heads": 2, "tie_word_embeddings": True},
    "qwen3": {**_COMMON, **_IDS, "num_key_value_heads": 2, "head_dim": 8},
}


def build(name: str, seed: int = 0, **changes: object) -> torch.nn.Module:
    """A randomly initialized model; its weights are made large enough that quantization matters."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(name.split("-")[0], **{**ARCHITECTURES[name], **changes})
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(4.0)
    return model


def make_tokenizer():
    """A byte-level BPE of VOCABULARY tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([prose(2000)], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="<s>", unk_token="<s>")


def prose(n_words: int, seed: int = 0) -> str:
    """Seeded text of common words."""
    chosen = torch.randint(len(WORDS), (n_words,), generator=torch.Generator().manual_seed(seed))
    return " ".join(WORDS[i] + (".\n" if n % 11 == 10 else "") for n, i in enumerate(chosen.tolist()))


@pytest.fixture(scope="session")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory, tokenizer) -> Path:
    """A training run of a small GPT-NeoX: step10, step20, step30, really trained a little."""
    from landscape.objective import batches
    from landscape.tokens import WindowReader

    folder = tmp_path_factory.mktemp("runs") / "run"
    model = build("gpt_neox").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    windows = WindowReader([prose(3000)], tokenizer, 32).take(80)
    for step, batch in enumerate(batches(windows, 8) * 3, start=1):
        model(input_ids=batch.ids, labels=batch.ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step in (10, 20, 30):
            model.save_pretrained(folder / f"step{step}")
            tokenizer.save_pretrained(folder / f"step{step}")
    return folder


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, tokenizer) -> Path:
    """A run of six checkpoints of a model with tied embeddings, which tests only read."""
    folder = tmp_path_factory.mktemp("averaging") / "trained"
    for step in (10, 20, 30, 40, 50, 60):
        build("llama-tied-gqa", seed=step).save_pretrained(folder / f"step{step}")
        tokenizer.save_pretrained(folder / f"step{step}")
    return folder


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "prose.txt"
    path.write_text(prose(3000, seed=7), encoding="utf-8")
    return path


@pytest.fixture
def broken_copy(run: Path, tmp_path: Path):
    """A copy of the run's last checkpoint with its configuration or files changed."""

    def make(**config: object) -> Path:
        folder = tmp_path / "broken"
        shutil.copytree(run / "step30", folder)
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | config))
        return folder

    return make


@pytest.fixture
def process():
    """One thread, as tiny matrices wait for a second one; attention kernels are those of the whole process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.backends.cuda.enable_flash_sdp(True)
    torch.backends.cuda.enable_mem_efficient_sdp(True)


@pytest.fixture
def landscape(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run the command in this process: (exit code, stdout, stderr)."""
    from landscape import cli

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["landscape", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        out, err = capsys.readouterr()
        return int(exit_.value.code or 0), out, err

    return run


# files of tests that run whole jobs or start processes; those of browsers are marked
# fmt: off
INTEGRATION = [
    "averaging_runs", "basin", "cli", "damage", "determinism", "documents", "evaluation", "evaluation_step",
    "examples", "fuzz", "hub_job", "interrupts", "lab", "makefile", "planes", "ranks", "reference_run", "sharpness",
    "soak", "strangers", "streamed_curvature", "streamed_slices", "streaming", "study", "study_hub", "study_ray",
    "training", "training_state", "verify", "verify_lies", "view", "view_serve",
]
# files that take half a minute or more, the longest first: begun last, they would leave a core idle
LONGEST = [
    "ranks", "viewer_explore", "reconstruct", "viewer_page", "lab", "study_ray", "sharpness", "basin",
    "slice_reading", "study", "training", "documents", "study_hub", "soak", "hub_job", "curvature_limits",
    "streamed_curvature", "view_serve",
]
# fmt: on


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test is of one tier: `make test TIER=unit`, integration or oracle; long files come first."""
    place = {f"test_{name}": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))
    for item in items:
        integrates = item.path.stem.removeprefix("test_") in INTEGRATION or item.get_closest_marker("browser")
        if not item.get_closest_marker("oracle"):
            item.add_marker("integration" if integrates else "unit")
