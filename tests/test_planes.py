"""Every plane one can ask for, through the whole job, against weights and directions worked out by hand."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import landscape as ls
from conftest import build
from landscape import slices, viewer
from landscape.config import SharpnessConfig
from landscape.errors import ModelError, OptionError, StoreError
from landscape.models import load_model
from landscape.models.references import resolve
from landscape.objective import TokenCrossEntropy, batches, mean
from landscape.quantize import parse, quantize
from landscape.sharpness import measure_sharpness
from landscape.tokens import WindowReader
from landscape.weights import Weights, move_to, random_direction
from test_basin import config
from vectors import basis, flat

Render = Callable[..., slices.StoredSlice]

pytestmark = pytest.mark.usefixtures("process")


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """For what is made once, too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@dataclass(frozen=True)
class World:
    """What the planes run through, and the loss, both without the job."""

    weights: Mapping[str, Weights]
    objective: TokenCrossEntropy

    def __getitem__(self, name: str) -> Weights:
        return self.weights[name]

    def loss(self, weights: Weights) -> float:
        return mean(self.objective, weights)


@pytest.fixture(scope="module")
def world(run: Path, text_file: Path, tokenizer) -> World:
    model = load_model(resolve(f"{run}@30"))
    weights = {f"step{step}": Weights.of(load_model(resolve(f"{run}@{step}"))) for step in (10, 20, 30)}
    weights |= {name: quantize(parse(name), model)[0] for name in ("rtn-w3-g16", "rtn-w4-g16")}
    windows = WindowReader([text_file.read_text()], tokenizer, 32).take(8)
    return World(weights, TokenCrossEntropy(model, batches(windows, 8)))


@pytest.fixture
def spanned(monkeypatch: pytest.MonkeyPatch) -> list[slices.Plane]:
    """The planes that jobs span, with their basis."""
    found: list[slices.Plane] = []

    def span(*arguments: object) -> slices.Plane:
        found.append(original(*arguments))
        return found[-1]

    original = slices.span
    monkeypatch.setattr(slices, "span", span)
    return found


