"""Files of a repository at a pinned commit, each checked against its sha256.

From the internet only the files that are asked for come, in two requests: the commit's trees, then
all files at once. From disk any git directory that holds the commit serves, bare or not.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from rebuild.large_files import LargeFile, read_large_file
from rebuild.sources import CannotFetch, Repository


def files_of(repository: Repository, git: Path, *, online: bool) -> Mapping[str, bytes]:
    """All files of the repository that are pinned, by their path below its `root`."""
    files = {}
    for path, expected in repository.files.items():
        data = _git(git, "cat-file", "blob", f"{repository.commit}:{repository.root}{path}")
        pointer = LargeFile.of(data)
        if pointer:
            try:
                data = read_large_file(pointer, git, repository.url if online else None)
            except OSError as error:
                raise CannotFetch(f"{repository.name}: {path}, kept by Git LFS: {error}") from None
        found = hashlib.sha256(data).hexdigest()
        if found != expected:
            raise CannotFetch(
                f"{repository.name}: {path} has sha256 {found[:12]}…, pinned is {expected[:12]}…"
            )
        files[path] = data
    return files


def on_disk(repository: Repository, folder: Path) -> Path:
    """The git directory of a repository that already lies somewhere below a folder."""
    owner, name = repository.name.split("/")
    for place in (f"{owner}+{name}/repo", f"{owner}/{name}", name, f"{name}.git"):
        if (folder / place).is_dir():
            _has_commit(repository, folder / place)
            return folder / place
    raise CannotFetch(f"{repository.name}: not in {folder}")


def fetched(repository: Repository, into: Path) -> Path:
    """A new git directory with the pinned commit's trees and the files that are asked for."""
    _git(into.parent, "init", "--quiet", "--bare", str(into))
    _git(into, "remote", "add", "origin", repository.url)
    only = ("--quiet", "--no-tags", "--filter=blob:none", "origin")
    _git(into, "fetch", "--depth=1", *only, repository.commit)
    asked = [f"{repository.commit}:{repository.root}{path}" for path in repository.files]
    objects = _git(into, "rev-parse", *asked)
    _git(into, "fetch", *only, "--stdin", "--no-write-fetch-head", given=objects)
    return into


def _has_commit(repository: Repository, git: Path) -> None:
    try:
        _git(git, "cat-file", "-e", f"{repository.commit}^{{commit}}")
    except CannotFetch:
        raise CannotFetch(f"{repository.name}: {git} lacks commit {repository.commit}") from None


def _git(where: Path, *words: str, given: bytes = b"") -> bytes:
    """What git answers. It never asks for a password: all of this is public."""
    quiet = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", "-C", str(where), *words], input=given, capture_output=True, env=quiet
        )
    except FileNotFoundError:
        raise CannotFetch("git is not installed") from None
    if done.returncode:
        raise CannotFetch(_reason(done.stderr.decode(errors="replace").splitlines()))
    return done.stdout


def _reason(said: Iterable[str]) -> str:
    """The line of git's complaint that names the cause."""
    lines = [line.removeprefix("fatal: ") for line in said if line.strip()]
    return lines[0] if lines else "git failed and did not say why"
