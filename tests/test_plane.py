"""Plane geometry against hand-computed cases, and its honesty about what it cannot span."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from landscape.errors import OptionError, PlaneError
from landscape.slices import Bounds, around, evenly, parse_bounds, parse_grid, span, union, with_zero
from landscape.weights import Weights, move_to


def weights(*values: float) -> Weights:
    tensor = torch.tensor(values, dtype=torch.float32)
    return Weights({"a": tensor[:2], "b": tensor[2:]})


def test_hand_computed_coordinates():
    # d1 = (3, 0, 0), d2 = (1, 2, 0): u = e1, v = e2, cosine 1/√5
    origin = weights(1, 1, 1)
    first, second = weights(3, 0, 0), weights(1, 2, 0)
    points = {"o": origin, "p": origin + first, "q": origin + second, "out": origin + weights(4, 2, 5)}
    plane = span(origin, first.clone(), second.clone(), points)
    assert plane.cosine == pytest.approx(1 / math.sqrt(5), rel=1e-7)
    assert plane.lengths == pytest.approx((3, math.sqrt(5)))
    places = {name: (p.alpha, p.beta, p.residual, p.distance) for name, p in plane.points.items()}
    assert places["o"] == pytest.approx((0, 0, 0, 0), abs=1e-6)
    assert places["p"] == pytest.approx((3, 0, 0, 3), abs=1e-6)
    assert places["q"] == pytest.approx((1, 2, 0, math.sqrt(5)), abs=1e-6)
    assert places["out"] == pytest.approx((4, 2, 5, math.sqrt(45)), abs=1e-6)
    # raw coordinates: out = o + s·d1 + t·d2 with 3s + t = 4, 2t = 2
    assert plane.points["out"].raw == pytest.approx((1, 1), abs=1e-6)
    assert plane.points["q"].raw == pytest.approx((0, 1), abs=1e-6)


def test_basis_is_orthonormal_and_coordinates_lead_back_to_the_points():
    torch.manual_seed(0)
    origin = Weights({"w": torch.randn(300_000)})
    first = Weights({"w": torch.randn(300_000) * 1e-3})
    second = 0.99 * first + Weights({"w": torch.randn(300_000) * 1e-4})  # nearly parallel
    plane = span(origin, first.clone(), second.clone(), {"p": origin + first, "q": origin + second})
    assert plane.u.norm() == pytest.approx(1, abs=1e-6)
    assert plane.v.norm() == pytest.approx(1, abs=1e-6)
    assert abs(plane.u.dot(plane.v)) < 1e-6
    for name, target in (("p", first), ("q", second)):
        place = plane.points[name]
        assert place.residual < 1e-3 * place.distance
        rebuilt = move_to(origin.clone(), origin, place.alpha, plane.u, place.beta, plane.v)
        assert (rebuilt - origin - target).norm() < 1e-3 * target.norm()
        assert math.hypot(place.alpha, place.beta) == pytest.approx(place.distance, rel=1e-5)


def test_what_spans_no_plane():
    origin, zero = weights(1, 1, 1), weights(0, 0, 0)
    with pytest.raises(PlaneError, match="first direction of the plane is zero"):
        span(origin, zero, weights(1, 0, 0), {})
    with pytest.raises(PlaneError, match="second direction of the plane is zero"):
        span(origin, weights(1, 0, 0), zero, {})
    with pytest.raises(PlaneError, match="parallel"):
        span(origin, weights(1, 2, 3), weights(-2, -4, -6), {})
    with pytest.raises(PlaneError, match="not finite"):
        span(origin, weights(math.nan, 0, 0), weights(0, 1, 0), {})


def test_a_line_has_one_direction():
    # the line along (0, 3, 4): a point 10 along it and 5 beside it
    origin, first = weights(1, 1, 1), weights(0, 3, 4)
    beside = origin + weights(5, 6, 8)
    plane = span(origin, first.clone(), None, {"o": origin, "p": origin + first, "beside": beside})
    assert (plane.v, plane.cosine, plane.lengths) == (None, 0.0, (5.0, 0.0))
    assert plane.u.norm() == pytest.approx(1, abs=1e-7)
    places = {name: (p.alpha, p.beta, p.residual, p.distance, *p.raw) for name, p in plane.points.items()}
    assert places["o"] == (0, 0, 0, 0, 0, 0)
    assert places["p"] == pytest.approx((5, 0, 0, 5, 1, 0), abs=1e-6)
    assert places["beside"] == pytest.approx((10, 0, 5, math.sqrt(125), 2, 0), abs=1e-6)
    assert plane.fingerprint() != span(origin, first, weights(1, 0, 0), {}).fingerprint()
    with pytest.raises(PlaneError, match="first direction of the plane is zero"):
        span(origin, weights(0, 0, 0), None, {})


def test_the_directions_are_taken_over_and_nothing_else_is():
    """Their memory becomes the basis, so that a plane through a large model takes no more than its directions."""
    origin, first, second = weights(1, 1, 1), weights(3, 0, 0), weights(1, 2, 0)
    point = origin + second
    before = (origin.fingerprint(), point.fingerprint())
    plane = span(origin, first, second, {"o": origin, "q": point})
    for mine, theirs in ((plane.u, first), (plane.v, second), (plane.origin, origin)):
        assert all(mine[name].data_ptr() == theirs[name].data_ptr() for name in mine)
    assert (origin.fingerprint(), point.fingerprint()) == before


def test_fingerprint_follows_every_bit_of_the_plane():
    def fingerprint(origin: Weights, second: Weights) -> str:
        return span(origin, weights(3, 0, 0), second, {}).fingerprint()

    origin = weights(1, 1, 1)
    base = fingerprint(origin, weights(1, 2, 0))
    assert base == fingerprint(origin.clone(), weights(1, 2, 0))
    assert base != fingerprint(origin, weights(1, 2, 1e-7))
    assert base != fingerprint(origin + weights(0, 0, 1e-6), weights(1, 2, 0))


def test_rectangle_holds_the_points_with_a_margin():
    bounds = around([(0, 0), (2, 0), (0.5, 4)], margin=0.25)
    assert bounds == Bounds((-0.5, 2.5), (-1.0, 5.0))
    # a short axis is widened to half the long one, around the points
    assert around([(0, 0), (0.2, 0), (0, 4)], margin=0.0).alpha == pytest.approx((-0.9, 1.1))
    assert around([(0, 0), (0, 4)], margin=0.0).alpha == pytest.approx((-1, 1))
    with pytest.raises(OptionError, match="coincide"):
        around([(0, 0), (0, 0)], 0.5)
    with pytest.raises(OptionError, match="margin -1"):
        around([(0, 0), (1, 1)], -1)


def test_a_line_has_bounds_without_height():
    assert around([(0, 0), (2, 0)], margin=0.25, is_line=True) == Bounds((-0.5, 2.5), (0.0, 0.0))
    assert Bounds((0, 1), (0, 0)).hold(0.5, 0.0)
    assert not Bounds((0, 1), (0, 0)).hold(0.5, 1e-9)
    with pytest.raises(OptionError, match="the smaller first"):
        Bounds((0, 0), (0, 1))
    with pytest.raises(OptionError, match="the smaller first"):
        Bounds((0, 1), (2, 2))


def test_a_rectangle_that_holds_several():
    both = union([Bounds((-1, 2), (0, 1)), Bounds((0, 3), (-2, 0.5))])
    assert both == Bounds((-1, 3), (-2, 1))
    assert all(both.hold(a, b) for a, b in [(-1, -2), (3, 1), (0, 0)])
    assert not both.hold(3.1, 0)
    assert union([Bounds((-1, 2), (0, 0)), Bounds((0, 3), (0, 0))]) == Bounds((-1, 3), (0, 0))
    with pytest.raises(OptionError, match="of one kind"):
        union([Bounds((-1, 2), (0, 0)), Bounds((0, 3), (0, 1))])


@pytest.mark.parametrize(
    ("low", "high", "n"),
    [(-1, 3, 9), (-0.37, 2.11, 25), (-5, 0.01, 7), (0, 1, 5), (-1, 0, 4), (-1e-9, 1, 3), (-0.7, 0.9, 100)],
)
def test_axes_have_zero_on_a_line_and_cover_the_interval(low: float, high: float, n: int):
    line = with_zero(low, high, n)
    assert len(line) == n
    assert (line == 0).sum() == 1
    assert line[0] <= low * (1 - 1e-12) + 1e-300
    assert line[-1] >= high * (1 - 1e-12)
    assert np.allclose(np.diff(line), line[1] - line[0])
    # no more than two spacings wasted, unless the grid is too coarse to have a choice
    if n >= 7:
        assert line[-1] - line[0] <= (high - low) * (1 + 2 / (n - 2))


def test_edges_are_what_they_say():
    line = evenly(-0.3, 0.6, 10)
    assert (line[0], line[-1]) == (-0.3, 0.6)
    assert line[3] == 0.0  # linspace leaves 5e-17
    assert with_zero(1.0, 2.0, 5).tolist() == [1.0, 1.25, 1.5, 1.75, 2.0]


def test_grid_and_bounds_are_parsed_or_refused():
    assert parse_grid("41x25") == (41, 25)
    assert parse_bounds("-1,2,-0.5,3") == Bounds((-1, 2), (-0.5, 3))
    for grid in ("41", "41x", "1x5", "0x0", "axb", "-3x4", "3x4x5"):
        with pytest.raises(OptionError, match="two whole numbers"):
            parse_grid(grid)
    for bounds in ("1,2,3", "a,b,c,d", ""):
        with pytest.raises(OptionError, match="four numbers"):
            parse_bounds(bounds)
    for bounds in ("2,1,0,1", "0,1,nan,3", "0,0,1,2", "0,1,0,0"):
        with pytest.raises(OptionError, match="the smaller first"):
            parse_bounds(bounds)


def test_grid_and_bounds_of_a_line():
    assert parse_grid("41", is_line=True) == (41, 1)
    assert parse_bounds("-1,2", is_line=True) == Bounds((-1, 2), (0, 0))
    for grid in ("41x25", "1", "0", "-3", "x", "", "4.5"):
        with pytest.raises(OptionError, match="one whole number of at least 2"):
            parse_grid(grid, is_line=True)
    for bounds in ("1", "1,2,3", "0,1,0,1", "a,b", ""):
        with pytest.raises(OptionError, match="two numbers"):
            parse_bounds(bounds, is_line=True)
    for bounds in ("2,1", "0,inf", "1,1"):
        with pytest.raises(OptionError, match="the smaller first"):
            parse_bounds(bounds, is_line=True)
