"""Servers that prefill and servers that decode, as flags of vLLM and SGLang tell them apart."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from trueflops.interop.engines.starts import Start

_ROLES: Final = {
    "kv_producer": "prefill", "kv_consumer": "decode", "prefill": "prefill", "decode": "decode",
}  # fmt: skip
_ROLE: Final = re.compile(
    r"kv_role\W+(kv_producer|kv_consumer)|--disaggregation[-_]mode[= ](prefill|decode)\b"
)
"""KVTransferConfig of vllm/config/kv_transfer.py; disaggregation_mode of SGLang's ServerArgs."""


def pools_of(starts: Sequence[Start]) -> Mapping[str, list[Start]]:
    """The servers of either pool; nothing where a script does not start both."""
    found: dict[str, list[Start]] = {"prefill": [], "decode": []}
    for start in starts:
        if role := _ROLE.search(" ".join(start.words)):
            found[_ROLES[role[1] or role[2]]].append(start)
    return found if all(found.values()) else {}
