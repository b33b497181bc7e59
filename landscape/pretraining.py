"""The job: a recipe → a text tokenized, a model with random weights → a training run on disk, or the rest of one."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import filelock
import torch

from landscape import models
from landscape.config import TrainConfig
from landscape.errors import LandscapeError, OptionError, StoreError, TrainingError
from landscape.machine.arithmetic import exactly
from landscape.machine.environment import attention_of, environment
from landscape.machine.ranks import Ranks, ranks
from landscape.models.checkpoint import Checkpoint, step_of
from landscape.models.references import resolve
from landscape.reporting import Reporter, Silent, versions
from landscape.results import key_of
from landscape.storage.files import disk_errors, lock
from landscape.texts import display_name, documents, identity
from landscape.training import data, loop, optimizers, state
from landscape.training import recipe as recipes
from landscape.training.recipe import Recipe
from landscape.training.run import FACTS, LOG, RECIPE, Run
from landscape.training.tracker import require, tracking

PRESETS = resources.files("landscape.training") / "presets"
_SCHEMA = 2


@dataclass(frozen=True)
class Trained:
    """A complete run.

    Attributes:
        run: where it lies.
        rows: its log.
        facts: what `run.json` says.
    """

    run: Run
    rows: list[dict[str, Any]]
    facts: Mapping[str, Any]


@exactly
def train_model(config: TrainConfig, reporter: Reporter | None = None) -> Trained:
    """Train what `config` describes, or what is left of it.

    Raises:
        LandscapeError: the recipe, the text or the place cannot be used, or training diverged.
    """
    require(config.tracker)
    recipe, name = find(config.recipe)
    recipe = recipe.changed(config.changes)
    run = Run(config.out or Path("runs") / "-".join([name, *(each.replace("/", "_") for each in config.changes)]))
    with ranks(models.pick_device(config.device)) as own:
        told = (reporter or Silent()) if own.leads else Silent()
        if not own.leads:
            own.wait()  # until the text is tokenized and the run begun
            return _go_on(config, recipe, run, own, told)
        with lock(run.folder / FACTS):
            return _go_on(config, recipe, run, own, told)


def find(name: str) -> tuple[Recipe, str]:
    """(recipe, what to call it) of a YAML file, a run's directory, or a preset.

    Raises:
        OptionError: there is none of this name.
    """
    path = Path(name)
    if path.is_dir():
        if not (path / RECIPE).is_file():
            raise OptionError(f"recipe {name}: a directory without {RECIPE}; expected a run, a YAML file or a preset")
        recipe = recipes.read(path / RECIPE)
        if (Run(path).facts() or {}).get("recipe", own := _portable(recipe).fingerprint) != own:
            raise StoreError(f"{path / RECIPE}: not the recipe of this run by {FACTS}; give another, or restore it")
        return recipe, path.resolve().name
    if path.is_file() or path.suffix in (".yaml", ".yml"):
        return recipes.read(path), path.stem
    if name in presets():
        with resources.as_file(PRESETS) as folder:
            return recipes.read(folder / f"{name}.yaml"), name
    raise OptionError(f"recipe {name}: no such file or run; presets are {', '.join(presets())}")


def presets() -> dict[str, str]:
    """Recipes that come with the package, and the first line of each."""
    files = {each.name.removesuffix(".yaml"): each for each in PRESETS.iterdir() if each.name.endswith(".yaml")}
    return {name: files[name].read_text(encoding="utf-8").splitlines()[0].lstrip("# ") for name in sorted(files)}


def _go_on(config: TrainConfig, recipe: Recipe, run: Run, own: Ranks, reporter: Reporter) -> Trained:
    parent = _parent(config.fork) if config.fork else None
    tokens, tokenizer = _tokens(config, recipe, reporter)
    facts = {
        "kind": "run",
        "schema": _SCHEMA,
        "recipe": _portable(recipe).fingerprint,
        "text": display_name(recipe.text),
        "tokens": len(tokens.ids),
        "documents": tokens.documents,
        "tokens_fingerprint": tokens.fingerprint,
        "parent": {"run": parent.name, "step": parent.step, "identity": parent.identity} if parent else None,
    }
    before = run.facts()
    if before is not None and config.overwrite and any(before.get(key) != value for key, value in facts.items()):
        if own.leads:
            _clear(run)
        before = None
    if before is not None:
        _require_same(run, before, facts, Path(config.recipe).name)
        if before.get("complete"):
            if before.get("log", log := run.digest(recipe.steps)) != log:
                raise StoreError(f"{run.folder / LOG}: damaged, not what was written; begin anew with --overwrite")
            reporter.note(f"{run.folder.name}: complete already; nothing was trained")
            if own.leads:
                own.wait()
            return Trained(run, run.rows(), before)
    order = data.Order(
        tokens.ids,
        recipe.seq_len,
        recipe.batch_size,
        recipe.steps,
        recipe.seed if recipe.data_seed is None else recipe.data_seed,
        recipe.order,
    )
    if recipe.batch_size % own.size:
        raise OptionError(f"recipe: batch_size={recipe.batch_size}; expected a multiple of the {own.size} processes")
    model = build_model(recipe, tokenizer, config.remote_code).to(own.device)
    updater = optimizers.build(model, recipe.optimizer)
    if parent is not None:
        begun = state.load(parent.folder / state.STATE, model, updater)
        progress = loop.Progress(begun["step"], begun["step"], begun["loss_sum"], begun["loss_count"])
        if progress.step >= recipe.steps:
            raise OptionError(f"recipe: steps={recipe.steps}; expected more than the {progress.step} of {config.fork}")
    else:
        progress = loop.Progress()
    if before is not None and run.state.exists():
        left = state.load(run.state, model, updater)
        log = left.pop("log", None)  # which earlier versions did not keep
        progress = loop.Progress(**left)
        if log is not None and run.digest(progress.step) != log:
            raise StoreError(f"{run.folder / LOG}: damaged, not what was written; begin anew with --overwrite")
        reporter.note(f"{run.folder.name}: went on after step {progress.step}")
    facts |= {"parameters": sum(p.numel() for p in model.parameters()), "versions": versions(), "complete": False}
    facts |= {"device": torch.device(own.device).type, "processes": own.size}
    facts |= {"environment": environment(own.device, attention_of(model), own.size)}
    if own.leads:
        run.begin(_portable(recipe), facts)
        run.cut_log(progress.step if progress.step > progress.begun else -1)
        own.wait()
    on_step = reporter.stage(f"training {run.folder.name}")

    def show(done: int, total: int, words: str) -> None:
        on_step(done, total)
        if words:
            reporter.say(words)

    tracker = config.tracker if own.leads else None
    with tracking(tracker, run.folder.name, recipes.to_dict(_portable(recipe))) as on_row:
        computing = loop.Computing(own, config.micro_batch, config.compile, config.save_seconds)
        hearing = loop.Hearing(show, on_row)
        loop.train(model, updater, recipe, order, run, tokenizer, progress, computing, hearing)
    if own.leads:
        facts |= {"complete": True, "log": run.digest(recipe.steps)}
        run.write_facts(facts)
        run.state.unlink(missing_ok=True)
    own.wait()
    return Trained(run, run.rows(), facts)


def build_model(recipe: Recipe, tokenizer: Any, remote_code: bool = False) -> Any:
    """The recipe's model with random weights, seeded, in float32.

    Raises:
        TrainingError: no such configuration, or one that does not fit the tokenizer or the windows.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    fields = dict(recipe.model)
    like, kind = fields.pop("like", None), fields.pop("type", None)
    try:
        if like is not None:
            folder = resolve(str(like), remote_code=remote_code).folder
            configuration = AutoConfig.from_pretrained(folder, trust_remote_code=remote_code, **fields)
        else:
            end = tokenizer.eos_token_id
            usual: dict[str, Any] = {"vocab_size": len(tokenizer), "max_position_embeddings": recipe.seq_len}
            usual |= {"bos_token_id": end, "eos_token_id": end, "pad_token_id": None}
            configuration = AutoConfig.for_model(str(kind), **{**usual, **fields})
        torch.manual_seed(recipe.seed)
        model = AutoModelForCausalLM.from_config(
            configuration, attn_implementation=recipe.attention, dtype=torch.float32, trust_remote_code=remote_code
        )
    except LandscapeError:
        raise
    except Exception as error:  # transformers raises many kinds; each means that this configuration makes no model
        raise TrainingError(
            f"recipe: model={dict(recipe.model)}; no model ({' '.join(str(error).split())[:300]})"
        ) from error
    context = getattr(configuration, "max_position_embeddings", recipe.seq_len)
    if recipe.seq_len > context:
        raise TrainingError(f"recipe: seq_len={recipe.seq_len}; expected at most the {context} tokens of the model")
    if len(tokenizer) > models.vocabulary_size(model):
        raise TrainingError(
            f"recipe: a tokenizer of {len(tokenizer)} tokens for a model of {models.vocabulary_size(model)}; "
            "raise model.vocab_size"
        )
    _require_causal(model, recipe)
    return model


