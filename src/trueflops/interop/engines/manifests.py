"""YAML that starts containers: a Kubernetes Deployment or Pod, a file of docker compose.

Each container becomes the `docker run` that does the same, which is then read as a script's.
YAML is read as far as these files use it: keys by indentation, lists in brackets or by line, texts
in quotes or as blocks.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Final

_IN_KUBERNETES: Final = ("command", "args")  # what it calls docker's entrypoint, and what follows
_IN_COMPOSE: Final = ("entrypoint", "command")
_KEYS: Final = ("image", "command", "args", "entrypoint")
_KEY: Final = re.compile(r"(\s*)((?:-\s+)*)([\w.-]+):(?:\s+(.*))?")
_BLOCK: Final = re.compile(r"[|>][+-]?\d?")
_VALUE: Final = re.compile(
    r"^\s*-?\s*name:\s*[\"']?([A-Za-z_]\w*)[\"']?\s*\n\s*value:\s*[\"']?([^\n\"']*)", re.MULTILINE
)
_REPLICAS: Final = re.compile(r"^\s*replicas:\s*(\d{1,6})\s*$", re.MULTILINE)
_CARDS: Final = re.compile(r"\b(?:nvidia|amd)\.com/gpu:\s*[\"']?(\d{1,3})\b")
_COPIED: Final = re.compile(r"^kind:\s*(?:Deployment|StatefulSet|ReplicaSet)\s*$", re.MULTILINE)

Container = dict[str, list[str]]


def starts_containers(text: str) -> bool:
    """Whether a file names what runs in containers."""
    return re.search(r"^\s*(?:- )?(?:image|command|args):(?:\s|$)", text, re.MULTILINE) is not None


def script_of(text: str) -> str:
    """The same as a shell script: its variables, and a `docker run` for every container."""
    lines = [f"{name}={shlex.quote(value.strip())}" for name, value in _VALUE.findall(text)]
    entry, rest = _IN_KUBERNETES if re.search(r"^apiVersion:", text, re.MULTILINE) else _IN_COMPOSE
    cards = _CARDS.search(text)
    gpus = ["--gpus", cards[1]] if cards else []
    containers = _containers(text.splitlines())
    return "\n".join([*lines, *(_run(each, entry, rest, gpus) for each in containers)])


def copies_of(text: str) -> int | None:
    """How many of these servers run."""
    for document in re.split(r"^---\s*$", text, flags=re.MULTILINE):
        copies = _REPLICAS.search(document)
        if _COPIED.search(document) and copies and _containers(document.splitlines()):
            return int(copies[1])
    return None


def _run(container: Container, entry: str, rest: str, gpus: list[str]) -> str:
    before, after = container.get(entry, []), container.get(rest, [])
    image = container.get("image", [])
    named = image if len(image) == 1 else ["image"]  # Helm's has keys of its own
    words = ["docker", "run", *gpus, *(["--entrypoint", before[0]] if before else []), *named]
    return shlex.join(_filled(word) for word in [*words, *before[1:], *after])


def _filled(word: str) -> str:
    """Kubernetes' $(TP) is a shell's ${TP}."""
    return re.sub(r"\$\(([A-Za-z_]\w*)\)", r"${\1}", word)


def _containers(lines: list[str]) -> list[Container]:
    """What stands under the keys of each container, in the file's order."""
    found: list[Container] = []
    open_at: dict[int, Container] = {}  # by the indentation of its keys
    at = 0
    while at < len(lines):
        line, at = lines[at], at + 1
        key = _KEY.fullmatch(line.rstrip())
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        indent = len(line) - len(line.lstrip(" "))
        open_at = {own: each for own, each in open_at.items() if own <= indent}
        if key is None:
            continue
        own = indent + len(key[2])
        if key[2]:
            open_at.pop(own, None)
        if key[3] not in _KEYS:
            continue
        if own not in open_at:
            open_at[own] = {}
            found.append(open_at[own])
        taken = _below(lines[at:], own)
        open_at[own][key[3]] = _words((key[4] or "").strip(), taken)
        at += len(taken)
    return found


def _below(lines: list[str], indent: int) -> list[str]:
    """The lines that belong to a key: further in, or items of a list at its own indentation."""
    taken = 0
    for number, line in enumerate(lines, 1):
        bare, own = line.strip(), len(line) - len(line.lstrip(" "))
        if not bare or bare.startswith("#"):
            continue
        if own < indent or (own == indent and not bare.startswith("- ")):
            break
        taken = number
    return lines[:taken]


def _words(rest: str, below: list[str]) -> list[str]:
    """The words of a value: a list, or a text that is split as a shell would."""
    rest = _unremarked(rest)
    if rest.startswith("["):
        return _in_brackets(" ".join([rest, *(line.strip() for line in below)]))
    if not rest and any(line.strip().startswith("- ") for line in below):
        return list(_items(below))
    return _split(_block(rest, below))


def _items(lines: list[str]) -> Iterator[str]:
    """The items of a list, one to a line or each a block of text."""
    indent = next(len(each) - len(each.lstrip(" ")) for each in lines if each.strip())
    at = 0
    while at < len(lines):
        line, at = lines[at], at + 1
        bare = line.strip()
        if not bare.startswith("- ") or bare.startswith("#"):
            continue
        further = _below(lines[at:], indent + 1)
        at += len(further)
        yield _block(_unremarked(bare[2:].strip()), further)


def _block(said: str, below: list[str]) -> str:
    """A text: quoted, plain, or a block, of which `>` joins the lines."""
    if _BLOCK.fullmatch(said):
        kept = [line for line in below if line.strip()]
        margin = min((len(line) - len(line.lstrip(" ")) for line in kept), default=0)
        return (" " if said[0] == ">" else "\n").join(line[margin:] for line in kept)
    return _unquoted(" ".join([said, *(line.strip() for line in below)]).strip())


def _in_brackets(said: str) -> list[str]:
    """The items of a list in brackets; their quotes may hold commas."""
    items = re.findall(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|([^\s,\[\]'\"][^,\]]*)", said)
    return [
        _unquoted(f'"{double}"') if double else single or plain.strip()
        for double, single, plain in items
    ]


def _unquoted(said: str) -> str:
    if len(said) > 1 and said[0] == said[-1] == '"':
        try:
            return str(json.loads(said))
        except ValueError:
            return said[1:-1]
    if len(said) > 1 and said[0] == said[-1] == "'":
        return said[1:-1].replace("''", "'")
    return said


def _unremarked(said: str) -> str:
    """Without a remark behind it."""
    return said if said[:1] in ("'", '"') else re.sub(r"(?:^|\s)#.*", "", said)


def _split(said: str) -> list[str]:
    try:
        return shlex.split(said)
    except ValueError:
        return said.split()
