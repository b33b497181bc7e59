"""Training runs end to end: what lands on disk, the same bits however a run is stopped, forked or repeated."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from landscape.config import TrainConfig
from landscape.errors import LandscapeError, StoreError, TrainingError
from landscape.models import load_model, load_tokenizer
from landscape.models.references import resolve
from landscape.pretraining import train_model
from landscape.training import recipe as recipes
from landscape.training.data import Order, open_tokens
from landscape.training.run import Run

WORDS = "we the people of these states in order to form a more perfect union do ordain and establish this law"


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with a text, a recipe, tokenized texts, and a complete run called `whole`."""
    folder = tmp_path_factory.mktemp("training")
    random = torch.Generator().manual_seed(0)
    words = WORDS.split()
    documents = [
        " ".join(words[int(torch.randint(len(words), (), generator=random))] for _ in range(60)) for _ in range(40)
    ]
    (folder / "text.jsonl").write_text("\n".join(json.dumps({"text": each}) for each in documents))
    (folder / "recipe.yaml").write_text(
        f"""
model: {{type: gpt_neox, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 64}}
text: {folder / "text.jsonl"}
vocabulary: 300
seq_len: 16
batch_size: 4
steps: 24
schedule: {{kind: wsd, warmup: 4, cooldown: 8}}
optimizer: {{kind: adamw, peak: 1e-2}}
keep_state: [12]
log_every: 3
"""
    )
    train(folder, "whole")
    return folder


def config(folder: Path, name: str, *changes: str, **options: object) -> TrainConfig:
    return TrainConfig(
        str(folder / "recipe.yaml"), list(changes), out=folder / name, data=folder / "tokens", device="cpu", **options
    )


def train(folder: Path, name: str, *changes: str, **options: object) -> Run:
    return train_model(config(folder, name, *changes, **options)).run


def weights(run: Run, step: int) -> dict[str, torch.Tensor]:
    return load_model(resolve(f"{run.folder}@{step}")).state_dict()


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_run_is_a_trajectory_with_its_recipe_and_log(place: Path):
    run = Run(place / "whole")
    assert sorted(path.name for path in run.folder.iterdir()) == [
        "log.jsonl",
        "recipe.yaml",
        "run.json",
        "step12",
        "step24",
    ]
    assert resolve(str(run.folder)).step == 24
    assert recipes.read(run.folder / "recipe.yaml").steps == 24
    assert run.facts()["complete"] is True
    assert load_tokenizer(resolve(f"{run.folder}@12")).eos_token == "<|endoftext|>"


def test_nothing_stored_names_a_place_on_this_machine(place: Path):
    run = Run(place / "whole")
    for path in [*run.folder.glob("*.*"), *run.folder.glob("*/*.json")]:
        assert str(place) not in path.read_text(), path
    assert recipes.read(run.folder / "recipe.yaml").text == "text.jsonl"


def test_the_log_has_the_schedule_and_the_tokens(place: Path):
    rows = Run(place / "whole").rows()
    assert [row["step"] for row in rows] == list(range(3, 25, 3))
    assert [row["tokens"] for row in rows] == [step * 64 for step in range(3, 25, 3)]
    rates = {row["step"]: row["learning_rate"] for row in rows}
    assert rates[3] == pytest.approx(7.5e-3)  # the third of four updates of the warm-up
    assert rates[6] == rates[15] == pytest.approx(1e-2)
    assert rates[24] == pytest.approx(1e-2 / 8)
    assert rows[-1]["loss"] < rows[0]["loss"] - 0.5
    model = load_model(resolve(str(place / "whole")))
    norm = sum(float(p.detach().double().pow(2).sum()) for p in model.parameters()) ** 0.5
    assert rows[-1]["weight_norm"] == pytest.approx(norm, rel=1e-9)


