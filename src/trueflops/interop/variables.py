"""Variables that a shell script sets, and what it means where it names them."""

from __future__ import annotations

import re
from typing import Final

_NAMED: Final = re.compile(r"\$\{?([A-Za-z_]\w*)(?::?[-?]([^}]*))?\}?")
_ASSIGNED: Final = re.compile(
    r"""\s*(?:export\s+)?([A-Za-z_]\w*)=(?:"([^"]*)"|'([^']*)'|([^\s("']\S*)?)\s*(?:#.*)?"""
)


class Variables:
    """Those of one script, line after line."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def takes(self, line: str) -> bool:
        """Whether a line sets one, and nothing else; then it is kept."""
        found = _ASSIGNED.fullmatch(line)
        if found is None:
            return False
        value = next((part for part in found.groups()[1:] if part is not None), "")
        self._values[found[1]] = self.fill(value)
        return True

    def fill(self, text: str) -> str:
        """Each by what the script sets, else by its default, else as it stands."""
        return _NAMED.sub(self._value, text)

    def words(self, word: str) -> list[str]:
        """The words that one word of a command becomes: flags in a variable are several."""
        filled = self.fill(word)
        flags = filled.startswith("-") and _NAMED.fullmatch(word)
        return filled.split() if flags else [filled]

    def _value(self, found: re.Match[str]) -> str:
        known = self._values.get(found[1], found[2])
        return found[0] if known is None else known
