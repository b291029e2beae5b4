"""Which kernel scaled_dot_product_attention takes, as torch decides it.

torch asks its backends in an order of preference, and each says what it does not take. Here is
what they say (aten/src/ATen/native/transformers: sdp_utils_cpp.h, cuda/sdp_utils.cpp), in the order
of that file, for releases from 2.11, whose wheels have cuDNN 9.15.1 or later. A build without CUDA
has none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.nn.attention import SDPBackend

_HALVES: Final = (torch.float16, torch.bfloat16)
_CUDNN_FIRST: Final = (9, 10)  # major: Hopper, data-centre Blackwell
_AMPERE: Final = (8, 0)  # the first that FlashAttention-2, cuDNN's kernels and bfloat16 run on
_NEWEST: Final = (12, 1)  # the last that any fused kernel is built for
_CUDNN_HEAD: Final = 128
_CUDNN_HEADS: Final = {(9, 0): 256}  # where they may be wider
_CUDNN_MOST: Final = 65535  # batches, heads
_FLASH_HEAD: Final = 256
_CUDNN_ORDER: Final = (
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
)
_SMALL_SHARED: Final = ((8, 6), (8, 9)), ((12, 0), (12, 1))
"""Capabilities with too little shared memory for the widest heads of flash attention's backward."""


@dataclass(frozen=True)
class Attention:
    """What a program asks for."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    mask: torch.Tensor | None
    dropout: float
    causal: bool
    scale: float | None
    grouped: bool  # keys and values may have fewer heads than queries

    @property
    def operands(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys, values."""
        return self.q, self.k, self.v

    @property
    def needs_grad(self) -> bool:
        """Whether a backward will follow; a mask's own gradient is not asked for here."""
        return torch.is_grad_enabled() and any(t.requires_grad for t in self.operands)


@contextmanager
def preferred_order(capability: tuple[int, int]) -> Iterator[None]:
    """The order that torch sets on such a chip when it is first asked; programs may change it."""
    before = torch._C._get_sdp_priority_order()
    if capability[0] in _CUDNN_FIRST:
        torch._C._set_sdp_priority_order([_number(each) for each in _CUDNN_ORDER])
    try:
        yield
    finally:
        torch._C._set_sdp_priority_order(before)


def choose(asked: Attention, capability: tuple[int, int]) -> SDPBackend:
    """The first backend in the order of preference that is enabled and takes it."""
    enabled = {_number(backend): backend for backend, is_on in _ENABLED.items() if is_on()}
    for number in torch._C._get_sdp_priority_order():
        backend = enabled.get(number)
        if backend is not None and _TAKES[backend](asked, capability):
            return backend
    raise RuntimeError("No available kernel. Aborting execution.")


def _cudnn(asked: Attention, capability: tuple[int, int]) -> bool:
    q, k, v = asked.operands
    exact = torch.are_deterministic_algorithms_enabled()
    return (
        _AMPERE <= capability <= _NEWEST
        and _four_dimensions(asked)
        and (not exact or torch.is_deterministic_algorithms_warn_only_enabled())
        and _one_of(asked, _HALVES)
        and _mask_fits(asked)
        and _rows_lie_whole(asked, alone_is_whole=True)
        and _same_batch(asked)
        and _heads_match(asked, grouped=True, alike=False)
        and max(q.shape[:2]) <= _CUDNN_MOST
        and _cudnn_heads(q.shape[-1], v.shape[-1], capability)
        and k.shape[-2] != 1
        and not (asked.dropout and q.shape[-2] == 1)
    )


def _cudnn_heads(query: int, value: int, capability: tuple[int, int]) -> bool:
    widest = _CUDNN_HEADS.get(capability, _CUDNN_HEAD)
    return max(query, value) <= widest and query % 8 == value % 8 == 0


def _flash(asked: Attention, capability: tuple[int, int]) -> bool:
    q, k, v = asked.operands
    width = q.shape[-1]
    scarce = any(first <= capability <= last for first, last in _SMALL_SHARED)
    return (
        _AMPERE <= capability <= _NEWEST
        and _four_dimensions(asked)
        and asked.mask is None
        and width == k.shape[-1] == v.shape[-1] <= _FLASH_HEAD
        and not (
            scarce
            and asked.needs_grad
            and (192 < width <= 224 or (width > 224 and asked.dropout > 0.0))
        )
        and not (asked.causal and q.shape[-2] != k.shape[-2])
        and _one_of(asked, _HALVES)
        and _same_batch(asked)
        and _heads_match(asked, grouped=True, alike=True)
        and _rows_lie_whole(asked, alone_is_whole=True)
    )


