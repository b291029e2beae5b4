"""scaled_dot_product_attention as the fused kernel that it would be on the chip.

torch decides by device, types and layout (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp):
cuDNN's kernels come first on Hopper and Blackwell, FlashAttention-2 elsewhere, the memory-efficient
kernels for masks and fp32, and plain products for what none of them takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.nn.attention import SDPBackend

from trueflops.capture.pretend.fused import keep_fused

_ATEN: Final = torch.ops.aten
_HALVES: Final = (torch.float16, torch.bfloat16)
_CUDNN_CAPABILITIES: Final = (9, 10)  # major: Hopper, data-centre Blackwell
_AMPERE: Final = (8, 0)  # the first that FlashAttention-2 and bfloat16 run on
_CUDNN_HEAD: Final = 128  # the widest head whose backward cuDNN has
_FLASH_HEAD: Final = 256
_ENABLED: Final = {
    SDPBackend.CUDNN_ATTENTION: torch._C._get_cudnn_sdp_enabled,
    SDPBackend.FLASH_ATTENTION: torch._C._get_flash_sdp_enabled,
    SDPBackend.EFFICIENT_ATTENTION: torch._C._get_mem_efficient_sdp_enabled,
}


@contextmanager
def fused_attention(capability: tuple[int, int], *, on_host: bool) -> Iterator[None]:
    """Route every call of scaled_dot_product_attention, from Python or C++, while it lasts."""
    library = torch.library.Library("aten", "IMPL")

    def attend(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        if on_host:
            return _on_host(q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        backend = choose(q, k, v, attn_mask, capability, grouped=enable_gqa)
        return _RUN[backend](q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa)

    key = "CPU" if on_host else "CUDA"
    try:
        if not on_host:
            keep_fused(library)
        # A DTensor holds fake tensors, but its own dispatch keys are meta's.
        for each in (f"Autograd{key}", key, "AutogradMeta"):
            library.impl("scaled_dot_product_attention", attend, each)
        yield
    finally:
        library._destroy()


def choose(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    capability: tuple[int, int],
    *,
    grouped: bool,
) -> SDPBackend:
    """The kernel that torch would take."""
    takes = {
        SDPBackend.CUDNN_ATTENTION: capability[0] in _CUDNN_CAPABILITIES
        and q.dtype in _HALVES
        and max(q.shape[-1], v.shape[-1]) <= _CUDNN_HEAD
        and q.shape[-1] % 8 == v.shape[-1] % 8 == 0
        and q.dim() == 4
        and q.shape[-2] > 1,
        SDPBackend.FLASH_ATTENTION: capability >= _AMPERE
        and mask is None
        and q.dtype in _HALVES
        and q.shape[-1] == v.shape[-1] <= _FLASH_HEAD
        and q.dim() == 4,
        SDPBackend.EFFICIENT_ATTENTION: not grouped
        and q.dim() == 4
        and q.dtype in (torch.float16, torch.float32, *(_HALVES * (capability >= _AMPERE))),
    }
    for backend, able in takes.items():
        if able and _ENABLED[backend]():
            return backend
    return SDPBackend.MATH


def _cudnn(q: Any, k: Any, v: Any, mask: Any, p: float, causal: bool, scale: Any, _: bool) -> Any:
    keep = _needs_grad(q, k, v)
    mask = _as_bias(mask, q)
    return _ATEN._scaled_dot_product_cudnn_attention(
        q, k, v, mask, keep, p, causal, False, scale=scale
    )[0]


def _as_bias(mask: torch.Tensor | None, q: torch.Tensor) -> torch.Tensor | None:
    """A boolean mask becomes a bias of 0 and −∞, to be added to the scores."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    none = torch.zeros((), dtype=q.dtype, device=q.device)
    return torch.where(mask, none, torch.full_like(none, float("-inf")))


def _flash(q: Any, k: Any, v: Any, mask: Any, p: float, causal: bool, scale: Any, _: bool) -> Any:
    return _ATEN._scaled_dot_product_flash_attention(q, k, v, p, causal, False, scale=scale)[0]


def _efficient(
    q: Any, k: Any, v: Any, mask: Any, p: float, causal: bool, scale: Any, _: bool
) -> Any:
    keep = _needs_grad(q, k, v)
    mask = _as_bias(mask, q)
    return _ATEN._scaled_dot_product_efficient_attention(
        q, k, v, mask, keep, p, causal, scale=scale
    )[0]


def _plain(
    q: Any, k: Any, v: Any, mask: Any, p: float, causal: bool, scale: Any, grouped: bool
) -> Any:
    return _ATEN._scaled_dot_product_attention_math(
        q, k, v, mask, p, causal, None, scale=scale, enable_gqa=grouped
    )[0]


def _on_host(
    q: Any, k: Any, v: Any, mask: Any, p: float, causal: bool, scale: Any, grouped: bool
) -> Any:
    """On a CPU: its own flash kernel, which knows no dropout and wants as many keys as queries."""
    if p > 0.0 or q.dim() != 4 or (mask is not None and mask.requires_grad):
        return _plain(q, k, v, mask, p, causal, scale, grouped)
    if grouped:
        times = q.shape[-3] // k.shape[-3]
        k, v = k.repeat_interleave(times, -3), v.repeat_interleave(times, -3)
    return _ATEN._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, p, causal, attn_mask=mask, scale=scale
    )[0]


def _needs_grad(*tensors: torch.Tensor) -> bool:
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


_RUN: Final = {
    SDPBackend.CUDNN_ATTENTION: _cudnn,
    SDPBackend.FLASH_ATTENTION: _flash,
    SDPBackend.EFFICIENT_ATTENTION: _efficient,
    SDPBackend.MATH: _plain,
}
