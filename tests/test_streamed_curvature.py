"""Gradients, traces and eigenvalues of models in scratch space: the numbers of those in memory, without the memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from conftest import VOCABULARY
from landscape import curvature
from landscape.config import SharpnessConfig
from landscape.curvature import vectors
from landscape.curvature.ledger import Ledger
from landscape.curvature.probes import gaussian, rademacher
from landscape.errors import CurvatureError, ModelError, OptionError
from landscape.sharpness import measure_sharpness
from landscape.sharpness.windows import Spread
from landscape.streaming import StreamedCrossEntropy, StreamedHessian, StreamedProbes
from landscape.streaming.gradient import add_gradient
from landscape.weights import Weights
from streamed import Both, both, in_little_memory, save_wide

pytestmark = pytest.mark.usefixtures("process")
MODELS = [
    ("llama-tied-gqa", {}),
    ("gpt_neox", {}),
    ("gpt_neox", {"tie_word_embeddings": True}),
    ("gpt2", {}),
    ("olmo2", {}),
]


def exact(found: Both) -> dict[str, Tensor]:
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in found.theta.items()}
    total = sum(found.held(leaves, batch)[0] for batch in found.held.batches)
    return dict(zip(leaves, torch.autograd.grad(total, list(leaves.values()), materialize_grads=True), strict=True))


@pytest.mark.parametrize(("name", "changes"), MODELS)
def test_the_gradient_is_that_of_a_model_in_memory(name: str, changes: dict[str, object], tmp_path: Path):
    found = both(tmp_path, name, **changes)
    expected = exact(found)
    into = {name: torch.zeros_like(tensor) for name, tensor in expected.items()}
    slope = add_gradient(found.streamed, found.masters, into, found.scratch)
    for name, tensor in expected.items():
        assert (into[name] - tensor).norm() <= 1e-6 * tensor.norm(), name
    total = sum(found.held(found.theta, batch)[0].item() for batch in found.held.batches)
    assert slope.loss == pytest.approx(total, rel=1e-12)
    alone = [
        torch.autograd.grad(found.held(leaves := _leaves(found), batch)[0], list(leaves.values()))
        for batch in found.held.batches
    ]
    if not found.held.model.config.tie_word_embeddings:  # what is tied counts as two tensors there
        lengths = [vectors.norm(torch.cat([piece.flatten() for piece in pieces])) for pieces in alone]
        assert np.allclose(slope.lengths, lengths, rtol=1e-6)
    some = {name: torch.zeros_like(t) for name, t in expected.items() if "norm" in name or "ln" in name}
    assert some
    add_gradient(found.streamed, found.masters, some, found.scratch)
    assert all(torch.equal(tensor, into[name]) for name, tensor in some.items())


def _leaves(found: Both) -> dict[str, Tensor]:
    return {name: tensor.clone().requires_grad_() for name, tensor in found.theta.items()}


def test_the_row_of_a_padding_token_is_differentiated_too(tmp_path: Path):
    found = both(tmp_path, "llama-tied-gqa", pad_token_id=5, tie_word_embeddings=False)
    assert any(m.padding_idx == 5 for m in found.streamed.model.modules() if isinstance(m, nn.Embedding))
    name = "model.embed_tokens.weight"
    found.streamed.batches[0].ids[0, 0] = found.held.batches[0].ids[0, 0] = 5
    into = {name: torch.zeros_like(found.theta[name])}
    add_gradient(found.streamed, found.masters, into, found.scratch)
    assert into[name][5].norm() > 0
    assert torch.allclose(into[name], exact(found)[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["llama-tied-gqa", "gpt2"])
def test_trace_and_eigenvalue_are_those_of_a_model_in_memory(name: str, tmp_path: Path):
    found = both(tmp_path, name)
    budget = curvature.Budget(0.5, 4, 5)
    held = curvature.trace_by_losses(found.held, found.theta, "!*ln*", budget)
    probes = StreamedProbes(found.streamed, found.masters, "!*ln*")
    streamed = curvature.trace_by_losses(found.streamed, found.masters, "!*ln*", budget, along=probes)
    assert np.allclose(streamed.samples, held.samples, rtol=1e-6)
    one = curvature.DifferenceHessian(found.held, found.theta)
    two = StreamedHessian(found.streamed, found.masters, "*", found.scratch)
    assert two.loss() == pytest.approx(one.loss(), rel=1e-6) and two.count() == one.count()
    values = []
    for operator in (one, two):
        start = curvature.noisy(operator.gradient(), 0, out=operator.new(operator.n))
        values.append(curvature.eigenvalues(operator, start, max_products=7).values[0])
    assert values[1] == pytest.approx(values[0], rel=1e-3)
    direct = curvature.Hessian(found.held, found.theta)
    v = rademacher(one.n, one.theta, 3)
    assert vectors.norm(two @ v - direct @ v) < 0.02 * vectors.norm(direct @ v)
    u = direct.gradient() / vectors.norm(direct.gradient())
    spreads = [
        Spread(o, t, one.space).bend(u, 1.0) for o, t in ((found.held, found.theta), (found.streamed, found.masters))
    ]
    assert spreads[0] == pytest.approx(spreads[1], rel=1e-9)


def test_vectors_are_drawn_in_parts():
    like = torch.empty(0)
    whole = rademacher(1000, like, 3, 1, 4)
    for begin, size in ((0, 7), (1, 64), (63, 2), (64, 5), (129, 871), (999, 1), (333, 0)):
        assert torch.equal(rademacher(size, like, 3, 1, 4, start=begin), whole[begin : begin + size])
    assert torch.equal(gaussian(2_500_000, like, 7), torch.from_numpy(_drawn(2_500_000)))
    out = torch.empty(10)
    assert gaussian(10, like, 7, out=out) is out and out.any()


def _drawn(n: int) -> np.ndarray:
    return np.random.default_rng((7, 1)).standard_normal(n, dtype=np.float32)


def test_a_krylov_space_goes_on_in_scratch_space(tmp_path: Path):
    found = both(tmp_path, "gpt_neox")
    operator = StreamedHessian(found.streamed, found.masters, "*layers.1*", found.scratch)
    ledger = Ledger(tmp_path / "state", "key")
    krylov = curvature.Krylov.begin(curvature.noisy(operator.gradient(), 0))
    for _ in range(3):
        krylov.extend(operator)
        ledger.save_krylov("space", krylov)
    loaded = Ledger(tmp_path / "state", "key").load_krylov("space", operator.empty(), operator.new)
    assert torch.equal(loaded.basis, krylov.basis) and torch.equal(loaded.following, krylov.following)
    maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line]
    for tensor in (loaded.basis, loaded.following, krylov.store, operator.theta, operator.gradient()):
        assert any(line.startswith(f"{tensor.data_ptr():x}-") for line in maps)


class Several(nn.Module):
    """A decoder whose blocks pass on something beside hidden states."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        for layer in self.layers:
            layer.forward = lambda hidden, own=layer.forward: (own(hidden), hidden.mean())

    def forward(self, input_ids: Tensor, use_cache: bool) -> SimpleNamespace:
        hidden = self.embedding(input_ids)
        for layer in self.layers:
            hidden, _ = layer(hidden)
        return SimpleNamespace(logits=hidden @ self.embedding.weight.T)


