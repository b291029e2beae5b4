"""Where a script starts an engine: by its command, or by an image whose entrypoint it is.

In: the words of a script. Out: the engine, the words behind its start, the release that the image
is of, and what else is started.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from trueflops.errors import BadInput, join_or
from trueflops.interop.engines.deployed import VOCABULARIES
from trueflops.interop.engines.words import commands_of, is_shell
from trueflops.language import say


class Start(NamedTuple):
    """An engine, and the words that it is started with."""

    engine: str
    words: list[str]


class Image(NamedTuple):
    """What people publish an engine as."""

    engine: str
    name: str  # as a regular expression
    entrypoint: tuple[str, ...] = ()  # before the words of its command


_IMAGES: Final = (
    # ENTRYPOINT of docker/Dockerfile (vllm-openai) and Dockerfile.rocm, .cpu of vLLM
    Image("vllm", r"vllm/vllm-openai(?:-\w+)?", ("vllm", "serve")),
    # CMD ["/bin/bash"], no ENTRYPOINT: docker/Dockerfile and rocm.Dockerfile of SGLang
    Image("sglang", r"lmsysorg/sglang(?:-\w+)?"),
    Image("trt-llm", r"nvidia/tensorrt-llm/release"),
    # ENTRYPOINT of the target `server` of .devops/cuda.Dockerfile and its kin of llama.cpp
    Image("llama.cpp", r"(?:ggml-org|ggerganov)/llama\.cpp(?=:server)", ("llama-server",)),
)
_NUMBERED: Final = re.compile(r"v?(\d+(?:\.\d+)+(?:\.?(?:rc|post)\d+)?)(?![\w.])")
"""A tag that is a release: v0.11.0, v0.5.3-cu129; not latest, b6000 or nightly-1a2b3c."""


def started(words: list[str], where: str) -> list[Start]:
    """All engines that a script starts, in its order."""
    starts = [
        start
        for command in map(_contained, commands_of(words))
        for at in range(len(command))
        if (start := _start_at(command, at))
    ]
    if not starts:
        raise BadInput(
            say(
                "{where}: starts none of the engines that are known; write {known}",
                where=where,
                known=known_starts(),
            )
        )
    return starts


def described(start: Start) -> str:
    """A start in a few words."""
    return " ".join([start.engine, *start.words[:3]])


def release_of(words: list[str], engine: str) -> str | None:
    """The release of an engine by the tag of its first image."""
    for word in words:
        if (found := _image(word.rpartition("=")[2])) and found[0].engine == engine:
            tagged = _NUMBERED.match(found[1])
            return tagged[1] if tagged else None
    return None


def known_starts() -> str:
    """How engines are started, for errors."""
    return join_or([spoken.started_by[0] + " …" for spoken in VOCABULARIES.values()])


def _start_at(words: list[str], at: int) -> Start | None:
    """The engine that a word starts, and what follows."""
    name = words[at].rpartition("/")[2]
    for engine, spoken in VOCABULARIES.items():
        for start in spoken.started_by:
            first, _, second = start.partition(" ")
            if name == first and (not second or words[at + 1 : at + 2] == [second]):
                rest = words[at + (2 if second else 1) :]
                return Start(engine, rest[1:] if rest[:1] == ["serve"] else rest)
    return None


def _contained(words: list[str]) -> list[str]:
    """What runs in a container, where a command runs a known image; else the command itself."""
    for at, word in enumerate(words):
        if (found := _image(word)) and any(verb in words[:at] for verb in ("run", "create")):
            rest = words[at + 1 :]
            given = list(_entrypoint(words[:at]))
            return [*(given or ([] if _runs_itself(rest) else found[0].entrypoint)), *rest]
    return words


def _runs_itself(words: list[str]) -> bool:
    """Whether what follows an image needs no entrypoint."""
    return any(map(is_shell, words[:1])) or any(_start_at(words, at) for at in range(len(words)))


def _entrypoint(words: list[str]) -> Iterator[str]:
    """What `docker run` is told to start in place of the image's own."""
    for before, word in zip(["", *words], words, strict=False):
        flag, _, value = word.partition("=")
        if before == "--entrypoint":
            yield word
        elif flag == "--entrypoint" and value:
            yield value


def _image(word: str) -> tuple[Image, str] | None:
    """The image that a word names, from whichever registry, and its tag."""
    for image in _IMAGES:
        pattern = rf"(?:[\w.:-]+/)*{image.name}(?::([\w.-]+))?(?:@[\w:]+)?"
        if found := re.fullmatch(pattern, word):
            return image, found[1] or ""
    return None
