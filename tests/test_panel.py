"""One polynomial on one rectangle: what it uses, what makes it doubt itself, and what it does not forget."""

from __future__ import annotations

import numpy as np
import pytest

from landscape.slices import panel
from landscape.slices.axes import Bounds
from landscape.slices.panel import Attempt, attempt
from landscape.slices.reconstruct import reconstruct
from landscape.slices.samples import Samples
from landscape.slices.surface import on_grid
from surfaces import LEVEL, Asked, Truth, largest_difference, rough, smooth, with_hole

LINES = np.linspace(-1, 1, 41)
SQUARE = Bounds((-1.0, 1.0), (-1.0, 1.0))
OF_RANGE = (1e-3, np.inf)


@pytest.mark.parametrize("seed", [2, 3, 4, 5])
def test_a_piece_uses_what_was_evaluated_on_the_whole(seed: int):
    """Measured: a step, a bump, a wave and a cone take a third to a half of the places as nodes of one half."""
    asked = Asked(rough(seed))
    samples = Samples(asked, OF_RANGE, LEVEL, False)
    assert attempt(samples, SQUARE, 120, np.random.default_rng(0)).ended == "nodes"
    before, half = asked.kinds["node"], Bounds((-1.0, 0.08), (-1.0, 1.0))
    at_hand = samples.inside(half)
    assert len(at_hand) == sum(alpha <= 0.08 for _, alpha, _ in asked.calls)
    piece = attempt(samples, half, 400, np.random.default_rng(1))
    assert piece.nodes - (asked.kinds["node"] - before) > 0.25 * len(at_hand)


def attempted(truth: Truth, seed: int = 0) -> Attempt:
    samples = Samples(Asked(truth), OF_RANGE, LEVEL, False)
    return attempt(samples, SQUARE, 400, np.random.default_rng(seed))


def test_what_checks_do_not_see_the_change_between_levels_tells(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(panel, "check_places", lambda rng, taken, suspects, suspicion, count, axes: taken[:count])
    alpha, beta = np.meshgrid(LINES, LINES)
    for seed in (1, 3, 4, 7, 9, 10, 11, 16):
        found = attempted(smooth(seed))
        assert np.abs(found.polynomial(alpha, beta) - smooth(seed)(alpha, beta)).max() < found.error


def test_what_the_change_between_levels_does_not_tell_a_check_sees():
    for seed in (1, 3, 4, 7):
        place = tuple(attempted(smooth(seed)).checks[2])
        assert attempted(with_hole(smooth(seed), np.nan, place, 1e-9)).error == np.inf
        lifted = with_hole(smooth(seed), 9.0, place, 1e-9)
        assert attempted(lifted).error > 9 - smooth(seed)(*place)


@pytest.mark.parametrize("seed", [3, 4, 9])
def test_what_one_check_saw_is_not_forgotten_when_the_rectangle_is_cut(seed: int):
    """A spike narrower than the nodes are apart, which nothing but one check point meets."""
    found = reconstruct(Asked(smooth(seed)), LINES, LINES, OF_RANGE, LEVEL, {}, seed)
    place = found.checked[2, :2]
    spike = smooth(seed).plus(lambda p: 0.3 * np.exp(-((p - place) ** 2).sum(1) / 0.03**2), "spike")
    found = reconstruct(Asked(spike), LINES, LINES, OF_RANGE, LEVEL, {}, seed)
    assert found.certificate.pieces > 1
    error = largest_difference(on_grid(found.surface, LINES, LINES), spike.on_grid(LINES, LINES))
    assert error <= found.certificate.error


@pytest.mark.parametrize("seed", [3, 4, 9])
def test_one_check_that_is_not_finite_cuts_the_rectangle(seed: int):
    found = reconstruct(Asked(smooth(seed)), LINES, LINES, OF_RANGE, LEVEL, {}, seed)
    holed = with_hole(smooth(seed), np.nan, tuple(found.checked[2, :2]), 1e-9)
    certificate = reconstruct(Asked(holed), LINES, LINES, OF_RANGE, LEVEL, {}, seed).certificate
    assert certificate.pieces > 1 and certificate.why


def test_a_known_loss_that_is_not_finite_is_not_passed_over():
    """Not each of the eight known places becomes a node, and the one without a finite loss may be among the others."""
    rng = np.random.default_rng(0)
    for seed in range(12):
        places = [tuple(place) for place in rng.uniform(-1, 1, (8, 2)).tolist()]
        known = {place: float(smooth(seed)(*place)) for place in places} | {places[3]: np.nan}
        assert reconstruct(Asked(smooth(seed)), LINES, LINES, OF_RANGE, LEVEL, known, seed).certificate.why
