"""Where measured rows come from: each row carries its table, chip, software and date into a fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from trueflops.catalog.facts import read_toml
from trueflops.profile import FittedRows
from trueflops.records.measured import Record
from trueflops.records.tables import Row, Table

_DATASETS: Final = Path(__file__).parent / "datasets.toml"


class Dataset(NamedTuple):
    """What is known of all rows of a folder, or of a measured profile."""

    what: str
    software: str = ""
    date: str = ""


class RowSource(NamedTuple):
    """Where one measured row comes from."""

    dataset: str
    table: str
    chip: str
    software: str
    date: str


@cache
def _known() -> dict[str, Any]:
    return read_toml(_DATASETS)


def dataset_of(path: Path) -> Dataset:
    """What is known of the folder that a table lies in; of an unknown one, its name."""
    folder = path.resolve().parent.name
    return Dataset(**_known().get(folder, {"what": folder}))


def row_sources(
    table: Table, rows: Sequence[Row], chip: str, dataset: Dataset | None = None
) -> tuple[RowSource, ...]:
    """The source of each row; a table of a measured profile is of the dataset that is given."""
    whole = dataset or dataset_of(table.path)
    name = table.path.name if dataset else f"{table.path.resolve().parent.name}/{table.path.name}"
    return tuple(
        RowSource(whole.what, name, chip, _software(row) or whole.software, whole.date)
        for row in rows
    )


def _software(row: Row) -> str:
    """'vllm 0.24.0', 'nccl 2.29.2', where a row says so."""
    if "version" not in row:
        return ""
    return f"{row.get('backend') or row.get('library') or ''} {row['version']}".strip()


def source_of(sources: Iterable[RowSource]) -> str:
    """The datasets that rows are of, the one with most of them first."""
    return "; ".join(what for what, _ in Counter(row.dataset for row in sources).most_common())


def rows_of(sources: Iterable[RowSource]) -> tuple[FittedRows, ...]:
    """How many rows are of which table, chip and software, most first."""
    counted = Counter((row.table, row.chip, row.software, row.date) for row in sources)
    most_first = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return tuple(FittedRows(*said, count) for said, count in most_first)


def record_dataset(record: Record) -> Dataset:
    """Under which conditions: the words that stand beside every curve."""
    said = record.software
    versions = ", ".join(f"{name} {said[name]}" for name in ("torch", "cuda", "hip", "driver")
                         if name in said)  # fmt: skip
    when = record.started.partition("T")[0]
    what = f"measured on {record.device['name']}, {versions}, {when}, method {record.method}"
    return Dataset(what, versions, when)