def _require_causal(model: Any, recipe: Recipe) -> None:
    """Raise `TrainingError` where a token's prediction depends on that token: transformers loads such models too."""
    ids = torch.arange(8)[None] % models.vocabulary_size(model)
    other = ids.clone()
    other[0, -1] = 0
    with torch.no_grad():
        before, after = (model.eval()(input_ids=each, use_cache=False).logits[0, :-1] for each in (ids, other))
    if not torch.allclose(before, after, rtol=1e-3, atol=1e-5):
        raise TrainingError(
            f"recipe: model={dict(recipe.model)}; it sees the tokens it predicts, expected a causal language model"
        )


def _tokens(config: TrainConfig, recipe: Recipe, reporter: Reporter) -> tuple[data.TokenFile, Any]:
    """The tokenized text and its tokenizer: made now unless they are there; other processes wait for them."""
    checkpoint = resolve(recipe.tokenizer, remote_code=config.remote_code) if recipe.tokenizer else None
    made_of = {"text": identity(recipe.text), "tokens": recipe.tokens, "separate": recipe.separate}
    made_of["tokenizer"] = f"bpe-{recipe.vocabulary}" if checkpoint is None else checkpoint.identity
    folder = config.data / f"{Path(display_name(recipe.text)).name.split('.')[0]}-{key_of(made_of)[:8]}"
    with disk_errors(config.data, "--data"):
        config.data.mkdir(parents=True, exist_ok=True)
        held = filelock.FileLock(config.data / f".{folder.name}.lock").acquire()
    with held:
        found = data.open_tokens(folder)
        if found is None:
            if checkpoint is not None:
                tokenizer = models.load_tokenizer(checkpoint, config.remote_code)
            else:
                reporter.stage(f"training a tokenizer of {recipe.vocabulary} tokens")
                tokenizer = data.train_tokenizer(documents(recipe.text), recipe.vocabulary)
            on_tokens = reporter.stage(f"tokenizing {display_name(recipe.text)}")
            facts = {"text": display_name(recipe.text)}
            found = data.write_tokens(
                folder, documents(recipe.text), tokenizer, facts, recipe.separate, recipe.tokens, on_tokens
            )
    stored = Checkpoint(folder.name, None, found.fingerprint, folder, folder)
    return found, models.load_tokenizer(stored, config.remote_code)


