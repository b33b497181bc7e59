"""A slice reconstructed from few evaluations: what its file says, how honest it is, and what survives a kill."""

from __future__ import annotations

import functools
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import xarray

from landscape import slices
from landscape.errors import StoreError
from landscape.slices import store
from landscape.slices.surface import on_grid
from landscape.storage.files import lock
from landscape.weights import Weights
from test_slices import NAMED, content, kill_at, lines, start

TOLERANCE = (1e-3, 1e-4)
ALPHA, BETA = slices.evenly(-1, 1, 31), slices.evenly(-1, 1.5, 26)
PLACES = {"theta": (0, 0, 0), "theta_prev": (0.2, -0.4, 0.5), "theta_hat": (0.77, 0.83, 0)}
T = np.array([-0.25, 0.0, 0.3, 0.7, 1.0, 1.2, 1.5])

Truth = Callable[[float, float], float]
Loss = Callable[[Weights], float]


def weights(*values: float) -> Weights:
    return Weights({"w": torch.tensor(values, dtype=torch.float32)})


def points() -> dict[str, Weights]:
    return {name: weights(*place) for name, place in PLACES.items()}


def plane(is_line: bool = False) -> slices.Plane:
    """α and β are the first two weights; the third leads away from the plane."""
    chosen = points()
    if is_line:
        del chosen["theta_prev"]
        chosen["theta_hat"] = weights(0.77, 0, 0)
    return slices.span(weights(0, 0, 0), weights(2, 0, 0), None if is_line else weights(1, 3, 0), chosen)


def smooth(a: float, b: float) -> float:
    return 3 + a * a + 0.5 * b * b + 0.2 * math.sin(2 * a + b)


def holed(a: float, b: float) -> float:
    """NaN in one corner, infinite along one edge."""
    if b > 1.35:
        return math.inf
    return math.nan if math.hypot(a - 0.6, b - 1) < 0.3 else smooth(a, b)


def rough(a: float, b: float) -> float:
    return 3 + 0.2 * math.sin(99991 * a + 77773 * b)


def bent(a: float, b: float) -> float:
    """A kink, away from the origin."""
    return smooth(a, b) + abs(a - 0.31 + 0.2 * b)


def of(truth: Truth) -> Loss:
    """`truth` as a loss; far higher where the weights leave the plane."""

    def loss(there: Weights) -> float:
        a, b, away = there["w"].tolist()
        return truth(a, b) + 1000 * away

    return loss


def fill(
    path: Path,
    loss: Loss,
    exact: Loss | None = None,
    dense: bool = False,
    is_line: bool = False,
    axes: tuple[np.ndarray, np.ndarray] = (ALPHA, BETA),
    seed: int = 0,
    most: int | None = None,
) -> slices.StoredSlice:
    here, chosen, losses = plane(is_line), points(), slices.Losses(loss, exact or loss)
    if is_line:
        chosen["theta_hat"], axes = weights(0.77, 0, 0), (slices.evenly(-1, 1, 401), np.zeros(1))
    if not path.exists():
        rows = 0 if dense else len(axes[0]) * len(axes[1]) // 2 + 500
        slices.create(path, slices.Layout(here, *axes, T, NAMED, {}, {}, "key", rows))
    with lock(path), slices.SliceWriter(path, "key", here.fingerprint()) as writer:
        slices.evaluate_points(writer, chosen, losses)
        if dense:
            slices.scan(writer, here, losses)
        else:
            slices.sample(writer, here, losses, TOLERANCE, seed, most)
    return slices.read(path)


def cells(truth: Truth, alpha: np.ndarray = ALPHA, beta: np.ndarray = BETA) -> np.ndarray:
    """The truth on the grid, at the float32 weights of its cells."""
    return np.array([[truth(float(np.float32(a)), float(np.float32(b))) for b in beta] for a in alpha])


def check_honest(stored: slices.StoredSlice, truth: np.ndarray) -> None:
    """The picture is finite where the truth is, and nowhere off by more than it says."""
    assert np.array_equal(np.isfinite(stored.loss), np.isfinite(truth))
    finite = np.isfinite(truth)
    assert np.abs(stored.loss[finite] - truth[finite]).max() <= stored.certificate.error + 1e-7 * 3
    assert np.array_equal(stored.loss[stored.evaluated], truth[stored.evaluated], equal_nan=True)


