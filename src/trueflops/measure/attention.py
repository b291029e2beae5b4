"""Attention: over prompts, forward and backward, and a decode step over a cache."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from trueflops.measure.device import Device
from trueflops.measure.job import Job
from trueflops.measure.timing import copies_of, time_launch
from trueflops.records.measured import Row

_BACKENDS: Final = {
    "fa2": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
_NAMES: Final = {torch.bfloat16: "bfloat16", torch.float32: "float32"}
# Head dimensions, heads, and the largest b·h·s²·d, of an accelerator and of a CPU.
_HEAD_DIMS: Final = (
    (64, 64, 64, 128, 128, 128, 32, 40, 72, 80, 96, 104, 120, 160, 192, 256),
    (32, 64, 128),
)
_HEADS: Final = ((4, 8, 16, 32, 40, 64), (2, 4, 8, 16))
_MOST: Final = (2**42, 2**28)
_MOST_CACHED: Final = (2**31, 2**24)


def usual_dtype(device: Device) -> torch.dtype:
    """What models run in: bf16, but for CPUs, most of which have no such units."""
    return torch.float32 if device.is_cpu else torch.bfloat16


def attention_kernels(device: Device) -> list[str]:
    """The kernels that torch may choose between; the one it does choose comes first."""
    if device.kind != "cuda" or torch.version.hip:
        return [""]
    q = device.normal(1, 8, 256, 128)
    found = []
    for name, backend in _BACKENDS.items():
        try:
            with sdpa_kernel(backend):
                functional.scaled_dot_product_attention(q, q, q, is_causal=True)
            found.append(name)
        except RuntimeError:
            continue
    return sorted(found, key=lambda name: name != usual_kernel(q)) or [""]


def usual_kernel(q: torch.Tensor) -> str:
    """Which kernel torch itself picks for this query."""
    picked = torch._fused_sdp_choice(q, q, q, is_causal=True)
    return next((name for name, backend in _BACKENDS.items() if backend.value == picked), "")


def attention_jobs(device: Device, kernels: list[str]) -> Iterator[Job]:
    """Attention over prompts, forward and backward, without end; most of it causal.

    The kernel that torch picks comes most often.
    """
    draw, seen = random.Random("attention"), set()
    while True:
        head_dim = draw.choice(_HEAD_DIMS[device.is_cpu])
        heads = draw.choice(_HEADS[device.is_cpu])
        kv = heads // draw.choice((1, 1, 4, 8)) or 1
        batch = draw.choice((1, 1, 2, 4, 8, 16, 32))
        seq = draw.choice((128, 256, 512, 1024, 2048, 4096, 8192, 16384))
        shape = (batch, seq, heads, kv, head_dim)
        fits = batch * seq * heads * head_dim <= 2**28
        if (
            shape in seen
            or heads % kv
            or not fits
            or batch * heads * seq**2 * head_dim > _MOST[device.is_cpu]
        ):
            continue
        seen.add(shape)
        causal = device.is_cpu or len(seen) % 3 != 0
        for kernel in {0: kernels, 1: kernels[:2]}.get(len(seen) % 4, kernels[:1]):
            for way in ("forward", "backward"):
                yield attention_job(device, shape, kernel, way, causal=causal)


def attention_job(
    device: Device,
    shape: tuple[int, int, int, int, int],
    kernel: str,
    way: str,
    *,
    causal: bool = True,
) -> Job:
    """Attention over a prompt, one way."""
    batch, seq, heads, kv, head_dim = shape
    dtype = usual_dtype(device)
    cells: Row = {
        "attn_dtype": _NAMES[dtype], "kv_dtype": _NAMES[dtype], "head_dim": head_dim,
        "num_heads": heads, "num_kv_heads": kv, "window": 0, "batch": batch, "isl": seq,
        "direction": way, "kernel": kernel, "causal": int(causal),
    }  # fmt: skip

    def measure() -> dict[str, float]:
        back = way == "backward"
        q = device.normal(batch, seq, heads, head_dim, dtype=dtype).transpose(1, 2)
        k, v = (device.normal(batch, seq, kv, head_dim, dtype=dtype).transpose(1, 2) for _ in "kv")
        for x in (q, k, v):
            x.requires_grad_(back)
        with _only(kernel):

            def forward(_: int) -> torch.Tensor:
                return functional.scaled_dot_product_attention(
                    q, k, v, is_causal=causal, enable_gqa=kv != heads
                )

            if not back:
                return time_launch(device, forward).cells()
            out = forward(0)
            grad = device.normal(*out.shape, dtype=dtype)
            return time_launch(
                device,
                lambda _: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True),
            ).cells()

    return Job("attention", cells, measure)


def _only(kernel: str) -> AbstractContextManager[Any]:
    return sdpa_kernel(_BACKENDS[kernel]) if kernel else nullcontext()


def decode_jobs(device: Device) -> Iterator[Job]:
    """One new token a sequence over a cache, without end."""
    draw, seen = random.Random("decode"), set()
    kernels = attention_kernels(device)
    kernel = "fa2" if "fa2" in kernels else kernels[0]
    while True:
        head_dim = draw.choice((64, 128, 128))
        kv, group = draw.choice((1, 2, 4, 8, 8, 16, 32)), draw.choice((1, 4, 8))
        batch = draw.choice((1, 2, 4, 8, 16, 32, 64, 128, 256))
        keys = draw.choice((128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768))
        shape = (batch, keys, kv * group, kv, head_dim)
        cached = batch * keys * kv * head_dim
        if shape in seen or cached > _MOST_CACHED[device.is_cpu] or kv * group > 128:
            continue
        seen.add(shape)
        yield _decode_job(device, shape, kernel)


def _decode_job(device: Device, shape: tuple[int, int, int, int, int], kernel: str) -> Job:
    batch, keys, heads, kv, head_dim = shape
    dtype = usual_dtype(device)
    cells: Row = {
        "attn_dtype": _NAMES[dtype], "kv_dtype": _NAMES[dtype], "head_dim": head_dim,
        "num_heads": heads, "num_kv_heads": kv, "window": 0, "batch": batch, "kv_len": keys,
        "kernel": kernel,
    }  # fmt: skip

    def measure() -> dict[str, float]:
        each = 2.0 * batch * keys * kv * head_dim * dtype.itemsize
        copies = copies_of(each, device, least=1, most=16)
        q = device.normal(batch, heads, 1, head_dim, dtype=dtype)
        ks, vs = (
            [device.normal(batch, kv, keys, head_dim, dtype=dtype) for _ in range(copies)]
            for _ in "kv"
        )
        with _only(kernel):
            return time_launch(
                device,
                lambda i: functional.scaled_dot_product_attention(
                    q, ks[i], vs[i], enable_gqa=kv != heads
                ),
                copies,
            ).cells()

    return Job("attention_decode", cells, measure)
