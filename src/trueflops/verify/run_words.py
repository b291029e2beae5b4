"""Cells that say one of a few things in many words: how states are shared, what is recomputed, and
which bytes a peak counts.

In: a text as sources write it. Out: the one thing that it says; None where it says none of them.
"""

from __future__ import annotations

import re
from typing import Final

from trueflops.predict.peaks import PeakKind

NO: Final = frozenset(("no", "n", "none", "false", "off", "0", "disabled", "not used"))
YES: Final = frozenset(("yes", "y", "true", "on", "1", "enabled"))
_STAGE: Final = re.compile(r"(?:zero|stage)[-_ ]*(?:stage[-_ ]*)?([0-3])(?!\d)")
_SHARES: Final[tuple[tuple[re.Pattern[str], int], ...]] = (
    (re.compile(r"grad_op|zero[- ]?offload"), 2),  # ZeRO-Offload builds on ZeRO-2 (2101.06840 §4)
    (re.compile(r"dist(?:ributed)?[-_ ]?opt|sharded optimizer"), 1),
    (re.compile(r"fsdp|hsdp|(?:full|hybrid|fully)[-_ ]?shard|zero[- ]?infinity|gemini"), 3),
    (re.compile(r"\bdd?p\b|data[- ]parallel"), 0),
)
_SELECTIVE: Final = re.compile(r"selective|\bsac\b|per[- ]op|core[-_ ]attn|core attention")
_FULL: Final = re.compile(r"full|checkpoint|uniform|block|every layer|all layers|recompute")
_PEAKS: Final[tuple[tuple[re.Pattern[str], PeakKind], ...]] = (
    (re.compile(r"max_memory_alloc|memory\.allocated|(?:max|peak) alloc"), "allocated"),
    (re.compile(r"max_memory_reserved|memory\.reserved|(?:max|peak) reserved"), "reserved"),
    (re.compile(r"nvidia-smi|rocm-smi|amd-smi|nvml|nvitop|gpustat"), "device"),
)
_IN_A_WORD: Final[dict[str, PeakKind]] = {
    "alloc": "allocated",
    "active": "allocated",  # torch's active bytes: tensors, and those that a stream still reads
    "reserved": "reserved",
    "device": "device",
    "driver": "device",
}


def sharing_stage(said: str) -> int | None:
    """The ZeRO stage of 'ZeRO-2', 'sharding stage3', 'HYBRID_SHARD', 'DDP', 'dist-opt'."""
    if staged := _STAGE.search(said):
        return int(staged[1])
    if said in NO:
        return 0
    return next((stage for words, stage in _SHARES if words.search(said)), None)


def recomputation(said: str) -> str | None:
    """`none`, `selective` or `full`: 'yes' and 'gradient checkpointing' mean every layer."""
    if said in NO or re.match(r"(?:no|without|w/o)\b", said):
        return "none"
    if _SELECTIVE.search(said) and "full" not in said:
        return "selective"
    return "full" if said in YES or _FULL.search(said) else None


def kind_of_peak(column: str, notes: str) -> PeakKind | None:
    """Which bytes were counted: a word of the column, or the tool that it or the notes name, of
    several the first.
    """
    if said := next((kind for word, kind in _IN_A_WORD.items() if word in column), None):
        return said
    tools = f"{column} {notes}"
    found = [(match.start(), kind) for words, kind in _PEAKS if (match := words.search(tools))]
    return min(found)[1] if found else None
