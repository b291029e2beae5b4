"""Rows as a file: CSV, or Parquet where pyarrow is installed (the parquet extra).

In: names of columns, rows in order. Out: the bytes of a file, the same for the same rows.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from trueflops.errors import BadInput, printable
from trueflops.language import say
from trueflops.sweep.flags import text_of
from trueflops.sweep.rows import KINDS

SUFFIXES: Final = (".csv", ".parquet")
Cells = Mapping[str, Any]


def check_table(path: Path) -> None:
    """Refuse a table that could not be written, before a sweep begins."""
    if path.suffix not in SUFFIXES:
        raise BadInput(
            say(
                "-o {path}: a table ends in .csv or .parquet; write {stem}.csv",
                path=printable(str(path)),
                stem=printable(path.stem or "table"),
            )
        )
    if path.suffix == ".parquet":
        _pyarrow()


def table_bytes(path: Path, columns: Sequence[str], rows: Sequence[Cells]) -> bytes:
    """The file that a path's ending asks for."""
    return _parquet(columns, rows) if path.suffix == ".parquet" else _csv(columns, rows)


def _csv(columns: Sequence[str], rows: Sequence[Cells]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        cells = (row.get(name) for name in columns)
        writer.writerow("" if cell is None else text_of(cell) for cell in cells)
    return text.getvalue().encode(errors="replace")


def _parquet(columns: Sequence[str], rows: Sequence[Cells]) -> bytes:
    pa = _pyarrow()
    from pyarrow import parquet

    arrays = []
    for name in columns:
        cells = [row.get(name) for row in rows]
        kind = KINDS.get(name) or _kind(cells)
        if kind == "string":
            cells = [None if cell is None else text_of(cell) for cell in cells]
        arrays.append(pa.array(cells, type=getattr(pa, kind)()))
    out = io.BytesIO()
    parquet.write_table(pa.table(arrays, names=list(columns)), out)
    return out.getvalue()


def _kind(cells: Sequence[Any]) -> str:
    """What all values of an axis are; a text where they are of several kinds."""
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds == {bool}:
        return "bool_"
    if kinds == {int} and all(abs(cell) < 2**63 for cell in cells if cell is not None):
        return "int64"
    return "float64" if kinds and kinds <= {int, float} else "string"


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise BadInput(
            say("a Parquet table needs pyarrow; pip install 'trueflops[parquet]', or write a .csv")
        ) from None
    return pyarrow