def test_the_first_steps_are_those_of_a_loop_written_out(place: Path):
    """AdamW by torch on the windows the order names, clipped, with the cross-entropy of all tokens but the first."""
    run = train(place, "three", "steps=3", "schedule.cooldown=0", "keep_state=[]", "log_every=1")
    recipe = recipes.read(place / "recipe.yaml")
    tokens = open_tokens(next(path for path in (place / "tokens").iterdir() if path.is_dir()))
    order = Order(tokens.ids, 16, 4, 3, 0, "shuffled")
    torch.manual_seed(0)
    model = load_model(resolve(str(place / "three")))
    from transformers import AutoModelForCausalLM

    torch.manual_seed(recipe.seed)
    model = AutoModelForCausalLM.from_config(model.config)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8)
    losses, norms = [], []
    sure = {name: torch.ones_like(p, dtype=torch.bool) for name, p in model.named_parameters()}
    for step in range(3):
        for group in adam.param_groups:
            group["lr"] = 1e-2 * (step + 1) / 4
        ids = torch.stack([torch.tensor(tokens.ids[s : s + 16].astype("int64")) for s in order.starts(step)])
        loss = F.cross_entropy(model(ids).logits[:, :-1].reshape(-1, 300), ids[:, 1:].reshape(-1))
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        for name, p in model.named_parameters():
            sure[name] &= p.grad.abs() > 1e-6
        adam.step()
        adam.zero_grad()
        losses.append(loss.item())
    rows = run.rows()
    assert [row["loss"] for row in rows] == pytest.approx(losses, abs=2e-6)
    assert [row["grad_norm"] for row in rows] == pytest.approx(norms, rel=1e-4)
    for name, tensor in weights(
        run, 3
    ).items():  # Adam makes whole steps of what is rounding: all that keys' biases get
        seen = sure[name] if "embed_in" not in name else torch.ones_like(sure[name])  # of unseen tokens exactly nothing
        assert seen.float().mean() > (0.6 if "query_key_value.bias" in name else 0.9), name
        assert torch.allclose(tensor[seen], model.state_dict()[name][seen], atol=1e-5), name


def test_two_runs_of_one_seed_are_equal_and_of_two_seeds_are_not(place: Path):
    again, other = train(place, "again"), train(place, "other", "seed=1")
    whole = Run(place / "whole")
    assert again.rows() == whole.rows()
    assert same(weights(again, 24), weights(whole, 24))
    assert not same(weights(other, 24), weights(whole, 24))


def test_the_order_of_the_data_has_a_seed_of_its_own(place: Path):
    run = train(place, "order", "data_seed=1", "steps=6", "keep=[0]", "keep_state=[]")
    initial = train(place, "initial", "steps=6", "keep=[0]", "keep_state=[]")
    assert same(weights(run, 0), weights(initial, 0))
    assert not same(weights(run, 6), weights(initial, 6))


def test_a_fork_in_which_nothing_changes_goes_on_bit_for_bit(place: Path):
    fork = train(place, "fork", fork=f"{place / 'whole'}@12")
    whole = Run(place / "whole")
    assert fork.rows() == whole.rows()[4:]
    assert same(weights(fork, 24), weights(whole, 24))
    assert fork.facts()["parent"] == {"run": "whole", "step": 12, "identity": resolve(f"{whole.folder}@12").identity}
    assert sorted(path.name for path in fork.folder.glob("step*")) == ["step24"]  # what it began with is the parent's


def test_a_fork_may_have_another_schedule_counted_from_where_it_begins(place: Path):
    changes = ["schedule.kind=decay", "schedule.warmup=0", "schedule.shape=linear", "schedule.end=0", "log_every=1"]
    fork = train(place, "linear", *changes, "counted_from=fork", fork=f"{place / 'whole'}@12")
    assert [row["learning_rate"] for row in fork.rows()] == pytest.approx([1e-2 * (12 - i) / 12 for i in range(12)])
    assert [row["step"] for row in fork.rows()] == list(range(13, 25))


