"""Launch files as text: settings to JSON, TOML, YAML or flags, and back with the line of each key.

YAML is read as far as launch files use it: maps by indentation, lists of plain values (over several
lines in brackets, too), comments, blocks of text. What goes beyond (anchors, several documents) is
refused with its line.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from trueflops.errors import BadInput, printable
from trueflops.interop.launch.settings import Said, Settings
from trueflops.interop.shell_text import Lines, ends_values, words
from trueflops.interop.variables import Variables
from trueflops.language import say

_SCALARS: Final = {
    "true": True, "yes": True, "on": True, "false": False, "no": False, "off": False,
    "null": None, "~": None, "": None,
}  # fmt: skip
_PLAIN: Final = re.compile(r"[A-Za-z_][\w./-]*")  # a text that YAML takes for one without quotes
_SUBCOMMAND: Final = re.compile(r"([a-z_-]+):([a-z-]+)")  # tyro's: activation-checkpoint:full
_PROGRAM: Final = re.compile(r"\S+\.py$")  # after a value it is what a launcher starts
_REMARK: Final = re.compile(r"""("[^"]*"|'[^']*')|(?:^|\s)#.*""")  # but not within quotes
_OPENS: Final = re.compile(r"(?:^|\s)\[[^\[\]]*$")  # a list that goes on in the next lines
_BLOCK: Final = re.compile(r":\s*[|>][-+]?\d?$")
_KEY: Final = re.compile(
    r"""(?:"([^"]*)"|'([^']*)'|([^\s:#'"\[\]{}&*!|>%@`][^:#]*?))\s*:(?=\s|$)"""
)


# ── settings as text ─────────────────────────────────────────────────────────────────────────────


def nest(settings: Settings, *, nulls: bool = False) -> dict[str, Any]:
    """Dotted keys as maps in maps; None is left out, or written where it undoes another value."""
    top: dict[str, Any] = {}
    for key, value in settings.items():
        if value is None and not nulls:
            continue
        inner = top
        *parents, last = key.split(".")
        for name in parents:
            inner = inner.setdefault(name, {})
        inner[last] = value
    return top


def to_json(settings: Settings) -> str:
    """A JSON object."""
    return json.dumps(nest(settings), indent=2) + "\n"


def to_yaml(settings: Settings, about: str, *, nulls: bool = False) -> str:
    """Maps by indentation."""
    return f"{_comment(about)}{_yaml(nest(settings, nulls=nulls), '')}"


def _yaml(values: Mapping[str, Any], indent: str) -> str:
    lines = []
    for key, value in values.items():
        if isinstance(value, dict):
            lines.append(f"{indent}{key}:\n{_yaml(value, indent + '  ')}")
        else:
            plain = isinstance(value, str) and _scalar(value) == value and _PLAIN.fullmatch(value)
            lines.append(f"{indent}{key}: {value if plain else json.dumps(value)}\n")
    return "".join(lines)


def to_toml(settings: Settings, about: str) -> str:
    """Sections, each with its keys."""
    sections: dict[str, list[str]] = {}
    for key, value in settings.items():
        if value is not None:
            section, _, name = key.rpartition(".")
            sections.setdefault(section, []).append(f"{name} = {json.dumps(value)}")
    parts = ["\n".join([f"[{name}]", *lines]) for name, lines in sections.items()]
    return _comment(about) + "\n\n".join(parts) + "\n"


def _comment(about: str) -> str:
    return "".join(f"# {line}\n" for line in about.splitlines())


# ── text as settings ─────────────────────────────────────────────────────────────────────────────


def from_json(text: str, where: str) -> Said:
    """A JSON object by dotted key."""
    try:
        read = json.loads(text)
    except (
        ValueError,
        RecursionError,
    ) as error:  # too many digits are no JSONDecodeError
        line = ""
        if isinstance(error, json.JSONDecodeError):
            line = say(", line {line}", line=error.lineno)
        raise BadInput(
            say("{where}{line}: not JSON ({error})", where=where, line=line, error=error)
        ) from None
    if not isinstance(read, dict):
        raise BadInput(say("{where}: holds no JSON object; name a file of settings", where=where))
    values = dict(_flat(read))
    starts = {key: _line_of(text, key) for key in values}
    return Said(where, values, starts)


def from_toml(text: str, where: str) -> Said:
    """A TOML file by dotted key."""
    try:
        read = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInput(say("{where}: not TOML ({error})", where=where, error=error)) from None
    lines, section = {}, ""
    for number, line in enumerate(text.splitlines(), 1):
        if found := re.match(r"\s*\[([^\[\]]+)\]", line):
            section = found[1].strip() + "."
        elif found := re.match(r"\s*([\w.-]+)\s*=", line):
            lines[section + found[1]] = number
    return Said(where, dict(_flat(read)), lines)


