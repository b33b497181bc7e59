"""Plans: what is counted without numbers is what happens with them, and what does not fit is said with what would."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from conftest import build
from landscape.config import PlanConfig
from landscape.curvature import Hessian
from landscape.errors import ModelError, OptionError
from landscape.objective import Batch, TokenCrossEntropy
from landscape.planning import Machine, ahead, plan, plan_job
from landscape.planning import job as planning_job
from landscape.planning.dry import _Counter, costs
from landscape.weights import Weights

KINDS = ["gpt_neox", "llama-tied-gqa", "gpt2", "qwen3"]
MACHINE = Machine(memory=1e9, speed=1e10, link=1e9)


def on(device: str, kind: str) -> torch.nn.Module:
    with torch.device(device):
        return build(kind)


@pytest.mark.parametrize("recomputes", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_counted_without_numbers_is_what_happens(kind: str, recomputes: bool):
    """The same code on the meta device and on a CPU, where the bytes are really taken."""
    found = costs(on("meta", kind), 2, 32, second_order=True, recomputes=recomputes)
    model = build(kind)
    weights = Weights.of(model)
    leaves = {name: tensor.requires_grad_() for name, tensor in weights.items()}
    batch = Batch(torch.arange(64).view(2, 32) % 300, torch.full((2,), 32))
    objective = TokenCrossEntropy(model, [batch], recomputes=recomputes)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        counter = _Counter([*weights.values(), *model.buffers(), batch.ids])
        made, real = counter.cost(
            lambda: torch.autograd.grad(objective(leaves, batch)[0], list(leaves.values()), materialize_grads=True)
        )
    assert real.flops == found.gradient.flops
    assert real.peak == pytest.approx(found.gradient.peak, rel=0.02)
    assert found.gradient.held == 4 * found.parameters == sum(each.numel() * 4 for each in made)
    assert found.loss.flops < found.gradient.flops < found.product.flops
    assert found.loss.held <= 64  # a number and what it is made of


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_takes_what_the_operator_measures(kind: str):
    found = costs(on("meta", kind), 2, 32, second_order=True)
    batch = Batch(torch.arange(64).view(2, 32) % 300, torch.full((2,), 32))
    model = build(kind)
    operator = Hessian(TokenCrossEntropy(model, [batch]), Weights.of(model))
    assert operator.graph_bytes() == pytest.approx(found.graph.held - 4 * found.parameters, rel=0.02)  # the gradient


def test_operations_of_a_forward_pass_are_two_a_weight_and_token_and_those_of_attention():
    model = on("meta", "gpt_neox")
    matrices = sum(p.numel() for n, p in model.named_parameters() if p.ndim == 2 and "embed_in" not in n)
    attention = 2 * 2 * 2 * 32 * 32 * 32  # layers, products, a multiply and an add, tokens², width
    assert costs(model, 1, 32).loss.flops == 2 * matrices * 32 + attention


def planned(run: Path, job: str, **changes: object):
    options = {"tokens": 2048, "seq_len": 64, "memory": 1.0, "tflops": 0.1, **changes}
    return plan_job(PlanConfig(job, str(run / "step30"), **options))


def test_ranks_divide_the_work_and_pieces_the_memory(run: Path):
    alone, _ = planned(run, "sharpness", products=10)
    four, _ = planned(run, "sharpness", products=10, ranks=4)
    pieces, _ = planned(run, "sharpness", products=10, ranks=4, shard=True)
    for one, many in zip(alone.phases, four.phases, strict=True):
        assert one.flops == pytest.approx(4 * many.flops)
    assert four.phases[0].sent > 0 == alone.phases[0].sent
    assert pieces.phases[0].held["weights"] == alone.phases[0].held["weights"] / 4
    assert pieces.phases[1].held["Krylov vectors"] == four.phases[1].held["Krylov vectors"] / 4
    assert planned(run, "slice", ranks=4)[0].phases[1].flops == planned(run, "slice")[0].phases[1].flops / 4


def test_graphs_are_kept_where_they_fit(run: Path):
    kept, _ = planned(run, "sharpness", products=10)
    anew, _ = planned(run, "sharpness", products=10, memory=0.02)
    assert "kept" in kept.phases[1].name and "anew" in anew.phases[1].name
    assert anew.phases[1].flops > kept.phases[1].flops
    assert anew.phases[1].held["graphs"] < kept.phases[1].held["graphs"]


def test_what_does_not_fit_is_said_with_what_would(run: Path):
    found, remedies = planned(run, "sharpness", products=20, memory=0.004)
    assert not found.fits and remedies
    config = found.config
    for words, size in remedies:
        assert size <= 4e6 < found.peak, words
    assert any("--stream always" in words for words, _ in remedies)
    short = {"products": 20, "shard": True, "batch_size": 1, "memory": 0.0009}
    split, (more,) = planned(run, "sharpness", ranks=2, **short)
    assert not split.fits and more[0].startswith("torchrun on ") and more[1] <= 9e5 < split.peak
    fitting, none = planned(run, "sharpness", products=20, memory=0.004, stream=True)
    assert fitting.fits and not none and config.products == 20


def test_the_time_is_that_of_operations_and_of_what_is_sent(run: Path):
    found, _ = planned(run, "evaluate", tflops=0.1)
    first = found.phases[0]
    assert found.seconds(first) == pytest.approx(first.flops / 0.05e12)
    slow = plan(found.config, 32, lambda config: found.costs, MACHINE)
    assert slow.seconds(slow.phases[0]) == pytest.approx(10 * found.seconds(first))


def test_the_command_prints_phases_and_a_verdict(run: Path, landscape):
    code, out, _ = landscape("plan", "sharpness", run / "step30", "--seq-len", 64, "--memory", 0.004, "--tflops", 0.1)
    assert code == 0
    assert "does not fit" in out and "with --stream always" in out and "Krylov vectors" in out
    code, out, _ = landscape(
        "plan", "slice", run / "step30", "--seq-len", 64, "--ranks", 4, "--memory", 1, "--tflops", 1
    )
    assert code == 0 and "fits: " in out and "on 4 ranks of 1 GB" in out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"job": "train"}, "job train: expected one of slice, sharpness, evaluate"),
        ({"memory": -1.0}, "--memory -1.0: expected a number above 0"),
        ({"job": "slice", "shard": True}, "--shard with slice: belongs to sharpness"),
        ({"seq_len": 4096}, "--seq-len 4096: longer than the 64 tokens"),
    ],
)
def test_what_cannot_be_planned_is_one_line(run: Path, changes: dict[str, object], message: str):
    with pytest.raises(OptionError, match=message):
        plan_job(PlanConfig(**{"job": "sharpness", "model": str(run / "step30"), **changes}))


def test_a_model_is_named_as_everywhere(run: Path, tmp_path: Path):
    options = {"tokens": 2048, "seq_len": 64, "memory": 1.0, "tflops": 0.1}
    last, (folder, revision) = plan_job(PlanConfig("evaluate", str(run), **options))[0], (run, "step20")
    assert last.costs == plan_job(PlanConfig("evaluate", f"{folder}@{revision}", **options))[0].costs
    with pytest.raises(ModelError, match="step21"):
        plan_job(PlanConfig("evaluate", f"{run}@step21"))
    with pytest.raises(ModelError, match=str(tmp_path / "nothing")):
        plan_job(PlanConfig("evaluate", str(tmp_path / "nothing")))
    (tmp_path / "config.json").write_text('{"model_type": "no such thing"}')
    with pytest.raises(ModelError, match="no configuration to plan with"):
        plan_job(PlanConfig("evaluate", str(tmp_path)))


def test_attention_without_gradients_is_counted_without_its_matrices():
    tokens, heads, layers = 64, 2, 2
    model = on("meta", "gpt_neox")
    short, long = (costs(model, 1, n).loss for n in (tokens, 2 * tokens))
    assert long.peak < 2.1 * short.peak  # each matrix would take four times as much
    gradients = [costs(model, 1, n).gradient for n in (tokens, 2 * tokens)]
    assert gradients[1].peak - 2 * gradients[0].peak > -2 * 4 * model_size(model) + layers * heads * 4 * 2 * tokens**2


def model_size(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


JOBS = {  # options of each that are soon done
    "slice": ("--grid", "5x5", "--max-evaluations", 50, "--quant", "rtn-w3-g32"),
    "sharpness": ("--density-steps", 0, "--bottom", 0, "--max-probes", 10),
    "evaluate": ("--quant", "rtn-w3-g32"),
}


@pytest.mark.parametrize("job", JOBS)
def test_a_long_job_says_its_plan_before_it_begins(
    job: str, run: Path, text_file: Path, landscape, tmp_path: Path, monkeypatch
):
    monkeypatch.setattr(ahead, "_WORTH", 0.0)
    asked = (job, run / "step30", "--text", text_file, "--tokens", 256, "--seq-len", 32, "--out", tmp_path / "out")
    monkeypatch.setattr(planning_job, "available", lambda device: 400_000)
    code, out, err = landscape(*asked, *JOBS[job])
    assert code == 2 and not list(tmp_path.rglob("*.h5")) and not list(tmp_path.rglob("*.json"))
    said = " ".join((out + err).split())
    assert f"{job} would take" in said and "are free; use" in said and "--stream always" in said
    monkeypatch.undo()
    monkeypatch.setattr(ahead, "_WORTH", 0.0)
    code, out, err = landscape(*asked, *JOBS[job])
    assert code == 0
    said = " ".join(err.split())
    assert said.index("planned: about ") < said.index("then held: weights") < said.index("loading run@step30")


def test_what_cannot_be_counted_is_said_and_goes_on(run: Path, text_file: Path, landscape, tmp_path: Path, monkeypatch):
    def refuse(*asked: object) -> None:
        raise ModelError("Mixture: cannot be planned without its numbers")

    monkeypatch.setattr(ahead, "_WORTH", 0.0)
    monkeypatch.setattr(planning_job, "costs", refuse)
    code, out, err = landscape(
        "evaluate",
        run / "step30",
        "--text",
        text_file,
        "--tokens",
        256,
        "--seq-len",
        32,
        "--out",
        tmp_path / "out",
        *JOBS["evaluate"],
    )
    assert code == 0 and "not planned: Mixture" in " ".join((out + err).split())
