"""Drafts in the words of an engine: which methods a command names, and what its numbers count.

vLLM has one option of several keys, as JSON or as `--speculative-config.method mtp` (its
utils/argparse_utils.py); SGLang has a flag for each, counts the token that is verified beside the
drafts, and takes EAGLE without a drafter's checkpoint as the model's own modules (its
arg_groups/speculative_hook.py). TensorRT-LLM reads them from its file of options alone, where
modules are counted by another key (DecodingBaseConfig in llmapi/llm_args.py). llama.cpp takes a
drafter's file without a method for a model that drafts token by token (common/arg.cpp).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from trueflops.interop.engines.deployed import VOCABULARIES, Deployed

FIELDS: Final = ("speculate", "draft_model", "num_speculative_tokens", "speculative_steps",
                 "speculative_topk")  # fmt: skip
"""Of a Deployed, all about drafts."""
CHECKPOINT: Final = '"$DRAFT"'  # as a script has it
TO_BE_SET: Final = "SET-ME"  # as a file has it where nothing fills in variables
JSON_FLAG: Final = "speculative-config"
_OF_MODULES: Final = re.compile(r"\w+_mtp")  # deepseek_mtp, qwen3_next_mtp …: vLLM's MTPModelTypes
_BARE: Final = re.compile(r"[{,]\s*(\w+):\s*([\w./-]+)")  # method:mtp, as a shell leaves JSON
_UNSAID: Final = {
    ("trt-llm", "mtp"): 1, ("llama.cpp", "draft"): 3, ("llama.cpp", "eagle3"): 3,
    ("llama.cpp", "mtp"): 3, ("llama.cpp", "dflash"): 3,
}  # fmt: skip
"""Drafted tokens where nobody says how many: MTPDecodingConfig, and llama.cpp's common/common.h."""
_OF_DRAFTER: Final = re.compile(r"^# DRAFT must be a checkpoint of (\S+)$", re.MULTILINE)


def drafter_line(model: str) -> str:
    """What a file says of a drafter of its own."""
    return f"DRAFT must be a checkpoint of {model}"


def with_drafter(said: Deployed, text: str) -> Deployed:
    """The drafter that a file names so."""
    found = _OF_DRAFTER.search(text)
    return replace(said, draft_model=found[1]) if found and said.speculate == "draft" else said


def keys_of(value: str) -> Iterator[tuple[str, str]]:
    """What vLLM's JSON says, as flags, with or without its quotes; nothing where it is none."""
    try:
        said = json.loads(value)
    except ValueError:
        said = dict(_BARE.findall(value))
    if isinstance(said, dict):
        yield from ((f"{JSON_FLAG}.{key}", str(own)) for key, own in said.items())


def method_of(word: str, engine: str) -> str | None:
    """Our name of an engine's method; of several, as llama.cpp takes them, of the first."""
    own = "mtp" if _OF_MODULES.fullmatch(word) else word.partition(",")[0]
    return VOCABULARIES[engine].methods.get(own)


def counted_by(deployed: Deployed) -> Deployed:
    """The same with numbers as its engine counts them."""
    tokens, method = deployed.num_speculative_tokens, deployed.speculate
    if deployed.engine != "sglang" or tokens is None or method is None:
        return deployed
    own = method.removesuffix("2")  # EAGLE-2 is EAGLE with more than one alternative
    return replace(deployed, speculate=own, num_speculative_tokens=tokens + 1)


def settle_drafts(engine: str, said: dict[str, Any]) -> None:
    """What an engine's words about drafts mean together."""
    drafter = said.get("draft_model", "")
    if engine == "llama.cpp" and drafter:
        said.setdefault("speculate", "draft")
    method = said.get("speculate")
    if unsaid := _UNSAID.get((engine, method or "")):
        said.setdefault("num_speculative_tokens", unsaid)
    if engine == "sglang":
        if method == "eagle" and not drafter:
            said["speculate"] = "mtp"
        if said.get("num_speculative_tokens"):
            said["num_speculative_tokens"] = max(said["num_speculative_tokens"] - 1, 1)
    if method != "draft" or drafter.startswith(("$", TO_BE_SET)):  # a head's says nothing more
        said.pop("draft_model", None)
