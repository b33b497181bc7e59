"""What a slice says, against closed forms, against surfaces that are known everywhere, and against autograd."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import surfaces
from landscape.curvature import Hessian, ParameterSpace
from landscape.objective import mean
from landscape.slices import Bounds, read_surface
from landscape.slices.polynomial import Polynomial
from landscape.slices.reading import barrier
from landscape.weights import Weights, move_to
from oracles import case
from readings import ORIGIN, SQUARE, WAYS, WIDE, derivatives, quadratic, reading_of, reconstructed


@pytest.mark.parametrize("seed", range(6))
def test_a_quadratic_is_read_exactly(seed):
    h, g, loss = quadratic(seed)
    origin, last = np.array([0.3, -0.4]), np.array([0.8, 0.5])
    read = reading_of(loss, WIDE, {"theta": tuple(origin), "theta_prev": (0.0, 0.0), "theta_hat": tuple(last)}, 0.4)
    slope = g + h @ origin
    assert read.value == pytest.approx(loss(*origin), abs=1e-9)
    assert read.gradient == pytest.approx(slope, abs=1e-9)
    assert read.hessian == pytest.approx(h, abs=1e-8)
    assert (read.hessian_error < 1e-5).all() and (read.hessian_error > 0).all()  # float32 rounding is all there is
    values, vectors = np.linalg.eigh(h)
    assert read.eigenvalues == pytest.approx(values[::-1], abs=1e-8)
    assert abs(vectors[:, 1] @ [math.cos(read.angle), math.sin(read.angle)]) == pytest.approx(1, abs=1e-8)
    assert -math.pi / 2 < read.angle <= math.pi / 2 and read.angle_error < 1e-4
    delta = (last - origin) / np.linalg.norm(last - origin)
    for name, u in (("alpha", np.array([1, 0])), ("beta", np.array([0, 1])), ("delta", delta)):
        for side, sign in (("plus", 1), ("minus", -1)):
            b, a = sign * u @ slope, u @ h @ u
            expected = (-b + math.sqrt(b * b + 2 * a * 0.4)) / a
            met = read.along[f"{name}_{side}"]
            assert met.departure == math.inf and met.departure_error == 0
            if expected > met.looked:
                assert met.width == math.inf
            else:
                assert met.width == pytest.approx(expected, abs=1e-8)
                assert 0 < met.width_error < 1e-5
    plain = read.to_plain()
    assert plain["gradient_delta"] == pytest.approx(delta @ slope, abs=1e-8)
    assert plain["hessian_delta_delta"] == pytest.approx(delta @ h @ delta, abs=1e-8)
    assert plain["hessian_delta_delta_error"] >= plain["hessian_alpha_alpha_error"] * delta[0] ** 2


@pytest.mark.parametrize("seed", range(6))
def test_the_area_of_an_ellipse(seed):
    h, _, _ = quadratic(seed)
    read = reading_of(lambda a, b: 1 + (h[0, 0] * a * a + 2 * h[0, 1] * a * b + h[1, 1] * b * b) / 2, WIDE, ORIGIN, 0.2)
    expected = 2 * math.pi * 0.2 / math.sqrt(np.linalg.det(h))
    assert read.area == pytest.approx(expected, rel=3e-3)
    assert abs(read.area - expected) < read.area_error < 0.02 * expected
    assert read.area_share == pytest.approx(read.area / 30)
    assert not read.area_is_cut


def test_an_area_that_is_cut_off_is_a_lower_bound():
    read = reading_of(lambda a, b: 1 + b * b, SQUARE, ORIGIN, 0.25)
    assert read.area_is_cut and read.area == pytest.approx(2 * 1.0, rel=3e-3)
    assert [read.along[f"alpha_{side}"].width for side in ("plus", "minus")] == [math.inf, math.inf]
    assert read.along["alpha_plus"].looked == 1 and read.along["beta_plus"].width == pytest.approx(0.5, abs=1e-6)
    assert reading_of(lambda a, b: 1 + b * b, SQUARE, ORIGIN, 1.5).area_share == 1


def test_only_what_is_connected_to_the_origin_counts():
    def wells(a, b):
        return 1 + 4 * (a * a - 0.25) ** 2 + b * b  # at ±1/2, with 1/4 between them

    left, right = {"theta": (-0.5, 0.0)}, {"theta": (0.5, 0.0), "left": (-0.5, 0.0)}
    areas = [reading_of(wells, SQUARE, points, rise).area for points, rise in ((left, 0.1), (right, 0.1), (left, 0.26))]
    alpha, beta = np.meshgrid(np.linspace(-1, 1, 2001), np.linspace(-1, 1, 2001), indexing="ij")
    assert areas[0] == pytest.approx(areas[1], rel=1e-6)
    assert areas[0] == pytest.approx(4 * (wells(alpha, beta) <= 1.1).mean() / 2, rel=5e-3)
    assert areas[2] == pytest.approx(4 * (wells(alpha, beta) <= 1.26).mean(), rel=5e-3)


def test_the_error_of_an_area_knows_of_a_pass_that_may_be_open():
    surface, certificate = reconstructed(lambda a, b: 1 + 4 * (a * a - 0.25) ** 2 + b * b, SQUARE)
    points, rise = {"theta": (-0.5, 0.0)}, 0.245  # the pass is at 0.25
    sure, unsure = (read_surface(surface, SQUARE, error, points, rise) for error in (certificate.error, 0.003))
    assert unsure.area == sure.area
    assert sure.area_error < 0.1 * sure.area < 0.9 * unsure.area < unsure.area_error


@pytest.mark.parametrize("factor", [0.2, 2.0])
def test_the_quadratic_model_leaves_a_quartic(factor):
    read = reading_of(
        lambda a, b: 2 + a * a / 2 + factor * a**4 + b * b, SQUARE, {"theta": (0, 0), "theta_hat": (0.6, 0.6)}, 0.1
    )
    at = math.sqrt(0.05 / (0.9 * factor))  # q s⁴ = (s²/2 + q s⁴)/10
    for side in ("plus", "minus"):
        met = read.along[f"alpha_{side}"]
        assert met.departure == pytest.approx(at, abs=met.departure_error + 1e-6)
        assert met.departure_error < 0.02 * at
        assert read.along[f"beta_{side}"].departure == math.inf
    # s along the diagonal: s²/4 + s²/2 and q s⁴/4
    expected = math.sqrt(0.075 / (0.9 * factor / 4))
    met = read.along["delta_plus"]
    assert met.departure == (math.inf if expected > met.looked else pytest.approx(expected, rel=1e-3))


def test_a_departure_needs_a_change_that_is_above_the_error():
    surface, _ = reconstructed(lambda a, b: 2 + a * a / 2 + 2 * a**4 + b * b, SQUARE)
    near, far = (read_surface(surface, SQUARE, error, ORIGIN, 0.1).along["alpha_plus"] for error in (1e-6, 0.1))
    assert near.departure == pytest.approx(1 / 6, rel=1e-3)
    s = np.linspace(0, 1, 100001)
    expected = s[(s * s / 2 + 2 * s**4 > 0.3).argmax()]  # long after the quartic has taken over
    assert far.departure == pytest.approx(expected, abs=1e-4)
    blind = read_surface(surface, SQUARE, 1.0, ORIGIN, 0.1).along["alpha_plus"]
    assert blind.departure == blind.departure_error == math.inf
    assert near.departure_error < 1e-3 and far.departure_error == far.departure


def test_the_barrier_of_a_double_well():
    a, b = (-0.5, 0.1), (0.5, 0.1)
    surface, certificate = reconstructed(lambda x, y: 1 + 4 * (x * x - 0.25) ** 2 + 0.2 * x + y * y, SQUARE)
    points = {"theta": a, "theta_prev": (0.0, 0.1), "theta_hat": b}
    read = read_surface(surface, SQUARE, certificate.error, points, 0.1)
    t = np.linspace(0, 1, 100001)
    path = 4 * ((t - 0.5) ** 2 - 0.25) ** 2 + 0.2 * (t - 0.5)
    found = read.barriers["theta_theta_hat"]
    assert found.height == pytest.approx(path.max() - path[-1], abs=found.error + 1e-6)
    assert found.at == pytest.approx(t[path.argmax()], abs=1e-3)
    assert found.excess == pytest.approx(0.25, abs=found.error + 1e-6)
    assert set(read.barriers) == {"theta_theta_prev", "theta_theta_hat", "theta_prev_theta_hat"}
    back = barrier(surface, SQUARE, b, a, certificate.error)
    assert (back.height, back.at) == (pytest.approx(found.height), pytest.approx(1 - found.at, abs=1e-9))


def test_there_is_no_barrier_on_a_monotone_way():
    surface, _ = reconstructed(lambda a, b: 1 + np.exp(a) + b * b, SQUARE, (1e-4, 1e-4))
    up, level = (barrier(surface, SQUARE, (-0.5, 0.0), end, 1e-4) for end in ((0.7, 0.0), (-0.5, 0.0)))
    assert (up.height, up.at, up.excess, up.error) == (0, 1, 0, 2e-4)
    assert (level.height, level.excess) == (pytest.approx(0, abs=1e-12), pytest.approx(0, abs=1e-12))
    assert barrier(surface, SQUARE, (0.0, -0.5), (0.0, 0.5), 0.0).height == pytest.approx(0, abs=1e-6)


def test_the_stated_errors_of_slope_and_curvature_are_honest():
    """On smooth surfaces as their reconstruction leaves them; quadratics, read without error, left out."""
    inside, ratios = [], []
    for seed in range(132):
        truth = surfaces.smooth(seed)
        if truth.kind == "quadratic":
            continue
        place = tuple(np.random.default_rng([seed, 3]).uniform(-0.9, 0.9, 2).tolist())
        scale = float(truth(*place))
        tolerance = [(1e-2, 1e-2), (1e-3, 1e-3)][seed // 6 % 2]
        read = reading_of(truth, SQUARE, {"theta": place}, 0, tolerance=tolerance, scale=scale, known={place: scale})
        gradient, hessian = derivatives(truth, place)
        off = np.array([*(read.gradient - gradient), *(read.hessian - hessian)[np.triu_indices(2)]])
        stated = np.array([*read.gradient_error, *read.hessian_error[np.triu_indices(2)]])
        inside.append(abs(off) <= stated)
        ratios.append(stated / abs(off))
        assert abs(read.value - scale) <= read.value_error
        largest = np.linalg.eigvalsh(hessian)[::-1]
        if inside[-1].all():
            assert (abs(read.eigenvalues - largest) <= read.eigenvalue_error).all()
    inside, ratios = np.array(inside), np.array(ratios)
    assert len(inside) >= 100
    assert (inside.mean(axis=0) >= 0.95).all()
    assert (np.median(ratios, axis=0) < 50).all()


def test_the_stated_errors_of_widths_are_honest():
    inside, sizes = [], []
    for seed in range(1, 40):
        truth = surfaces.smooth(seed)
        points = {"theta": (0.1, -0.2), "theta_hat": (0.5, 0.4)}
        start, end = (float(truth(*place)) for place in points.values())
        read = reading_of(truth, SQUARE, points, abs(end - start), tolerance=(1e-2, 1e-2), scale=start)
        for way in WAYS:
            met = read.along[way]
            u, v = {"alpha": (1, 0), "beta": (0, 1), "delta": read.delta}[way.split("_")[0]]
            s = np.linspace(0, met.looked, 20001) * (1 if way.endswith("plus") else -1)
            risen = truth(0.1 + s * u, -0.2 + s * v) >= start + read.rise
            expected = abs(s[risen.argmax()]) if risen.any() else math.inf
            if math.isfinite(expected) and math.isfinite(met.width):
                inside.append(abs(met.width - expected) <= met.width_error + 1e-4)
                sizes.append(met.width_error / met.width)
            else:
                inside.append(expected == met.width or met.width_error == math.inf)
    assert np.mean(inside) >= 0.98
    assert np.median(sizes) < 0.1


def test_the_angle_knows_when_it_is_not_determined():
    round_, long = (
        reading_of(lambda a, b, c=c: 1 + a * a + c * b * b + 0.1 * a**3, SQUARE, ORIGIN, 0.1) for c in (1.0, 3.0)
    )
    assert round_.angle_error == math.pi / 2
    assert abs(abs(long.angle) - math.pi / 2) <= long.angle_error < 0.1


def test_the_highest_degrees_are_an_error_however_small_the_stated_one():
    coefficients = np.zeros((6, 3))
    coefficients[[0, 2, 5], 0] = 0.5, 0.5, 1e-3
    read = read_surface(Polynomial(WIDE, coefficients), WIDE, 1e-9, {"theta": (0.5, -1.0)}, 0.1)
    assert read.gradient[0] == pytest.approx(5e-3 / 2.5)  # T₅'(0) = 5, on a half side of 2.5
    assert read.gradient_error[0] == pytest.approx(5e-3 / 2.5) and read.gradient_error[1] < 1e-8


@pytest.mark.parametrize("rise", [0.0, -0.1, math.nan, math.inf])
def test_without_a_rise_there_are_no_widths(rise):
    read = reading_of(quadratic(0)[2], SQUARE, ORIGIN, rise)
    assert math.isnan(read.area) and all(math.isnan(read.along[f"alpha_{side}"].width) for side in ("plus", "minus"))
    assert np.isfinite(read.hessian).all()


def test_numbers_by_name_are_the_same_for_every_slice():
    _, _, loss = quadratic(0)
    points = {"theta": (0.0, 0.0), "theta_hat": (0.5, 0.5)}
    line = Bounds((-1.0, 1.0), (0.0, 0.0))
    plains = [reading_of(loss, bounds, points, 0.1).to_plain() for bounds in (SQUARE, line)]
    assert plains[0].keys() == plains[1].keys()
    assert all(type(number) is float for plain in plains for number in plain.values())
    measured = (
        "value",
        "gradient_beta",
        "hessian_alpha_beta",
        "angle",
        "area",
        "width_beta_minus",
        "departure_delta_plus",
    )
    assert {name for one in measured for name in (one, f"{one}_error")} <= plains[0].keys()
    assert plains[0]["hessian_alpha_beta"] == pytest.approx(quadratic(0)[0][0, 1], abs=1e-8)


@pytest.mark.usefixtures("process")
@pytest.mark.parametrize("name", ["gpt_neox", "llama"])
def test_the_plane_hessian_of_a_language_model(name):
    """vᵀHv from autograd, gᵀv too, on a plane of two random orthonormal directions in float64."""
    objective, weights = case(name).objective(), case(name).weights
    space = ParameterSpace.select(weights)
    directions = torch.randn(space.n, 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    directions = torch.linalg.qr(directions).Q
    u, v = (Weights(dict(zip(weights, space.split(column), strict=True))) for column in directions.T)
    operator, scratch = Hessian(objective, weights), weights.clone()
    expected = (directions.T @ (operator @ directions)).numpy()

    def loss(alpha, beta):
        return mean(objective, move_to(scratch, weights, alpha, u, beta, v))

    bounds = Bounds((-1.0, 1.5), (-1.2, 1.0))
    read = reading_of(loss, bounds, {"theta": (0.0, 0.0), "end": (0.5, 0.5)}, 0.01, tolerance=(1e-4, 1e-4), scale=3.0)
    assert (abs(read.hessian - expected) <= read.hessian_error).all()
    assert read.hessian == pytest.approx(expected, abs=0.01 * abs(expected).max())
    assert (read.hessian_error < 0.2 * abs(expected).max()).all()
    slope = (directions.T @ case(name).gradient).numpy()
    assert (abs(read.gradient - slope) <= read.gradient_error).all()
    assert read.gradient == pytest.approx(slope, abs=0.01 * abs(slope).max())