def from_yaml(text: str, where: str) -> Said:
    """A YAML file by dotted key."""
    values: Settings = {}
    lines: dict[str, int] = {}
    open_maps: list[tuple[int, str]] = []  # indentation and dotted key of the maps that we are in
    for number, indent, line in _yaml_lines(text, where):
        if line.startswith("- "):  # an item of the list that the last key opened
            key = next((k for i, k in reversed(open_maps) if i <= indent), "")
            if not key or not isinstance(values.setdefault(key, []), list):
                raise BadInput(
                    say(
                        "{where}, line {number}: a list where no key asked for one",
                        where=where,
                        number=number,
                    )
                )
            values[key].append(_scalar(line[2:].strip()))
            continue
        found = _KEY.match(line)
        if not found:
            raise BadInput(
                say(
                    "{where}, line {number}: not 'key: value', all that is read of YAML",
                    where=where,
                    number=number,
                )
            )
        while open_maps and open_maps[-1][0] >= indent:
            open_maps.pop()
        name = next(part for part in found.groups() if part is not None).strip()
        key = ".".join([*(k for _, k in open_maps[-1:]), name])
        rest = line[found.end() :].strip()
        if rest[:1] in ("&", "*", "!"):
            raise BadInput(
                say(
                    "{where}, line {number}: {rest} of YAML is not read; write it plain",
                    where=where,
                    number=number,
                    rest=rest[:1],
                )
            )
        lines[key] = number
        if rest:
            values[key] = _scalar(rest)
        else:
            open_maps.append((indent, key))
    return Said(where, values, lines)


def _yaml_lines(text: str, where: str) -> Iterator[tuple[int, int, str]]:
    """Number, indentation and content of the lines that say something.

    A list in brackets is one line; a block of text, which no setting is, is left out.
    """
    block = -1  # indentation of the key whose block of text we are in
    start, open_list = (0, 0), ""
    for number, line in enumerate(text.splitlines(), 1):
        if block >= 0 and (not line.strip() or len(line) - len(line.lstrip(" ")) > block):
            continue
        block = -1
        bare = _REMARK.sub(lambda found: found[1] or "", line).rstrip()
        if not bare or bare == "---":
            continue
        content = bare.lstrip(" ")
        if content.startswith("\t"):
            raise BadInput(
                say(
                    "{where}, line {number}: YAML is indented by spaces, not tabs",
                    where=where,
                    number=number,
                )
            )
        if open_list:
            open_list = f"{open_list} {content}"
        elif _OPENS.search(content):
            start, open_list = (number, len(bare) - len(content)), content
        elif _BLOCK.search(content):
            block = len(bare) - len(content)
            yield number, block, content[: content.index(":") + 1] + ' ""'
            continue
        else:
            yield number, len(bare) - len(content), content
        if open_list.endswith("]"):
            yield *start, open_list
            open_list = ""
    if open_list:
        yield *start, open_list


def _scalar(text: str) -> Any:
    """A value of YAML: a list, a quoted text, a switch, a number, or else a text."""
    if text.startswith("[") and text.endswith("]"):
        return [_scalar(part.strip()) for part in text[1:-1].split(",") if part.strip()]
    if text == "{}":
        return None
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1].replace("\\\\", "\\") if text[0] == '"' else text[1:-1]
    if text.lower() in _SCALARS:
        return _SCALARS[text.lower()]
    for kind in (int, float):
        if re.fullmatch(r"[+-]?[\d.][\d._]*(?:e[+-]?\d+)?", text, re.IGNORECASE):
            try:
                return kind(text)
            except ValueError:
                continue
    return text


def from_flags(text: str, where: str) -> Said:
    """The flags of every command in a shell script, variables that it sets filled in.

    `--a-b 1` is a_b = 1, `--a-b` alone true. Quotes, brackets of arrays and line ends are nothing.
    """
    values: Settings = {}
    lines: dict[str, int] = {}
    others: list[str] = []
    variables, script = Variables(), Lines()
    for number, line in enumerate(text.splitlines(), 1):
        for command in script.commands(line):
            if variables.sets(command):
                continue
            last = ""  # a flag and its values stand on one line
            for word in words(variables.fill(command)):
                name, equals, value = word.partition("=")
                subcommand = _SUBCOMMAND.fullmatch(word)
                if word.startswith("--") and len(word) > 2:
                    key = name[2:].replace("-", "_")
                    values[key], lines[key] = (value if equals else True), number
                    last = "" if equals else key
                    continue
                others.append(word)
                if subcommand:
                    values[subcommand[1].replace("-", "_")] = subcommand[2]
                    lines[subcommand[1].replace("-", "_")] = number
                elif ends_values(word) or (values.get(last) is not True and _PROGRAM.match(word)):
                    last = ""
                elif last:
                    before = values[last]
                    values[last] = word if before is True else [*_as_list(before), word]
    return Said(where, values, lines, others=tuple(others))


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{printable(key)}.")
        else:
            yield prefix + printable(key), value


def _line_of(text: str, key: str) -> int:
    """The line of a dotted key in JSON: its last name, after those of its sections; 0 for none."""
    at = 0
    for name in key.split("."):
        found = re.compile(rf'"{re.escape(name)}"\s*:').search(text, at)
        if found is None:
            return 0
        at = found.start()
    return text.count("\n", 0, at) + 1