def _efficient(asked: Attention, capability: tuple[int, int]) -> bool:
    q, k, v = asked.operands
    halves = _HALVES if capability >= _AMPERE else (torch.float16,)
    step = _alignment(q.dtype, capability)
    return (
        capability <= _NEWEST
        and _four_dimensions(asked)
        and q.shape[-1] == k.shape[-1]
        and all(t.shape[-1] and t.shape[-1] % step == 0 for t in (q, v))
        and _rows_lie_whole(asked, alone_is_whole=False)
        and _same_batch(asked)
        and _heads_match(asked, grouped=False, alike=True)
        and _one_of(asked, (torch.float32, *halves))
    )


def _alignment(dtype: torch.dtype, capability: tuple[int, int]) -> int:
    """Elements that a load of the memory-efficient kernel takes at once."""
    if capability >= _AMPERE or (capability[0] == 7 and dtype in _HALVES):
        return 8 if dtype in _HALVES else 4
    return 1


# ── what several backends ask ────────────────────────────────────────────────────────────────────


def _four_dimensions(asked: Attention) -> bool:
    return all(t.dim() == 4 for t in asked.operands)


def _one_of(asked: Attention, dtypes: tuple[torch.dtype, ...]) -> bool:
    q, k, v = asked.operands
    return q.dtype == k.dtype == v.dtype and q.dtype in dtypes


def _same_batch(asked: Attention) -> bool:
    q, k, v = asked.operands
    return q.shape[0] == k.shape[0] == v.shape[0] and 0 not in (q.shape[-2], k.shape[-2])


def _heads_match(asked: Attention, *, grouped: bool, alike: bool) -> bool:
    """`alike`: keys must have as many heads as values even where queries have more."""
    q, k, v = (t.shape[-3] for t in asked.operands)
    if asked.grouped and grouped:
        return q % k == 0 and q % v == 0 and (k == v or not alike)
    return q == k == v


def _rows_lie_whole(asked: Attention, *, alone_is_whole: bool) -> bool:
    """The last dimension of all operands has stride 1, of the mask too."""
    whole = all(t.stride(-1) == 1 for t in asked.operands)
    if alone_is_whole:
        whole = whole or asked.q.shape[-1] == 1
    return whole and (asked.mask is None or asked.mask.stride(-1) == 1)


def _mask_fits(asked: Attention) -> bool:
    """Kernels of cuDNN give a mask no gradient, and broadcast it over whole dimensions alone."""
    mask = asked.mask
    if mask is None:
        return True
    if mask.requires_grad or mask.dim() not in (2, 4):
        return False
    batch, heads, queries = asked.q.shape[:3]
    wanted = (batch, heads, queries, asked.k.shape[-2])[-mask.dim() :]
    return all(have in (want, 1) for have, want in zip(mask.shape, wanted, strict=True))


def _everything(_: Attention, __: tuple[int, int]) -> bool:
    return True


def _number(backend: Any) -> int:
    """As torch's settings write it."""
    return int(backend)


_ENABLED: Final[dict[SDPBackend, Callable[[], bool]]] = {
    SDPBackend.CUDNN_ATTENTION: torch._C._get_cudnn_sdp_enabled,
    SDPBackend.FLASH_ATTENTION: torch._C._get_flash_sdp_enabled,
    SDPBackend.EFFICIENT_ATTENTION: torch._C._get_mem_efficient_sdp_enabled,
    SDPBackend.MATH: torch._C._get_math_sdp_enabled,
}
_TAKES: Final[dict[SDPBackend, Callable[[Attention, tuple[int, int]], bool]]] = {
    SDPBackend.CUDNN_ATTENTION: _cudnn,
    SDPBackend.FLASH_ATTENTION: _flash,
    SDPBackend.EFFICIENT_ATTENTION: _efficient,
    SDPBackend.MATH: _everything,
}
