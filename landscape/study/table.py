"""Tables on disk: Parquet, with CSV beside it for people; written whole, read back as rows or columns."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from landscape.errors import MissingExtraError, StoreError
from landscape.storage.digests import DIGEST, check_digest, with_digest
from landscape.storage.files import write_whole
from landscape.study.columns import LAYERS, STUDY, TENSORS, Columns

SCHEMA = 1
_MOST = 1 << 20  # rows: any number of them fits into a few bytes
FILES: dict[str, Columns] = {"study": STUDY, "layers": LAYERS, "tensors": TENSORS}
Row = Mapping[str, Any]


def check_pyarrow() -> None:
    """Raise `MissingExtraError` where there is no pyarrow."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("pyarrow", "study", "a table") from error


def write(folder: Path, name: str, rows: Sequence[Row], facts: Mapping[str, Any]) -> None:
    """Replace NAME.parquet and NAME.csv in `folder`; `facts` and what each column means go into the Parquet file.

    Raises:
        MissingExtraError: pyarrow is not installed.
        StoreError: the disk refuses them.
    """
    check_pyarrow()
    import pyarrow as pa
    from pyarrow import csv, parquet

    columns = FILES[name]
    fields = [
        pa.field(column, getattr(pa, kind)(), metadata={"meaning": meaning})
        for column, (kind, meaning) in columns.items()
    ]
    plain = [{column: _plain(row.get(column), kind) for column, (kind, _) in columns.items()} for row in rows]
    table = pa.Table.from_pylist(plain, schema=pa.schema(fields))
    text = io.BytesIO()
    csv.write_csv(table, text)
    about = with_digest({"kind": name, "schema": SCHEMA, "rows": _digest(table), **facts})
    memory = io.BytesIO()
    parquet.write_table(
        table.replace_schema_metadata({"landscape": json.dumps(about, sort_keys=True)}),
        memory,
        write_page_checksum=True,
    )
    write_whole(folder / f"{name}.parquet", memory.getvalue())
    write_whole(folder / f"{name}.csv", text.getvalue())


def read(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a table, or of study.parquet in a folder; empty cells are None, as are columns newer than the table.

    Raises:
        MissingExtraError: pyarrow is not installed.
        StoreError: no such file, damaged, or no table of a study.
    """
    check_pyarrow()
    import pyarrow as pa
    from pyarrow import parquet

    file = Path(path) / "study.parquet" if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise StoreError(
            f"{path}: no table there; expected study.parquet as 'landscape study' writes it, or its folder"
        )
    try:
        if parquet.read_metadata(file).num_rows > _MOST:
            raise ValueError("more rows than a study has")
        table = parquet.read_table(file)
        facts = json.loads((table.schema.metadata or {})[b"landscape"])
        if facts["kind"] not in FILES or facts["schema"] != SCHEMA:
            raise ValueError(facts["kind"])
        for name, (kind, _) in FILES[facts["kind"]].items():
            if name in table.column_names and table.schema.field(name).type != getattr(pa, kind)():
                raise ValueError(f"the column {name} is of another type")
        if DIGEST in facts:  # which earlier versions did not write
            check_digest(facts)
            if facts["rows"] != _digest(table):
                raise ValueError("its content is not what was written")
        rows = table.to_pylist()
    except Exception as error:  # pyarrow raises several kinds of its own, and OSError for what is no Parquet at all
        raise StoreError(f"{file}: not a table of a study, or a damaged one; run 'landscape study' again") from error
    empty = dict.fromkeys(FILES[facts["kind"]])
    return [empty | row for row in rows]


def read_all(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The rows of several tables."""
    return [row for path in paths for row in read(path)]


def _digest(table: Any) -> str:
    """SHA-256 over the names and values of the columns."""
    found = hashlib.sha256()
    for name in table.column_names:
        found.update(repr((name, str(table.schema.field(name).type), table[name].to_pylist())).encode())
    return found.hexdigest()


def _plain(value: Any, kind: str) -> Any:
    if value is None or (isinstance(value, float) and value != value and kind == "int64"):
        return None
    return {"int64": int, "float64": float, "string": str}[kind](value)
