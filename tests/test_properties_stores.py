"""What is written is what is read, whatever it is: stores tried on content made by hypothesis."""

from __future__ import annotations

import math
import string
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from landscape import slices
from landscape.curvature import store
from landscape.curvature.lanczos import Krylov
from landscape.curvature.ledger import Ledger
from landscape.study import table
from landscape.study.columns import STUDY
from landscape.weights import Weights

few = settings(max_examples=10, deadline=None)
floats = st.floats(width=64)
text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
name = st.text(string.ascii_letters, min_size=1, max_size=8)
columns = arrays.arrays(np.float64, st.integers(0, 5), elements=floats)
words = st.lists(text, max_size=5).map(lambda found: np.array(found, dtype=str))


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal to the bit, NaN like NaN."""
    if isinstance(a, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, np.ndarray):
        return a.tolist() == b.tolist() if a.dtype.kind in "UO" else np.array_equal(a, b, equal_nan=True)
    return bool(a == b)


@few
@given(
    st.dictionaries(name, text | floats | st.integers(-(2**63), 2**63 - 1) | st.booleans(), max_size=4),
    st.dictionaries(name, st.dictionaries(name, columns | words | floats | text, min_size=1, max_size=4), max_size=3),
    st.booleans(),
)
def test_a_measurement_comes_back(about: dict[str, Any], sections: dict[str, dict[str, Any]], complete: bool):
    own = {"schema", "kind", "status", "created", "finished", "config", "versions"}
    about = {key: value for key, value in about.items() if key not in own}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "measured.h5"
        store.write(path, about, sections, complete)
        found = store.read(path)
    assert found.complete == complete
    assert all(same(value, found.attributes[key]) for key, value in about.items())
    assert {place: set(section) for place, section in found.sections.items()} == {
        p: set(s) for p, s in sections.items()
    }
    assert all(same(v, found.sections[place][key]) for place, section in sections.items() for key, v in section.items())


@few
@given(
    arrays.arrays(np.float64, st.tuples(st.integers(2, 4), st.integers(2, 4)), elements=floats),
    st.dictionaries(name, text | floats | st.integers(-(2**63), 2**63 - 1), max_size=4),
    st.lists(text, min_size=1, max_size=3),
    arrays.arrays(np.float64, 5, elements=floats),
    st.data(),
)
def test_a_slice_comes_back(loss: np.ndarray, about: dict[str, Any], labels: list[str], line: np.ndarray, data: Any):
    about = {f"own_{key}": value for key, value in about.items()}
    origin, first, second = (Weights({"w": torch.eye(3)[i]}) for i in range(3))
    plane = slices.span(origin, first, second, {"theta": origin, "other": first})
    alpha, beta = (slices.evenly(-1.0, 2.0, n) for n in loss.shape)
    named = {each: slices.Named(label, what=label) for each, label in zip(plane.points, labels * 2, strict=False)}
    tables = {"layers": {"name": labels, "value": list(range(len(labels)))}}
    layout = slices.Layout(plane, alpha, beta, np.linspace(0, 1, 5), named, about, tables, "key", 3)
    done = data.draw(arrays.arrays(np.bool_, loss.shape))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "slice.h5"
        slices.create(path, layout)
        with slices.SliceWriter(path, "key", plane.fingerprint()) as writer:
            for i, j in np.argwhere(done).tolist():
                writer.write_tile((slice(i, i + 1), slice(j, j + 1)), loss[i : i + 1, j : j + 1])
            for index, value in enumerate(line.tolist()):
                writer.write_profile(index, value)
            writer.write_node(0, "node", 0.5, 0.25, line.tolist()[0])
        found = slices.read(path)
    assert not found.complete
    assert same(found.loss, np.where(done, loss, np.nan)) and same(found.done, done)
    assert same(found.profile[1], line) and same(found.alpha, alpha) and same(found.beta, beta)
    assert all(same(value, found.attributes[key]) for key, value in about.items())
    assert [point.label for point in found.points] == [each.label for each in named.values()]
    assert found.tables["layers"]["name"].tolist() == labels
    assert same(found.nodes["node"], np.array([[0.5, 0.25, line[0]]]))


@few
@given(
    arrays.arrays(np.float64, (3, 4), elements=floats), floats, st.booleans(), st.lists(columns, min_size=4, max_size=4)
)
def test_a_krylov_space_comes_back(basis: np.ndarray, beta: float, exhausted: bool, dropped: list[np.ndarray]):
    vectors = torch.from_numpy(basis)
    krylov = Krylov(vectors, np.eye(3), None if exhausted else vectors[0], beta, [tuple(dropped)], 7)
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder) / "ledger", "key")
        ledger.save_krylov("top", krylov)
        found = Ledger(Path(folder) / "ledger", "key").load_krylov("top", torch.zeros(1, dtype=torch.float64))
    assert found is not None and same(found.basis.numpy(), basis) and same(found.beta, beta)
    assert (found.following is None) == exhausted and found.products == 7
    assert all(same(a, b) for a, b in zip(found.dropped[0], dropped, strict=True))


_cells = {"int64": st.integers(-(2**63), 2**63 - 1), "float64": floats, "string": text}


@few
@given(
    st.lists(
        st.fixed_dictionaries({}, optional={column: _cells[kind] for column, (kind, _) in STUDY.items()}), max_size=3
    )
)
def test_a_table_comes_back(rows: list[dict[str, Any]]):
    with tempfile.TemporaryDirectory() as folder:
        table.write(Path(folder), "study", rows, {"text": "a"})
        found = table.read(Path(folder))
    assert len(found) == len(rows)
    assert all(same(row.get(column), back[column]) for row, back in zip(rows, found, strict=True) for column in STUDY)
