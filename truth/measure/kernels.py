"""Times of single kernels on this machine's first GPU, as CSV in the columns of the truth tables.

    python kernels.py FOLDER [--gpu h200]      matmul.csv, attention.csv, memory.csv, launch.csv
Needs torch alone. Shapes are drawn with a fixed seed and run in random order.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from timing import copies_of, seconds, write
from torch.nn.attention import SDPBackend, sdpa_kernel

Row = dict[str, Any]
KERNELS = {SDPBackend.FLASH_ATTENTION: "fa2", SDPBackend.CUDNN_ATTENTION: "cudnn"}
BF16 = torch.bfloat16


def normal(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    """Random data from a generator of its own: the default one belongs to a graph in capture."""
    found = torch.empty(shape, device="cuda", dtype=torch.float32)
    return found.normal_(generator=generator()).to(dtype)


@cache
def generator() -> torch.Generator:
    return torch.Generator("cuda").manual_seed(0)


def like(x: torch.Tensor) -> torch.Tensor:
    return normal(*x.shape, dtype=x.dtype)


def integers(low: int, high: int, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.randint(low, high, shape, device="cuda", dtype=dtype, generator=generator())


# ── matmul ───────────────────────────────────────────────────────────────────────────────────────

HIDDEN = (768, 1024, 1536, 2048, 2304, 3072, 4096, 5120, 6144, 8192, 10240, 12288, 16384)
ROWS = (1, 2, 4, 8, 16, 32, 64, 100, 128, 256, 512, 1000, 1024, 2048, 4096, 8192, 16384, 32768)
WIDE = (256, 512, 1280, 2560, 3584, 7168, 11008, 13824, 14336, 28672, 32000, 50304)


def matmul_shapes(count: int, seed: int, least_rows: int = 1) -> list[tuple[int, int, int]]:
    draw = random.Random(seed)
    found: set[tuple[int, int, int]] = set()
    while len(found) < count:
        m = draw.choice([r for r in ROWS if r >= least_rows])
        n, k = draw.choice(HIDDEN + WIDE), draw.choice(HIDDEN + WIDE)
        if n * k <= 2**28 and m * n <= 2**30 and 2.0 * m * n * k <= 2.0e13:
            found.add((m, n, k))
    return sorted(found)


def product(m: int, n: int, k: int, dtype: str, layout: str, copies: int) -> Any:
    """A launcher of y = x·Wᵀ in a format; nn is the input gradient's layout, tn the weight's."""
    if dtype == "fp8":
        e4m3 = torch.float8_e4m3fn
        x = normal(m, k).to(e4m3)
        ws = [normal(n, k).to(e4m3) for _ in range(copies)]
        one = torch.ones((), device="cuda")
        return lambda i: torch._scaled_mm(x, ws[i].t(), one, one, out_dtype=BF16)
    if dtype == "int8":
        x8 = integers(-127, 127, m, k, dtype=torch.int8)
        w8 = [integers(-127, 127, n, k, dtype=torch.int8) for _ in range(copies)]
        return lambda i: torch._int_mm(x8, w8[i].t())
    kind = {"bf16": BF16, "fp16": torch.float16, "tf32": torch.float32, "fp32": torch.float32}
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    if layout == "tn":  # dW[n,k] = dyᵀ[n,m]·x[m,k]
        ys = [normal(k, m, dtype=kind[dtype]) for _ in range(copies)]
        xs = [normal(k, n, dtype=kind[dtype]) for _ in range(copies)]
        out = torch.empty(m, n, device="cuda", dtype=kind[dtype])
        return lambda i: torch.mm(ys[i].t(), xs[i], out=out)
    x = normal(m, k, dtype=kind[dtype])
    out = torch.empty(m, n, device="cuda", dtype=kind[dtype])
    if layout == "nn":
        ws = [normal(k, n, dtype=kind[dtype]) for _ in range(copies)]
        return lambda i: torch.mm(x, ws[i], out=out)
    ws = [normal(n, k, dtype=kind[dtype]) for _ in range(copies)]
    return lambda i: torch.mm(x, ws[i].t(), out=out)


def matmuls(gpu: str) -> list[Row]:
    jobs = [("bf16", "nt", s) for s in matmul_shapes(220, 1)]
    jobs += [("bf16", lay, s) for lay in ("nn", "tn") for s in matmul_shapes(90, 2, 512)]
    jobs += [("bf16", "nt", s) for s in matmul_shapes(90, 2, 512)]
    jobs += [("fp16", "nt", s) for s in matmul_shapes(60, 3)]
    jobs += [("tf32", "nt", s) for s in matmul_shapes(90, 4)]
    jobs += [("fp32", "nt", s) for s in matmul_shapes(60, 5) if s[0] <= 4096]
    jobs += [("fp8", "nt", s) for s in matmul_shapes(160, 6, 16)]
    jobs += [("int8", "nt", s) for s in matmul_shapes(60, 7, 32)]
    random.Random(0).shuffle(jobs)
    rows = []
    width = {"fp8": 1, "int8": 1, "tf32": 4, "fp32": 4}
    for dtype, layout, (m, n, k) in jobs:
        if m % 16 and dtype == "int8":
            continue
        copies = copies_of(n * k * width.get(dtype, 2), least=2)
        taken = attempt(lambda: seconds(product(m, n, k, dtype, layout, copies), copies), dtype)  # noqa: B023
        if taken:
            rows.append(
                {"gpu": gpu, "dtype": dtype, "m": m, "n": n, "k": k, "layout": layout,
                 "copies": copies, "cast": 0, "latency_us": round(taken * 1e6, 3)}
            )  # fmt: skip
    return rows


def attempt(measure: Any, what: str) -> float | None:
    try:
        return float(measure())
    except (RuntimeError, torch.OutOfMemoryError) as error:
        print("skipped:", what, str(error).splitlines()[0][:120], file=sys.stderr)
        torch.cuda.synchronize()
        return None
    finally:
        torch.cuda.empty_cache()


# ── attention ────────────────────────────────────────────────────────────────────────────────────


def attentions(gpu: str) -> list[Row]:
    draw = random.Random(11)
    shapes: set[tuple[int, ...]] = set()
    while len(shapes) < 90:
        head_dim, heads = draw.choice((64, 80, 96, 128, 128, 256)), draw.choice((4, 8, 16, 32, 64))
        kv = heads // draw.choice((1, 1, 4, 8)) or 1
        batch, seq = (
            draw.choice((1, 2, 4, 8, 16)),
            draw.choice((512, 1024, 2048, 4096, 8192, 16384)),
        )
        if batch * seq * heads * head_dim <= 2**29 and batch * heads * seq**2 * head_dim <= 2**42:
            shapes.add((batch, seq, heads, kv, head_dim))
    rows = []
    for batch, seq, heads, kv, head_dim in draw.sample(sorted(shapes), len(shapes)):
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
            for way in ("forward", "backward"):
                taken = attempt(
                    lambda: attention_seconds(batch, seq, heads, kv, head_dim, backend, way),  # noqa: B023
                    f"{backend.name} {way}",
                )
                if taken:
                    rows.append(
                        {"gpu": gpu, "attn_dtype": "bfloat16", "kv_dtype": "bfloat16",
                         "head_dim": head_dim, "num_heads": heads, "num_kv_heads": kv, "window": 0,
                         "batch": batch, "isl": seq, "direction": way,
                         "latency_us": round(taken * 1e6, 3), "kernel": KERNELS[backend]}
                    )  # fmt: skip
    return rows


def attention_seconds(
    batch: int, seq: int, heads: int, kv: int, head_dim: int, backend: SDPBackend, way: str
) -> float:
    with sdpa_kernel(backend):
        q = normal(batch, seq, heads, head_dim).transpose(1, 2).requires_grad_(way == "backward")
        k, v = (
            normal(batch, seq, kv, head_dim).transpose(1, 2).requires_grad_(way == "backward")
            for _ in range(2)
        )

        def forward(_: int) -> torch.Tensor:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv != heads)

        if way == "forward":
            return seconds(forward, 1, 4e-3)
        out = forward(0)
        grad = like(out)

        def backward(_: int) -> Any:
            return torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)

        return seconds(backward, 1, 4e-3)


# ── memory-bound kernels ─────────────────────────────────────────────────────────────────────────


def memory_jobs() -> dict[str, Any]:
    """Kind -> (make(rows, columns, copies) -> launcher). bf16 unless the name says otherwise."""

    def unary(function: Any) -> Any:
        def make(r: int, c: int, n: int) -> Any:
            xs = [normal(r, c) for _ in range(n)]
            return lambda i: function(xs[i])

        return make

    def binary(function: Any) -> Any:
        def make(r: int, c: int, n: int) -> Any:
            xs, ys = ([normal(r, c) for _ in range(n)] for _ in range(2))
            return lambda i: function(xs[i], ys[i])

        return make

    def normed(function: Any, backward: bool) -> Any:
        def make(r: int, c: int, n: int) -> Any:
            weight = normal(c).requires_grad_(backward)
            xs = [normal(r, c).requires_grad_(backward) for _ in range(n)]
            if not backward:
                return lambda i: function(xs[i], weight)
            outs = [function(x, weight) for x in xs]
            gs = [like(o) for o in outs]
            return lambda i: torch.autograd.grad(outs[i], (xs[i], weight), gs[i], retain_graph=True)

        return make

    def graded(function: Any) -> Any:
        def make(r: int, c: int, n: int) -> Any:
            xs = [normal(r, c).requires_grad_() for _ in range(n)]
            outs = [function(x) for x in xs]
            gs = [like(o) for o in outs]
            return lambda i: torch.autograd.grad(outs[i], xs[i], gs[i], retain_graph=True)

        return make

    def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (x.shape[-1],), w, None)

    def rms(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), w)

    def rms_by_hand(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return w * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    def loss(r: int, c: int, n: int, backward: bool) -> Any:
        xs = [normal(r, c).requires_grad_(backward) for _ in range(n)]
        ids = integers(0, c, r)
        if not backward:
            return lambda i: F.cross_entropy(xs[i].float(), ids)
        outs = [F.cross_entropy(x.float(), ids) for x in xs]
        return lambda i: torch.autograd.grad(outs[i], xs[i], retain_graph=True)

    def lookup(r: int, c: int, n: int, backward: bool) -> Any:
        table = normal(50304, c).requires_grad_(backward)
        ids = [integers(0, 50304, r) for _ in range(n)]
        if not backward:
            return lambda i: F.embedding(ids[i], table)
        outs = [F.embedding(x, table) for x in ids]
        gs = [like(o) for o in outs]
        return lambda i: torch.autograd.grad(outs[i], table, gs[i], retain_graph=True)

    def adam(r: int, c: int, _: int, fused: bool) -> Any:
        weights = [torch.nn.Parameter(normal(r, c, dtype=torch.float32))]
        weights[0].grad = like(weights[0])
        choice = {"fused": True} if fused else {"foreach": True}
        optimizer = torch.optim.AdamW(weights, lr=1e-4, capturable=True, **choice)
        optimizer.step()
        return lambda i: optimizer.step()

    def cast8(x: torch.Tensor) -> torch.Tensor:
        scale = 448.0 / x.abs().amax().float()
        return (x * scale).to(torch.float8_e4m3fn)

    return {
        "copy": unary(torch.clone),
        "add": binary(torch.add),
        "gelu": unary(lambda x: F.gelu(x, approximate="tanh")),
        "gelu_backward": graded(lambda x: F.gelu(x, approximate="tanh")),
        "silu": unary(F.silu),
        "silu_backward": graded(F.silu),
        "dropout": unary(lambda x: F.dropout(x, 0.1)),
        "layer_norm": normed(layer, backward=False),
        "layer_norm_backward": normed(layer, backward=True),
        "rms_norm": normed(rms, backward=False),
        "rms_norm_backward": normed(rms, backward=True),
        "rms_norm_by_hand": normed(rms_by_hand, backward=False),
        "softmax": unary(lambda x: torch.softmax(x, -1)),
        "softmax_backward": graded(lambda x: torch.softmax(x, -1)),
        "to_fp32": unary(lambda x: x.float()),
        "to_fp8": unary(cast8),
        "transpose": unary(lambda x: x.t().contiguous()),
        "bias_gradient": unary(lambda x: x.sum(0)),
        "cross_entropy": lambda r, c, n: loss(r, c, n, backward=False),
        "cross_entropy_backward": lambda r, c, n: loss(r, c, n, backward=True),
        "embedding": lambda r, c, n: lookup(r, c, n, backward=False),
        "embedding_backward": lambda r, c, n: lookup(r, c, n, backward=True),
        "adamw_fused": lambda r, c, n: adam(r, c, n, fused=True),
        "adamw_foreach": lambda r, c, n: adam(r, c, n, fused=False),
    }


def memory(gpu: str) -> list[Row]:
    sizes = [(r, c) for c in (1024, 4096, 8192) for r in (16, 128, 512, 2048, 8192, 32768)]
    logits = [(r, c) for c in (32000, 50304, 128256) for r in (512, 2048, 8192)]
    rows = []
    jobs = [(kind, make, s) for kind, make in memory_jobs().items()
            for s in (logits if kind.startswith("cross") else sizes)]  # fmt: skip
    random.Random(5).shuffle(jobs)
    jobs.sort(key=lambda job: job[0] != "dropout")  # it alone needs the default generator
    for kind, make, (r, c) in jobs:
        copies = copies_of(2.0 * r * c, least=1, most=24)
        taken = attempt(lambda: seconds(make(r, c, copies), copies), kind)  # noqa: B023
        if taken:
            rows.append({"gpu": gpu, "kind": kind, "dtype": "bf16", "rows": r, "columns": c,
                         "latency_us": round(taken * 1e6, 3)})  # fmt: skip
    return rows


# ── launch ───────────────────────────────────────────────────────────────────────────────────────


def launches(gpu: str) -> list[Row]:
    """Seconds between kernels that do nothing: issued one by one, and replayed from a graph."""
    x, w = normal(64, 64), normal(64, 64)
    kinds = {
        "add": lambda: torch.add(x, x),
        "mm": lambda: torch.mm(x, w),
        "layer_norm": lambda: F.layer_norm(x, (64,)),
        "linear": lambda: F.linear(x, w),
    }
    rows = []
    for kind, launch in kinds.items():
        for _ in range(200):
            launch()
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(5000):
            launch()
        torch.cuda.synchronize()
        eager = (time.perf_counter() - begun) / 5000
        replayed = seconds(lambda _: launch(), 1)  # noqa: B023
        rows.append({"gpu": gpu, "kind": kind, "eager_us": round(eager * 1e6, 3),
                     "graph_us": round(replayed * 1e6, 3)})  # fmt: skip
    return rows


COLUMNS = {
    "matmul": "gpu dtype m n k layout copies cast latency_us",
    "attention": "gpu attn_dtype kv_dtype head_dim num_heads num_kv_heads window batch isl "
    "direction latency_us kernel",
    "memory": "gpu kind dtype rows columns latency_us",
    "launch": "gpu kind eager_us graph_us",
}


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("folder", type=Path)
    words.add_argument("--gpu", default="h200")
    words.add_argument("--only", choices=[*COLUMNS], action="append")
    asked = words.parse_args()
    torch.manual_seed(0)
    tables = {"launch": launches, "matmul": matmuls, "memory": memory, "attention": attentions}
    for name, measure in tables.items():
        if asked.only and name not in asked.only:
            continue
        begun = time.monotonic()
        try:
            write(asked.folder / f"{name}.csv", measure(asked.gpu), COLUMNS[name].split())
        except Exception:
            traceback.print_exc()
        print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main()