def test_a_fork_may_change_the_optimizer(place: Path):
    fork = train(place, "lion", "optimizer.kind=sgd", "optimizer.peak=0.1", fork=f"{place / 'whole'}@12")
    assert not same(weights(fork, 24), weights(Run(place / "whole"), 24))


@pytest.mark.parametrize("at", [1, 13])
def test_killed_and_resumed_a_run_ends_with_the_same_bits(place: Path, at: int):
    name = f"killed{at}"
    command = [sys.executable, "-m", "landscape", "train", str(place / "recipe.yaml"), "--out", str(place / name)]
    command += ["--data", str(place / "tokens"), "--device", "cpu", "--save-seconds", "0"]
    threads = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads()), "HALT_AT": str(at)}
    halting = (
        "import os, signal, sys\n"
        "from landscape.training import state\n"
        "real = state.save\n"
        "def save(path, model, updater, facts):\n"
        "    real(path, model, updater, facts)\n"
        "    if path.parent.name.startswith('killed') and facts['step'] >= int(os.environ['HALT_AT']):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "state.save = save\n"
        "from landscape.cli import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", halting, *command[3:]]
    killed = subprocess.run(command, env=threads, capture_output=True, timeout=120)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    run, whole = Run(place / name), Run(place / "whole")
    assert run.state.exists()
    assert run.facts()["complete"] is False
    train(place, name)
    assert run.rows() == whole.rows()
    assert same(weights(run, 24), weights(whole, 24))
    assert not run.state.exists()


def test_killed_anywhere_a_run_goes_on(place: Path):
    """At a moment that nobody chose, with the state saved at most steps."""
    command = [sys.executable, "-m", "landscape", "train", str(place / "recipe.yaml"), "steps=400"]
    command += ["--out", str(place / "anywhere"), "--data", str(place / "tokens"), "--save-seconds", "0.1"]
    threads = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    process = subprocess.Popen(command, env=threads, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    run = Run(place / "anywhere")
    deadline = time.monotonic() + 100
    while not run.state.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert run.facts()["complete"] is False
    train(place, "anywhere", "steps=400")
    assert run.rows() == train(place, "undisturbed", "steps=400").rows()


def test_accumulated_gradients_are_those_of_the_batch(place: Path):
    run = train(place, "micro", micro_batch=3)
    losses, whole = ([row["loss"] for row in each.rows()] for each in (run, Run(place / "whole")))
    assert losses == pytest.approx(whole, rel=1e-4)


def test_two_processes_train_the_model_of_one(place: Path):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29613"]
    command += ["-m", "landscape", "train", str(place / "recipe.yaml"), "--out", str(place / "ranks")]
    command += ["--data", str(place / "tokens"), "--device", "cpu"]
    done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, timeout=200)
    assert done.returncode == 0, done.stderr.decode()
    run, whole = Run(place / "ranks"), Run(place / "whole")
    assert run.facts()["processes"] == 2
    for key in ("loss", "grad_norm", "weight_norm"):
        ours, theirs = ([row[key] for row in each.rows()] for each in (run, whole))
        assert ours == pytest.approx(theirs, rel=1e-3), key


def test_a_complete_run_is_not_trained_again(place: Path):
    before = (place / "whole" / "log.jsonl").stat().st_mtime_ns
    assert train_model(config(place, "whole")).rows == Run(place / "whole").rows()
    assert (place / "whole" / "log.jsonl").stat().st_mtime_ns == before


def test_another_recipe_in_the_same_place_is_refused_unless_overwritten(place: Path):
    train(place, "taken", "steps=3", "keep_state=[]")
    with pytest.raises(StoreError, match=r"another recipe than recipe\.yaml makes.*--overwrite"):
        train(place, "taken", "steps=6", "keep_state=[]")
    (place / "taken" / "mine.txt").write_text("kept")
    run = train(place, "taken", "steps=6", "keep_state=[]", overwrite=True)
    assert sorted(path.name for path in run.folder.glob("*")) == [
        "log.jsonl",
        "mine.txt",
        "recipe.yaml",
        "run.json",
        "step6",
    ]


