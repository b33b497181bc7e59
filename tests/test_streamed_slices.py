"""Slices of models in scratch space: the bits of those in memory, without the memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from landscape import basin
from landscape.config import SliceConfig
from landscape.errors import ModelError, OptionError, StoreError
from landscape.objective import mean
from landscape.slices import Losses, Plane, span
from landscape.storage.scratch import Scratch
from landscape.streaming import losses_on_places
from landscape.weights import Weights, place, random_direction
from streamed import Both, both, in_little_memory, save_wide

pytestmark = pytest.mark.usefixtures("process")
PLACES = [(0.0, 0.0), (0.7, -0.3), (-1.5, 2.0)]


def plane(theta: Weights) -> Plane:
    return span(theta, random_direction(theta, 1), random_direction(theta, 2), {"theta": theta})


def in_memory(found: Both) -> Losses:
    exact = replace(found.held, dtype=torch.float32)
    return Losses(lambda weights: mean(found.held, weights), lambda weights: mean(exact, weights))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama-tied-gqa", {}),
        ("gpt_neox", {}),
        ("gpt_neox", {"tie_word_embeddings": True}),
        ("gpt2", {}),  # embeddings of positions, biases, matrices the other way round
        ("olmo2", {}),
    ],
)
def test_losses_on_a_plane_are_those_of_a_model_in_memory(name: str, changes: dict[str, object], tmp_path: Path):
    found = both(tmp_path, name, **changes)
    held, streamed = plane(found.theta), plane(found.masters)
    assert held.fingerprint() == streamed.fingerprint() and held.points == streamed.points
    expected = list(in_memory(found).on(held)(PLACES, False))
    assert len(set(expected)) == 3
    assert list(losses_on_places(found.streamed).on(streamed)(PLACES, False)) == expected
    assert losses_on_places(found.streamed).exact(found.masters) == expected[0]


def test_a_scan_in_bfloat16_has_points_in_float32(tmp_path: Path):
    found = both(tmp_path, "llama-tied-gqa")
    found.held = replace(found.held, dtype=torch.bfloat16)
    losses = losses_on_places(replace(found.streamed, dtype=torch.bfloat16))
    expected, at = in_memory(found).on(plane(found.theta)), losses.on(plane(found.masters))
    assert losses.noisy and not losses_on_places(found.streamed).noisy
    for exact in (False, True):
        assert list(at(PLACES, exact)) == list(expected(PLACES, exact))
    assert list(at(PLACES, False)) != list(at(PLACES, True))


def test_blocks_are_made_once_for_as_many_places_as_memory_holds(tmp_path: Path, monkeypatch):
    found = both(tmp_path, "gpt_neox")
    flat, made, inner = plane(found.masters), [], "gpt_neox.layers.1.mlp.dense_4h_to_h.weight"

    def places() -> list[object]:
        points = [place(flat.origin, a, flat.u, b, flat.v) for a, b in PLACES]
        for point in points:
            make = point._make
            point._make = lambda name, make=make: (made.append(name), make(name))[1]
        return points

    expected = list(found.streamed.means(places()))
    assert made.count(inner) == 3
    for free, times in ((4 * 2 * 16 * 32 * 4, 9), (4 * 2 * 16 * 32 * 4 * 4, 5), (0, 9)):  # room for 1, 4 and no batches
        made.clear()
        monkeypatch.setattr("landscape.streaming.objective.available", lambda device, free=free: free)
        assert list(found.streamed.means(places())) == expected
        assert made.count(inner) == times


def test_a_block_that_is_told_about_other_weights_is_refused(tmp_path: Path, monkeypatch):
    """Embeddings by layer: a place's own would be needed by every block."""
    from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXLayer, GPTNeoXModel

    found = both(tmp_path, "gpt_neox")
    inner, own = GPTNeoXModel.forward, GPTNeoXLayer.forward

    def forward(self: nn.Module, input_ids: Tensor, **kwargs: object) -> object:
        return inner(self, input_ids, by_layer=self.embed_in(input_ids), **kwargs)

    def block(self: nn.Module, hidden: Tensor, *args: object, by_layer: Tensor, **kwargs: object) -> object:
        return own(self, hidden + by_layer, *args, **kwargs)

    monkeypatch.setattr(GPTNeoXModel, "forward", forward)
    monkeypatch.setattr(GPTNeoXLayer, "forward", block)
    with pytest.raises(ModelError, match="block 1 is told more about other weights than hidden states"):
        losses_on_places(found.streamed).exact(found.masters)


