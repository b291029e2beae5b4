"""Where documents that circulate are wrong, and what is right.

They are the five public texts that the catalog was first read from; sources.toml names them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from trueflops.catalog.facts import DATA, read_toml, sources


@dataclass(frozen=True)
class Erratum:
    """One error of one document."""

    document: str
    about: tuple[str, ...]
    says: str
    is_: str
    source: str

    @property
    def title(self) -> str:
        """What the document is, for a reader who never saw it."""
        return sources()[f"document-{self.document}"]["citation"]


@cache
def errata() -> tuple[Erratum, ...]:
    """All of them."""
    return tuple(
        Erratum(e["document"], tuple(e["about"]), e["says"], e["is"], e["source"])
        for e in read_toml(DATA / "errata.toml")["erratum"]
    )


def errata_about(name: str) -> list[Erratum]:
    """Those that concern a record, by its canonical name."""
    return [e for e in errata() if name in e.about]
