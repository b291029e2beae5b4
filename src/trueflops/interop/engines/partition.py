"""Which layers each card holds, as engines are told: llama.cpp by a flag, vLLM and SGLang by a
variable of their environment (get_pp_indices of vllm/distributed/utils.py and
sglang/srt/distributed/utils.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from trueflops.errors import BadInput, printable, shorten
from trueflops.interop.engines.deployed import Deployed
from trueflops.interop.engines.flags import Flag
from trueflops.language import say

VARIABLES: Final[Mapping[str, str]] = {
    "vllm": "VLLM_PP_LAYER_PARTITION",
    "sglang": "SGLANG_PP_LAYER_PARTITION",
}
FLAGS: Final[Mapping[str, str]] = {
    "split-mode": "split", "sm": "split", "tensor-split": "tensor_split", "ts": "tensor_split",
    "device": "devices", "dev": "devices",
}  # fmt: skip
"""llama.cpp's: by layers or by rows, what each card takes, and which cards there are."""
_EXPERTS: Final = ("cpu-moe", "cmoe")
_COUNTED: Final = ("n-cpu-moe", "ncmoe")
_TENSORS: Final = ("override-tensor", "ot")
_VISIBLE: Final = re.compile(
    r"(?:\b(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES=|--gpus[= ]['\"]*device=)['\"]?"
    r"(\d{1,3}(?:,\d{1,3})*)(?![\w,])|--gpus[= ](\d{1,3})\b"
)
"""Cards by their numbers, or how many: a variable, and docker's flag."""
_PARTITION: Final = re.compile(r"\b(?:VLLM|SGLANG)_PP_LAYER_PARTITION=[\"']?(\d{1,6}(?:,\d{1,6})*)")


def exports(deployed: Deployed, tool: str) -> list[str]:
    """Lines of a script that say it before the engine starts."""
    if deployed.tensor_split is None or deployed.engine == "llama.cpp":
        return []
    variable = VARIABLES.get(deployed.engine)
    if variable is None or tool == "dynamo":
        raise BadInput(
            say(
                "--emit {tool}: no way is known to tell it which layers each card holds; write "
                "--emit vllm or llamacpp, or cards of one kind without --tensor-split",
                tool=tool,
            )
        )
    return [f"export {variable}={deployed.tensor_split}"]


def read_partition(text: str) -> dict[str, Any]:
    """What a script's environment says."""
    found = _PARTITION.search(text)
    return {"tensor_split": found[1]} if found else {}


def visible_cards(text: str) -> int | None:
    """To how many cards a script's environment, or its container, restricts what it starts."""
    found = _VISIBLE.search(text)
    if found is None:
        return None
    return len(found[1].split(",")) if found[1] else int(found[2])


def settle(said: dict[str, Any], cards: int | None) -> tuple[str, ...]:
    """llama.cpp's flags as degrees; what is left over where rows are split unevenly.

    Without flags it deals layers out to every card that it sees (LLAMA_SPLIT_MODE_LAYER of
    common/common.h), in proportion to their memory.
    """
    mode, shares = said.pop("split", "layer"), said.pop("tensor_split", None)
    devices = said.pop("devices", None)
    if mode == "none":  # --main-gpu alone
        return ()
    count = len(devices.split(",")) if devices else cards or 1
    each = shares.replace("/", ",").split(",") if shares else ["1"] * count
    if len(each) > 1:
        said["pp" if mode == "layer" else "tp"] = len(each)
    if shares and len(each) > 1 and mode == "layer":
        said["tensor_split"] = ",".join(each)
    uneven = mode != "layer" and len(set(each)) > 1
    return (f"--tensor-split {shares}",) if uneven else ()


def refuse_experts_on_host(flag: Flag, where: str) -> None:
    """llama.cpp's flags that leave experts alone to the host, several times as slow."""
    moved = (
        flag.name in _EXPERTS
        or (flag.name in _COUNTED and flag.value != "0")
        or (flag.name in _TENSORS and re.search(r"=CPU\b", flag.value))
    )
    if moved:
        raise BadInput(
            say(
                "{where}: {flag} leaves weights of some tensors to the host, of which nothing is "
                "known; write --gpu-layers N in its place, the nearest that is: whole layers on "
                "the host",
                where=where,
                flag=printable(shorten(flag.written)),
            )
        )