@dataclass(frozen=True)
class Filled:
    """A file, and the weights at which its loss was asked for."""

    path: Path
    stored: slices.StoredSlice
    asked: list[tuple[float, ...]]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Truth], Filled]:
    """Each truth sampled once."""

    @functools.cache
    def sampled(truth: Truth) -> Filled:
        path = tmp_path_factory.mktemp(truth.__name__) / "s.h5"
        asked: list[tuple[float, ...]] = []

        def noted(there: Weights) -> float:
            asked.append(tuple(there["w"].tolist()))
            return of(truth)(there)

        return Filled(path, fill(path, noted), asked)

    return sampled


@pytest.mark.parametrize("truth", [smooth, holed])
def test_the_file_holds_what_reconstruct_gives(truth: Truth, filled):
    stored, on_plane = filled(truth).stored, plane().points
    known = {(on_plane[name].alpha, on_plane[name].beta): stored.point(name).loss for name in ("theta", "theta_hat")}

    def evaluate(kind: str, places: list[tuple[float, float]]) -> list[float]:
        return [truth(*np.float32(place).tolist()) for place in places]

    found = slices.reconstruct(evaluate, ALPHA, BETA, TOLERANCE, truth(0, 0), known, 0)
    assert stored.certificate == found.certificate
    assert np.array_equal(stored.checks, found.checked)
    fine = np.linspace(-1, 1, 77), np.linspace(-1, 1.5, 53)
    shown = on_grid(found.surface, *fine)
    assert np.array_equal(on_grid(stored.surface, *fine), shown, equal_nan=True)
    assert np.array_equal([[stored.at(a, b) for b in fine[1]] for a in fine[0]], shown, equal_nan=True)


@pytest.mark.parametrize("truth", [smooth, bent, holed, rough])
def test_the_picture_is_that_of_a_dense_scan_within_its_error(truth: Truth, filled, tmp_path: Path):
    stored = filled(truth).stored
    assert stored.complete
    assert stored.done.all()
    check_honest(stored, fill(tmp_path / "dense.h5", of(truth), dense=True).loss)
    certificate = stored.certificate
    assert certificate.evaluated == stored.evaluated.mean()
    assert certificate.cells == stored.evaluated.sum()
    if truth is smooth:
        assert certificate.reached
        assert certificate.evaluations < 120  # of 806 cells
        assert not stored.evaluated.any()
        assert np.abs(stored.loss - cells(smooth)).max() < 1e-4 * 3
    if truth is rough:
        assert stored.evaluated.all()
        assert certificate.error == 0
    if truth is holed:
        assert certificate.pieces > 1
        assert 0 < stored.evaluated.mean() < 1
        assert np.isnan(stored.at(0.6, 1.0))


@pytest.mark.parametrize("truth", [smooth, holed])
def test_each_place_is_evaluated_once(truth: Truth, filled):
    places = Counter(tuple(np.round(place, 6).tolist()) for place in filled(truth).asked)
    assert set(places.values()) == {1}


@pytest.mark.parametrize("truth", [smooth, holed])
def test_every_evaluation_is_in_the_file(truth: Truth, filled):
    stored, asked = filled(truth).stored, filled(truth).asked
    certificate = stored.certificate
    assert len(asked) == 3 + certificate.evaluations
    rows = np.concatenate(list(stored.nodes.values()))
    kept = {tuple(np.float32(row[:2]).tolist()) for row in rows}
    kept |= {tuple(np.float32([ALPHA[i], BETA[j]]).tolist()) for i, j in np.argwhere(stored.evaluated)}
    assert {place[:2] for place in asked[3:]} <= kept
    assert np.array_equal(rows[:, 2], [truth(*np.float32(row[:2]).tolist()) for row in rows], equal_nan=True)
    for a, b, loss, shown in stored.checks:
        assert loss == truth(*np.float32([a, b]).tolist())
        assert shown == stored.at(a, b)
    assert certificate.worst_check == np.abs(stored.checks[:, 2] - stored.checks[:, 3]).max()
    assert certificate.checks == len(stored.checks) >= 16


def test_only_named_points_on_the_plane_bear_on_the_picture(filled):
    stored = filled(smooth).stored
    assert stored.point("theta_prev").loss > 500  # half a unit beside the plane
    check_honest(stored, cells(smooth))
    assert stored.at(0, 0) == pytest.approx(stored.point("theta").loss, abs=stored.certificate.error)


