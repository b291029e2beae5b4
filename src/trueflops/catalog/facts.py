"""A fact: a value as text with its unit, where it comes from, and how strong that claim is.

In: TOML files. Out: Facts, checked when they are loaded: no source, no fact. The source
"unconfirmed" says that none is at hand.
Origins, strongest claim first: measured, datasheet, derived, fitted, assumed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from trueflops.errors import BadCatalog, printable, shorten
from trueflops.files import read_file

Origin = Literal["measured", "datasheet", "derived", "fitted", "assumed"]
ORIGINS: Final[tuple[Origin, ...]] = get_args(Origin)
DATA: Final = Path(__file__).parent / "data"
NONE: Final = "none"
"""The text of a fact that says: the hardware has no such path. Unknown is an absent fact."""


def weakest(origins: Iterable[Origin]) -> Origin:
    """A number made of others claims no more than the weakest of them."""
    return max(origins, key=ORIGINS.index, default="assumed")


UNCONFIRMED: Final = "unconfirmed"
"""The source of a fact that has none at hand: it is marked wherever its figure is shown."""


class Fact:
    """One value of the catalog. It cannot be built without a source and an origin."""

    __slots__ = ("note", "origin", "source", "text")

    def __init__(self, text: str, origin: Origin, source: str, note: str = "") -> None:
        self.text, self.origin, self.source, self.note = text, origin, source, note

    @classmethod
    def decode(cls, raw: object, where: str) -> Fact:
        """Check one `{ value = …, origin = …, source = … }`; the source must be in sources.toml."""
        if not isinstance(raw, Mapping):
            raise BadCatalog(
                f"{where}: {shorten(repr(raw))} stands alone; write "
                '{ value = "…", origin = "datasheet", source = "key" }'
            )
        unknown = raw.keys() - {"value", "origin", "source", "note"}
        missing = {"value", "origin", "source"} - raw.keys()
        if unknown or missing:
            said = f"lacks {sorted(missing)}" if missing else f"has the extra {sorted(unknown)}"
            raise BadCatalog(f"{where}: a fact needs value, origin and source; this one {said}")
        if raw["origin"] not in ORIGINS:
            raise BadCatalog(f"{where}: origin {raw['origin']!r} is none of {', '.join(ORIGINS)}")
        if raw["source"] not in sources():
            raise BadCatalog(f"{where}: source {raw['source']!r} is not defined in sources.toml")
        return cls(str(raw["value"]), raw["origin"], raw["source"], raw.get("note", ""))

    @property
    def unconfirmed(self) -> bool:
        """Whether no source is at hand for it."""
        return self.source == UNCONFIRMED

    def __repr__(self) -> str:
        return f"Fact({self.text!r}, {self.origin}, {self.source})"


def read_toml(path: Path) -> dict[str, Any]:
    """Read one TOML file; a broken one is the user's to mend, so it is a clear error."""
    try:
        return tomllib.loads(read_file(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        where = printable(str(path))
        raise BadCatalog(f"{where}: not valid TOML ({shorten(str(error), 120)})") from None


@cache
def sources() -> Mapping[str, Mapping[str, str]]:
    """The bibliography: key -> citation and kind."""
    return MappingProxyType(read_toml(DATA / "sources.toml"))


def facts_of(raw: Mapping[str, Any], tables: Iterable[str], where: str) -> dict[str, Fact]:
    """Flatten the named tables of a TOML record into `table.field` -> Fact."""
    return {
        f"{table}.{field}": Fact.decode(value, f"{where}: {table}.{field}")
        for table in tables
        for field, value in raw.get(table, {}).items()
    }
