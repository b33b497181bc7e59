"""Averages of real checkpoints: the numbers against float64 sums of the files, and what happens to a directory."""

from __future__ import annotations

import json
import math
import shutil
import weakref
from collections.abc import Iterator
from pathlib import Path

import hub
import pytest
import torch
from conftest import VOCABULARY, build
from hub import commit
from safetensors.torch import load_file

from landscape.averaging import Averaged, average_checkpoints, job, reader
from landscape.averaging.folders import RECIPE
from landscape.config import AverageConfig
from landscape.errors import LandscapeError, ModelError, StoreError
from landscape.files import lock
from landscape.models import load_model, load_tokenizer
from landscape.references import predecessors, resolve
from landscape.reporting import Silent
from landscape.training.averaging import RunningMean, ema_coefficients, ema_members, lawa_members, weighted_mean
from landscape.weights import Weights

STEPS = (10, 20, 30, 40, 50, 60)
TIED = "llama-tied-gqa"


class Notes(Silent):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def note(self, text: str) -> None:
        self.heard.append(text)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, tokenizer) -> Path:
    """A run of six checkpoints of a model with tied embeddings, which only this module's tests read."""
    folder = tmp_path_factory.mktemp("averaging") / "trained"
    for step in STEPS:
        build(TIED, seed=step).save_pretrained(folder / f"step{step}")
        tokenizer.save_pretrained(folder / f"step{step}")
    return folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def average(*models: object, out: Path, notes: Notes | None = None, **options: object) -> list[Averaged]:
    return average_checkpoints(AverageConfig([str(model) for model in models], out=out, **options), notes)


