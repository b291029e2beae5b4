"""Variables that a shell script sets, and what it means where it names them."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Final

from trueflops.interop.shell_text import Lines

_NAMED: Final = re.compile(r"\$\{?([A-Za-z_]\w*)(?::?[-?]([^}]*))?\}?")
_COUNTED: Final = r"\$\(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\)"
_ASSIGNED: Final = re.compile(
    rf"""\s*(?:export\s+|readonly\s+|local\s+)?([A-Za-z_]\w*)="""
    rf"""(?:"([^"]*)"|'([^']*)'|({_COUNTED}|\$\{{[^{{}}]*\}}\S*|[^\s("']\S*)?)(?=\s|$)"""
)
_ARITHMETIC: Final = re.compile(_COUNTED)
_OPERATIONS: Final[dict[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,  # $((a / b)) is a whole number
    ast.Mod: operator.mod,
}
_LONGEST: Final = 200  # letters of an expression, so that none nests deeply


class Variables:
    """Those of one script, line after line."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def takes(self, line: str) -> bool:
        """Whether a line sets some, and nothing else; then they are kept."""
        kept = [self.sets(command) for command in Lines().commands(line)]
        return bool(kept) and all(kept)

    def sets(self, command: str) -> bool:
        """Whether one command sets some, and nothing else; then they are kept."""
        found, at, end = [], 0, len(command.rstrip())
        while at < end:
            one = _ASSIGNED.match(command, at)
            if one is None:
                return False
            found.append(one)
            at = one.end()
        for each in found:
            value = next((part for part in each.groups()[1:] if part is not None), "")
            self._values[each[1]] = self.fill(value)
        return bool(found)

    def fill(self, text: str) -> str:
        """Each by what the script sets, else by its default, else as it stands."""
        return _NAMED.sub(self._value, _ARITHMETIC.sub(self._counted, text))

    def words(self, word: str) -> list[str]:
        """The words that one word of a command becomes: flags in a variable are several."""
        filled = self.fill(word)
        flags = filled.startswith("-") and _NAMED.fullmatch(word)
        return filled.split() if flags else [filled]

    def _value(self, found: re.Match[str]) -> str:
        known = self._values.get(found[1], found[2])
        return found[0] if known is None else known

    def _counted(self, found: re.Match[str]) -> str:
        """What $((…)) comes to; as it stands where that is not known."""
        inner = _NAMED.sub(self._value, found[0][3:-2]).replace('"', "").replace("'", "")
        known = re.sub(r"[A-Za-z_]\w*", lambda name: self._values.get(name[0], name[0]), inner)
        if len(known) > _LONGEST:
            return found[0]
        try:
            return str(_whole(ast.parse(known.strip(), mode="eval").body))
        except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
            return found[0]


def _whole(expression: ast.expr) -> int:
    """The value of an expression of whole numbers."""
    if isinstance(expression, ast.Constant) and type(expression.value) is int:
        return expression.value
    if isinstance(expression, ast.BinOp) and type(expression.op) in _OPERATIONS:
        parts = _whole(expression.left), _whole(expression.right)
        return _OPERATIONS[type(expression.op)](*parts)
    raise ValueError("no whole number")
