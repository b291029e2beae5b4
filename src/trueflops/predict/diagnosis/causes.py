"""Under which heading the time of a kernel is shown: products, attention, memory-bound, other.

By what its op lowers to; where a trace has no shapes, by the op's name; where no op is known, as in
graphs and in traces of the device alone, by the name of the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from trueflops.clock import op_class
from trueflops.records.trace import NOBODY, Launch, TracedKernel

WAYS: Final = {"to_device": "copy to the device", "to_host": "copy to the host"}
_ATTENTION_OPS: Final = re.compile(r"scaled_dot_product|flash_attn|flash_attention|efficient_atten")
_PRODUCT_OPS: Final = re.compile(
    r"_?(scaled_|grouped_|int_|sparse_|add|badd)*(mm|bmm|mv|dot|vdot)_?(activation|_out)?"
    r"|_?linear|matmul|einsum|.*conv(olution|_|\d|$).*"
)
_NEITHER_OPS: Final = re.compile(
    r"sort|topk|unique|fft|rnn|lstm|gru|linalg_(?!vector)|cholesky|svd"
)
_ATTENTION_KERNELS: Final = re.compile(
    r"flash|fmha|attention|sdpa|PagedKV|compute_dot_do_o|convert_dq_to", re.IGNORECASE
)
_PRODUCT_KERNELS: Final = re.compile(
    r"gemm|gemv|nvjet|cutlass|cublas|xmma|splitK|Cijk_|triton_(tem|mm|bmm)|matmul|marlin|fused_moe"
    r"|convolve|conv_|_conv|winograd|fprop|dgrad|wgrad",
    re.IGNORECASE,
)
_NEITHER_KERNELS: Final = re.compile(r"sort|topk|fft|rnn|lstm|gru", re.IGNORECASE)
_MOVING_KERNELS: Final = re.compile(
    r"at::native|elementwise|reduce|triton_(poi|red|per)|multi_tensor|Memset|Memcpy|norm|softmax"
    r"|bn_[fb]w|gather|scatter|index|embedding|dropout|rotary|act_and_mul|reshape_and_cache|pool"
    r"|nchwToNhwc|nhwcToNchw|transpose|copy",
    re.IGNORECASE,
)


def cause_of(kernel: TracedKernel, launches: Sequence[Launch]) -> str:
    """One of timeline.CAUSES."""
    if kernel.sort == "collective":
        return "communication"
    if kernel.sort in WAYS:
        return "copies"
    if kernel.launch == NOBODY:
        return _by_kernel(kernel.name)
    launch = launches[kernel.launch]
    kinds = {op_class(op) for op in launch.ops}
    if "matmul" in kinds:
        return "matmul"
    if any(kind.startswith("attention") for kind in kinds):
        return "attention"
    return "memory" if kinds else _by_op(launch.name) or _by_kernel(kernel.name)


@lru_cache(maxsize=65536)
def _by_op(name: str) -> str:
    """`aten::addmm` is a product whatever its kernels are called; empty for ops of others."""
    library, _, bare = name.partition("::")
    if _ATTENTION_OPS.search(bare):
        return "attention"
    if library != "aten":
        return ""
    if _PRODUCT_OPS.fullmatch(bare):
        return "matmul"
    return "" if _NEITHER_OPS.search(bare) else "memory"


@lru_cache(maxsize=65536)
def _by_kernel(name: str) -> str:
    for cause, pattern in (
        ("attention", _ATTENTION_KERNELS),
        ("matmul", _PRODUCT_KERNELS),
        ("other", _NEITHER_KERNELS),
        ("memory", _MOVING_KERNELS),
    ):
        if pattern.search(name):
            return cause
    return "other"
