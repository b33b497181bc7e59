"""What is damaged, how, and what reads it: the very functions that the jobs of the suite call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

import fuzz_formats as formats
import fuzz_mutations as mutations
from fuzz_mutations import BYTES, Damage, any_of
from fuzz_seeds import model_of
from landscape import evaluation, models, packed, slices, texts, trajectories
from landscape.averaging import average_checkpoints
from landscape.config import AverageConfig, CorrelateConfig, FrontierConfig, ViewConfig
from landscape.correlations import correlate_tables
from landscape.curvature import eigenvectors, store
from landscape.curvature.ledger import Ledger
from landscape.curvature.parameters import ParameterSpace
from landscape.evaluation.frontier import compare_sizes
from landscape.models.mapped import stored_parameters
from landscape.models.references import resolve
from landscape.study import table, work
from landscape.study.plan import Subject
from landscape.study.rows import of_subject
from landscape.training import data, optimizers, recipe, state
from landscape.training.run import Run
from landscape.trajectories import Point
from landscape.viewing import view_results
from landscape.weights import Weights


@dataclass(frozen=True)
class Target:
    """A kind of file.

    Attributes:
        name: as in the table.
        seeds: whole files, as globs below the folder of seeds.
        damage: what is done to one of them.
        read: given the folder of whole seeds and the path of the damaged file.
        share: of all inputs, beside the other targets.
        beside: what lies beside the seed is copied with it.
        named: what a refusal must name; the file's own name if empty.
    """

    name: str
    seeds: tuple[str, ...]
    damage: Damage
    read: Callable[[Path, Path], object]
    share: int = 10
    beside: bool = False
    named: Callable[[Path], tuple[str, ...]] = lambda path: (path.name,)


def _folder_and_file(path: Path) -> tuple[str, ...]:
    return path.parent.name, path.name


def _recipe_or_file(path: Path) -> tuple[str, ...]:
    """Or another recipe, which this one extends."""
    return path.name, "recipe "


def _view(seeds: Path, path: Path) -> None:
    """A page of it alone, which a person asks for by the file's name."""
    view_results(ViewConfig([str(path)], out=path.with_suffix(".html")))


def _view_folder(seeds: Path, path: Path) -> None:
    """Pages of the folder, as `landscape view FOLDER` and the server draw them."""
    view_results(ViewConfig([str(path.parent)], out=path.parent / "pages"))


def _manifest(seeds: Path, path: Path) -> None:
    view_results(ViewConfig([str(seeds / "study")], out=path.parent))


def _resume(seeds: Path, path: Path) -> None:
    """What a job does with a slice that is there already."""
    stored = slices.read(path)
    with slices.SliceWriter(path, str(stored.attributes["key"]), str(stored.attributes["plane_fingerprint"])) as writer:
        writer.pending_points(), writer.pending_profile(), writer.pending_tiles(8), writer.made(), writer.points()


def _evaluation(seeds: Path, path: Path) -> None:
    evaluation.read(path)
    compare_sizes(FrontierConfig([str(path)], out=path.parent / "frontier"))


def _rows(seeds: Path, path: Path) -> None:
    """Rows of a study out of the files of its jobs."""
    subject = Subject(Point("run@step20", "step20", "", 20, None, None, "run"))
    study = seeds / "study"
    files = {"curvature": next((study / "curvature").glob("*20*.h5")), "q": next((study / "evaluations").glob("*20*"))}
    of_subject(subject, files | {"curvature" if path.suffix == ".h5" else "q": path})


def _tables(seeds: Path, path: Path) -> None:
    table.read(path)
    correlate_tables(CorrelateConfig([str(path)], x="trace,weight_norm", draws=100))


def _note(seeds: Path, path: Path) -> None:
    class Named:
        note = path.name

    work.is_done(Named(), path.parent.parent)  # type: ignore[arg-type]


def _ledger(seeds: Path, path: Path) -> None:
    ledger = Ledger(path.parent, "key")
    ledger.load_krylov("top", torch.zeros(1))
    ledger.load("trace")


def _recipe(seeds: Path, path: Path) -> None:
    found = recipe.read(path)
    found.fingerprint, found.kept, found.logged  # noqa: B018
    copy = path.with_name("copy.yaml")
    copy.write_text(recipe.to_yaml(found), encoding="utf-8")
    recipe.read(copy)


