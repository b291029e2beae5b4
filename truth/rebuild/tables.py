"""Which reader makes which table, which tables a folder lacks, and how those are made."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rebuild import amd
from rebuild.kernels import (
    collective_table,
    decode_table,
    expert_table,
    prefill_table,
    product_table,
)
from rebuild.repositories import fetched, files_of, on_disk
from rebuild.runs import acceptance_table, vtrain_table
from rebuild.servers import serving_table
from rebuild.sources import CannotFetch, Expected, Repository, Sources

MAKERS: Final[Mapping[str, Callable[[Mapping[str, bytes]], str]]] = {
    "amd/gemm.csv": amd.product_table,
    "amd/moe.csv": amd.expert_table,
    "ops/attention_decode.csv": decode_table,
    "ops/attention_prefill.csv": prefill_table,
    "ops/collectives.csv": collective_table,
    "ops/gemm.csv": product_table,
    "ops/moe.csv": expert_table,
    "serving_points.csv": serving_table,
    "spec_decode_acceptance.csv": acceptance_table,
    "vtrain_single_node.csv": vtrain_table,
}


def lacking(folder: Path, sources: Sources) -> list[str]:
    """Tables that a folder does not hold as they are pinned."""
    return [name for name, table in sources.tables.items() if not _holds(folder / name, table)]


def rebuild(repository: Repository, sources: Sources, folder: Path, disk: Path | None) -> list[str]:
    """Write the tables of a repository that the folder lacks; CannotFetch, if one cannot be had."""
    names = [n for n in lacking(folder, sources) if sources.tables[n].repository == repository.name]
    with TemporaryDirectory() as scratch:
        git = on_disk(repository, disk) if disk else fetched(repository, Path(scratch) / "git")
        files = files_of(repository, git, online=disk is None)
    for name in names:
        _write(folder / name, _made(name, files, sources.tables[name]))
    return names


def owners(names: Iterable[str], sources: Sources) -> list[Repository]:
    """The repositories that these tables come from."""
    needed = {sources.tables[name].repository for name in names}
    return [sources.repositories[name] for name in sorted(needed)]


def _made(name: str, files: Mapping[str, bytes], expected: Expected) -> bytes:
    data = MAKERS[name](files).encode()
    rows, found = data.count(b"\n") - 1, hashlib.sha256(data).hexdigest()
    if (rows, found) != (expected.rows, expected.sha256):
        raise CannotFetch(
            f"{name}: {rows} rows of sha256 {found[:12]}… came out, "
            f"pinned are {expected.rows} of {expected.sha256[:12]}…"
        )
    return data


def _holds(path: Path, expected: Expected) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == expected.sha256


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
