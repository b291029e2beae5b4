"""Cells that say one of a few things in many words: how states are shared, what is recomputed or
kept in host memory, how the loss is computed, and which bytes a peak counts.

In: a text as sources write it, in lower case. Out: what it says; None or nothing where it says none
of these.
"""

from __future__ import annotations

import re
from typing import Any, Final

from trueflops.predict.training.peaks import PeakKind
from trueflops.verify.cells import NO, YES

_STAGE: Final = re.compile(r"(?:zero|stage|\bz)[-_ ]*(?:stage[-_ ]*)?([0-3])(?!\d)")
_SHARES: Final[tuple[tuple[re.Pattern[str], int], ...]] = (
    (re.compile(r"\b(?:no|not|without|un)[-_ ]?(?:shard|zero|fsdp)"), 0),
    # The parameters stay gathered between forward and backward (torch, fully_shard).
    (re.compile(r"grad_op|reshard_after_forward\W{1,3}false|no reshard"), 2),
    (re.compile(r"zero[- ]?offload"), 2),  # builds on ZeRO-2 (2101.06840 §4)
    (re.compile(r"\bos ?\+ ?g ?\+ ?p\b|_os\+g\+p\b"), 3),  # as ZeRO's paper writes its stages
    (re.compile(r"(?:\b|_)os ?\+ ?g\b|sharded ?-?ddp"), 2),  # fairscale's shards gradients, too
    (
        re.compile(
            r"dist(?:ributed)?[-_ ]?opt|sharded[- ]optimizer|(?:\b|_)oss?\b"
            r"|optimizer[- ]states? (?:shard|partition)"
        ),
        1,
    ),
    (re.compile(r"fsdp|hsdp|(?:full|hybrid|fully)[-_ ]?shard|zero[- ]?infinity|gemini"), 3),
    (re.compile(r"\bmics\b|zero ?\+\+|\bhpz\b|dp_shard"), 3),  # 2205.00119 §3; 2306.10209 §3
    (re.compile(r"\bdd?p\b|data[- ]parallel"), 0),
)
_BARE_STAGE: Final = re.compile(r"[0-3]")
_GROUP: Final = re.compile(
    r"(?:group|degree|fsdp2?|mics|zero-?\d|\bshard(?:_size|_degree)?|dp_shard)[ :=]+(\d{1,9})"
)
_MESH: Final = re.compile(r"hsdp\W{0,3}\d{1,6} ?[x×] ?(\d{1,6})")  # replicas × those that share
_SELECTIVE: Final = re.compile(
    r"selective|\bsac\b|per[- ]op|core[-_ ]att|attention only|\bmoe_act\b|up_proj|layernorm"
    r"|mlp only"
    # MaxText's minimal policies keep every product (src/maxtext, get_remat_policy).
    r"|minimal|\bdots?_"
)
_FULL: Final = re.compile(
    r"full|checkpoint|uniform|block|(?:every|each|per|all)[- ](?:\d{1,3} )?layers?|layer-?wise"
    r"|recompute|\bremat|re-?materiali|\bac\b|\ball\b|reentrant|nothing_saveable|save_|proj_offload"
    r"|unsloth|of \d{1,4} layers|/\d{1,4}\b|num_layers|\bhalf\b|\d%"
)
_COUNTED: Final = re.compile(
    r"(?:block|num_layers)\W{0,4}(\d{1,4})\b(?!\s*[%/])"
    r"|\b(\d{1,4})\s*(?:/|of)\s*\d{1,4}\s+layers|\b(?:for|first|recompute\w*)\s+(\d{1,4})\s+layers"
)
_EVERY: Final = re.compile(r"(?:every|selective)[- =:]*(\d{1,3})(?:nd|rd|th)?\b")
_SHARE: Final = re.compile(r"\b(\d{1,3}) ?%|^(\d{1,2})/(\d{1,2})$")
_PEAKS: Final[tuple[tuple[re.Pattern[str], PeakKind], ...]] = (
    (re.compile(r"max_memory_alloc|memory\.allocated|(?:max|peak) alloc"), "allocated"),
    (re.compile(r"max_memory_reserved|memory\.reserved|(?:max|peak) reserved"), "reserved"),
    (re.compile(r"nvidia-smi|rocm-smi|amd-smi|nvml|nvitop|gpustat"), "device"),
)
_IN_A_WORD: Final[dict[str, PeakKind]] = {
    "alloc": "allocated",
    "active": "allocated",  # torch's active bytes: tensors, and those that a stream still reads
    "tensor": "allocated",
    "reserved": "reserved",
    "cached": "reserved",  # its name until PyTorch 1.4 (torch/cuda/memory.py, max_memory_cached)
    "device": "device",
    "driver": "device",
}
_LOSSES: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"chunk|liger|\bflce\b|cut[- ]?c|\bcce\b|linear[- ]?c"), "chunked"),
    (re.compile(r"(?:un|not |non-?)fused|plain|eager|naive|standard|\bhf\b|^none$|^no?$"), "plain"),
    (re.compile(r"fused|\bte\b|apex|flash|triton|unsloth|compile|foak"), "fused"),
    (re.compile(r"torch"), "plain"),
)
_DTYPES: Final = (
    (re.compile(r"\b(?:fp|float|f)?32\b"), "fp32"),
    (re.compile(r"\b(?:bf16|bfloat16)\b"), "bf16"),
    (re.compile(r"\b(?:fp16|float16|half)\b"), "fp16"),
)
_ONCE_A_NODE: Final = re.compile(r"deep-?ep|hybrid-?ep|dedup|flex")
"""Dispatchers that send a token once to each node; Megatron-core's `flex` is DeepEP or HybridEP
(megatron/core/transformer/moe/token_dispatcher.py, MoEFlexTokenDispatcher)."""
_ALL_TO_ALL: Final = re.compile(r"all-?to-?all|a2a|all2all")
_TASKS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"q-?lora"), "qlora"),
    (re.compile(r"lora"), "lora"),
    (re.compile(r"^pre-?train|^train|benchmark|^speed|throughput|^$"), ""),
    (re.compile(r"full|fine-?tun"), "full fine-tune"),
)
_OFFLOADED: Final = (
    (re.compile(r"optim|states?\b|\bos\b|zero-?offload"), "optimizer"),
    (re.compile(r"param|weight"), "parameters"),
    (re.compile(r"activation"), "activations"),
)
_SHARES_PARAMETERS: Final = 3  # the ZeRO stage; DeepSpeed offloads parameters from it on