def test_what_cannot_be_differentiated_block_by_block(tmp_path: Path):
    found = both(tmp_path, "gpt_neox")
    into = {name: torch.zeros_like(tensor) for name, tensor in found.theta.items()}
    found.masters["gpt_neox.final_layer_norm.weight"][0] = torch.nan
    with pytest.raises(CurvatureError, match="the loss or gradient of batch 0 is not finite"):
        add_gradient(found.streamed, found.masters, into, found.scratch)
    several = StreamedCrossEntropy(Several(), found.streamed.batches)
    theta = Weights.of(several.model)
    into = {name: torch.zeros_like(tensor) for name, tensor in theta.items()}
    with pytest.raises(ModelError, match="a block passes on more than hidden states"):
        add_gradient(several, theta, into, found.scratch)


def test_the_job_measures_the_same_under_the_same_name(run: Path, text_file: Path, tmp_path: Path):
    asked = {"tokens": 320, "batch_size": 5, "trace_error": 0.3, "bottom": 0, "max_products": 12}
    found = {}
    for stream, how in (("never", {"product": "difference", "density_steps": 0}), ("always", {})):
        config = SharpnessConfig(
            model=f"{run}@step30", text=str(text_file), out=tmp_path / stream, stream=stream, **asked, **how
        )
        found[stream] = measure_sharpness(config)
    held, streamed = found["never"], found["always"]
    assert held.path.name == streamed.path.name and streamed.stored.complete
    one, two = held.stored.sections, streamed.stored.sections
    assert two["eigenvalues/top"]["converged"].all()
    for place, name, rel in (
        ("eigenvalues/top", "values", 1e-3),
        ("eigenvalues/top", "standard_errors", 1e-2),
        ("trace", "samples", 1e-6),
        ("trace", "value", 1e-6),
    ):
        assert np.allclose(one[place][name], two[place][name], rtol=rel, equal_nan=True), name
    attributes = held.stored.attributes, streamed.stored.attributes
    for name in ("loss", "gradient_norm", "gradient_norm_standard_error", "weight_norm"):
        assert attributes[1][name] == pytest.approx(attributes[0][name], rel=1e-4), name
    assert {path.suffix for path in streamed.path.parent.iterdir()} == {".h5"}


