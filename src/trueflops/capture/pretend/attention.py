"""scaled_dot_product_attention as the calls that it would be on the chip.

`sdp_choice` says whose kernel runs. What comes before and after it, the copies that pad heads and
masks, and the products of torch's own fallback follow aten/src/ATen/native/transformers/
attention.cpp: heads of 150 are padded to 152 for flash attention, and where no kernel takes the
call the scores exist in memory, in fp32.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.nn.attention import SDPBackend
from torch.nn.functional import pad

from trueflops.capture.pretend.fused import keep_fused
from trueflops.capture.pretend.sdp_choice import Attention, choose, preferred_order

_ATEN: Final = torch.ops.aten
_HALVES: Final = (torch.float16, torch.bfloat16)
_STEP: Final = 8  # elements: heads of flash attention and rows of an efficient mask are whole steps
_CUDNN_NEVER: Final = -65504.0  # what a masked score gets: cuDNN's kernels take no −∞


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
        asked = Attention(q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        _validate(asked)
        return _on_host(asked) if on_host else _RUN[choose(asked, capability)](asked)

    key = "CPU" if on_host else "CUDA"
    with preferred_order(capability):
        try:
            if not on_host:
                keep_fused(library)
            # A DTensor holds fake tensors, but its own dispatch keys are meta's.
            for each in (f"Autograd{key}", key, "AutogradMeta"):
                library.impl("scaled_dot_product_attention", attend, each)
            yield
        finally:
            library._destroy()


def _validate(asked: Attention) -> None:
    """Refuse what torch refuses, in its words."""
    q, k, v = asked.operands
    if not q.dtype == k.dtype == v.dtype:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{q.dtype} key.dtype: {k.dtype} and value.dtype: {v.dtype} instead."
        )
    if asked.mask is not None and asked.mask.dtype not in (torch.bool, torch.float32, q.dtype):
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got "
            f"attn_mask.dtype: {asked.mask.dtype} and  query.dtype: {q.dtype} instead."
        )


# ── one fused kernel ─────────────────────────────────────────────────────────────────────────────


def _cudnn(asked: Attention) -> torch.Tensor:
    made: torch.Tensor = _ATEN._scaled_dot_product_cudnn_attention(
        *asked.operands, _as_bias(asked.mask, asked.q.dtype, _CUDNN_NEVER), asked.needs_grad,
        asked.dropout, asked.causal, False, scale=asked.scale,
    )[0]  # fmt: skip
    return made


def _flash(asked: Attention) -> torch.Tensor:
    width = asked.q.shape[-1]
    scale = width**-0.5 if asked.scale is None else asked.scale
    made: torch.Tensor = _ATEN._scaled_dot_product_flash_attention(
        *map(_padded, asked.operands), asked.dropout, asked.causal, False, scale=scale
    )[0]
    return made if made.shape[-1] == width else made[..., :width]


def _efficient(asked: Attention) -> torch.Tensor:
    bias = _as_bias(asked.mask, asked.q.dtype)
    if bias is not None:
        whole = all(stride % _STEP == 0 for stride in bias.stride()[:-1])
        if not whole or bias.stride(-1) != 1:
            keys = bias.shape[-1]
            bias = pad(bias, (0, _STEP - keys % _STEP))[..., :keys]
        bias = bias.expand(*asked.q.shape[:3], asked.k.shape[-2])
    made: torch.Tensor = _ATEN._scaled_dot_product_efficient_attention(
        *asked.operands, bias, asked.needs_grad, asked.dropout, asked.causal, scale=asked.scale
    )[0]
    return made


def _padded(x: torch.Tensor) -> torch.Tensor:
    """Flash attention takes heads of whole steps."""
    return pad(x, (0, -x.shape[-1] % _STEP)) if x.shape[-1] % _STEP else x


def _as_bias(
    mask: torch.Tensor | None, dtype: torch.dtype, never: float = -torch.inf
) -> torch.Tensor | None:
    """A boolean mask becomes a bias of 0 and `never`, to be added to the scores."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.where(mask, 0.0, torch.scalar_tensor(never, dtype=dtype, device=mask.device))


# ── plain products ───────────────────────────────────────────────────────────────────────────────


def _plain(asked: Attention) -> torch.Tensor:
    """Scores, softmax, mixture, each in memory; halves are widened unless the program says not to.

    torch's own composite, but for the mask: under a dispatch mode torch adds it into new memory.
    Whatever has a name here lives until the end, as it does in C++.
    """
    bias = _as_bias(asked.mask, asked.q.dtype)
    widened = asked.q.dtype in _HALVES and not torch._C._get_math_sdp_allow_fp16_bf16_reduction()
    q, k, v = ((t.float() if widened else t) for t in asked.operands)
    scale = q.shape[-1] ** -0.5 if asked.scale is None else asked.scale
    root = abs(scale) ** 0.5  # half of it goes to either side
    scaled = _ATEN.mul.Scalar(q, root if scale >= 0.0 else -root)
    if asked.causal:
        if bias is not None:
            raise RuntimeError(
                "_scaled_dot_product_attention: Explicit attn_mask should not be set when "
                "is_causal=True"
            )
        bias = _causal_bias(q, k)
    keys, values = (_as_many_heads(x, q) if asked.grouped else x for x in (k, v))
    shares = scaled @ _ATEN.mul.Scalar(keys.transpose(-2, -1), root)
    if bias is not None:
        shares.add_(bias)
    shares = _ATEN._safe_softmax(shares, -1)
    if asked.dropout > 0.0:
        shares = torch.dropout(shares, asked.dropout, True)
    shares.to(asked.q.dtype)  # returned beside the mixture, and dropped
    return (shares @ values).to(asked.q.dtype)


def _causal_bias(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor | None:
    seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device)
    return _as_bias(seen.tril(), q.dtype)


def _as_many_heads(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    times = q.shape[-3] // x.shape[-3]
    return x if times == 1 else x.repeat_interleave(times, -3)


def _on_host(asked: Attention) -> torch.Tensor:
    """On a CPU: its own flash kernel, which knows no dropout and wants as many keys as queries."""
    q, k, v = asked.operands
    mask = asked.mask
    if asked.dropout > 0.0 or q.dim() != 4 or (mask is not None and mask.requires_grad):
        return _plain(asked)
    if asked.grouped:
        k, v = (_as_many_heads(x, q) for x in (k, v))
    made: torch.Tensor = _ATEN._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, asked.dropout, asked.causal, attn_mask=mask, scale=asked.scale
    )[0]
    return made


_RUN: Final = {
    SDPBackend.CUDNN_ATTENTION: _cudnn,
    SDPBackend.FLASH_ATTENTION: _flash,
    SDPBackend.EFFICIENT_ATTENTION: _efficient,
    SDPBackend.MATH: _plain,
}
