"""Products of fp16 and bf16 on a CPU as an accelerator computes them: sums in fp32.

Tensor cores multiply narrow numbers, add in fp32 and round the result (NVIDIA, "Mixed-Precision
Training", docs). A CPU without such instructions takes a hundred times as long, and one with them
may add in fp16. While `WideSums` is entered operands are widened, which is exact, and results
narrowed, so that the numbers are those of an accelerator on any CPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

_NARROW: Final = (torch.float16, torch.bfloat16)
_PRODUCTS: Final = (
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::baddbmm",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
)
_LOGSUMEXP: Final = 1  # of attention's results the one that is fp32 whatever comes in


class WideSums(TorchDispatchMode):
    """Widens what enters a product of narrow numbers, and narrows what it gives."""

    def __init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an op."""
        dtype = next((a.dtype for a in args if isinstance(a, Tensor)), None)
        if func._schema.name not in _PRODUCTS or dtype not in _NARROW:
            return func(*args, **(kwargs or {}))
        made = func(*tree_map(_widened, args), **(kwargs or {}))
        if isinstance(made, Tensor):
            return made.to(dtype)
        forward = not func._schema.name.endswith("backward")
        return tuple(
            each if forward and place == _LOGSUMEXP else each.to(dtype)
            for place, each in enumerate(made)
        )


def _widened(x: Any) -> Any:
    return x.float() if isinstance(x, Tensor) and x.dtype in _NARROW else x
