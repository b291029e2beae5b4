"""Memory that a CUDA kernel takes for itself while it runs.

It comes and goes inside one call, where no dispatch mode sees it, but a peak counts it. Sizes are
those that torch's source asks for (aten/src/ATen/native: cuda/SoftMax.cu, cudnn/MHA.cpp,
transformers/cuda/attention.cu and attention_backward.cu), and were seen on an H200 under 2.11.
What cuDNN asks for its convolutions is in truth/h200/calls.csv (workspace_bytes).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, prod
from typing import Any, Final

import torch
from torch import Tensor

_FLOAT: Final = 4  # bytes
_WIDE_VALUES: Final = 128  # up to which the memory-efficient kernel keeps its output in registers
_TILE: Final = 64  # of the memory-efficient backward, in either direction
_CUDNN_ROWS: Final = 128  # cuDNN's backward works on whole blocks of so many queries
_FLASH_ROWS: Final = 128
_FEW_CHANNELS: Final = 4  # a first layer's, for which cuDNN has kernels of their own
_FLASH_STEP: Final = 32  # elements of a head that flash attention's backward rounds up to


def temporaries(op: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> tuple[int, ...]:
    """Bytes of the storages that a call of this op has beside its results."""
    own = _OWN.get(op)
    return () if own is None else tuple(n for n in own(inputs, outputs) if n)


def _softmax_backward(inputs: Sequence[Tensor], _: Any) -> list[int]:
    """The product of gradient and result is a kernel of its own."""
    grad, result = inputs[:2]
    dtype = torch.promote_types(grad.dtype, result.dtype)
    return [grad.numel() * dtype.itemsize]


def _squared_error(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[int]:
    """Of a mean or a sum: every element's own loss, and what was meant to hold it (Loss.cpp)."""
    given = inputs[0]
    return [given.numel() * given.element_size()] * 2 if outputs[0].numel() == 1 else []


def _cudnn_backward(inputs: Sequence[Tensor], _: Any) -> list[int]:
    """Gradients of the queries are added up in fp32, beside one sum for each query."""
    q = inputs[1]
    rows = prod(q.shape[:2]) * _up(q.shape[2], _CUDNN_ROWS)
    return [rows * q.shape[3] * _FLOAT + rows * _FLOAT]


def _flash_backward(inputs: Sequence[Tensor], _: Any) -> list[int]:
    """The same, and copies of what does not lie token by token."""
    grad, q, _, _, out = inputs[:5]
    width = q.shape[3]
    rows = prod(q.shape[:2]) * _up(q.shape[2], _FLASH_ROWS)
    wide = _up(width, _FLASH_STEP) if width <= 192 else 256
    copied = [t.numel() * t.element_size() for t in (grad, out) if not _by_token(t)]
    return [*copied, rows * _FLOAT, rows * wide * _FLOAT]


def _by_token(x: Tensor) -> bool:
    """Whether the heads of a token lie side by side, and tokens one after another."""
    _, heads, tokens, width = x.shape
    wanted = (tokens * heads * width, width, heads * width, 1)
    return all(n == 1 or x.stride(i) == wanted[i] for i, n in enumerate(x.shape))


def _efficient(inputs: Sequence[Tensor], _: Any) -> list[int]:
    """Wide values are added up in fp32 beside a result in halves."""
    q, v = inputs[0], inputs[2]
    if v.shape[-1] <= _WIDE_VALUES or q.dtype == torch.float32:
        return []
    return [prod(q.shape[:3]) * v.shape[-1] * _FLOAT]


def _efficient_backward(inputs: Sequence[Tensor], _: Any) -> list[int]:
    """Gradients of the queries in tiles of fp32, and sums; singles sum in kernels of torch's own.

    What wide heads take more is left out.
    """
    q = inputs[1]
    rows = prod(q.shape[:2])
    tiles = _up(q.shape[2], _TILE) * _up(q.shape[3], _TILE)
    sums = rows * q.shape[2] * _FLOAT * (2 if q.dtype == torch.float32 else 1)
    return [rows * tiles * _FLOAT, sums]


def _convolution(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[int]:
    """Of nine convolutions in ten whose channels come first: all of it, laid out channels last."""
    x, weight = inputs[:2]
    return [] if x.shape[1] <= _FEW_CHANNELS else _laid_out(x, weight, outputs[0])


def _convolution_backward(inputs: Sequence[Tensor], _: Any) -> list[int]:
    """One gradient after the other: the same once."""
    grad, x, weight = inputs[:3]
    return _laid_out(x, weight, grad)


def _laid_out(x: Tensor, weight: Tensor, y: Tensor) -> list[int]:
    """None where each channel has a filter of its own, or a window is one place: plain products."""
    alone = weight.shape[1] == 1 < x.shape[1]
    places = prod(weight.shape[2:]) == 1 and x.shape[2:] == y.shape[2:]
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    if alone or places or last:
        return []
    return [sum(t.numel() * t.element_size() for t in (x, weight, y))]


def _recurrent_backward(inputs: Sequence[Tensor], _: Any) -> list[int]:
    """Gradients of all gates of all steps (one program, to 4 %)."""
    x, weight = inputs[:2]
    states = next(t for t in inputs[2:] if t.dim() == 3)  # of each layer and direction
    every = x.numel() // x.shape[-1] * states.shape[0]
    return [every * weight.shape[0] * x.element_size()]


def _up(size: int, step: int) -> int:
    return ceil(size / step) * step


_Own = Callable[[Sequence[Tensor], Sequence[Tensor]], list[int]]
_OWN: Final[dict[str, _Own]] = {
    "aten._softmax_backward_data.default": _softmax_backward,
    "aten.mse_loss.default": _squared_error,
    "aten.convolution.default": _convolution,
    "aten.convolution_backward.default": _convolution_backward,
    "aten._cudnn_rnn_backward.default": _recurrent_backward,
    "aten._scaled_dot_product_cudnn_attention_backward.default": _cudnn_backward,
    "aten._scaled_dot_product_flash_attention_backward.default": _flash_backward,
    "aten._scaled_dot_product_efficient_attention.default": _efficient,
    "aten._scaled_dot_product_efficient_attention_backward.default": _efficient_backward,
}