@pytest.fixture
def render(run: Path, text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Render:
    """The whole job; drawn where a test says so, as that takes longer than all the rest."""

    def render(model: Path = run, drawn: bool = False, **changes: object) -> slices.StoredSlice:
        if changes.get("plane") == "line":
            changes = {"grid": "9", **changes}
        with monkeypatch.context() as patched:
            for draw in ("write_page", "write_figure") if not drawn else ():
                patched.setattr(viewer, draw, lambda stored, path: None)
            result = ls.render_slice(config(model, text_file, tmp_path, **changes))
        blob = result.path.read_bytes() + (result.page.read_bytes() if drawn else b"")
        for private in (tmp_path, run.parent, Path(changes.get("vectors", tmp_path)).parent):
            assert str(private).encode() not in blob, "a result must not say where it was made"
        assert [figure.exists() for figure in result.figures] == [drawn, drawn]
        return result.slice

    return render


def check(
    stored: slices.StoredSlice,
    plane: slices.Plane,
    world: World,
    directions: tuple[Weights, Weights | None],
    points: Mapping[str, Weights],
) -> None:
    """Basis, coordinates, residuals and losses are those of `directions` from Θ and of `points`."""
    theta = flat(world["step30"])
    axes = basis(flat(directions[0]), None if directions[1] is None else flat(directions[1]))
    made = np.stack([flat(axis) for axis in (plane.u, plane.v) if axis is not None])
    assert np.abs(made @ made.T - np.eye(len(made))).max() < 1e-6
    assert np.abs(made - axes).max() < 1e-5
    assert stored.is_line == (len(axes) == 1)
    assert [point.name for point in stored.points] == list(points)
    for point in stored.points:
        step = flat(points[point.name]) - theta
        place = np.append(axes @ step, 0.0)[:2]
        distance = np.linalg.norm(step)
        assert (point.alpha, point.beta) == pytest.approx(place, abs=1e-5 * distance)
        assert point.distance == pytest.approx(distance, rel=1e-6)
        assert point.residual == pytest.approx(np.linalg.norm(step - place[: len(axes)] @ axes), abs=1e-4 * distance)
        assert point.loss == world.loss(points[point.name])
    i, j = len(stored.alpha) // 3, len(stored.beta) // 3
    there = move_to(world["step30"].clone(), world["step30"], stored.alpha[i], plane.u, stored.beta[j], plane.v)
    assert stored.loss[i, j] == world.loss(there)


SOURCES = {
    "theta": ("step30", "Θ_K", "origin", "run@step30"),
    "theta_prev": ("step20", "Θ_{K−1}", "checkpoint", "run@step20"),
    "theta_hat": ("rtn-w3-g16", "Θ̂_K", "quantized", "rtn-w3-g16"),
    "theta_hat_1": ("rtn-w3-g16", "Θ̂_{rtn-w3-g16}", "quantized", "rtn-w3-g16"),
    "theta_hat_2": ("rtn-w4-g16", "Θ̂_{rtn-w4-g16}", "quantized", "rtn-w4-g16"),
    "theta_to": ("step10", "Θ_{step10}", "checkpoint", "run@step10"),
}
# options; what the first and the second direction lead to; the points; the titles; what is said of it
KINDS = {
    "checkpoints": (
        {},
        ["theta_prev", "theta_hat"],
        ["theta", "theta_prev", "theta_hat"],
        ("Θ_K → Θ_{K−1}", "quantization step"),
        "an earlier checkpoint",
    ),
    "quantizers": (
        {"plane": "quantizers", "quant": "rtn-w3-g16, rtn-w4-g16"},
        ["theta_hat_1", "theta_hat_2"],
        ["theta", "theta_hat_1", "theta_hat_2"],
        ("Θ_K → Θ̂_{rtn-w3-g16}", "Θ_K → Θ̂_{rtn-w4-g16}"),
        "two quantizers",
    ),
    "line": ({"plane": "line"}, ["theta_hat"], ["theta", "theta_hat"], ("Θ_K → Θ̂_K", ""), "straight line"),
    "line to": (
        {"plane": "line", "to": "@10"},
        ["theta_to"],
        ["theta", "theta_to"],
        ("Θ_K → Θ_{step10}", ""),
        "straight line",
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_planes_through_points(kind: str, render: Render, world: World, spanned: list[slices.Plane]):
    options, ends, names, titles, about = KINDS[kind]
    stored = render(drawn=True, **options)
    stored_names = [name.replace("theta_hat_1", "theta_hat") for name in names]
    points = {name: world[SOURCES[source][0]] for name, source in zip(stored_names, names, strict=True)}
    first, *second = (world[SOURCES[end][0]] - world["step30"] for end in ends)
    check(stored, spanned[-1], world, (first, second[0] if second else None), points)
    assert [(p.label, p.role, p.what) for p in stored.points] == [SOURCES[name][1:] for name in names]
    facts = stored.attributes
    assert facts["plane"] == kind.split()[0]
    assert all(word in facts[axis] for word, axis in zip(titles, ("alpha_title", "beta_title"), strict=True))
    assert about in facts["about"]
    quantizers = [point.what for point in stored.points if point.role == "quantized"]
    assert facts["quantizer"] == ", ".join(quantizers)
    layers = stored.tables.get("layers", {})
    assert set(layers.get("quantizer", quantizers[:1])) == set(quantizers)
    assert len(layers.get("name", [])) == 8 * len(quantizers)
    t, along = stored.profile
    end = stored.points[-1]
    assert along[t == 0][0] == pytest.approx(stored.points[0].loss, abs=1e-6)
    if end.residual < 1e-4:
        assert along[t == 1][0] == pytest.approx(stored.at(end.alpha, end.beta))


def test_a_random_plane(render: Render, world: World, spanned: list[slices.Plane]):
    theta = world["step30"]
    one, other = (random_direction(theta, seed) for seed in (0, 1))
    stored = render(plane="random", drawn=True)
    check(stored, spanned[-1], world, (one, other), {"theta": theta})
    for name, tensor in theta.items():  # α, in units of Θ: each row of a matrix is as long as in Θ
        rows = spanned[-1].u[name] * one.norm()
        expected = tensor.norm(dim=1) if tensor.ndim > 1 else torch.zeros(len(tensor))
        assert torch.allclose(rows.norm(dim=1) if tensor.ndim > 1 else rows.abs(), expected, rtol=1e-4)
    assert stored.bounds.alpha == pytest.approx((-theta.norm(), theta.norm()), rel=0.5)  # a line through 0
    assert stored.bounds.alpha[1] >= theta.norm() * (1 - 1e-9)
    assert len(stored.profile[0]) == 0
    assert "seed 0" in stored.attributes["alpha_title"]
    assert "seed 1" in stored.attributes["beta_title"]
    assert stored.attributes["quantizer"] == ""


def test_random_planes_differ_by_seed_and_normalization(render: Render, world: World, spanned: list[slices.Plane]):
    theta = world["step30"]
    for options in ({"seed": 5}, {"normalize": "layer"}, {"reach": 0.1, "grid": "5x5"}, {}):
        stored = render(plane="random", **options)
        seed, by = options.get("seed", 0), options.get("normalize", "filter")
        directions = (random_direction(theta, seed, by), random_direction(theta, seed + 1, by))
        check(stored, spanned[-1], world, directions, {"theta": theta})
        assert by in stored.attributes["alpha_title"]
        if "reach" in options:
            r = 0.1 * theta.norm()
            assert (*stored.bounds.alpha, *stored.bounds.beta) == pytest.approx((-r, r, -r, r))
    assert len({plane.fingerprint() for plane in spanned}) == 3  # a shorter reach is the same plane
    layer = spanned[1].u
    norms = {n: float(layer[n].norm() / t.norm()) for n, t in theta.items() if t.ndim > 1}
    assert np.ptp(list(norms.values())) < 1e-4 * max(norms.values())


@pytest.fixture(scope="module")
def long_run(run: Path, world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven checkpoints that come to step30 along a bend, with noise."""
    folder = tmp_path_factory.mktemp("long") / "run"
    generator = torch.Generator().manual_seed(0)
    model, theta = build("gpt_neox"), world["step30"]
    draws = [Weights({n: torch.randn(t.shape, generator=generator) for n, t in theta.items()}) for _ in range(9)]
    for step in range(1, 8):
        back = 7 - step
        there = theta + (1e-2 * back) * draws[0] + (2e-3 * back**2) * draws[1] + (1e-3 * (back > 0)) * draws[step + 1]
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(there[name])
        shutil.copytree(run / "step30", folder / f"step{step}")
        model.save_pretrained(folder / f"step{step}")
    return folder


@pytest.mark.parametrize("params", ["*", "*attention*,!*bias"])
def test_principal_components(params: str, render: Render, long_run: Path, world: World, spanned: list[slices.Plane]):
    theta = world["step30"]
    stored = render(long_run, plane="pca", checkpoints=5, params=params, drawn=params == "*")
    chosen = [name for name in theta if params == "*" or ("attention" in name and not name.endswith("bias"))]
    others = [Weights.of(load_model(resolve(f"{long_run}@{step}"))) for step in (6, 5, 4, 3, 2)]
    others = [Weights({n: other[n] if n in chosen else theta[n] for n in theta}) for other in others]
    steps = np.stack([flat(other - theta) for other in others])
    _, sizes, components = np.linalg.svd(steps, full_matrices=False)
    components = components[:2] * np.sign(components[:2] @ steps[-1])[:, None]  # towards where training came from
    axes = [Weights({n: torch.tensor(p) for n, p in zip(theta, _cut(c, theta), strict=True)}) for c in components]
    names = {f"theta_{i}": other for i, other in enumerate(others, 1)}
    check(stored, spanned[-1], world, (axes[0], axes[1]), {"theta": theta, **names})
    facts, shares = stored.attributes, sizes**2 / (sizes**2).sum()
    assert (facts["explained_first"], facts["explained_second"]) == pytest.approx(shares[:2], rel=1e-5)
    assert f"{shares[0]:.1%} of the variance" in facts["alpha_title"]
    assert f"{shares[1]:.1%}" in facts["beta_title"]
    off_plane = [point.residual for point in stored.points[1:]]
    assert np.square(off_plane).sum() == pytest.approx((sizes[2:] ** 2).sum(), rel=1e-3)  # and none is near it
    assert min(off_plane) > 1e-3
    assert [p.label for p in stored.points] == ["Θ_K", *(f"Θ_{{step{step}}}" for step in (6, 5, 4, 3, 2))]
    assert all((p.role, p.what) == ("checkpoint", p.label[3:-1].join(["run@", ""])) for p in stored.points[1:])
    assert ("Only" in facts["about"]) == (params != "*")


def _cut(vector: np.ndarray, like: Weights) -> list[np.ndarray]:
    pieces = np.split(vector, np.cumsum([t.numel() for t in like.values()])[:-1])
    return [piece.reshape(t.shape) for piece, t in zip(pieces, like.values(), strict=True)]


def test_principal_components_pass_over_the_final_model_under_another_name(render: Render, run: Path, tmp_path: Path):
    trainer = tmp_path / "trainer"
    shutil.copytree(run / "step30", trainer)
    for step in (10, 20, 30):
        shutil.copytree(run / f"step{step}", trainer / f"checkpoint-{step}")
    stored = render(trainer, plane="pca")
    assert [point.what for point in stored.points[1:]] == ["trainer@checkpoint-20", "trainer@checkpoint-10"]
    shutil.rmtree(trainer / "checkpoint-10")
    with pytest.raises(ModelError, match=r"--plane pca: trainer has 1 other checkpoints before it.*at least 2"):
        render(trainer, plane="pca")


@pytest.fixture(scope="module")
def measured(run: Path, text_file: Path, tmp_path_factory: pytest.TempPathFactory):
    """The two sharpest directions, as the other job writes them."""
    options = {"tokens": 256, "seq_len": 32, "bottom": 0, "density_steps": 0, "max_probes": 10, "rough": "none"}
    out = tmp_path_factory.mktemp("vectors")
    return measure_sharpness(SharpnessConfig(str(run), str(text_file), out=out, top=2, vectors=True, **options))


def test_eigenvectors_span_the_plane_of_their_eigenvalues(
    render: Render, measured, world: World, spanned: list[slices.Plane]
):
    (path,) = measured.vectors
    rows = load_file(path)
    first, second = (Weights({n: rows[f"top.{i}.{n}"] for n in world["step30"]}) for i in (0, 1))
    few = render(plane="eigenvectors", vectors=path, grid="5x5")
    check(few, spanned[-1], world, (first, second), {"theta": world["step30"]})
    found = measured.stored.sections["eigenvalues/top"]
    reach = (2 * 0.1 / found["values"][0]) ** 0.5  # where the loss should have risen by 0.1 nats
    assert (*few.bounds.alpha, *few.bounds.beta) == pytest.approx((-reach, reach, -reach, reach), rel=0.01)
    assert few.attributes["config"]["vectors"] == path.name
    stored = render(plane="eigenvectors", vectors=path, drawn=True, grid="21x21", reach=0.003, loss_tolerance=1e-5)
    assert stored.certificate.pieces == 1
    reading = stored.reading
    largest, second_largest = found["values"]
    for name, curvature in {"alpha_alpha": largest, "beta_beta": second_largest, "alpha_beta": 0}.items():
        error = reading[f"hessian_{name}_error"] + found["residuals"].max()
        assert reading[f"hessian_{name}"] == pytest.approx(curvature, abs=error)
        assert error < 0.1 * second_largest
    slope = _gradient(world).dot(first)
    assert reading["gradient_alpha"] == pytest.approx(slope, abs=reading["gradient_alpha_error"] + 1e-5)
    assert abs(slope) > 10 * reading["gradient_alpha_error"]


def test_other_eigenvectors_are_another_slice(render: Render, measured, tmp_path: Path):
    (path,) = measured.vectors
    turned = tmp_path / path.name  # the same name
    with safe_open(path, "pt") as file:
        save_file({name: -tensor for name, tensor in load_file(path).items()}, turned, file.metadata())
    options = {"plane": "eigenvectors", "out": tmp_path / "one.h5", "grid": "3x3"}
    render(vectors=path, **options)
    with pytest.raises(StoreError, match="made from other inputs"):
        render(vectors=turned, **options)


def _gradient(world: World) -> Weights:
    theta = {name: tensor.clone().requires_grad_() for name, tensor in world["step30"].items()}
    (batch,) = world.objective.batches
    total, count = world.objective(theta, batch)
    (total / count).backward()
    return Weights({name: tensor.grad for name, tensor in theta.items()})


@pytest.mark.parametrize("params", ["*", "*mlp*"])
def test_the_gradient_leads_downhill(params: str, render: Render, world: World, spanned: list[slices.Plane]):
    theta, slope = world["step30"], _gradient(world)
    moving = [name for name in theta if params == "*" or "mlp" in name]
    downhill = Weights({n: -t if n in moving else torch.zeros_like(t) for n, t in slope.items()})
    hat = Weights({n: t if n in moving else theta[n] for n, t in world["rtn-w3-g16"].items()})
    options = {"plane": "gradient", "params": params}
    stored = render(**options)
    check(stored, spanned[-1], world, (downhill, hat - theta), {"theta": theta, "theta_hat": hat})
    a, b = stored.bounds.alpha  # where the second order says that the loss is 0.1 nats higher
    step = 1e-2 / downhill.norm()
    there = [world.loss(theta + downhill * (k * step)) for k in (-1, 0, 1)]
    curvature = (there[0] - 2 * there[1] + there[2]) / 1e-4
    rise = [-downhill.norm() * t + curvature * t**2 / 2 for t in (a, b)]
    assert min(rise) == pytest.approx(0.1, rel=0.05)  # the other side reaches further, for a grid line through 0
    near = render(**options, bounds="-0.01,0.02,-0.01,0.01", grid="21x21")
    assert near.at(0.01, 0) < near.at(0, 0) < near.at(-0.01, 0)
    assert near.reading["gradient_alpha"] == pytest.approx(-downhill.norm(), rel=0.02)
    assert "−∇L" in near.attributes["alpha_title"]


@pytest.mark.parametrize(
    "options", [{}, {"plane": "random"}, {"plane": "line", "to": "@10"}, {"plane": "quantizers"}, {"prev": "random"}]
)
def test_only_the_parameters_asked_for_move(
    options: dict[str, str], render: Render, world: World, spanned: list[slices.Plane]
):
    if options.get("plane") == "quantizers":
        options = {**options, "quant": "rtn-w3-g16,rtn-w4-g16"}
    theta, moving = world["step30"], [name for name in world["step30"] if ".0." in name and "dense" in name]
    stored, plane = render(params="*.0.*dense*", **options), spanned[-1]
    assert 0 < len(moving) < len(theta)
    for axis in filter(None, (plane.u, plane.v)):
        assert {name for name, tensor in axis.items() if tensor.any()} <= set(moving)
    for name, point in {"theta_hat": "rtn-w3-g16", "theta_prev": "step20", "theta_to": "step10"}.items():
        if name in plane.points:
            held = Weights({n: t if n in moving else theta[n] for n, t in world[point].items()})
            assert stored.point(name).loss == world.loss(held)
            assert stored.point(name).distance == pytest.approx((held - theta).norm(), rel=1e-6)
    assert stored.point("theta").loss == world.loss(theta)
    assert f"Only *.0.*dense* move: {len(moving)} of {len(theta)} tensors" in stored.attributes["about"]
    assert stored.attributes["params"] == "*.0.*dense*"


def test_the_rectangle_of_other_slices(render: Render, tmp_path: Path):
    one = render(bounds="-1,2,-0.5,3", out=tmp_path / "one.h5")
    two = render(bounds="-2,1,0.5,4", quant="rtn-w4-g16", out=tmp_path / "two.h5")
    assert render(like=str(tmp_path / "one.h5"), margin=0.1).bounds == one.bounds
    both = render(like=f"{tmp_path / 'one.h5'}, {tmp_path / 'two.h5'}")
    assert both.bounds == slices.Bounds((-2, 2), (-0.5, 4)) == slices.union([one.bounds, two.bounds])
    assert "like" not in both.attributes["config"]
    line = render(plane="line", bounds="-1,2", out=tmp_path / "line.h5")
    assert line.bounds == slices.Bounds((-1, 2), (0, 0))
    assert render(plane="line", quant="rtn-w4-g16", like=str(tmp_path / "line.h5")).bounds == line.bounds
    for options in ({"plane": "line", "like": str(tmp_path / "one.h5")}, {"like": str(tmp_path / "line.h5")}):
        with pytest.raises(OptionError, match=r"--like.*the slice of a (line|plane); expected that of a (plane|line)"):
            render(**options)
