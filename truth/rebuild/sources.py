"""What is pinned: repositories with commit and checksums, and the tables that come of them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

PINNED: Final = Path(__file__).parent.parent / "sources.toml"


class CannotFetch(Exception):
    """Something pinned cannot be had, or is not what it should be: one line says why."""


class Repository(NamedTuple):
    """A public repository at one commit, and the files of it that are read."""

    name: str  # owner/name
    url: str
    commit: str
    licence: str
    root: str  # what all paths begin with
    files: Mapping[str, str]  # path below root: sha256


class Expected(NamedTuple):
    """A table as it must come out."""

    repository: str
    rows: int
    sha256: str


class Sources(NamedTuple):
    """Everything that is pinned."""

    repositories: Mapping[str, Repository]
    tables: Mapping[str, Expected]


def read_sources(path: Path = PINNED) -> Sources:
    """Read sources.toml."""
    read = tomllib.loads(path.read_text())
    repositories = {
        name: Repository(name=name, **{"root": "", **said})
        for name, said in read["repositories"].items()
    }
    return Sources(repositories, {name: Expected(**said) for name, said in read["tables"].items()})