def test_weights_can_be_stored_in_less(place: Path):
    half = train(place, "half", "stored=float16")
    stored, whole = weights(half, 24), weights(Run(place / "whole"), 24)
    assert (half.folder / "step24" / "model.safetensors").stat().st_size < 0.6 * (
        place / "whole" / "step24" / "model.safetensors"
    ).stat().st_size
    for name, tensor in whole.items():
        assert torch.equal(stored[name], tensor.half().float()), name
    fork = train(place, "fork-of-half", fork=f"{half.folder}@12")  # the state keeps float32
    assert fork.rows() == half.rows()[4:]


def test_sharpness_aware_minimization_trains_another_way(place: Path):
    run = train(place, "sam", "sam=0.05")
    assert run.rows()[-1]["loss"] != Run(place / "whole").rows()[-1]["loss"]
    assert run.rows()[-1]["loss"] < run.rows()[0]["loss"] - 0.5


def test_bfloat16_trains_float32_weights(place: Path):
    run = train(place, "bf16", "precision=bfloat16")
    assert {tensor.dtype for tensor in weights(run, 24).values()} == {torch.float32}
    last = [each.rows()[-1]["loss"] for each in (run, Run(place / "whole"))]
    assert last[0] != last[1]
    assert last[0] == pytest.approx(last[1], rel=0.05)


def test_a_run_itself_is_a_recipe(place: Path):
    changes = [f"text={place / 'text.jsonl'}", "steps=12", "keep_state=[]"]
    run = train_model(
        TrainConfig(str(place / "whole"), changes, out=place / "of-run", data=place / "tokens", device="cpu")
    )
    assert run.rows[0] == Run(place / "whole").rows()[0]


def test_divergence_is_one_line(place: Path):
    with pytest.raises(TrainingError, match=r"step \d+: the loss is .*optimizer.peak"):
        train(place, "burst", "optimizer.kind=sgd", "optimizer.peak=1e30", "clip=0", "schedule.warmup=0")


@pytest.mark.parametrize(
    ("changes", "options", "says"),
    [
        (["steps=many"], {}, "steps=many"),
        (["step=3"], {}, "no field step; the nearest is steps"),
        (["steps"], {}, "FIELD=VALUE"),
        (["optimizer.kind=adam"], {}, "optimizer adam: expected one of"),
        (["optimizer.rate=1"], {}, "has no rate"),
        (["schedule.kind=wds"], {}, "schedule wds"),
        (["model.type=gptneox"], {}, "gptneox"),
        (["seq_len=100000"], {}, "too few for windows"),
        (["text=nowhere.txt"], {}, "nowhere.txt"),
        (["tokenizer=nowhere/at/all/x"], {}, "nowhere"),
        (["model.vocab_size=200"], {}, "raise model.vocab_size"),
        (["model.type=bert", "model.hidden_size=32", "model.num_attention_heads=2"], {}, "sees the tokens it predicts"),
        (["model.max_position_embeddings=8"], {}, "seq_len=16"),
        (["keep=[25]"], {}, "no step after the last"),
        ([], {"fork": "{whole}@24"}, "keeps it at 12"),
        (["steps=12"], {"fork": "{whole}@12"}, "expected more than the 12"),
        (["model.hidden_size=64"], {"fork": "{whole}@12"}, "another model"),
    ],
)
def test_what_cannot_be_is_one_line(place: Path, changes: list[str], options: dict[str, str], says: str):
    given = {name: value.format(whole=place / "whole") for name, value in options.items()}
    with pytest.raises(LandscapeError, match=re.escape(says)) as caught:
        train(place, "refused", *changes, **given)
    assert "\n" not in str(caught.value)
    assert not (place / "refused" / "run.json").exists()
