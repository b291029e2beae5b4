"""Tables: CSV files that a user names, with clear errors, and rows that were just measured.

A file is read line by line and bounded in rows and bytes. Equal rows are kept and worked on once.
A cell of a file is text until someone reads a number in it; one that was measured is a number.
"""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trueflops.errors import BadInput, printable, shorten
from trueflops.files import open_file
from trueflops.records.measured import Cell
from trueflops.units import read_number

Row = Mapping[str, Cell]
LARGEST_TABLE: Final = 256 * 1024 * 1024  # bytes
MOST_ROWS: Final = 2_000_000
LONGEST_LINE: Final = 1024 * 1024  # characters


class Cells(Row):
    """One row: its cells beside the columns that all rows share; what a short row lacks is ''."""

    __slots__ = ("_cells", "_columns")

    def __init__(self, columns: Mapping[str, int], cells: tuple[Cell, ...]) -> None:
        self._columns, self._cells = columns, cells

    def __getitem__(self, name: str) -> Cell:
        at = self._columns[name]
        return self._cells[at] if at < len(self._cells) else ""

    def get(self, name: str, usual: Cell = "") -> Cell:  # type: ignore[override]
        """A cell; `usual` where there is no such column."""
        return self[name] if name in self._columns else usual

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


@dataclass(frozen=True, eq=False)
class Table:
    """A CSV file: its columns and its distinct rows; `at` says which of those each line holds."""

    path: Path
    columns: tuple[str, ...]
    distinct: Sequence[Row]
    lines: NDArray[np.intp]
    at: NDArray[np.intp]

    @classmethod
    def of(cls, name: str, rows: Sequence[Row]) -> Table:
        """Rows that are in no file; cells that one lacks are empty."""
        columns = tuple(dict.fromkeys(column for row in rows for column in row))
        places = {column: at for at, column in enumerate(columns)}
        full = [Cells(places, tuple(row.get(column, "") for column in columns)) for row in rows]
        count = np.arange(len(rows))
        return cls(Path(name), columns, full, count + 1, count)

    @property
    def rows(self) -> Iterator[tuple[int, Row]]:
        """Every row with the line that it ends on."""
        every = (self.distinct[at] for at in self.at.tolist())
        return zip(self.lines.tolist(), every, strict=True)

    def cells(self, *columns: str) -> Iterator[tuple[Cell, ...]]:
        """Some cells of every distinct row; empty where there is no such column."""
        return (tuple(row.get(column, "") for column in columns) for row in self.distinct)

    def take(self, rows: Sequence[int]) -> Table:
        """Some of the distinct rows, with all their lines."""
        place = np.full(len(self.distinct), -1)
        place[list(rows)] = np.arange(len(rows))
        at = place[self.at]
        kept = at >= 0
        distinct = [self.distinct[row] for row in rows]
        return Table(self.path, self.columns, distinct, self.lines[kept], at[kept])

    @property
    def where(self) -> str:
        """The file's name as it may be printed."""
        return printable(str(self.path))

    def has(self, *columns: str) -> bool:
        """Whether the header names all of these."""
        return set(columns) <= set(self.columns)


def number_in(cell: Cell) -> float:
    """The number in a cell; BadInput where it holds none."""
    return read_number(cell) if isinstance(cell, str) else float(cell)


def read_table(path: Path) -> Table:
    """Read a CSV file with a header; cells that a short row lacks are empty."""
    where = printable(str(path))
    try:
        with open_file(path, LARGEST_TABLE) as stream:
            text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
            table = _table(path, _lines(text, where), where)
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{where}: not a CSV file ({shorten(str(error))})") from None
    if not table.distinct:
        raise BadInput(f"{where}: holds no rows")
    return table


def _table(path: Path, lines_of: Iterator[str], where: str) -> Table:
    reader = csv.reader(lines_of)
    names: list[str] = next(reader, [])
    columns = {name: at for at, name in enumerate(names) if name}
    known: dict[tuple[str, ...], int] = {}
    lines, at = array("q"), array("q")
    for cells in reader:
        if not cells:  # an empty line
            continue
        if len(at) == MOST_ROWS:
            raise BadInput(f"{where}: more than {MOST_ROWS:,} rows; split it")
        lines.append(reader.line_num)
        at.append(known.setdefault(tuple(cells), len(known)))
    distinct = [Cells(columns, cells) for cells in known]
    return Table(path, tuple(names), distinct, np.array(lines), np.array(at))


def _lines(text: io.TextIOWrapper, where: str) -> Iterator[str]:
    while line := text.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise BadInput(f"{where}: a line of more than {LONGEST_LINE:,} letters")
        yield line
