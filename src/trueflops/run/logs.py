"""Steps that another program ran, read from its log: torchtitan, Megatron-LM. Needs no torch.

torchtitan   components/metrics.py, MetricsProcessor.log:
             step: 10  loss:  5.1234  grad_norm: 1.2  memory: 60.12GiB(75.90%)  tps: 7,654  …
Megatron-LM  megatron/training/training.py, training_log, and utils.py, report_memory:
              iteration       10/     100 | … | elapsed time per iteration (ms): 1234.5 | …
             [Rank 0] (after 2 iterations) memory (MB) | allocated: … | max reserved: 61234.0
In: a file. Out: the median step, and the largest memory that the allocator had reserved. The first
steps, in which kernels are chosen and the allocator grows, do not count.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from trueflops.errors import BadInput, printable
from trueflops.files import read_file
from trueflops.language import say
from trueflops.units import GIBI, MEBI

LARGEST_LOG: Final = 256 * 1024 * 1024
FIRST: Final = 2  # steps that do not count
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_TORCHTITAN: Final = re.compile(
    r"step:\s*(?P<step>\d+)\s.*?memory:\s*(?P<gib>[\d.]+)GiB.*?\btps:\s*(?P<tps>[\d,]+)"
)
_MEGATRON: Final = re.compile(
    r"iteration\s+(?P<step>\d+)/.*?elapsed time per iteration \(ms\):\s*(?P<ms>[\d.]+)"
)
_RESERVED: Final = re.compile(r"memory \(MB\) \|.*?max reserved:\s*(?P<mb>[\d.]+)")


@dataclass(frozen=True, kw_only=True)
class Logged:
    """What a log says of a run."""

    framework: str
    steps: int  # that count
    seconds: float  # the median step
    reserved_bytes: float | None


def read_log(path: Path, tokens_per_step: float, ranks: int) -> Logged:
    """Steps of a log; whose it is, its lines say."""
    text = _COLOUR.sub("", read_file(path, LARGEST_LOG).decode(errors="replace"))
    titan = list(_TORCHTITAN.finditer(text))
    megatron = list(_MEGATRON.finditer(text))
    where = printable(str(path))
    if not titan and not megatron:
        raise BadInput(
            say(
                "{where}: no lines of torchtitan (step: … memory: … tps: …) or of Megatron-LM "
                "(elapsed time per iteration) in it; give the log of one of these",
                where=where,
            )
        )
    if titan:

        def taken(line: re.Match[str]) -> float:
            return tokens_per_step / (float(line["tps"].replace(",", "")) * ranks)

        seconds = _median(titan, taken, where)
        reserved = max(float(line["gib"]) for line in titan) * GIBI
        return Logged(framework="torchtitan", steps=len(titan) - FIRST, seconds=seconds,
                      reserved_bytes=reserved or None)  # fmt: skip
    seconds = _median(megatron, lambda line: float(line["ms"]) / 1e3, where)
    sizes = [float(line["mb"]) * MEBI for line in _RESERVED.finditer(text)]
    return Logged(framework="megatron", steps=len(megatron) - FIRST, seconds=seconds,
                  reserved_bytes=max(sizes, default=None))  # fmt: skip


def _median(
    lines: list[re.Match[str]], taken: Callable[[re.Match[str]], float], where: str
) -> float:
    later = [taken(line) for line in lines[FIRST:]]
    if not later:
        raise BadInput(
            say(
                "{where}: {number} steps, of which the first {first} do not count; log more",
                where=where,
                number=len(lines),
                first=FIRST,
            )
        )
    return median(later)
