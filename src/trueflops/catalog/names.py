"""Finding a record by what a user types: letters and digits count, case and hyphens do not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from trueflops.catalog.facts import DATA, read_toml
from trueflops.errors import UnknownName

_ORGANISATION = re.compile(r"^(?:[\w.-]+/)?(?:Meta-(?=Llama))?", re.IGNORECASE)
_RELEASE = re.compile(r"(?<=\dB)[-_ ]v\d{1,2}(?:\.\d{1,2})?$", re.IGNORECASE)  # after a size only
_TUNED = re.compile(
    r"[-_ ]?(instruct|chat|hf|it|base|thinking)([-_ ]?(hf|v?\d+(\.\d+)*))?$", re.IGNORECASE
)


def fold(name: str) -> str:
    """'RTX-4090', 'rtx4090' and 'RTX 4090' are one name."""
    return "".join(ch for ch in name.casefold() if ch.isalnum() or ch == ".")


@cache
def index(kind: str) -> Mapping[str, Path]:
    """Folded name -> file, for every record of a kind (accelerators, nodes, clusters, models)."""
    files = sorted((DATA / kind).glob("*.toml"))
    return {fold(file.stem): file for file in files if file.stem != "defaults"}


@cache
def aliases(kind: str) -> Mapping[str, str]:
    """Folded alias -> folded canonical name."""
    table = read_toml(DATA / "aliases.toml").get(kind, {})
    return {fold(short): fold(full) for short, full in table.items()}


def find(kind: str, name: str) -> Path | None:
    """The file of a record, or None."""
    files, short = index(kind), aliases(kind)
    wanted = [fold(name)]
    if kind == "models":  # meta-llama/Llama-3.1-70B-Instruct has Llama-3.1-70B's shape
        bare = _ORGANISATION.sub("", name)
        wanted += [fold(bare), fold(_TUNED.sub("", bare)), fold(_RELEASE.sub("", bare))]
    for key in wanted:
        if found := files.get(short.get(key, key)):
            return found
    return None


def find_or_suggest(kind: str, name: str, hint: str = "") -> Path:
    """The file of a record, or an error that offers the nearest names."""
    if found := find(kind, name):
        return found
    raise UnknownName(kind.removesuffix("s"), name, known(kind), hint)


def known(*kinds: str) -> list[str]:
    """Every name of these kinds, short ones too, without reading a record."""
    files = [file.stem for kind in kinds for file in index(kind).values()]
    short = read_toml(DATA / "aliases.toml")
    return sorted({*files, *(name for kind in kinds for name in short.get(kind, ()))})
