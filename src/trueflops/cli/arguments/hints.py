"""What to write instead of a flag that does not exist: the word of another tool, or a slip.

A slip is near in spelling, without the dashes, which every flag has; what only looks alike, and
means something else, is not proposed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from trueflops.errors import nearest

# As torchrun, Megatron-LM, vLLM, DeepSpeed and people call it -> what it is here.
_SAID_ELSEWHERE: Final[Mapping[str, str]] = MappingProxyType({
    "gpu": "--on", "gpus": "--on", "num-gpus": "--on", "n-gpus": "--on", "chips": "--on",
    "nodes": "--on", "cluster": "--on", "device": "--on",
    "tensor-parallel": "--tp", "tensor-parallel-size": "--tp",
    "tensor-model-parallel-size": "--tp",
    "pipeline-parallel": "--pp", "pipeline-parallel-size": "--pp",
    "pipeline-model-parallel-size": "--pp",
    "context-parallel": "--cp", "context-parallel-size": "--cp",
    "data-parallel": "--dp", "data-parallel-size": "--dp",
    "expert-parallel": "--ep", "expert-parallel-size": "--ep",
    "expert-model-parallel-size": "--ep", "enable-expert-parallel": "--ep",
    "decode-context-parallel": "--dcp", "decode-context-parallel-size": "--dcp",
    "dcp-size": "--dcp",
    "sequence-parallel": "--sp",
    "seq-length": "--seq", "seq-len": "--seq", "sequence-length": "--seq", "max-seq-len": "--seq",
    "context-length": "--seq",
    "seq": "--input",
    "batch": "--global-batch", "batch-size": "--global-batch", "gbs": "--global-batch",
    "global-batch-size": "--global-batch", "micro-batch-size": "--micro-batch",
    "mbs": "--micro-batch",
    "zero-stage": "--zero", "quantization": "--weights", "quant": "--weights",
    "kv-cache-dtype": "--cache", "batch-requests": "--concurrency",
    "free-gpu-memory-fraction": "--memory-share", "kv-cache-free-gpu-memory-fraction":
    "--memory-share", "ctx-size": "--max-model-len", "max-batch-size": "--max-num-seqs",
    "max-running-requests": "--max-num-seqs", "chunked-prefill-size": "--max-num-batched-tokens",
    "ngl": "--gpu-layers", "page-size": "--block-size", "tokens-per-block": "--block-size",
    "input-len": "--input", "isl": "--input", "prompt": "--input",
    "output-len": "--output", "osl": "--output", "max-tokens": "--output",
    "precision": "--compute", "dtype": "--compute", "recomputation": "--recompute",
    "activation-checkpointing": "--recompute", "gradient-checkpointing": "--recompute",
    "cost": "--price", "usd": "--price",
})  # fmt: skip

SLIP: Final = 3  # characters more or fewer: beyond that it is another word


def flag_instead(wrong: str, flags: Iterable[str]) -> str | None:
    """The flag that was probably meant, of those that the command has."""
    bare = {flag.lstrip("-"): flag for flag in flags}
    name = wrong.lstrip("-").replace("_", "-").casefold()
    if name in bare:  # typed with underscores, capitals or one dash
        return bare[name]
    meant = _SAID_ELSEWHERE.get(name)
    while meant:
        if meant.lstrip("-") in bare:
            return meant
        meant = _SAID_ELSEWHERE.get(meant.lstrip("-"))  # train's --seq, which infer has not
    near = nearest(name, [known for known in bare if abs(len(known) - len(name)) <= SLIP], most=1)
    return bare[near[0]] if near else None
