"""What a slice says where it is not one polynomial: seams, cells, losses that are not finite, edges and lines."""

from __future__ import annotations

import math

import numpy as np
import pytest

import surfaces
from landscape.slices import Bounds, read_surface
from landscape.slices.polynomial import Polynomial
from landscape.slices.surface import Patch, Seam
from readings import ORIGIN, SQUARE, WAYS, cells, derivatives, quadratic, reconstructed


def test_a_seam_at_the_origin():
    truth = surfaces.smooth(5)
    edges, sides = [(-1.0, 0.2), (-0.2, 1.0)], []
    for edge in edges:
        bounds = Bounds(edge, (-1.0, 1.0))
        surface, certificate = reconstructed(truth, bounds, (1e-3, 1e-3), scale=3.0)
        sides.append((surface, certificate.error))
    seam = Seam(0, -0.2, 0.2, sides[0][0], sides[1][0])
    for alpha in (-0.5, -0.2, -0.05, 0.0, 0.1, 0.2, 0.6):
        place = (alpha, 0.3)
        read = read_surface(seam, SQUARE, max(error for _, error in sides), {"theta": place}, 0.1)
        gradient, hessian = derivatives(truth, place)
        assert (abs(read.gradient - gradient) <= read.gradient_error).all()
        assert (abs(read.hessian - hessian) <= read.hessian_error).all()
    alone = [read_surface(part, SQUARE, 1e-3, {"theta": (0.0, 0.3)}, 0.1).hessian for part, _ in sides]
    assert read_surface(seam, SQUARE, 1e-3, {"theta": (0.0, 0.3)}, 0.1).hessian == pytest.approx(
        (alone[0] + alone[1]) / 2
    )


def test_two_sides_of_a_seam_that_disagree_make_an_error():
    flat, bent = np.zeros((6, 1)), np.array([[0.5], [0], [0.5], [0], [0], [0]])  # 0 and α²
    seam = Seam(0, -0.1, 0.1, Polynomial(SQUARE, flat), Polynomial(SQUARE, bent))
    read = read_surface(seam, SQUARE, 0.0, ORIGIN, 0.1)
    assert read.hessian[0, 0] == pytest.approx(1) and read.hessian_error[0, 0] == pytest.approx(1)
    nearer = read_surface(seam, SQUARE, 0.0, {"theta": (0.05, 0.0)}, 0.1)
    assert nearer.hessian[0, 0] == pytest.approx(2 * (0.75**2 * (3 - 2 * 0.75)))


def test_cells_are_read_by_a_quadratic_through_their_neighbours():
    h, g, loss = quadratic(3)
    for place in ((0.0, 0.0), (0.13, -0.02), (-0.98, 0.97)):  # a cell, between cells, in a corner
        read = read_surface(cells(loss, SQUARE, 41), SQUARE, 0.0, {"theta": place}, 0.1)
        assert read.hessian == pytest.approx(h, abs=1e-8) and (read.hessian_error < 1e-8).all()
        assert read.gradient == pytest.approx(g + h @ place, abs=1e-8)
    met = read_surface(cells(loss, SQUARE, 41), SQUARE, 0.0, {"theta": (-0.1, 0.1)}, 0.1).along
    assert {met[f"{name}_{side}"].departure for name in ("alpha", "beta") for side in ("plus", "minus")} == {math.inf}


def test_the_errors_read_off_cells_are_honest():
    inside, ratios = [], []
    for seed in range(120):
        truth = surfaces.smooth(seed)
        if truth.kind == "quadratic":
            continue
        place = tuple(np.random.default_rng([seed, 4]).uniform(-1, 1, 2).tolist())
        read = read_surface(cells(truth, SQUARE, 25), SQUARE, 0.0, {"theta": place}, 0)
        gradient, hessian = derivatives(truth, place)
        off = np.array([*(read.gradient - gradient), *(read.hessian - hessian)[np.triu_indices(2)]])
        stated = np.array([*read.gradient_error, *read.hessian_error[np.triu_indices(2)]])
        inside.append(abs(off) <= stated)
        ratios.append(stated / abs(off))
        assert abs(read.value - float(truth(*place))) <= 2 * read.value_error
    assert np.mean(inside) >= 0.95
    assert np.median(ratios) < 50


def test_cells_without_a_loss_are_left_out_and_too_few_say_nothing():
    h, _, loss = quadratic(1)
    patch = cells(loss, SQUARE, 41)
    patch.loss[20, 21], patch.loss[19, 19] = math.nan, math.inf
    read = read_surface(patch, SQUARE, 0.0, ORIGIN, 0.05)
    assert read.hessian == pytest.approx(h, abs=1e-8)
    assert read.along["beta_plus"].looked < 0.06 and read.area_is_cut
    patch.loss[22:], patch.loss[:19] = math.nan, math.nan  # three lines are left
    read = read_surface(patch, SQUARE, 0.0, ORIGIN, 0.05)
    assert np.isnan(read.hessian).all() and np.isnan(read.eigenvalues).all() and math.isfinite(read.value)
    assert math.isnan(read.along["beta_minus"].departure) and math.isfinite(read.along["beta_minus"].width)
    narrow = Patch(patch.alpha, patch.beta[:3], loss(*np.meshgrid(patch.alpha, patch.beta[:3], indexing="ij")))
    assert np.isnan(read_surface(narrow, SQUARE, 0.0, ORIGIN, 0.05).hessian).all()


