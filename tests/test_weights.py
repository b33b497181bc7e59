"""Θ as a vector: exact reductions, tied tensors once, seeded directions."""

from __future__ import annotations

import math

import pytest
import torch

from conftest import build
from landscape.errors import ModelError
from landscape.weights import Weights, check_same_space, move_to, random_direction


def test_operations_by_hand():
    a = Weights({"w": torch.tensor([[1.0, 2.0]]), "b": torch.tensor([3.0])})
    b = Weights({"w": torch.tensor([[0.5, 0.0]]), "b": torch.tensor([-1.0])})
    assert (a + b)["w"].tolist() == [[1.5, 2.0]]
    assert (a - b)["b"].tolist() == [4.0]
    assert (2 * a)["w"].tolist() == [[2.0, 4.0]]
    assert a.dot(b) == 0.5 - 3.0
    assert a.norm() == math.sqrt(14)
    assert a.numel() == 3


def test_reductions_accumulate_in_float64():
    # a float32 sum over so many elements is off by about 1e-4 on a CPU
    long = torch.full((5_000_003,), 1 / 3)
    weights = Weights({"w": long})
    exact = float(long[0].double() ** 2) * len(long)
    assert weights.dot(weights) == pytest.approx(exact, rel=1e-10)


def test_tied_tensors_count_once():
    tied, untied = build("llama-tied-gqa"), build("llama-tied-gqa", tie_word_embeddings=False)
    head = untied.lm_head.weight.numel()
    assert Weights.of(untied).numel() - Weights.of(tied).numel() == head
    assert "lm_head.weight" not in Weights.of(tied)


def test_of_shares_memory_and_clone_does_not():
    model = build("gpt_neox")
    shared = Weights.of(model)
    copy = shared.clone()
    name = next(iter(shared))
    with torch.no_grad():
        dict(model.named_parameters())[name].add_(1.0)
    assert torch.equal(shared[name], copy[name] + 1.0)


def test_move_to_is_exact_at_the_origin_and_has_no_drift():
    torch.manual_seed(0)
    origin, u, v = (Weights({"w": torch.randn(1000)}) for _ in range(3))
    out = origin.clone()
    for step in range(50):
        move_to(out, origin, 0.1 * step, u, -0.2 * step, v)
    move_to(out, origin, 0.0, u, 0.0, v)
    assert out.equal(origin)
    move_to(out, origin, 2.0, u, -1.0, v)
    assert torch.equal(out["w"], (origin["w"] + 2.0 * u["w"]) - v["w"])
    move_to(out, origin, 2.0, u, 5.0, None)  # a line
    assert torch.equal(out["w"], origin["w"] + 2.0 * u["w"])


def test_scaling_in_place_keeps_the_memory():
    weights = Weights({"w": torch.tensor([3.0, 4.0]), "b": torch.tensor([12.0])})
    memory = weights["w"].data_ptr()
    assert weights.scale_(1 / weights.norm()) is weights
    assert weights.norm() == pytest.approx(1, abs=1e-7)
    assert weights["w"].data_ptr() == memory


def test_random_direction_is_filter_normalized_and_seeded():
    weights = Weights.of(build("gpt_neox"))
    direction, again, other = (random_direction(weights, seed) for seed in (3, 3, 4))
    assert direction.equal(again)
    assert not direction.equal(other)
    for name, tensor in weights.items():
        if tensor.ndim < 2:
            assert not direction[name].any()
        else:
            assert torch.allclose(direction[name].norm(dim=1), tensor.norm(dim=1), rtol=1e-5)
    flat = torch.cat([(direction[n] / t.std()).flatten() for n, t in weights.items() if t.ndim >= 2])
    assert abs(float(flat.mean())) < 0.02  # Gaussian around zero, not uniform on one orthant
    assert 0.4 < float((flat > 0).double().mean()) < 0.6


def test_random_direction_by_layer_keeps_the_shape_of_the_noise():
    weights = Weights.of(build("gpt_neox"))
    by_layer, by_filter = random_direction(weights, 3, by="layer"), random_direction(weights, 3)
    assert not by_layer.equal(by_filter)
    for name, tensor in weights.items():
        if tensor.ndim < 2:
            assert not by_layer[name].any()
            continue
        assert float(by_layer[name].norm()) == pytest.approx(float(tensor.norm()), rel=1e-5)
        assert not torch.allclose(by_layer[name].norm(dim=1), tensor.norm(dim=1), rtol=1e-3)
        # the same draw, so the rows point the same way
        cosine = torch.nn.functional.cosine_similarity(by_layer[name], by_filter[name], dim=1)
        assert torch.allclose(cosine, torch.ones_like(cosine), atol=1e-5)


def test_different_architectures_are_named():
    a = Weights({"w": torch.zeros(2, 3)})
    with pytest.raises(ModelError, match=r"tensor w has shape \(2, 3\).*\(3, 2\)"):
        check_same_space(a, Weights({"w": torch.zeros(3, 2)}))
    with pytest.raises(ModelError, match="v is in one only"):
        a - Weights({"w": torch.zeros(2, 3), "v": torch.zeros(1)})


def test_fingerprint_sees_one_bit_and_the_name():
    a = Weights({"w": torch.zeros(5)})
    b = Weights({"w": torch.zeros(5)})
    assert a.fingerprint() == b.fingerprint()
    b["w"][3] = 1e-45
    assert a.fingerprint() != b.fingerprint()
    assert a.fingerprint() != Weights({"v": torch.zeros(5)}).fingerprint()