def test_a_named_point_outside_does_not_blur_the_picture(tmp_path: Path):
    """Its loss is no part of the range that the error is a share of."""

    def cliff(a: float, b: float) -> float:
        return smooth(a, b) + (50 if a > 0.7 else 0)

    axes = slices.evenly(-0.1, 0.1, 21), slices.evenly(-0.1, 0.1, 21)
    stored = fill(tmp_path / "s.h5", of(cliff), axes=axes)
    assert stored.point("theta_hat").loss > 50
    of_range = TOLERANCE[0] * np.ptp(stored.loss)
    assert of_range < 0.5 * TOLERANCE[1] * stored.point("theta").loss  # so that the range is what binds
    assert stored.certificate.target <= 1.2 * of_range


def test_no_more_evaluations_than_are_allowed(tmp_path: Path):
    stored = fill(tmp_path / "s.h5", of(bent), most=150)
    certificate = stored.certificate
    assert 100 < certificate.evaluations < 200
    assert not certificate.reached
    assert "no more evaluations are allowed" in certificate.why
    assert np.abs(stored.loss - cells(bent)).max() <= certificate.error


def test_profile_and_reading_come_from_the_surface(filled):
    path, stored = filled(smooth).path, filled(smooth).stored
    hat = stored.point("theta_hat")
    t, along = stored.profile
    assert np.array_equal(t, T)
    assert np.isnan(along[t == 1.5])  # α = 1.155 lies beyond the rectangle
    inside = t < 1.5
    assert along[inside].tolist() == [stored.at(s * hat.alpha, s * hat.beta) for s in t[inside]]
    assert along[inside] == pytest.approx([smooth(0.77 * s, 0.83 * s) for s in t[inside]], abs=3e-4)
    with h5py.File(path) as file:
        assert file["profile/done"][:].tolist() == inside.tolist()
    reading = stored.reading
    assert reading["value"] == stored.at(0, 0)
    assert reading["hessian_alpha_alpha"] == pytest.approx(2, abs=max(0.02, reading["hessian_alpha_alpha_error"]))
    assert reading["rise"] == pytest.approx(hat.loss - smooth(0, 0), abs=1e-6)


def test_few_cells_are_all_evaluated(tmp_path: Path):
    axes = slices.evenly(-1, 1, 9), slices.evenly(-1, 1.5, 8)
    stored = fill(tmp_path / "s.h5", of(smooth), axes=axes)
    assert stored.certificate.cells == 72
    assert stored.certificate.error == 0
    assert stored.evaluated.all()
    assert np.array_equal(stored.loss, cells(smooth, *axes))


def test_the_seed_moves_the_check_points_alone(filled, tmp_path: Path):
    one, other = filled(smooth).stored, fill(tmp_path / "s.h5", of(smooth), seed=1)
    assert not np.array_equal(one.checks[:, :2], other.checks[:, :2])
    assert np.abs(one.loss - other.loss).max() <= one.certificate.error + other.certificate.error


def test_a_line(tmp_path: Path):
    stored = fill(tmp_path / "s.h5", of(smooth), is_line=True)
    assert stored.is_line
    assert stored.loss.shape == (401, 1)
    assert stored.certificate.evaluations < 60
    check_honest(stored, cells(smooth, stored.alpha, stored.beta))
    assert stored.profile[1][-1] != stored.profile[1][-1]  # t = 1.5 lies beyond the line
    assert stored.profile[1][3] == stored.at(0.7 * stored.point("theta_hat").alpha, 0)
    kinked = fill(tmp_path / "k.h5", of(lambda a, b: smooth(a, b) + abs(a - 0.31)), is_line=True)
    check_honest(kinked, cells(lambda a, b: smooth(a, b) + abs(a - 0.31), stored.alpha, stored.beta))


