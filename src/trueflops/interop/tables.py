"""CSV tables that a user names: rows with their lines, and clear errors where there are none."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trueflops.errors import BadInput, printable, shorten
from trueflops.files import read_file

Row = Mapping[str, str]
LARGEST_TABLE: Final = 256 * 1024 * 1024


@dataclass(frozen=True)
class Table:
    """A CSV file: its columns, and its rows with the line that each ends on."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[tuple[int, Row], ...]

    @property
    def where(self) -> str:
        """The file's name as it may be printed."""
        return printable(str(self.path))

    def has(self, *columns: str) -> bool:
        """Whether the header names all of these."""
        return set(columns) <= set(self.columns)


def read_table(path: Path) -> Table:
    """Read a CSV file with a header; cells that a short row lacks are empty."""
    where = printable(str(path))
    try:
        text = read_file(path, LARGEST_TABLE).decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""))
        rows = tuple((reader.line_num, {k: v or "" for k, v in row.items() if k}) for row in reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{where}: not a CSV file ({shorten(str(error))})") from None
    if not rows:
        raise BadInput(f"{where}: holds no rows")
    return Table(path, tuple(reader.fieldnames or ()), rows)
