"""What SGLang's own benchmark sends: the lengths that it draws, and prompts that it sends again.

In: a row that names sglang.bench_serving, with its command, and the rows of the same server before
it. Out: tokens of each prompt and answer, and how many of a prompt's the server has read before.

`--dataset-name random` draws lengths from NumPy's generator, its seed 1 unless said, uniformly from
a share of those named up to these (python/sglang/bench_serving.py, sample_random_requests), and
cuts or repeats conversations of one order to these lengths. So request i of a run is as long as
request i of every other of as many requests, and begins as request i of all of them. The server's
cache keeps what it has read from run to run, unless --flush-cache or --disable-radix-cache is
given; the first request is sent once before, to warm up.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from trueflops.records.tables import Row
from trueflops.serve.load import Requests
from trueflops.sizes import Array
from trueflops.verify.cells import text

SEED: Final = 1
LONGEST: Final = 1024  # --random-input-len and --random-output-len, where a command has neither
ROUNDED: Final = 0.006  # of a mean that is printed with two digits
SPECIAL: Final = 4  # tokens that a tokenizer adds and the benchmark leaves out, at most
_TOOL: Final = re.compile(r"sglang\.bench_serving|sglang/bench_serving\.py")
_SERVER: Final = ("source", "engine", "engine_version", "model", "accelerator", "flags")


def is_bench_serving(row: Row) -> bool:
    """Whether a row was measured by it."""
    return bool(_TOOL.search(_said(row)))


def drawn_lengths(
    row: Row, many: int, read: float | None, written: float | None
) -> tuple[Array, Array] | None:
    """Tokens of each prompt and answer, where the command says how they are drawn.

    The means that were printed tell which of two rules for the shortest answer a release has, and
    how many special tokens were left out. Lengths that do not give them are drawn by the same rule
    and scaled to these means; where none were printed they stand as drawn.
    """
    said = _said(row)
    if text(row, "dataset") != "random" or not is_bench_serving(row):
        return None
    top_read, top_written = (
        round(_number(said, f"random-{side}-len", LONGEST)) for side in ("input", "output")
    )
    share = _number(said, "random-range-ratio", 0.0)
    if min(top_read, top_written) < 1 or share > 1.0:
        return None
    for least in (0, 1):
        random = np.random.RandomState(round(_number(said, "seed", SEED)))
        prompts = _uniform(random, top_read, share, 1, many)
        answers = _uniform(random, top_written, share, least, many)
        if read is None or written is None:
            continue
        special = prompts.mean() - read
        if abs(special - round(special)) < ROUNDED and 0 <= round(special) <= SPECIAL:
            prompts = np.maximum(prompts - round(special), 1.0)
            if abs(answers.mean() - written) < ROUNDED:
                return prompts, np.maximum(answers, 1.0)
    return (
        prompts if read is None else _scaled(prompts, read),
        answers if written is None else _scaled(answers, written),
    )


@dataclass
class SentBefore:
    """Prompts that each server of a table has read, run by run."""

    _read: dict[tuple[str, ...], list[Array]] = field(default_factory=lambda: defaultdict(list))

    def found(self, row: Row, requests: Requests, room: float) -> Requests:
        """The same requests, with the tokens that a cache of so many finds; the run is kept."""
        if not is_bench_serving(row) or "disable-radix-cache" in text(row, "flags"):
            return requests
        server = (*(text(row, column) for column in _SERVER), text(row, "dataset"))
        known = np.zeros(requests.count)
        known[0] = requests.input[0]
        if "flush-cache" not in _said(row):
            for prompts in self._kept(server, room):
                both = min(len(prompts), requests.count)
                again = np.minimum(prompts[:both], requests.input[:both])
                known[:both] = np.maximum(known[:both], again)
        self._read[server].append(requests.input)
        return replace(requests, cached=known)

    def _kept(self, server: tuple[str, ...], room: float) -> list[Array]:
        """The newest runs, as long as all their prompts fit into the cache together."""
        runs = self._read[server]
        sums = np.cumsum([float(prompts.sum()) for prompts in reversed(runs)])
        return runs[len(runs) - int(np.count_nonzero(sums <= room)) :]


def _said(row: Row) -> str:
    return f"{text(row, 'tool')} {text(row, 'notes')}"


def _number(said: str, flag: str, usual: float) -> float:
    found = re.search(rf"--{flag}[= ](\d{{1,9}}(?:\.\d{{1,9}})?)(?![\w.])", said)
    return float(found[1]) if found else usual


def _uniform(
    random: np.random.RandomState, most: int, share: float, least: int, many: int
) -> Array:
    low = max(int(most * share), least)
    return np.asarray(random.randint(low, most + 1, size=many), np.float64)


def _scaled(tokens: Array, mean: float) -> Array:
    return np.maximum(np.rint(tokens * (mean / tokens.mean())), 1.0)
