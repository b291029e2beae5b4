"""Meta kernels for the ops of CUDA that torch has none for.

Most results have the shape of one of the arguments. The rest follow the CUDA kernels
(aten/src/ATen/native/cuda: Normalization, RNN, LossCTC).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor
from torch._meta_registrations import calc_conv_nd_return_shape

_LIKE: Final = {
    "multi_margin_loss_backward": 1, "multilabel_margin_loss_backward": 1,
    "fractional_max_pool3d_backward": 1, "_ctc_loss_backward": 1, "_ctc_loss_backward.Tensor": 1,
    "_standard_gamma_grad": 0, "_dirichlet_grad": 0, "_sample_dirichlet": 0, "binomial": 0,
    "_masked_softmax": 0, "_masked_softmax_backward": 0, "batch_norm_elemt": 0,
    "batch_norm_backward_elemt": 1,
}  # fmt: skip
"""Ops whose result looks like one of their arguments, and which."""
GATES: Final = (1, 1, 4, 3)  # of cuDNN's modes: rnn_relu, rnn_tanh, lstm, gru
RESERVED: Final = (2, 2, 5, 6)
"""Numbers that cuDNN keeps for each hidden one, by mode (the first two assumed); and one more
between two layers (cuDNN 9.19 on an H200: 408 layers, but for a few hundred bytes exactly)."""


def tell_shapes(library: torch.library.Library) -> None:
    """Register the meta kernels, while a capture lasts."""
    for name, which in _LIKE.items():
        library.impl(name, _like(which), "Meta")
    for name, shape in _SHAPES.items():
        library.impl(name, shape, "Meta", allow_override=True)


def _like(which: int) -> Callable[..., Tensor]:
    return lambda *args, **_: torch.empty_like(args[which])


def _statistics(x: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    """Mean and inverse deviation of every channel, wide enough to sum halves."""
    wide = x.new_empty(x.shape[1], dtype=torch.promote_types(x.dtype, torch.float32))
    return wide, torch.empty_like(wide)


def _sums(
    grad: Tensor, x: Tensor, mean: Tensor, spread: Tensor, weight: Any, *wanted: bool
) -> tuple[Any, ...]:
    """What SyncBatchNorm's backward adds up over the ranks, and the gradients of its weights."""
    given = torch.empty_like(mean if weight is None else weight)
    asked = (wanted[0], wanted[0], wanted[1], wanted[2])
    made = (mean, mean, given, given)
    return tuple(torch.empty_like(m) if a else None for a, m in zip(asked, made, strict=True))