@pytest.mark.parametrize(("value", "cut"), [(math.nan, True), (math.inf, False)])
def test_an_area_that_meets_a_loss_that_is_nan_is_a_lower_bound(value, cut):
    patch = cells(lambda a, b: 1 + a * a + b * b, SQUARE, 51)
    assert not read_surface(patch, SQUARE, 0.0, ORIGIN, 0.25).area_is_cut
    patch.loss[35, 25] = value  # at (0.4, 0)
    read = read_surface(patch, SQUARE, 0.0, ORIGIN, 0.25)
    assert read.area_is_cut is cut
    assert read.area == pytest.approx(math.pi / 4 - 0.08**2, rel=0.01)
    patch.loss[40, 25], patch.loss[35, 25] = math.nan, 1.16  # at (0.6, 0), which the set does not reach
    assert not read_surface(patch, SQUARE, 0.0, ORIGIN, 0.25).area_is_cut


@pytest.mark.parametrize("points", [{"theta": (0.2, 0.0), "theta_hat": (0.9, 1e-12)}, {"theta": (0.2, 0.0)}])
@pytest.mark.parametrize("lines", [101, 9])
def test_a_line_says_nothing_of_beta(points, lines):
    bounds = Bounds((-1.0, 2.0), (0.0, 0.0))
    surface, certificate = reconstructed(lambda a, b: 1 + (a - 0.2) ** 2, bounds, lines=lines)
    read = read_surface(surface, bounds, certificate.error, points, 0.25)
    assert isinstance(surface, Polynomial if lines == 101 else Patch)
    assert read.hessian[0, 0] == pytest.approx(2, abs=1e-6) and read.hessian_error[0, 0] < 1e-4
    assert read.gradient[0] == pytest.approx(0, abs=1e-6)
    exact = 1e-6 if lines == 101 else 0.05
    assert read.along["alpha_plus"].width == pytest.approx(0.5, abs=exact)
    assert read.along["alpha_minus"].width == pytest.approx(0.5, abs=exact)
    plain = read.to_plain()
    of_beta = {name for name in plain if "beta" in name} | {name for name in plain if name.startswith("area")}
    of_beta -= {"area_is_cut"}
    if len(points) == 1:
        of_beta |= {name for name in plain if "delta" in name}
    else:
        assert read.along["delta_plus"].width == pytest.approx(0.5, abs=exact)
        assert read.barriers["theta_theta_hat"].height == 0
    of_beta |= {"eigenvalue_largest", "eigenvalue_smallest", "eigenvalue_error", "angle"}
    of_beta |= {f"{name}{end}" for name in ("gradient_delta", "hessian_delta_delta") for end in ("", "_error")}
    assert {name for name, number in plain.items() if math.isnan(number)} == of_beta


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_hole_in_the_losses(value):
    truth = surfaces.with_hole(surfaces.smooth(0), value, (0.6, 0.0), 0.4)
    surface, certificate = reconstructed(truth, SQUARE, (1e-2, 1e-2))
    points = {"theta": (0.0, 0.0), "hole": (0.6, 0.0), "theta_hat": (-0.5, 0.5)}
    read = read_surface(surface, SQUARE, certificate.error, points, 100.0)
    gradient, hessian = derivatives(surfaces.smooth(0), (0.0, 0.0))
    assert (abs(read.hessian - hessian) <= read.hessian_error + 1e-8).all()
    assert (abs(read.gradient - gradient) <= read.gradient_error + 1e-8).all()
    met = read.along["alpha_plus"]
    if math.isnan(value):
        assert met.width == math.inf and 0.1 < met.looked < 0.25 and read.area_is_cut
        assert math.isnan(read.barriers["theta_hole"].height)
    else:
        assert met.looked == 1 and 0.1 < met.width < 0.25 and 0.1 < met.departure < 0.25
    assert read.along["alpha_minus"].looked == 1
    assert read.area_share == pytest.approx(1 - math.pi * 0.4**2 / 4, abs=0.03)
    there = read_surface(surface, SQUARE, certificate.error, {"theta": (0.6, 0.0), "theta_hat": (0.0, 0.0)}, 0.1)
    assert not math.isfinite(there.value)
    assert np.isnan(there.hessian).all() and math.isnan(there.area) and math.isnan(there.rise)
    assert all(math.isnan(there.along[way].width) and math.isnan(there.along[way].departure) for way in WAYS)


def test_places_beyond_the_rectangle_are_not_known():
    _, _, loss = quadratic(0)
    surface, certificate = reconstructed(loss, SQUARE)
    beyond = read_surface(surface, SQUARE, certificate.error, {"theta": (1.5, 0.0), "theta_hat": (0.0, 0.0)}, 0.1)
    numbers = beyond.to_plain()
    assert all(math.isnan(numbers[f"{what}_{way}"]) for what in ("width", "departure", "looked") for way in WAYS)
    assert math.isnan(beyond.value) and np.isnan(beyond.gradient).all() and math.isnan(beyond.area)
    ends = read_surface(surface, SQUARE, certificate.error, {"theta": (0.0, 0.0), "theta_hat": (3.0, 0.0)}, 0.1)
    assert math.isnan(ends.barriers["theta_theta_hat"].height)
    assert ends.along["delta_plus"] == ends.along["alpha_plus"]
    corner = read_surface(surface, SQUARE, certificate.error, {"theta": (1.0, -1.0 - 1e-12)}, 0.1)
    assert math.isfinite(corner.value) and corner.along["alpha_plus"].looked == pytest.approx(0, abs=1e-9)
