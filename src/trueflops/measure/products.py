"""Matrix products in every number format that a device has: y[m,n] = x[m,k]·W[n,k]ᵀ.

Narrow operands are stored narrow: what is timed is the product, not a cast before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import torch

from trueflops.measure.device import Device
from trueflops.measure.timing import Launch, copies_of
from trueflops.records.formats import FORMATS


class Product(NamedTuple):
    """One product: its sizes, format, and what a training step calls its layout."""

    m: int
    n: int
    k: int
    dtype: str
    layout: str = "nt"  # nt: forward; nn: the input's gradient; tn: the weight's

    @property
    def flop(self) -> float:
        """Multiplications and additions."""
        return 2.0 * self.m * self.n * self.k

    @property
    def weight_bytes(self) -> float:
        """What is read of W, and rotates."""
        return self.n * self.k * FORMATS[self.dtype].operand

    def copies(self, device: Device) -> int:
        """How many sets of weights rotate so that none is in cache."""
        return copies_of(self.weight_bytes, device, most=MOST_COPIES)

    def bytes(self, copies: int) -> float:
        """Memory that all buffers take together."""
        rotating = self.weight_bytes if self.layout != "tn" else 0.0
        fixed = (self.m * self.k + 2.0 * self.m * self.n) * 4.0
        both = (
            (self.m + self.n) * self.k * FORMATS[self.dtype].operand if self.layout == "tn" else 0.0
        )
        return copies * (rotating + both) + fixed


MOST_COPIES: Final = 256  # of weights so small that fewer would stay in cache
_PLAIN: Final = {
    "fp64": torch.float64, "fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16,
    "fp16": torch.float16,
}  # fmt: skip


def sides_of(dtype: str) -> int:
    """Sizes that kernels of a format take are multiples of this."""
    return {"int8": 32, "bf16_2:4": 64}.get(dtype, 16 if FORMATS[dtype].operand == 1 else 1)


def launcher(product: Product, device: Device, copies: int) -> Launch:
    """A launch of the product; RuntimeError where the device has no kernel for it."""
    if product.dtype in _PLAIN:
        return _plain(product, device, copies)
    return _NARROW[product.dtype](product, device, copies)


def _plain(p: Product, device: Device, copies: int) -> Launch:
    kind = _PLAIN[p.dtype]
    if device.kind == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = p.dtype == "tf32"
    out = torch.empty(p.m, p.n, device=device.at, dtype=kind)
    if p.layout == "tn":  # dW[m,n] = dyᵀ[m,k]·x[k,n]: k runs over tokens
        ys = [device.normal(p.k, p.m, dtype=kind) for _ in range(copies)]
        xs = [device.normal(p.k, p.n, dtype=kind) for _ in range(copies)]
        return lambda i: torch.mm(ys[i].t(), xs[i], out=out)
    x = device.normal(p.m, p.k, dtype=kind)
    if p.layout == "nn":
        ws = [device.normal(p.k, p.n, dtype=kind) for _ in range(copies)]
        return lambda i: torch.mm(x, ws[i], out=out)
    ws = [device.normal(p.n, p.k, dtype=kind) for _ in range(copies)]
    return lambda i: torch.mm(x, ws[i].t(), out=out)


def _fp8(p: Product, device: Device, copies: int, *, by_row: bool, fast: bool) -> Launch:
    """Scales of whole tensors, or one for each row of x and of W.

    Fast sums stay in the tensor cores, in fewer bits: usual in a forward, not in gradients.
    """
    e4m3 = torch.float8_e4m3fnuz if _is_mi300(device) else torch.float8_e4m3fn
    x = device.normal(p.m, p.k).to(e4m3)
    ws = [device.normal(p.n, p.k).to(e4m3) for _ in range(copies)]
    shapes = ((p.m, 1), (1, p.n)) if by_row else ((), ())
    of_x, of_w = (torch.ones(shape, device=device.at) for shape in shapes)
    return lambda i: torch._scaled_mm(
        x, ws[i].t(), of_x, of_w, out_dtype=torch.bfloat16, use_fast_accum=fast
    )


def _is_mi300(device: Device) -> bool:
    return str(device.identity.get("capability", "")).startswith("gfx94")


def _int8(p: Product, device: Device, copies: int) -> Launch:
    x = device.integers(-127, 127, p.m, p.k, dtype=torch.int8)
    ws = [device.integers(-127, 127, p.n, p.k, dtype=torch.int8) for _ in range(copies)]
    return lambda i: torch._int_mm(x, ws[i].t())


def _sparse(p: Product, device: Device, copies: int) -> Launch:
    """Two of every four weights are zero; counted as if none were, as vendors do."""
    from torch.sparse import to_sparse_semi_structured

    keep = torch.tensor([0, 0, 1, 1], device=device.at, dtype=torch.bfloat16)
    mask = keep.repeat(p.n, p.k // 4)
    ws = [to_sparse_semi_structured(device.normal(p.n, p.k) * mask) for _ in range(copies)]
    x = device.normal(p.k, p.m)
    return lambda i: torch.mm(ws[i], x)


_NARROW: Final[dict[str, Callable[[Product, Device, int], Any]]] = {
    "fp8": lambda p, d, c: _fp8(p, d, c, by_row=False, fast=False),
    "fp8_row": lambda p, d, c: _fp8(p, d, c, by_row=True, fast=False),
    "fp8_fast": lambda p, d, c: _fp8(p, d, c, by_row=False, fast=True),
    "int8": _int8,
    "bf16_2:4": _sparse,
}


def has_tf32(device: Device) -> bool:
    """Ampere and later have it, and few others."""
    if device.kind != "cuda" or torch.version.hip:
        return False
    return float(device.identity["capability"]) >= 8.0


def has_kernel(dtype: str, device: Device) -> bool:
    """Whether a small product of this format runs here."""
    if dtype == "tf32" and not has_tf32(device):
        return False  # fp32 by another name
    try:
        if device.is_cpu and dtype not in ("fp32", "fp64"):  # others are emulated, but for bf16's
            return dtype == "bf16" and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
        launcher(Product(256, 256, 256, dtype), device, 1)(0)
        device.synchronize()
    except (RuntimeError, NotImplementedError, AttributeError, TypeError):
        return False
    return True
