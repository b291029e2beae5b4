"""Which layers each card holds, as engines are told: llama.cpp by a flag, vLLM and SGLang by a
variable of their environment (get_pp_indices of vllm/distributed/utils.py and
sglang/srt/distributed/utils.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from trueflops.errors import BadInput
from trueflops.interop.engines.deployed import Deployed
from trueflops.language import say

VARIABLES: Final[Mapping[str, str]] = {
    "vllm": "VLLM_PP_LAYER_PARTITION",
    "sglang": "SGLANG_PP_LAYER_PARTITION",
}
FLAGS: Final[Mapping[str, str]] = {
    "split-mode": "split", "sm": "split", "tensor-split": "tensor_split", "ts": "tensor_split",
}  # fmt: skip
"""llama.cpp's: by layers or by rows, and what each card takes."""
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


def settle(said: dict[str, Any]) -> tuple[str, ...]:
    """llama.cpp's flags as degrees; what is left over where rows are split unevenly."""
    mode, shares = said.pop("split", "layer"), said.get("tensor_split")
    if shares is None:
        return ()
    each = shares.replace("/", ",").split(",")
    said["tensor_split"] = ",".join(each)
    if len(each) < 2 or mode != "layer":
        del said["tensor_split"]
    if len(each) > 1:
        said["pp" if mode == "layer" else "tp"] = len(each)
    uneven = mode != "layer" and len(set(each)) > 1
    return (f"--tensor-split {shares}",) if uneven else ()
