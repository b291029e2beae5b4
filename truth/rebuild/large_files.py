"""Files that a repository keeps outside of git: git holds a pointer, Git LFS the file.

The pointer names the file's sha256, so that what comes is checked against what was committed.
https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Final, NamedTuple
from urllib.request import Request, urlopen

JSON: Final = "application/vnd.git-lfs+json"
SECONDS: Final = 60  # of silence after which a server is given up
_POINTER: Final = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\noid sha256:([0-9a-f]{64})\nsize (\d+)\n"
)


class LargeFile(NamedTuple):
    """What a pointer says."""

    sha256: str
    size: int

    @staticmethod
    def of(data: bytes) -> LargeFile | None:
        """The pointer that a file of git is; None of any other file."""
        found = _POINTER.fullmatch(data)
        return LargeFile(found[1].decode(), int(found[2])) if found else None


def read_large_file(pointer: LargeFile, git: Path, url: str | None) -> bytes:
    """The file from the git directory's own store, else from the repository's server."""
    oid = pointer.sha256
    for store in (git / "lfs", git / ".git" / "lfs"):
        stored = store / "objects" / oid[:2] / oid[2:4] / oid
        if stored.is_file():
            return _checked(stored.read_bytes(), pointer)
    if url is None:
        raise OSError(f"object {oid[:12]}… is not in {git}")
    return _checked(_download(pointer, url), pointer)


def _download(pointer: LargeFile, url: str) -> bytes:
    asked = {
        "operation": "download",
        "transfers": ["basic"],
        "objects": [{"oid": pointer.sha256, "size": pointer.size}],
    }
    headers = {"Accept": JSON, "Content-Type": JSON}
    request = Request(f"{url}/info/lfs/objects/batch", json.dumps(asked).encode(), headers)
    with urlopen(request, timeout=SECONDS) as answer:
        (told,) = json.load(answer)["objects"]
    if "actions" not in told:
        raise OSError(f"the server has no object {pointer.sha256[:12]}…")
    action = told["actions"]["download"]
    request = Request(action["href"], headers=action.get("header", {}))
    with urlopen(request, timeout=SECONDS) as file:
        return file.read()


def _checked(data: bytes, pointer: LargeFile) -> bytes:
    if hashlib.sha256(data).hexdigest() != pointer.sha256:
        raise OSError(f"object {pointer.sha256[:12]}… came damaged")
    return data
