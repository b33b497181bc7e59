"""Losses of windows and the paired bootstrap over them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from conftest import build, prose
from landscape.losses import WindowLosses, compare, window_losses
from landscape.objective import TokenCrossEntropy, batches, mean
from landscape.quantize import parse, quantize
from landscape.tokens import WindowReader
from landscape.weights import Weights


def drawn(seed: int, n: int = 200) -> tuple[WindowLosses, WindowLosses]:
    """Windows of 10 to 59 tokens: L = 3 with a spread of 0.5 between windows, ΔL = 0.1 with one of 0.05."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(10, 60, n)
    level = 3 + 0.5 * rng.normal(size=n)
    change = 0.1 + 0.05 * rng.normal(size=n)
    return WindowLosses(level * counts, counts), WindowLosses((level + change) * counts, counts)


def test_windows_sum_to_the_objective_however_they_are_batched(tokenizer):
    model = build("llama-tied-gqa")
    windows = WindowReader([prose(n, seed=n) for n in (30, 4, 80, 9, 41)], tokenizer, 24, "documents").take(10)
    theta = Weights.of(model)
    told: list[tuple[int, int]] = []
    one = window_losses(TokenCrossEntropy(model, batches(windows, 2)), theta, lambda *done: told.append(done))
    two = window_losses(TokenCrossEntropy(model, batches(windows, 5)), theta)
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert one.counts.tolist() == two.counts.tolist() == (windows.lengths - 1).tolist()
    assert one.sums == pytest.approx(two.sums, rel=1e-5)
    assert one.mean == pytest.approx(mean(TokenCrossEntropy(model, batches(windows, 5)), theta), rel=1e-6)
    assert one.perplexity == pytest.approx(math.exp(one.mean))


def test_a_comparison_is_what_it_says(tokenizer):
    model = build("gpt_neox")
    windows = WindowReader([prose(2000)], tokenizer, 32).take(40)
    objective = TokenCrossEntropy(model, batches(windows, 8))
    hat, _ = quantize(parse("rtn-w3-g16"), model)
    theta, theta_hat = window_losses(objective, Weights.of(model)), window_losses(objective, hat)
    found = compare(theta, theta_hat)
    at, at_hat = mean(objective, Weights.of(model)), mean(objective, hat)
    assert found.loss.value == pytest.approx(at) and found.loss_hat.value == pytest.approx(at_hat)
    assert found.change.value == pytest.approx(at_hat - at)
    assert found.relative.value == pytest.approx(at_hat / at - 1)
    assert found.perplexity_ratio.value == pytest.approx(math.exp(at_hat) / math.exp(at))
    same = compare(theta, theta)
    assert (same.change.value, same.change.low, same.change.high) == (0.0, 0.0, 0.0)
    assert compare(theta, theta_hat) == found  # seeded
    assert compare(theta, theta_hat, seed=1) != found


def test_pairing_makes_the_interval_of_the_difference_tight():
    theta, theta_hat = drawn(0)
    found = compare(theta, theta_hat)
    assert found.loss.standard_error == pytest.approx(0.5 / math.sqrt(200), rel=0.25)
    assert found.change.standard_error == pytest.approx(0.05 / math.sqrt(200), rel=0.25)
    assert found.relative.standard_error < 0.2 * found.loss.standard_error / found.loss.value


def test_intervals_cover_what_they_should():
    """Of 300 samples, those whose interval holds the true value: 95 %, give or take 3.7 % (three standard errors)."""
    held = {"loss": 0, "change": 0, "relative": 0}
    true = {"loss": 3.0, "change": 0.1, "relative": 0.1 / 3}
    for seed in range(300):
        found = compare(*drawn(seed), draws=400, seed=seed)
        for name, value in true.items():
            estimate = getattr(found, name)
            held[name] += estimate.low <= value <= estimate.high
    assert all(0.913 <= count / 300 <= 0.987 for count in held.values()), held


def test_long_windows_weigh_more():
    counts = np.array([1, 99])
    assert WindowLosses(np.array([5.0, 99.0]), counts).mean == pytest.approx(1.04)


def test_what_is_not_finite_or_too_few_has_no_interval():
    theta, theta_hat = drawn(3)
    theta_hat.sums[7] = math.nan
    found = compare(theta, theta_hat)
    assert math.isnan(found.change.value) and math.isnan(found.change.low) and math.isfinite(found.loss.value)
    theta_hat.sums[7] = math.inf
    assert compare(theta, theta_hat).relative.value == math.inf
    one = WindowLosses(np.array([30.0]), np.array([10]))
    alone = compare(one, one)
    assert alone.loss.value == 3.0 and math.isnan(alone.loss.standard_error)
    with pytest.raises(ValueError, match="different windows"):
        compare(theta, one)


def test_draws_are_taken_in_parts_without_changing_the_result(monkeypatch):
    whole = compare(*drawn(1), draws=50)
    monkeypatch.setattr("landscape.losses._AT_ONCE", 200 * 7)
    parts = compare(*drawn(1), draws=50)
    assert parts.change.low == pytest.approx(whole.change.low, rel=1e-12)
    assert parts.loss.standard_error == pytest.approx(whole.loss.standard_error, rel=1e-9)


def test_no_gradients_are_held(tokenizer):
    model = build("gpt_neox")
    windows = WindowReader([prose(200)], tokenizer, 32).take(2)
    weights = {name: tensor.clone().requires_grad_() for name, tensor in Weights.of(model).items()}
    window_losses(TokenCrossEntropy(model, batches(windows, 2)), weights)
    assert all(tensor.grad is None for tensor in weights.values()) and torch.is_grad_enabled()