def sharing_stage(said: str) -> int | None:
    """The ZeRO stage of 'ZeRO-2', 'sharding stage3', 'HYBRID_SHARD', 'DDP', 'dist-opt', '3'."""
    if "reshard" not in said and (staged := _STAGE.search(said)):
        return int(staged[1])
    if said in NO:
        return 0
    if _BARE_STAGE.fullmatch(said):
        return int(said)
    return next((stage for words, stage in _SHARES if words.search(said)), None)


def sharing_group(said: str) -> int | None:
    """How many share: 'ZeRO-1 group 8', 'FSDP 16', 'HSDP 2x4', 'replicate 2, shard 4'."""
    found = _GROUP.search(said) or _MESH.search(said)
    return int(found[1]) if found else None


def recomputation(said: str) -> str | None:
    """`none`, `selective` or `full`: 'yes' and 'gradient checkpointing' mean every layer."""
    if said in NO or re.match(r"(?:no|without|w/o)\b", said):
        return "none"
    if _EVERY.search(said):
        return "full"
    if _SELECTIVE.search(said) and "full" not in said:
        return "selective"
    return "full" if said in YES or _FULL.search(said) else None


def recomputed_layers(said: str, layers: int) -> int | None:
    """How many of a stage's layers are recomputed: 'block 8', '8/32 layers', 'every 2 layers',
    'half', '50%'; None where all are, or nothing is said. In torchtitan 'selective 2' is every
    second layer, in full (distributed/activation_checkpoint.py); Megatron's 'uniform 4' is all of
    them, four at a time (--recompute-num-layers).
    """
    if (nth := _EVERY.search(said)) and int(nth[1]):
        return max(layers // int(nth[1]), 1)
    if part := _SHARE.search(said):
        share = int(part[1]) / 100 if part[1] else int(part[2]) / max(int(part[3]), 1)
        return min(max(round(layers * share), 1), layers)
    if "half" in said:
        return max(layers // 2, 1)
    counted = _COUNTED.search(said)
    return next((int(number) for number in counted.groups() if number), 0) if counted else None


def kind_of_peak(column: str, notes: str) -> PeakKind | None:
    """Which bytes were counted: a word of the column, or the tool that it or the notes name, of
    several the first.
    """
    if said := next((kind for word, kind in _IN_A_WORD.items() if word in column), None):
        return said
    tools = f"{column} {notes}"
    found = [(match.start(), kind) for words, kind in _PEAKS if (match := words.search(tools))]
    return min(found)[1] if found else None


def dtype_of(said: str) -> str:
    """`fp32`, `bf16` or `fp16` of 'FP32', 'bfloat16', 'fp32 (reduce)'; empty where it says none."""
    return next((dtype for words, dtype in _DTYPES if words.search(said)), "")


def kind_of_dispatch(said: str) -> str:
    """How tokens go to experts: `all-to-all`, `deduplicated`; empty where it says neither."""
    if _ONCE_A_NODE.search(said):
        return "deduplicated"
    return "all-to-all" if _ALL_TO_ALL.search(said) else ""


def kind_of_task(said: str) -> str:
    """Empty of pre-training; `full fine-tune`, `lora`, `qlora`; else as it is written."""
    folded = said.casefold()
    kind = next((kind for words, kind in _TASKS if words.search(folded)), said)
    return said if kind == folded else kind


def kind_of_loss(said: str) -> str:
    """`plain`, `fused` or `chunked`; empty where it says none of them."""
    return next((kind for words, kind in _LOSSES if words.search(said)), "")


def offloaded(said: str, zero: int) -> dict[str, Any]:
    """Fields of a plan from 'optimizer+parameters', 'CPU offload', 'ZeRO-3 offload (NVMe)'.

    Who says no more than that offloads the optimizer and, from stage 3 on, the parameters: so do
    LLaMA-Factory's ds_z2_offload_config.json and ds_z3_offload_config.json (examples/deepspeed),
    and FSDP's CPUOffload runs the optimizer where its parameters are (torch: fsdp/api.py).
    """
    if not said or said in NO or re.match(r"(?:no|without|w/o)\b", said):
        return {}
    parts = [part for words, part in _OFFLOADED if words.search(said)]
    if not parts:
        parts = ["optimizer", "parameters"] if zero >= _SHARES_PARAMETERS else ["optimizer"]
    to = {"offload_to": "nvme"} if "nvme" in said else {}
    return {f"offload_{part}": 1.0 for part in parts} | to