def test_a_scan_of_lower_precision_has_float32_points_and_checks(tmp_path: Path):
    asked: dict[str, list[tuple[float, ...]]] = {"scan": [], "exact": []}

    def scan(there: Weights) -> float:
        a, b, away = there["w"].tolist()
        asked["scan"].append((a, b, away))
        return of(smooth)(there) + 2e-3 * math.sin(1e5 * a + 7e4 * b)

    def exact(there: Weights) -> float:
        asked["exact"].append(tuple(there["w"].tolist()))
        return of(smooth)(there)

    stored = fill(tmp_path / "s.h5", scan, exact)
    for name, weights in points().items():
        assert stored.point(name).loss == of(smooth)(weights)
    checked = {tuple(np.float32(place).tolist()) for place in stored.checks[:, :2]}
    assert {place[:2] for place in asked["exact"][3:]} <= checked
    assert len(checked) <= len(stored.nodes["check"]) + 2  # but for a check at a named point
    assert {place[:2] for place in asked["scan"]} == {tuple(np.float32(p[:2])) for p in stored.nodes["node"]}
    assert [loss for *_, loss, _ in stored.checks] == [smooth(*np.float32(p[:2]).tolist()) for p in stored.checks]
    certificate = stored.certificate
    assert 1e-3 < certificate.noise < 2e-3  # 2e-3/√2
    assert certificate.error >= certificate.noise
    assert not certificate.reached
    assert np.abs(stored.loss - cells(smooth)).max() <= certificate.error


def test_it_can_be_read_while_it_is_filled(tmp_path: Path):
    path = tmp_path / "s.h5"
    seen: list[int] = []

    def watched(there: Weights) -> float:
        now = slices.read(path)
        assert (now.complete, now.surface, now.certificate, now.reading) == (False, None, None, {})
        assert not now.done.any()
        seen.append(sum(map(len, now.nodes.values())))
        return of(smooth)(there)

    stored = fill(path, watched)
    assert seen == [0, 0, 0, *range(len(seen) - 3)]
    assert stored.complete
    with xarray.open_dataset(path, engine="h5netcdf") as dataset:
        assert dataset["loss"].dims == dataset["evaluated"].dims == ("alpha", "beta")
        assert np.array_equal(dataset["alpha"], stored.alpha)
        assert float(dataset["loss"].sel(alpha=ALPHA[3], beta=BETA[7])) == stored.loss[3, 7]


def fill_slowly(path: Path, count: Path) -> None:
    """A line in `count` for every evaluation."""
    with count.open("a") as evaluations:

        def slow(there: Weights) -> float:
            print("x", file=evaluations, flush=True)
            time.sleep(0.004)
            return of(holed)(there)

        fill(path, slow)


def test_killed_three_times_and_resumed_equals_undisturbed_bit_for_bit(
    filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    whole = filled(holed).stored
    total = 3 + whole.certificate.evaluations
    assert min(len(whole.nodes["node"]), len(whole.nodes["check"]), whole.evaluated.sum()) > 10
    path, count = tmp_path / "killed.h5", tmp_path / "count"
    reached = []
    for share in (0.1, 0.4, 0.7):
        wanted = (share + 0.2 * float(torch.rand(()))) * total
        kill_at(start(monkeypatch, fill_slowly, path, count), count, wanted)
        assert not slices.read(path).complete
        reached.append(_kept(path))
        assert lines(count) <= reached[-1] + len(reached)  # lost: the one in flight, no more
    assert 0 < reached[0] < reached[1] < reached[2] < total, "the kills came too late or too early to test anything"
    last = start(monkeypatch, fill_slowly, path, count)
    last.join()
    assert last.exitcode == 0
    assert content(path) == content(filled(holed).path)
    assert total <= lines(count) <= total + 3


def _kept(path: Path) -> int:
    """Evaluations in the file."""
    with h5py.File(path) as file:
        points = sum(int(point["done"][()]) for point in file["points"].values())
        return points + int((file["nodes/kind"][:] > 0).sum()) + int(file["done"][:].sum())


def test_a_disk_that_is_full_at_the_end_costs_no_evaluation(filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "s.h5"

    def refuse(path: Path, content: bytes) -> None:
        if content.find(b"certificate") >= 0:
            raise StoreError(f"{path}: the disk is full")
        write(path, content)

    write = store.write_whole
    with monkeypatch.context() as full:
        full.setattr(store, "write_whole", refuse)
        with pytest.raises(StoreError, match="the disk is full"):
            fill(path, of(smooth))
    assert not slices.read(path).complete
    fill(path, lambda there: pytest.fail("evaluated again"))
    assert content(path) == content(filled(smooth).path)