def _parent(reference: str) -> Checkpoint:
    """The checkpoint a fork begins at.

    Raises:
        TrainingError: it keeps no state.
    """
    checkpoint = resolve(reference)
    if not (checkpoint.folder / state.STATE).is_file():
        run = Path(checkpoint.run)
        kept = sorted((step_of(path.parent.name) or 0 for path in run.glob(f"*/{state.STATE}")) if run.is_dir() else [])
        where = f"this run keeps it at {', '.join(map(str, kept))}" if kept else "no checkpoint of this run does"
        raise TrainingError(f"--fork {reference}: keeps no optimizer state; {where} (keep_state in the recipe)")
    return checkpoint


def _portable(recipe: Recipe) -> Recipe:
    """As it is stored: names instead of places on this machine."""
    model = dict(recipe.model)
    if "like" in model:
        model["like"] = _named(str(model["like"]))
    return replace(
        recipe, text=_named(recipe.text), tokenizer=recipe.tokenizer and _named(recipe.tokenizer), model=model
    )


def _named(reference: str) -> str:
    return Path(reference).name if reference.startswith(("/", "~", "..")) else reference


def _require_same(run: Run, before: Mapping[str, Any], facts: Mapping[str, Any], given: str) -> None:
    """Raise `StoreError` where `run` is another one than `facts` describe, which are of the recipe `given`."""
    what = {"recipe": "recipe", "tokens_fingerprint": "text or tokenizer", "parent": "parent (--fork)"}
    odd = [word for key, word in what.items() if before.get(key) != facts[key]]
    if odd:
        raise StoreError(
            f"{run.folder}: holds a run of another {' and '.join(odd)} than {given} makes; name another place with "
            "--out, or begin anew with --overwrite"
        )


def _clear(run: Run) -> None:
    """Remove what a run wrote, and nothing else."""
    for path in run.folder.iterdir():
        if path.is_dir() and path.name.startswith("step") and step_of(path.name) is not None:
            shutil.rmtree(path)
        elif path.name in (FACTS, RECIPE, LOG, state.STATE):
            path.unlink()