def _ctc(x: Tensor, targets: Tensor, lengths: Any, *_: Any) -> tuple[Tensor, Tensor]:
    """The loss and the log-likelihoods of its paths, for targets of the full width."""
    steps, batch = (x.shape[0], x.shape[1]) if x.dim() == 3 else (x.shape[0], 1)
    longest = targets.shape[-1] if targets.dim() > 1 else -(-targets.shape[0] // batch)
    return x.new_empty(batch), x.new_empty(batch, steps, 2 * longest + 1)


def _quantised(x: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)


def _gru_cell(gates: Tensor, _: Tensor, state: Tensor, *__: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(state), state.new_empty(state.shape[0], 5 * state.shape[1])


def _gru_cell_backward(grad: Tensor, workspace: Tensor, biased: bool) -> tuple[Any, ...]:
    batch, hidden = grad.shape
    gates = [grad.new_empty(batch, 3 * hidden) for _ in range(2)]
    biases = [grad.new_empty(3 * hidden) if biased else None for _ in range(2)]
    return (*gates, torch.empty_like(grad), *biases)


# ── convolutions, whose layout is cuDNN's choice ─────────────────────────────────────────────────


def _convolution(
    x: Tensor, weight: Tensor, bias: Any, stride: list[int], padding: list[int],
    dilation: list[int], transposed: bool, output_padding: list[int], groups: int,
) -> Tensor:  # fmt: skip
    shape = calc_conv_nd_return_shape(
        x, weight, stride, padding, dilation, transposed, groups,
        output_padding if transposed else None,
    )  # fmt: skip
    return x.new_empty(shape).to(memory_format=_format(x, weight))


def _convolution_backward(
    grad: Tensor, x: Tensor, weight: Tensor, biases: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, wanted: list[bool],
) -> tuple[Any, ...]:  # fmt: skip
    laid = _format(x, weight)
    made = (x.shape, weight.shape, grad.shape[1:2])
    return tuple(
        grad.new_empty(shape).to(memory_format=laid if len(shape) > 1 else torch.preserve_format)
        if asked
        else None
        for shape, asked in zip(made, wanted, strict=True)
    )


def _format(x: Tensor, weight: Tensor) -> torch.memory_format:
    """Channels come last if they do in the input or in the weights (cudnn/ConvShared.cpp)."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    if last is not None and any(
        t.is_contiguous(memory_format=last) and not t.is_contiguous() for t in (x, weight)
    ):
        return last
    return torch.contiguous_format


# ── cuDNN's recurrent layers ─────────────────────────────────────────────────────────────────────


def _layers(
    x: Tensor, weights: list[Tensor], _: int, buffer: Any, hx: Tensor, cx: Any, mode: int,
    hidden: int, projected: int, layers: int, batch_first: bool, dropout: float, train: bool,
    bidirectional: bool, batch_sizes: list[int], *__: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """Outputs, last states, what is kept for the backward, and the weights in one piece."""
    ways, wide = 1 + bidirectional, projected or hidden
    output = _by_steps(x, wide * ways, batch_first and not batch_sizes)
    each = RESERVED[mode] * layers + layers - 1
    kept = each * hidden * ways * x[..., 0].numel() if train else 0
    cell = x.new_empty(0) if cx is None else torch.empty_like(cx)
    reserve = x.new_empty(kept * x.element_size(), dtype=torch.uint8)
    return output, torch.empty_like(hx), cell, reserve, buffer


def _layers_backward(
    x: Tensor, weights: list[Tensor], _: int, buffer: Any, hx: Tensor, cx: Any, output: Tensor,
    grad: Any, grad_h: Any, grad_c: Any, mode: int, hidden: int, projected: int, layers: int,
    batch_first: bool, dropout: float, train: bool, bidirectional: bool, batch_sizes: list[int],
    state: Any, reserve: Any, wanted: list[bool],
) -> tuple[Any, ...]:  # fmt: skip
    """The gradients of the weights lie in one buffer, as the weights do."""
    made, at = [], 0
    if wanted[3]:
        flat = x.new_empty(sum(weight.numel() for weight in weights))
        for weight in weights:
            made.append(flat[at : at + weight.numel()].view(weight.shape))
            at += weight.numel()
    cell = x.new_empty(0) if cx is None else torch.empty_like(cx)
    grad_x = _by_steps(x, x.shape[-1], batch_first and not batch_sizes)
    return grad_x, torch.empty_like(hx), cell, made


def _by_steps(x: Tensor, wide: int, batch_first: bool) -> Tensor:
    """Results lie step by step; of a batch that comes first they are a view (cudnn/RNN.cpp)."""
    if not batch_first:
        return x.new_empty(*x.shape[:-1], wide)
    batch, steps = x.shape[:2]
    return x.new_empty(steps, batch, wide).transpose(0, 1)


# ── attention ────────────────────────────────────────────────────────────────────────────────────


def _cudnn_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Any, keeps: bool, *_: Any, **__: Any
) -> tuple[Any, ...]:
    """Laid out as the queries are; sums only where a backward will ask for them."""
    laid = sorted(range(4), key=lambda i: (q.stride(i) or float("inf"), -i), reverse=True)
    shape = (*q.shape[:3], v.shape[3])
    made = torch.empty_like(q) if shape == q.shape else q.new_empty(0)
    if shape != q.shape:
        made = torch.empty_permuted(shape, laid, dtype=q.dtype, device=q.device)
    sums = q.new_empty((*q.shape[:3], 1) if keeps else 0, dtype=torch.float32)
    seed, offset = (q.new_empty((), dtype=torch.int64) for _ in range(2))
    return made, sums, None, None, q.shape[2], k.shape[2], seed, offset, None


_SHAPES: Final[dict[str, Callable[..., Any]]] = {
    "batch_norm_stats": _statistics,
    "batch_norm_gather_stats_with_counts": _statistics,
    "batch_norm_backward_reduce": _sums,
    "_ctc_loss.Tensor": _ctc,
    "fake_quantize_per_tensor_affine_cachemask": _quantised,
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": _quantised,
    "fake_quantize_per_channel_affine_cachemask": _quantised,
    "_thnn_fused_gru_cell": _gru_cell,
    "_thnn_fused_gru_cell_backward": _gru_cell_backward,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_cudnn_attention": _cudnn_attention,
    "_cudnn_rnn": _layers,
    "_cudnn_rnn_backward": _layers_backward,
}