def test_results_of_arithmetic_stay_in_scratch_space(tmp_path: Path):
    scratch, tensors = Scratch(tmp_path), {"w": torch.arange(6.0).view(2, 3), "b": torch.ones(2).bfloat16()}
    theta = scratch.weights(tensors)

    def are_files(weights: Weights) -> bool:
        maps = Path("/proc/self/maps").read_text().splitlines()
        files = [line.split("-")[0] for line in maps if "(deleted)" in line and str(tmp_path) in line]
        return all(any(int(begin, 16) == t.data_ptr() for begin in files) for t in weights.values())

    assert {t.dtype for t in theta.values()} == {torch.float32}
    made = [theta - theta, theta + theta, 0.5 * theta, theta.clone(), random_direction(theta, 0), theta.clone() - theta]
    assert all(map(are_files, [theta, *made])) and not are_files(Weights(tensors))
    assert list(tmp_path.iterdir()) == [], "and have no names, so that nothing is left of them"


def test_scratch_space_that_is_not_there(tmp_path: Path):
    with pytest.raises(StoreError, match=r"cannot be written .* 12 B of scratch space"):
        Scratch(tmp_path / "none").new(3)
    done = in_little_memory(
        f"""
from pathlib import Path
from landscape.errors import StoreError
from landscape.storage.scratch import Scratch
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
kept = Scratch(Path({str(tmp_path)!r})).new(200)
try:
    Scratch(Path({str(tmp_path)!r})).new(300)
except StoreError as error:
    print(error)
""",
        1000,
    )
    assert "the disk is full" in done.stdout, done.stderr


@pytest.fixture(scope="module")
def job(run: Path, text_file: Path):
    """What `render_slice` makes of a small slice."""

    def render(out: Path, **options: object) -> basin.SliceResult:
        small = {"tokens": 320, "quant": "gptq-w3-g16", "grid": "3x3", "dense": True, **options}
        return basin.render_slice(SliceConfig(model=f"{run}@step30", text=str(text_file), out=out, **small))

    return render


def test_the_job_gives_the_same_file(job, tmp_path: Path):
    held, streamed = job(tmp_path / "held", stream="never"), job(tmp_path / "streamed", stream="always")
    assert held.path.name == streamed.path.name
    assert np.array_equal(held.slice.loss, streamed.slice.loss) and held.slice.points == streamed.slice.points
    fingerprints = {result.slice.attributes["plane_fingerprint"] for result in (held, streamed)}
    assert len(fingerprints) == 1, "so that either goes on with what the other began"
    assert {path.suffix for path in streamed.path.parent.iterdir()} == {".h5", ".html", ".pdf", ".png"}


def test_the_job_streams_where_memory_is_short(job, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("landscape.inputs.available", lambda device: 100_000)

    def load_to_scratch(*args: object) -> None:
        raise StoreError("this way")

    monkeypatch.setattr("landscape.inputs.load_to_scratch", load_to_scratch)
    with pytest.raises(StoreError, match="this way"):
        job(tmp_path)
    monkeypatch.setattr("landscape.inputs.available", lambda device: 1_000_000_000)
    assert job(tmp_path).slice.complete


def test_what_needs_the_whole_model(job, tmp_path: Path, monkeypatch):
    for options in ({"plane": "gradient"}, {"quant": "gptq-w4-g32@gptqmodel"}):
        with pytest.raises(OptionError, match=r"--stream always with .* needs the whole model in memory"):
            job(tmp_path, stream="always", **options)


LARGE = """
from pathlib import Path
from landscape.machine import heap
from landscape.models.mapped import load_mapped, masters
from landscape.models import load_model
from landscape.objective import TokenCrossEntropy, batches, mean
from landscape.models.references import resolve
from landscape.storage.scratch import Scratch
from landscape.slices import Losses, span
from landscape.streaming import StreamedCrossEntropy, losses_on_places
from landscape.tokens import Windows
from landscape.weights import Weights, random_direction
folder, streams = Path(FOLDER), STREAMS
windows = Windows(torch.arange(64).view(2, 32), torch.tensor([32, 32]))
checkpoint = resolve(str(folder))
heap.give_back()
load_mapped(checkpoint)  # what is imported on the way
limit()
if streams:
    model = load_mapped(checkpoint)
    theta = masters(model, "cpu", Scratch(folder))
    losses = losses_on_places(StreamedCrossEntropy(model, batches(windows, 2)))
else:
    model = load_model(checkpoint)
    theta, objective = Weights.of(model), TokenCrossEntropy(model, batches(windows, 2))
    losses = Losses(*[lambda weights: mean(objective, weights)] * 2)
plane = span(theta, random_direction(theta, 1), random_direction(theta, 2), {"theta": theta})
print(list(losses.on(plane)([(0.0, 0.0), (1.0, 2.0)], False)))
"""


def test_a_plane_that_memory_does_not_hold(tmp_path: Path):
    """Θ takes 43 MB in float32, the file 22; in memory a plane is four of Θ. 80 MB are enough."""
    save_wide(tmp_path)
    program = LARGE.replace("FOLDER", repr(str(tmp_path)))
    streamed = in_little_memory(program.replace("STREAMS", "True"), 80)
    assert streamed.returncode == 0 and len(streamed.stdout.split()) == 2, streamed.stderr
    held = in_little_memory(program.replace("STREAMS", "False"), 130)
    assert held.returncode != 0 and "memory" in held.stderr, held.stdout
