"""Where the documents this project was built from are wrong, and what is right."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from trueflops.catalog.facts import DATA, read_toml


@dataclass(frozen=True)
class Erratum:
    """One error of one document."""

    document: str
    about: tuple[str, ...]
    says: str
    is_: str
    source: str


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