def stored(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def said(folder: Path) -> dict[str, object]:
    return json.loads((folder / RECIPE).read_text())


def at(run: Path, *steps: int) -> list[Path]:
    return [run / f"step{step}" for step in steps]


def assert_mean(folder: Path, members: list[Path], coefficients: tuple[float, ...] = ()) -> None:
    """What `folder` holds is Σ cᵢ Θᵢ / Σ cᵢ of the files of `members`, rounded to float32 once."""
    coefficients = coefficients or (1.0,) * len(members)
    found, files = stored(folder), [stored(member) for member in members]
    assert found.keys() == files[0].keys()
    for name, tensor in found.items():
        total = sum(c * file[name].double() for c, file in zip(coefficients, files, strict=True))
        expected = total / math.fsum(coefficients)
        assert tensor.dtype == torch.float32
        assert (tensor.double() - expected).abs().le(expected.abs() * 2**-24 * (1 + 1e-6)).all(), name


def same_bits(a: Path, b: Path) -> bool:
    return (a / "model.safetensors").read_bytes() == (b / "model.safetensors").read_bytes()


def refusal(*models: object, out: Path, **options: object) -> str:
    with pytest.raises(LandscapeError) as error:
        average(*models, out=out, **options)
    assert isinstance(error.value, ModelError | StoreError)
    return str(error.value)


# the mathematics


def weights(*values: float) -> Weights:
    return Weights({"w": torch.tensor(values)})


def test_a_mean_is_accumulated_in_float64():
    """In float32 the small members would drown, and 0.1 + 0.2 + 0.3 would round twice."""
    big, small = weights(2.0**24), weights(1.0)
    assert weighted_mean([(1, big), (1, small), (1, small), (1, small), (1, small)])["w"].item() == 3355444.0
    mean = weighted_mean([(0.1, weights(1.0)), (0.2, weights(2.0)), (0.3, weights(4.0))])["w"]
    assert mean.dtype == torch.float32
    assert mean.item() == torch.tensor((0.1 + 0.4 + 1.2) / 0.6).item()


def test_a_mean_lets_go_of_each_member_and_touches_none():
    alive: list[weakref.ref[Weights]] = []

    def members() -> Iterator[tuple[float, Weights]]:
        for value in (1.0, 2.0, 3.0):
            assert all(reference() is None for reference in alive)
            member = weights(value)
            alive.append(weakref.ref(member))
            yield 1.0, member
            del member

    assert weighted_mean(members())["w"].item() == 2.0
    kept = weights(3.0)
    mean = weighted_mean([(2.0, kept), (1.0, weights(0.0))])
    assert (kept["w"].item(), mean["w"].item()) == (3.0, 2.0)
    alone = weighted_mean([(1.0, kept)])
    alone["w"].zero_()
    assert kept["w"].item() == 3.0


def test_members_of_different_spaces_or_none():
    with pytest.raises(ModelError, match=r"tensor w has shape \(1,\) in one model and \(2,\)"):
        weighted_mean([(1.0, weights(1.0)), (1.0, weights(1.0, 2.0))])
    with pytest.raises(ModelError, match="at least one"):
        weighted_mean([])


def test_ema_coefficients_in_closed_form():
    assert ema_coefficients(3, 0.5) == pytest.approx((1 / 7, 2 / 7, 4 / 7), rel=1e-15)
    for n, decay in ((2, 0.9), (7, 0.3), (40, 0.99)):
        expected = [(1 - decay) * decay ** (n - 1 - i) / (1 - decay**n) for i in range(n)]
        assert ema_coefficients(n, decay) == pytest.approx(expected, rel=1e-12)
    assert ema_coefficients(4, 1.0) == (0.25,) * 4


def test_fading_is_what_the_coefficients_say():
    values = [3.0, -1.0, 5.0, 2.0]
    running = RunningMean()
    for value in values:
        running.fade(0.7)
        running.add(weights(value))
    expected = math.fsum(c * value for c, value in zip(ema_coefficients(4, 0.7), values, strict=True))
    assert running.mean()["w"].item() == pytest.approx(expected, rel=1e-7)


def test_which_steps_are_members():
    steps = [0, 1, 10, 20, 30, 40]
    assert lawa_members(steps, 3) == [20, 30, 40]
    assert lawa_members(steps, 6) == steps
    assert lawa_members(steps, 3, every=20) == [0, 20, 40]
    assert lawa_members(steps, 5, every=10) == [0, 10, 20, 30, 40]
    assert ema_members(steps) == steps
    assert ema_members(steps, every=20) == [0, 20, 40]
    assert ema_members([10, 15, 30], every=15) == [15, 30]  # 0 lies before the run


# what an average is


def test_lawa_is_the_mean_of_the_last_checkpoints(trained: Path, out: Path, tokenizer):
    (made,) = average(trained, out=out, window=3)
    assert (made.folder, made.made) == (out, True)
    assert made.members == ("trained@step40", "trained@step50", "trained@step60")
    assert made.coefficients == pytest.approx((1 / 3,) * 3)
    assert_mean(out, at(trained, 40, 50, 60))

    facts = said(out)
    assert (facts["kind"], facts["window"], facts["every"]) == ("lawa", 3, None) and "decay" not in facts
    for member, step in zip(facts["members"], (40, 50, 60), strict=True):
        assert (member["name"], member["revision"], member["step"]) == ("trained", f"step{step}", step)
        assert member["identity"] == resolve(f"{trained}@{step}").identity
        assert member["coefficient"] == pytest.approx(1 / 3)
    assert facts["versions"]["torch"] == torch.__version__
    for part in out.parents:
        assert part.name == "" or part.name not in (out / RECIPE).read_text()

    assert load_tokenizer(resolve(str(out))).get_vocab() == tokenizer.get_vocab()
    assert sorted(path.name for path in out.parent.iterdir()) == ["out"]


def test_an_average_is_a_checkpoint_whose_embeddings_are_tied(trained: Path, out: Path):
    average(trained, out=out, window=2)
    checkpoint = resolve(str(out))
    model = load_model(checkpoint)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    member = load_model(resolve(f"{trained}@60"))
    assert Weights.of(model).numel() == Weights.of(member).numel()
    assert stored(out).keys() == stored(trained / "step60").keys()
    assert "lm_head.weight" not in stored(out)

    ids = torch.arange(64).reshape(2, 32) % VOCABULARY
    loss = model(input_ids=ids, labels=ids).loss.item()
    ends = [load_model(resolve(f"{trained}@{step}"))(input_ids=ids, labels=ids).loss.item() for step in (50, 60)]
    assert math.isfinite(loss) and loss not in ends


@pytest.mark.parametrize(
    ("model", "options", "steps"),
    [
        ("", {"window": 2}, (50, 60)),
        ("@30", {"window": 2}, (20, 30)),
        ("@step30", {"window": 3}, (10, 20, 30)),
        ("/step40", {"window": 2}, (30, 40)),
        ("", {"window": 3, "every": 20}, (20, 40, 60)),
        ("@50", {"window": 3, "every": 20}, (10, 30, 50)),
        ("@50", {}, (10, 20, 30, 40, 50)),
    ],
)
def test_window_and_every_choose_the_members(trained: Path, out: Path, model: str, options: dict, steps: tuple):
    (made,) = average(f"{trained}{model}", out=out, **options)
    assert made.members == tuple(f"trained@step{step}" for step in steps)
    assert_mean(out, at(trained, *steps))


def test_ema_counts_older_checkpoints_less(trained: Path, out: Path):
    (made,) = average(f"{trained}@30", out=out, kind="ema", decay=0.5)
    assert made.coefficients == pytest.approx((1 / 7, 2 / 7, 4 / 7))
    assert_mean(out, at(trained, 10, 20, 30), (1, 2, 4))
    facts = said(out)
    assert (facts["kind"], facts["decay"], facts["every"]) == ("ema", 0.5, None) and "window" not in facts
    (apart,) = average(f"{trained}@50", out=out.with_name("apart"), kind="ema", every=20)
    assert apart.members == ("trained@step10", "trained@step30", "trained@step50")


def test_soup_of_models_anywhere_in_any_precision(trained: Path, out: Path, tmp_path: Path):
    build(TIED, seed=1).half().save_pretrained(tmp_path / "half")
    (made,) = average(f"{trained}@20", "@30", tmp_path / "half", out=out, kind="soup")
    assert made.members == ("trained@step20", "trained@step30", "half")
    assert_mean(out, [*at(trained, 20, 30), tmp_path / "half"])
    facts = said(out)
    assert facts.keys() == {"kind", "members", "files", "versions"}
    assert [member["step"] for member in facts["members"]] == [20, 30, None]


def test_no_tokenizer_is_said(trained: Path, out: Path, tmp_path: Path):
    build(TIED, seed=1).save_pretrained(tmp_path / "bare")
    notes = Notes()
    average(f"{trained}@20", tmp_path / "bare", out=out, kind="soup", notes=notes)
    assert [note for note in notes.heard if "bare has no tokenizer" in note] and not list(out.glob("tokenizer*"))
    notes = Notes()
    average(tmp_path / "bare", f"{trained}@20", out=out.with_name("other"), kind="soup", notes=notes)
    assert notes.heard == [] and (out.with_name("other") / "tokenizer.json").is_file()


def test_the_order_of_a_soup_does_not_change_a_bit(trained: Path, tmp_path: Path):
    """1e20 + 1 − 1e20 is 0 or 1, as it is added up."""
    names = [str(tmp_path / name) for name in "abc"]
    for name, value in zip(names, (1e20, 1.0, -1e20), strict=True):
        model = build(TIED)
        with torch.no_grad():
            model.model.norm.weight.fill_(value)
        model.save_pretrained(name)
    a, b, c = names
    orders = [(a, b, c), (a, c, b), (b, c, a), (c, a, b)]
    folders = [tmp_path / f"soup{number}" for number in range(len(orders))]
    for order, folder in zip(orders, folders, strict=True):
        average(*order, out=folder, kind="soup")
    assert all(same_bits(folders[0], folder) for folder in folders)


def test_members_that_are_the_same_model_are_noted(trained: Path, out: Path, tmp_path: Path):
    shutil.copytree(trained / "step60", tmp_path / "main")
    config = json.loads((tmp_path / "main" / "config.json").read_text())
    (tmp_path / "main" / "config.json").write_text(json.dumps(config | {"use_cache": False}))
    notes = Notes()
    average(tmp_path / "main", f"{trained}@60", f"{trained}@50", out=out, kind="soup", notes=notes)
    assert len(notes.heard) == 1 and "hold the same weights, and both count" in notes.heard[0]
    assert "main" in notes.heard[0] and "trained@step60" in notes.heard[0]
    notes = Notes()
    average(f"{trained}@50", f"{trained}@60", trained / "step50", out=out.with_name("b"), kind="soup", notes=notes)
    assert notes.heard == ["trained@step50 is named 2 times and counts as often"]
    assert_mean(out.with_name("b"), at(trained, 50, 60), (2, 1))


def test_the_final_model_above_its_checkpoints_has_no_step(trained: Path, out: Path, tmp_path: Path):
    """transformers' Trainer leaves it there; which step it is of, nobody knows."""
    top = tmp_path / "trainer"
    shutil.copytree(trained / "step60", top)
    for step in (10, 20):
        shutil.copytree(trained / f"step{step}", top / f"checkpoint-{step}")
    notes = Notes()
    (made,) = average(top, out=out, window=2, notes=notes)
    assert made.members == ("trainer@checkpoint-10", "trainer@checkpoint-20")
    assert notes.heard == ["trainer tells no step; the run was taken to end at checkpoint-20"]


def test_one_family_of_checkpoints_is_one_run(trained: Path, out: Path, tmp_path: Path):
    stages = tmp_path / "stages"
    for name in ("stage1-step10-tokens1B", "stage1-step20-tokens2B", "stage2-step15-tokens3B"):
        shutil.copytree(trained / "step10", stages / name)
    (made,) = average(f"{stages}@stage1-step20-tokens2B", out=out, kind="ema")
    assert made.members == ("stages@stage1-step10-tokens1B", "stages@stage1-step20-tokens2B")
    assert "several runs in one directory" in refusal(stages, out=tmp_path / "b", kind="ema")
    shutil.copytree(trained / "step10", stages / "stage1-step10-tokens2B")
    message = refusal(f"{stages}@stage1-step20-tokens2B", out=tmp_path / "b", kind="ema")
    assert "stage1-step10-tokens1B and stage1-step10-tokens2B are of one step" in message


# one average at every checkpoint


def test_along_a_run_gives_a_run(trained: Path, out: Path):
    made = average(trained, out=out, window=3, along=True)
    assert [one.folder for one in made] == [out / f"step{step}" for step in (30, 40, 50, 60)]
    assert sorted(path.name for path in out.iterdir()) == ["step30", "step40", "step50", "step60"]
    checkpoint = resolve(f"{out}@50")
    assert (checkpoint.step, list(predecessors(checkpoint))) == (50, ["@step40", "@step30"])
    assert resolve(str(out)).revision == "step60"
    for step in (30, 40, 50, 60):
        members = (step - 20, step - 10, step)
        assert_mean(out / f"step{step}", at(trained, *members))
        assert [member["step"] for member in said(out / f"step{step}")["members"]] == list(members)
        assert (out / f"step{step}" / "tokenizer.json").is_file()


@pytest.mark.parametrize(
    ("options", "ends"),
    [
        ({"kind": "lawa", "window": 3}, (30, 60)),
        ({"kind": "lawa", "window": 2, "every": 20}, (30, 60)),
        ({"kind": "ema", "decay": 0.3}, (20, 60)),
        ({"kind": "ema", "every": 20}, (40, 60)),
    ],
)
def test_along_gives_the_bits_of_a_single_average(trained: Path, tmp_path: Path, options: dict, ends: tuple):
    made = average(trained, out=tmp_path / "along", along=True, **options)
    assert (made[0].folder.name, made[-1].folder.name) == tuple(f"step{end}" for end in ends)
    for end in ends:
        along, single = tmp_path / "along" / f"step{end}", tmp_path / f"single{end}"
        average(f"{trained}@{end}", out=single, **options)
        assert same_bits(along, single)
        assert said(along) == said(single)


def test_along_with_gaps(trained: Path, out: Path, tmp_path: Path):
    gap = tmp_path / "gap"
    for step in (10, 20, 30, 50, 60):
        shutil.copytree(trained / f"step{step}", gap / f"step{step}")
    notes = Notes()
    made = average(gap, out=out, window=2, every=10, along=True, notes=notes)
    assert [one.folder.name for one in made] == ["step20", "step30", "step60"]
    assert notes.heard == ["no average at steps 50: the window before has gaps"]
    consecutive = average(gap, out=out.with_name("b"), window=2, along=True)
    assert consecutive[2].members == ("gap@step30", "gap@step50")


class Reads(list[str]):
    """The checkpoints that were loaded, in order, and how many of them were in memory at once."""

    def __init__(self) -> None:
        self.alive: list[weakref.ref[torch.nn.Module]] = []
        self.most = 0

    def __call__(self, checkpoint, **options) -> torch.nn.Module:
        self.append(checkpoint.revision)
        model = load_model(checkpoint, **options)
        self.alive = [other for other in self.alive if other() is not None] + [weakref.ref(model)]
        self.most = max(self.most, len(self.alive))
        return model


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    counted = Reads()
    monkeypatch.setattr(reader, "load_model", counted)
    return counted


@pytest.mark.parametrize(
    ("options", "most"), [({"window": 2}, 2), ({"window": 2, "every": 20}, 3), ({"kind": "ema"}, 1)]
)
def test_along_reads_each_checkpoint_once(trained: Path, tmp_path: Path, reads, monkeypatch, options: dict, most: int):
    average(trained, out=tmp_path / "ample", along=True, **options)
    assert sorted(reads) == [f"step{step}" for step in STEPS]
    assert reads.most <= most + 1  # what the next averages need, and the model that was just written
    reads.clear()
    monkeypatch.setattr(reader, "available", lambda device: 0)
    scarce = average(trained, out=tmp_path / "scarce", along=True, **options)
    assert len(reads) > len(STEPS) or options.get("kind") == "ema"
    assert all(same_bits(tmp_path / "ample" / one.folder.name, one.folder) for one in scarce)


@pytest.mark.parametrize("options", [{"window": 3}, {"kind": "ema"}])
def test_along_goes_on_where_it_was(trained: Path, tmp_path: Path, reads, options: dict):
    out, whole = tmp_path / "out", tmp_path / "whole"
    average(trained, out=whole, along=True, **options)
    average(f"{trained}@50", out=out, along=True, **options)
    shutil.rmtree(out / "step40")
    before = {path.name: (path / "model.safetensors").stat().st_mtime_ns for path in out.iterdir()}
    reads.clear()
    notes = Notes()
    made = average(trained, out=out, along=True, notes=notes, **options)
    assert {one.folder.name for one in made if one.made} == {"step40", "step60"}
    assert notes.heard == [f"{len(made) - 2} of {len(made)} there already, of the same members"]
    for path in out.iterdir():
        assert same_bits(path, whole / path.name)
        if path.name in before:
            assert (path / "model.safetensors").stat().st_mtime_ns == before[path.name]

    reads.clear()
    assert not any(one.made for one in average(trained, out=out, along=True, **options))
    assert reads == []


def test_an_interrupted_run_of_averages_is_whole(trained: Path, out: Path, monkeypatch: pytest.MonkeyPatch):
    write, written = job._write, []

    def stop(folder, *rest):
        if written:
            (out.parent / ".out.partial").mkdir()
            (out.parent / ".out.partial" / "half").write_text("as a killed process leaves it")
            raise KeyboardInterrupt
        written.append(folder)
        write(folder, *rest)

    monkeypatch.setattr(job, "_write", stop)
    with pytest.raises(KeyboardInterrupt):
        average(trained, out=out, window=5, along=True)
    assert [path.name for path in out.iterdir()] == ["step50"] and resolve(str(out)).step == 50
    monkeypatch.setattr(job, "_write", write)
    made = average(trained, out=out, window=5, along=True)
    assert [one.made for one in made] == [False, True]
    assert sorted(path.name for path in out.parent.iterdir()) == ["out"]
    assert not (out / "step60" / "half").exists()


def test_nothing_is_left_of_an_average_that_failed(trained: Path, out: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(folder):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(job, "versions", lambda: fail(out))
    assert "the disk is full" in refusal(trained, out=out / "below")
    assert list(out.parent.iterdir()) == []


# what is refused


def test_runs_that_do_not_have_the_window(trained: Path, out: Path):
    missing = refusal(trained, out=out, window=2, every=25)
    assert missing == (
        "model trained@step60: no checkpoint at step 35, where --every 25 expects one; "
        "nearest: step 30, step 40, step 20, step 50"
    )
    assert "no checkpoint at step 45, where --every 15" in refusal(trained, out=out, kind="ema", every=15)
    few = refusal(f"{trained}@30", out=out)
    assert few.startswith("model trained@step30: 3 checkpoints up to step 30; expected --window 5 of them")
    far = refusal(trained, out=out, window=4, every=20)
    assert "--window 4 --every 20 reaches back to step 0, the run to step 10" in far
    assert "reaches back to step -40" in refusal(trained, out=out, window=6, every=20, along=True)
    assert "1 checkpoint up to step 10; expected two" in refusal(f"{trained}@10", out=out, kind="ema")
    assert "1 checkpoint up to step 60, --every 100 steps apart" in refusal(trained, out=out, kind="ema", every=100)
    assert "no checkpoint 35 in this run; nearest: step30" in refusal(f"{trained}@35", out=out)
    assert not out.parent.joinpath("out").exists()


def test_models_that_are_no_run(trained: Path, out: Path, tmp_path: Path):
    shutil.copytree(trained / "step10", tmp_path / "alone")
    assert "model alone: no run of checkpoints" in refusal(tmp_path / "alone", out=out)
    assert "--kind soup" in refusal(tmp_path / "alone", out=out, kind="ema")


def test_models_of_different_architectures(trained: Path, out: Path, tmp_path: Path):
    build("gpt_neox").save_pretrained(tmp_path / "other")
    message = refusal(f"{trained}@10", tmp_path / "other", out=out, kind="soup")
    assert "cannot be averaged with" in message and "both must have the same architecture" in message
    assert "trained@step10" in message and "other" in message.partition(": two models")[0]
    build(TIED, intermediate_size=48).save_pretrained(tmp_path / "narrow")
    assert "has shape" in refusal(f"{trained}@10", tmp_path / "narrow", out=out, kind="soup")
    assert not out.exists()


def test_configurations_that_differ_where_tensors_do_not(trained: Path, out: Path, tmp_path: Path, tokenizer):
    build(TIED, num_attention_heads=2, num_key_value_heads=1).save_pretrained(tmp_path / "heads")
    tokenizer.save_pretrained(tmp_path / "heads")
    notes = Notes()
    average(f"{trained}@10", tmp_path / "heads", out=out, kind="soup", notes=notes)
    (note,) = notes.heard
    assert {"trained@step10", "heads"} < set(note.split()) and "are configured differently" in note
    assert "num_attention_heads" in note and "hidden_size" not in note
    assert json.loads((out / "config.json").read_text())["num_attention_heads"] == 2  # of the one named last


def test_models_whose_weights_are_packed(trained: Path, out: Path, monkeypatch: pytest.MonkeyPatch):
    def load(checkpoint, **options):
        model = load_model(checkpoint, **options)
        model.config.quantization_config = {"quant_method": "gptq"}
        return model

    monkeypatch.setattr(reader, "load_model", load)
    assert "packed by a quantizer; expected weights in floating point" in refusal(trained, out=out)


def test_another_average_in_the_way(trained: Path, out: Path):
    average(trained, out=out, window=2)
    first = stored(out)
    assert not average(trained, out=out, window=2)[0].made  # the same again
    for options in ({"window": 3}, {"window": 2, "every": 10}, {"kind": "ema"}):
        assert "holds another average" in refusal(trained, out=out, **options)
    assert "use --overwrite" in refusal(f"{trained}@40", out=out, window=2)
    assert stored(out)["model.norm.weight"].equal(first["model.norm.weight"])
    (made,) = average(f"{trained}@40", out=out, window=2, overwrite=True)
    assert made.made
    assert_mean(out, at(trained, 30, 40))


def test_members_that_have_changed_make_another_average(trained: Path, out: Path, tmp_path: Path):
    again = tmp_path / "trained"
    shutil.copytree(trained, again)
    average(again, out=out, window=2, along=True)
    shutil.rmtree(again / "step30")
    shutil.copytree(trained / "step10", again / "step30")
    assert f"{out / 'step30'}: holds another average" in refusal(again, out=out, window=2, along=True)
    assert "holds another average" in refusal(f"{again}@20", out=out, window=2, kind="ema", along=True)
    assert all(one.made for one in average(again, out=out, window=2, along=True, overwrite=True))
    assert_mean(out / "step30", at(trained, 20, 10))


def test_a_run_that_was_renamed_is_still_the_same(trained: Path, out: Path, tmp_path: Path):
    average(trained, out=out, window=2)
    shutil.copytree(trained, tmp_path / "renamed")
    assert not average(tmp_path / "renamed", out=out, window=2)[0].made


def test_damaged_averages(trained: Path, out: Path):
    average(trained, out=out, window=5, along=True)
    weights = out / "step50" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert "or a damaged one" in refusal(trained, out=out, window=5, along=True)
    (out / "step50" / RECIPE).write_text("{}")
    assert "step50: holds config.json, which is of no average" in refusal(trained, out=out, window=5, along=True)


def test_averages_further_on_stay_where_they_are_of_the_same_kind(trained: Path, out: Path):
    average(trained, out=out, window=3, along=True)
    notes = Notes()
    made = average(f"{trained}@40", out=out, window=3, along=True, notes=notes)
    assert [one.made for one in made] == [False, False] and (out / "step60").is_dir()
    assert notes.heard == ["2 of 2 there already, of the same members"]
    assert "step30: holds another average" in refusal(f"{trained}@20", out=out, window=2, along=True)
    made = average(f"{trained}@30", out=out, window=2, along=True, overwrite=True)
    assert sorted(path.name for path in out.iterdir()) == ["step20", "step30"]  # no mixture of windows
    assert all(one.made for one in made)


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_no_average_wrote_is_never_removed(trained: Path, tmp_path: Path, overwrite: bool):
    options = {"window": 2, "overwrite": overwrite}
    precious = tmp_path / "precious"
    (precious / "below").mkdir(parents=True)
    (precious / "below" / "thesis.txt").write_text("years")
    assert "holds below/thesis.txt, which is of no average" in refusal(trained, out=precious, **options)

    mine = tmp_path / "mine"
    average(trained, out=mine, window=3)
    (mine / "link").symlink_to(precious)
    assert "holds link" in refusal(trained, out=mine, **options)
    assert (mine / "link").exists() and (mine / "model.safetensors").exists()

    runs = tmp_path / "runs"
    shutil.copytree(trained / "step10", runs / "step10")
    (runs / "log.txt").write_text("beside the checkpoints")
    assert "step10: holds config.json, which is of no average" in refusal(trained, out=runs, along=True, **options)
    assert "holds log.txt, which is of no average" in refusal(trained, out=runs, **options)
    (tmp_path / "other" / "step30").mkdir(parents=True)
    (tmp_path / "other" / "step30" / "thesis.txt").write_text("years")
    assert "holds thesis.txt" in refusal(trained, out=tmp_path / "other", along=True, **options)
    assert "a checkpoint itself" in refusal(trained, out=mine, along=True, **options)
    file = tmp_path / "file"
    file.write_text("x")
    for along in (False, True):
        assert "cannot be written" in refusal(trained, out=file, along=along, **options)
    assert (precious / "below" / "thesis.txt").exists() and (runs / "step10" / "model.safetensors").exists()


def test_beside_what_is_no_checkpoint_a_run_of_averages_can_lie(trained: Path, out: Path):
    (out / "step50").mkdir(parents=True)  # empty, and so free
    (out / "README.md").write_text("mine")
    for overwrite in (False, True):
        assert len(average(trained, out=out, window=5, along=True, overwrite=overwrite)) == 2
    assert (out / "README.md").read_text() == "mine"


def test_an_average_never_takes_the_place_of_a_member(trained: Path, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    for overwrite in (False, True):
        options = {"window": 2, "overwrite": overwrite}
        assert "holds copy@step10, which is to be averaged" in refusal(copy, out=copy, along=True, **options)
        assert "which is to be averaged" in refusal(copy, out=copy / "step60", **options)
        assert "would count as a checkpoint of copy" in refusal(copy, out=copy / "step70", **options)
    average(copy, out=copy / "lawa", window=2)
    average(copy, out=copy / "averages", window=5, along=True)
    assert resolve(str(copy)).step == 60
    average(copy / "averages", out=tmp_path / "of-averages", window=2)
    assert "to be averaged" in refusal(copy / "averages", out=copy / "averages", along=True, window=2, overwrite=True)
    assert (copy / "averages" / "step60" / "model.safetensors").exists()


def test_one_writer_at_a_time(trained: Path, out: Path):
    with lock(out):
        assert "being written by another process" in refusal(trained, out=out)


def test_an_empty_directory_is_free(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (made,) = average(trained, out=Path())
    assert made.folder == tmp_path / "here" and (tmp_path / "here" / RECIPE).is_file()


# on the Hub

CALL = """
import json, pathlib
from landscape.averaging import average_checkpoints
from landscape.config import AverageConfig
from landscape.errors import LandscapeError
from landscape.reporting import Silent

class Notes(Silent):
    def __init__(self):
        self.heard = []
    def note(self, text):
        self.heard.append(text)

def call(models, **options):
    notes = Notes()
    try:
        made = average_checkpoints(AverageConfig(models, **options), notes)
    except LandscapeError as error:
        return str(error)
    return [[[one.folder.name, list(one.members)] for one in made], notes.heard]
"""


def test_a_run_on_the_hub(trained: Path, tmp_path: Path):
    folders = {f"step{step}": trained / f"step{step}" for step in STEPS} | {"main": trained / "step60"}
    repository = {
        "refs": {name: commit(name) for name in folders},
        "files": {commit(name): folder for name, folder in folders.items()},
    }
    out = tmp_path / "out"
    with hub.serve({"org/trained": repository}) as served:
        code = f"""{CALL}
report([
    call(["org/trained@step50"], out={str(out / "last")!r}, window=2),
    call(["org/trained"], out={str(out / "along")!r}, window=5, along=True),
    call(["org/trained@main", "org/trained@step60"], out={str(out / "soup")!r}, kind="soup"),
    call(["org/trained@main"], out={str(out / "main")!r}),
    call(["org/trained@step55"], out={str(out / "55")!r}),
    call(["org/trained"], out={str(out / "35")!r}, every=25, window=2),
])"""
        last, along, soup, main, no_such, gap = hub.run(code, served.address, tmp_path / "home")
    assert last == [[["last", ["org/trained@step40", "org/trained@step50"]]], []]
    assert [name for name, _ in along[0]] == ["step50", "step60"]
    assert along[1] == ["org/trained tells no step; the run was taken to end at step60"]
    assert len(soup[1]) == 1 and "hold the same weights, and both count" in soup[1][0]
    assert "org/trained@main: its revision tells no step; expected RUN, or RUN@step" in main
    assert "no revision step55 on the Hub" in no_such
    assert "model org/trained: no checkpoint at step 35" in gap

    average(f"{trained}@50", out=tmp_path / "local", window=2)
    assert stored(out / "last").keys() == stored(tmp_path / "local").keys()
    for name, tensor in stored(tmp_path / "local").items():
        assert torch.equal(stored(out / "last")[name], tensor)
    facts = said(out / "last")
    assert [member["identity"] for member in facts["members"]] == [f"commit:{commit(f'step{n}')}" for n in (40, 50)]
    assert str(tmp_path) not in (out / "last" / RECIPE).read_text()
