"""Measured profiles by name: those that are shipped, and those in the user's data folder."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from trueflops.catalog.names import find, fold
from trueflops.errors import UnknownName
from trueflops.files import is_file, own_path
from trueflops.profile.stored import DATA
from trueflops.records.measured import data_folder

SHIPPED: Final = DATA / "measured"


class Shelved(NamedTuple):
    """A profile that can be named."""

    name: str
    path: Path
    shipped: bool


def profiles() -> list[Shelved]:
    """The user's own first."""
    folders = (data_folder(), SHIPPED)
    own, shipped = (sorted(folder.glob("*.json")) if folder else [] for folder in folders)
    found = [Shelved(path.stem, path, False) for path in own if not path.name.startswith(".")]
    return found + [Shelved(path.stem, path, True) for path in shipped]


def find_profile(text: str) -> Path:
    """The file of a profile: a path, or a name from the library."""
    path = own_path(text)
    if is_file(path) or path.suffix == ".json":
        return path
    chip = find("accelerators", text)  # H200 is H200-SXM-141GB here too
    asked = {fold(text), fold(chip.stem) if chip else ""}
    for known in profiles():
        if fold(known.name) in asked:
            return known.path
    hint = "(a file, or a name that `trueflops catalog` lists)"
    raise UnknownName("profile", text, [known.name for known in profiles()], hint)
