"""The loss: equal to transformers' own, weighted by tokens, indifferent to batching, pure in Θ."""

from __future__ import annotations

import math

import pytest
import torch

from conftest import ARCHITECTURES, VOCABULARY, build, prose
from landscape.objective import TokenCrossEntropy, batches, cross_entropy, mean
from landscape.tokens import WindowReader, Windows
from landscape.weights import Weights


def ragged(tokenizer) -> Windows:
    texts = [prose(n, seed=n) for n in (3, 17, 5, 40, 9, 28, 11)]
    windows = WindowReader(texts, tokenizer, 24, "documents", bos=True).take(100)
    assert len(set(windows.lengths.tolist())) > 2
    return windows


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_equals_a_plain_transformers_loop(name, tokenizer):
    model = build(name)
    windows = WindowReader([prose(500)], tokenizer, 32).take(6)
    objective = TokenCrossEntropy(model, batches(windows, 4))
    with torch.no_grad():
        plain = [float(model(input_ids=row[None], labels=row[None]).loss) for row in windows.ids]
    assert mean(objective, Weights.of(model)) == pytest.approx(sum(plain) / len(plain), rel=1e-6)


def test_ragged_windows_are_weighted_by_tokens_and_batching_does_not_matter(tokenizer):
    model, windows = build("gpt_neox"), ragged(tokenizer)
    total = 0.0
    with torch.no_grad():
        for row, length in zip(windows.ids, windows.lengths.tolist(), strict=True):
            alone = row[None, :length]
            total += float(model(input_ids=alone, labels=alone).loss) * (length - 1)
    expected = total / int((windows.lengths - 1).sum())
    for size in (1, 2, 3, 100):
        objective = TokenCrossEntropy(model, batches(windows, size))
        assert mean(objective, Weights.of(model)) == pytest.approx(expected, rel=1e-6)


def test_is_a_function_of_the_weights_given_and_leaves_the_model_alone(tokenizer):
    for name in ("gpt_neox", "llama-tied-gqa"):
        model, other = build(name, seed=0), build(name, seed=1)
        objective = TokenCrossEntropy(model, batches(ragged(tokenizer), 3))
        before = Weights.of(model).fingerprint()
        at_other = mean(objective, Weights.of(other))
        assert Weights.of(model).fingerprint() == before
        # tied heads must follow: the other model on its own gives the same loss
        own = TokenCrossEntropy(other, objective.batches)
        assert at_other == mean(own, Weights.of(other)) != mean(objective, Weights.of(model))


def test_can_be_differentiated(tokenizer):
    model = build("gpt_neox")
    objective = TokenCrossEntropy(model, batches(ragged(tokenizer), 100))
    weights = {name: tensor.clone().requires_grad_() for name, tensor in Weights.of(model).items()}
    total, count = objective(weights, objective.batches[0])
    gradients = torch.autograd.grad(total / count, list(weights.values()))
    direction = [torch.randn_like(g) for g in gradients]
    slope = sum(float((g * d).sum()) for g, d in zip(gradients, direction, strict=True))

    def at(t: float) -> float:
        pairs = zip(weights.items(), direction, strict=True)
        return mean(objective, {name: tensor.detach() + t * d for (name, tensor), d in pairs})

    assert (at(1e-3) - at(-1e-3)) / 2e-3 == pytest.approx(slope, rel=2e-2)


def test_cross_entropy_by_hand_and_in_chunks(monkeypatch):
    torch.manual_seed(0)
    logits = torch.randn(5, 7, 11, dtype=torch.float64)
    ids = torch.randint(11, (5, 7))
    lengths = torch.tensor([7, 2, 5, 1, 7])
    expected = [0.0] * 5
    for b in range(5):
        for t in range(1, int(lengths[b])):
            expected[b] -= float(logits[b, t - 1].log_softmax(-1)[ids[b, t]])
    assert cross_entropy(logits, ids, lengths).tolist() == pytest.approx(expected, rel=1e-12)
    monkeypatch.setattr("landscape.objective._CHUNK", 100)
    assert cross_entropy(logits, ids, lengths).tolist() == pytest.approx(expected, rel=1e-12)


def test_bfloat16_runs_over_float32_masters(tokenizer):
    model = build("gpt_neox")
    cut = batches(ragged(tokenizer), 8)
    exact = mean(TokenCrossEntropy(model, cut), Weights.of(model))
    rough = mean(TokenCrossEntropy(model, cut, torch.bfloat16), Weights.of(model))
    assert rough != exact
    assert rough == pytest.approx(exact, rel=2e-2)
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())


def test_non_finite_losses_are_results(tokenizer):
    model = build("gpt_neox")
    objective = TokenCrossEntropy(model, batches(ragged(tokenizer), 8))
    assert math.isnan(mean(objective, Weights.of(model) * math.nan))


def test_an_untrained_model_is_near_the_uniform_loss(tokenizer):
    model = build("gpt_neox")
    zero = Weights({n: t * 0 for n, t in Weights.of(model).items()})
    objective = TokenCrossEntropy(model, batches(ragged(tokenizer), 8))
    assert mean(objective, zero) == pytest.approx(math.log(VOCABULARY), rel=1e-6)
