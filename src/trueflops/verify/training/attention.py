"""Whose attention a row ran, where it says so: its column `attention_kernel`, or a kernel's name in
the column `attention`, which else has the structure (MLA, GQA).

A row that states nothing runs its framework's kernels, or an unfused attention if it is older than
any other (`flash_attention`, `year`). Where it names the release of PyTorch that it ran, attention
is what torch's own function chose then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from trueflops.profile.frameworks import settings_of
from trueflops.records.tables import Row
from trueflops.verify.cells import NO, YES, number, text

FIRST_WITH_FLASH: Final = 2023  # fused attention in the frameworks themselves
UNFUSED: Final = re.compile(r"eager|math|unfused|local|naive|core-?attention")
_FLASH: Final = r"(?:fa|flash(?:-?att(?:n|ention))?)-?v?"
KERNELS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(rf"{_FLASH}3.*|flex.*|triton.*"), ""),  # whichever is the chip's best
    (re.compile(rf"{_FLASH}(?:2.*)?|v2|sdpa-\(?flash\)?"), "fa2"),
    # TransformerEngine calls cuDNN's fused attention.
    (re.compile(r"cudnn.*|fused(?:-attention)?|te(?:-.*)?|transformer-?engine.*"), "cudnn"),
    (re.compile(r"(?:sdpa-\(?)?(?:mem(?:ory)?-?)?efficient.*|xformers.*"), "efficient"),
    (re.compile(r"sdpa.*|torch.*"), ""),
)
"""Names that frameworks and papers use, and the profile's name of that kernel; empty: whichever is
the chip's best."""
NOTED: Final = re.compile(
    r"\battention (fa ?[23]|flash[ -]?att(?:n|ention)[ -]?[23]|cudnn)\b", re.IGNORECASE
)
"""'attention FA3' in the notes of a row whose columns name no kernel."""
RELEASE: Final = re.compile(r"\b(?:py)?torch ?(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?\b")
FIRST_WITH_CUDNN: Final = (2, 5, 0)
"""On Hopper torch 2.5.0 takes cuDNN's attention; 2.5.1 put it last (pytorch pull request 138522,
cherry-picked for that release)."""
CUDNN_AGAIN: Final = (2, 11, 0)
"""Brings the cuDNN from which on it comes first (sdp_utils.cpp, check_prefer_cudnn_attention: above
9.15; huggingface/transformers pull request 48163 says of which release)."""
FIRST_WITH_CUDNN_AGAIN: Final = 2026  # the year of that release
LIBRARY: Final = re.compile(r"\btransformers ?(?:==)? ?(\d{1,2})\.(\d{1,3})\b")
FIRST_WITH_SDPA: Final = (4, 36)
"""Of Hugging Face's transformers, December 2023: LlamaSdpaAttention (models/llama/modeling_llama.py
of v4.36.0; v4.35.2 has none). Before that scores were written out unless flash-attn was asked for.
"""


@dataclass(frozen=True)
class AttentionRun:
    """What a row ran."""

    flash: bool  # no s×s matrix was written
    kernel: str = ""  # as the profile names it; "": the framework's own


def read_attention(row: Row, framework: str) -> AttentionRun:
    """The row's attention under a framework, by its key; a stated kernel says more than
    `flash_attention` or the year does.
    """
    noted = NOTED.search(text(row, "notes"))
    columns = (text(row, column) for column in ("attention_kernel", "attention"))
    for cell in (*columns, noted[1] if noted else "", text(row, "flash_attention")):
        said = cell.casefold().replace("_", "-").replace(" ", "-")
        if UNFUSED.fullmatch(said):
            return AttentionRun(flash=False)
        named = (kernel for words, kernel in KERNELS if words.fullmatch(said))
        if (kernel := next(named, None)) is not None:
            return AttentionRun(flash=True, kernel=kernel)
    kernel = _of_release(text(row, "framework")) or _of_its_day(row, framework)
    said = text(row, "flash_attention").casefold()
    if said in NO:
        return AttentionRun(flash=False)
    recent = int(number(row, "year") or 9999) >= FIRST_WITH_FLASH
    if library := LIBRARY.search(text(row, "framework").casefold()):
        recent = (int(library[1]), int(library[2])) >= FIRST_WITH_SDPA
    return AttentionRun(flash=said in YES or recent, kernel=kernel)


def _of_its_day(row: Row, framework: str) -> str:
    """What PyTorch chose for a framework that leaves it the choice, before it preferred cuDNN's."""
    year = number(row, "year") or FIRST_WITH_CUDNN_AGAIN
    leaves_it = settings_of(framework).get("attention") == "cudnn"
    return "fa2" if leaves_it and year < FIRST_WITH_CUDNN_AGAIN else ""


def _of_release(framework: str) -> str:
    """Which kernel scaled_dot_product_attention takes on a Hopper in the release that is named."""
    said = RELEASE.search(framework.casefold())
    if said is None:
        return ""
    release = tuple(int(part or 0) for part in said.groups())
    return "cudnn" if release == FIRST_WITH_CUDNN or release >= CUDNN_AGAIN else "fa2"