def test_what_needs_the_whole_model():
    for name, value in (("layers", True), ("adam", True), ("quant", "nf4"), ("checkpointing", True)):
        with pytest.raises(OptionError, match=f"--stream always with --{name}: needs the whole model in memory"):
            SharpnessConfig(model="m", stream="always", **{name: value})
    config = SharpnessConfig(model="m", stream="always")
    assert (config.product, config.density_steps) == ("difference", 0)


LARGE = """
from pathlib import Path
from landscape import curvature
from landscape.machine import heap
from landscape.curvature import vectors
from landscape.models.mapped import load_mapped, masters
from landscape.models import load_model
from landscape.objective import TokenCrossEntropy, batches
from landscape.models.references import resolve
from landscape.storage.scratch import Scratch
from landscape.streaming import StreamedCrossEntropy, StreamedHessian, StreamedProbes
from landscape.tokens import Windows
from landscape.weights import Weights
windows = Windows(torch.arange(64).view(2, 32), torch.tensor([32, 32]))
checkpoint, streams = resolve(FOLDER), STREAMS
heap.give_back()
load_mapped(checkpoint)  # what is imported on the way
curvature.trace_by_losses, curvature.DifferenceHessian, curvature.eigenvalues, curvature.noisy
limit()
if streams:
    model, scratch = load_mapped(checkpoint), Scratch(Path(FOLDER))
    theta = masters(model, "cpu", scratch)
    objective = StreamedCrossEntropy(model, batches(windows, 2))
    operator, along = StreamedHessian(objective, theta, "*", scratch), StreamedProbes(objective, theta, "*")
else:
    model = load_model(checkpoint)
    theta = Weights.of(model)
    objective, along = TokenCrossEntropy(model, batches(windows, 2)), None
    operator = curvature.DifferenceHessian(objective, theta)
start = curvature.noisy(operator.gradient(), 0, out=operator.new(operator.n))
found = curvature.eigenvalues(operator, start, max_products=2)
trace = curvature.trace_by_losses(objective, theta, budget=curvature.Budget(0.5, 4, 4), along=along)
print(found.values[0], trace.value)
"""


def test_an_operator_that_memory_does_not_hold(tmp_path: Path):
    """Θ takes 43 MB in float32, the file 22; with gradients and a Krylov space it is ten of them. 80 MB are enough."""
    save_wide(tmp_path)
    program = LARGE.replace("FOLDER", repr(str(tmp_path)))
    streamed = in_little_memory(program.replace("STREAMS", "True"), 80)
    assert streamed.returncode == 0 and len(streamed.stdout.split()) == 2, streamed.stderr
    held = in_little_memory(program.replace("STREAMS", "False"), 180)
    assert held.returncode != 0 and "memory" in held.stderr, held.stdout