def _changes(seeds: Path, path: Path) -> None:
    """The text as changes on the command line."""
    base = recipe.from_dict({"model": {"type": "gpt_neox"}, "text": "a.txt", "steps": 100}, "base")
    lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    for line in lines:
        if ": " in line.strip() and line.strip() not in _WHOLE_LINES:
            base.changed([line.strip().replace(": ", "=", 1)])


def _run(seeds: Path, path: Path) -> None:
    run = Run(path.parent)
    run.facts(), run.rows()
    trajectories.points(str(path.parent))


def _config(seeds: Path, path: Path) -> None:
    checkpoint = resolve(str(path.parent))
    packed.is_packed(checkpoint)
    models.context_length(checkpoint)


def _model(seeds: Path, path: Path) -> None:
    checkpoint = resolve(str(path.parent))
    stored_parameters(checkpoint)
    packed.is_packed(checkpoint)
    Weights.of(models.load_model(checkpoint)).fingerprint()


def _header(seeds: Path, path: Path) -> None:
    stored_parameters(resolve(str(path.parent)))


def _tokenizer(seeds: Path, path: Path) -> None:
    tokenizer = models.load_tokenizer(resolve(str(path.parent)))
    tokenizer("the cat sat on a mat", add_special_tokens=False, verbose=False)


def _trainer(seeds: Path, path: Path) -> None:
    trajectories.points(str(path.parent))


_WHOLE_LINES = ("type: gpt_neox", "kind: wsd", "kind: adamw", "hidden_size: 16")  # of mappings within


@cache
def _float(kind: str) -> tuple[torch.nn.Module, Weights]:
    model = model_of(kind, tie_word_embeddings=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model, Weights.of(model)


def warm() -> None:
    """Import what reading imports, once and not in every process."""
    for kind in ("gpt_neox", "llama"):
        _float(kind)
    import gguf  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    from transformers import AutoTokenizer  # noqa: F401

    import landscape.viewer.pages.compare
    import landscape.viewer.pages.slice
    import landscape.viewer.pages.trajectory  # noqa: F401


def _packed(seeds: Path, path: Path) -> None:
    model, theta = _float("llama")
    packed.load_dense(packed.locate(str(path if path.suffix == ".gguf" else path.parent)), theta, model)


def _vectors(seeds: Path, path: Path) -> None:
    eigenvectors.read(path, ParameterSpace.select(_float("gpt_neox")[1]), torch.zeros(1), "--vectors")


def _state(seeds: Path, path: Path) -> None:
    model = model_of("gpt_neox", tie_word_embeddings=False)
    state.load(path, model, optimizers.build(model, {"kind": "adamw", "peak": 1e-3}))


def _tokens(seeds: Path, path: Path) -> None:
    found = data.open_tokens(path.parent)
    if found is not None:
        data.Order(found.ids, 16, 4, 20, 0, "shuffled").starts(0)


def _text(seeds: Path, path: Path) -> None:
    for _, _ in zip(range(1000), texts.documents(str(path)), strict=False):
        pass


def _average(seeds: Path, path: Path) -> None:
    members = [str(seeds / "run" / step) for step in ("step10", "step20")]
    average_checkpoints(AverageConfig(members, out=path.parent, kind="soup"))


_HDF5 = any_of(*BYTES, formats.hdf5, formats.hdf5, formats.hdf5)
_JSON = any_of(*BYTES, mutations.json_values, mutations.json_values, mutations.json_values, mutations.text)
_NUMBERS = any_of(mutations.json_values, *[mutations.json_numbers] * 4)
_LINES = any_of(*BYTES, mutations.json_lines, mutations.json_lines, mutations.text)
_YAML = any_of(*BYTES, mutations.yaml_lines, mutations.yaml_lines, mutations.text, mutations.text)
_TENSORS = any_of(*BYTES, formats.safetensors_header, formats.safetensors_header, formats.safetensors_header)
_ARRAYS = any_of(*BYTES, formats.arrays, formats.arrays)
_BYTES, _TEXT = any_of(*BYTES), any_of(*BYTES, mutations.text)
_TABLE = any_of(*BYTES, *[formats.parquet] * 4)
_ANY = any_of(*BYTES, *[formats.content] * 4)
_SLICES = ("dense.h5", "adaptive.h5", "half.h5")
TARGETS: tuple[Target, ...] = (
    Target("slice", _SLICES, _HDF5, lambda seeds, path: slices.read(path), 90),
    Target("resumed slice", _SLICES, _HDF5, _resume, 20),
    Target("page of a slice", _SLICES, _HDF5, _view, 3),
    Target("pages of results", (*_SLICES, "sharpness.h5"), _HDF5, _view_folder, 2),
    Target("sharpness", ("sharpness.h5",), _HDF5, lambda seeds, path: store.read(path), 60),
    Target("evaluation", ("evaluations/*.json",), _JSON, _evaluation, 6),
    Target("page of an evaluation", ("evaluations/*.json",), _JSON, _view_folder, 4, False, _folder_and_file),
    Target("rows of a study", ("study/evaluations/*20*.json", "study/curvature/*20*.h5"), _ANY, _rows, 20),
    Target("table", ("study/study.parquet", "study/layers.parquet"), _TABLE, _tables, 40),
    Target("page of a table", ("study/study.parquet", "study/layers.parquet"), _TABLE, _view_folder, 4, True),
    Target("note of a study", ("study/done/*.json",), _JSON, _note, 100),
    Target("list of pages", ("pages/.landscape-view.json",), _JSON, _manifest, 8, True),
    Target("ledger", ("ledger/*.npz",), _ARRAYS, _ledger, 90, True, lambda path: (".npz",)),
    Target("recipe", ("recipe.yaml", "run/recipe.yaml"), _YAML, _recipe, 110, False, _recipe_or_file),
    Target("changes of a recipe", ("run/recipe.yaml",), _YAML, _changes, 50, False, lambda path: ("",)),
    Target("run.json", ("run/run.json",), _JSON, _run, 40, True),
    Target("log.jsonl", ("run/log.jsonl",), _LINES, _run, 40, True),
    Target("config.json", ("run/step20/config.json",), _JSON, _config, 60, True, _folder_and_file),
    Target("model of a config.json", ("run/step20/config.json",), _NUMBERS, _model, 3, True, _folder_and_file),
    Target("SHA256SUMS", ("run/step20/SHA256SUMS",), _TEXT, _config, 30, True, _folder_and_file),
    Target("tokenizer.json", ("run/step20/tokenizer.json",), _JSON, _tokenizer, 10, True, _folder_and_file),
    Target("safetensors", ("run/step20/model.safetensors",), _TENSORS, _header, 80, True, _folder_and_file),
    Target("model of safetensors", ("run/step20/model.safetensors",), _TENSORS, _model, 3, True, _folder_and_file),
    Target("index of shards", ("sharded/*.index.json",), _JSON, _header, 60, True, _folder_and_file),
    Target("model of shards", ("sharded/*.index.json",), _JSON, _model, 2, True, _folder_and_file),
    Target("eigenvectors", ("sharpness.top.safetensors",), _TENSORS, _vectors, 40),
    Target("training state", ("run/step10/state.safetensors",), _TENSORS, _state, 8, True, _folder_and_file),
    Target("tokens", ("tokens/*/facts.json", "tokens/*/ids.bin"), _JSON, _tokens, 40, True),
    Target("text", ("run/log.jsonl", "prose.txt"), _TEXT, _text, 40),
    Target("GPTQ and AWQ", ("packed/gptq/*.safetensors", "packed/awq/*.safetensors"), _TENSORS, _packed, 5,
           True, _folder_and_file),
    Target("config.json of GPTQ and AWQ", ("packed/gptq/config.json", "packed/awq/config.json"), _JSON, _packed, 5,
           True, _folder_and_file),
    Target("pytorch_model.bin", ("pickled/*.bin",), _BYTES, _model, 2, True, _folder_and_file),
    Target("GGUF", ("packed/gguf/tiny.gguf",), _BYTES, _packed, 10),
    Target("average.json", ("mean/average.json",), _JSON, _average, 3, True, _folder_and_file),
)  # fmt: skip
