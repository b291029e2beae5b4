"""What the host needs to issue the kernels by which a layer of linear attention reads a prompt.

    python benchmarks/recurrent_hosts.py measure FILE.csv
    python benchmarks/recurrent_hosts.py show FILE.csv       each call in launches of a kernel

Needs a GPU, torch, Triton and what engines carry in trees of their own: flash-linear-attention
(fla-core) and the Triton kernels of state-spaces/mamba. Prompts are so short that the GPU waits for
the host all the time; a call's time is that of many in a row, which a queue still holds.
"""

from __future__ import annotations

import csv
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fla
import torch
import triton
import triton.language as tl
from fla.modules import FusedRMSNormGated
from fla.modules.causal_conv1d import causal_conv1d
from fla.ops.gated_delta_rule import chunk_gated_delta_rule
from fla.ops.kda import chunk_kda
from mamba_ssm.ops.triton.ssd_combined import mamba_chunk_scan_combined
from torch.nn.functional import logsigmoid
from torch.profiler import ProfilerActivity, profile

COLUMNS = ("op", "tokens", "heads", "kernels", "host_us", "device_us", "torch", "triton", "fla")
CALLS, ROUNDS = 40, 9
HEADS = 8  # a rank's
TOKENS = (64, 512)
BARE = "a Triton kernel"
Call = Callable[[], Any]


@triton.jit(do_not_specialize=["n"])  # type: ignore[untyped-decorator]
def copied(  # type: ignore[no-untyped-def]
    a, b, c, d, e, f, n, heads: tl.constexpr, wide: tl.constexpr, block: tl.constexpr
):  # fmt: skip
    """As many arguments as those kernels have."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(b + at, tl.load(a + at, mask=at < n), mask=at < n)


def ops(tokens: int) -> dict[str, Call]:
    """Calls as engines make them: one sequence of a packed batch, its state behind it."""
    bf16: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16}
    fp32: dict[str, Any] = {"device": "cuda", "dtype": torch.float32}
    q, k, v = (torch.randn(1, tokens, HEADS, 128, **bf16) for _ in range(3))
    gates = logsigmoid(torch.randn(1, tokens, HEADS, **fp32))
    of_channels = logsigmoid(torch.randn(1, tokens, HEADS, 128, **fp32))
    beta = torch.rand(1, tokens, HEADS, **bf16)
    state = torch.zeros(1, HEADS, 128, 128, **fp32)
    bounds = torch.tensor([0, tokens], device="cuda", dtype=torch.int64)
    kept = {"initial_state": state, "output_final_state": True, "cu_seqlens": bounds}
    x = torch.randn(1, tokens, 3 * HEADS * 128, **bf16)
    y, many = torch.empty_like(x), x.numel()
    filters = torch.randn(3 * HEADS * 128, 4, **bf16)
    norm = FusedRMSNormGated(128, activation="silu", **bf16)
    values, times = torch.randn(1, tokens, HEADS, 64, **bf16), torch.rand(1, tokens, HEADS, **bf16)
    fading, group = -torch.rand(HEADS, **fp32), torch.randn(1, tokens, 1, 128, **bf16)
    return {
        "chunk_gated_delta_rule": lambda: chunk_gated_delta_rule(
            q, k, v, g=gates, beta=beta, use_qk_l2norm_in_kernel=True, **kept
        ),
        "chunk_kda": lambda: chunk_kda(
            q, k, v, g=of_channels, beta=beta, use_qk_l2norm_in_kernel=True, **kept
        ),
        "mamba_chunk_scan": lambda: mamba_chunk_scan_combined(
            values, times, fading, group, group, 128, return_final_states=True, dt_softplus=True
        ),
        "causal_conv1d": lambda: causal_conv1d(
            x, weight=filters, activation="silu", cu_seqlens=bounds, output_final_state=True
        ),
        "norm_gated": lambda: norm(v, q),
        BARE: lambda: copied[(triton.cdiv(many, 1024),)](x, y, x, x, x, x, many, 8, 128, 1024),
        "a mul": lambda: torch.mul(x, 2.0, out=y),
    }


@torch.inference_mode()
def measure(path: Path) -> int:
    """Write rows."""
    versions = torch.__version__, triton.__version__, fla.__version__
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for tokens in TOKENS:
            for name, call in ops(tokens).items():
                for _ in range(5):
                    call()
                torch.cuda.synchronize()
                host = min(host_seconds(call) for _ in range(ROUNDS))
                device = statistics.median(device_seconds(call) for _ in range(ROUNDS))
                row = (name, tokens, HEADS, kernels_of(call), f"{host * 1e6:.1f}",
                       f"{device * 1e6:.1f}" if device > 0.0 else "", *versions)  # fmt: skip
                table.writerow(row)
                print(*row, flush=True)
    return 0


def kernels_of(call: Call) -> int:
    """How many a call launches."""
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        call()
        torch.cuda.synchronize()
    return sum(event.device_type.name == "CUDA" for event in seen.events())


def host_seconds(call: Call) -> float:
    """Of a call until it returns, of many in a row."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    taken = time.perf_counter() - began
    torch.cuda.synchronize()
    return taken / CALLS


def device_seconds(call: Call) -> float:
    """Of a call on the device, as a captured graph; 0 where it cannot be captured."""
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            call()
    except RuntimeError:  # it reads a number back
        torch.cuda.synchronize()
        return 0.0
    started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    started.record()
    for _ in range(CALLS):
        graph.replay()
    ended.record()
    torch.cuda.synchronize()
    return float(started.elapsed_time(ended)) / 1e3 / CALLS


def show(path: Path) -> int:
    """Microseconds of a call, in launches of one Triton kernel."""
    rows = list(csv.DictReader(path.open()))
    bare = {row["tokens"]: float(row["host_us"]) for row in rows if row["op"] == BARE}
    for row in rows:
        launches = float(row["host_us"]) / bare[row["tokens"]]
        called = f"{row['op']:24} {row['tokens']:>4} tokens {row['kernels']:>3} kernels"
        taken = f"{row['host_us']:>7} us = {launches:5.1f} launches"
        print(f"{called} {taken}; device {row['device_us']:>6} us")
    return 0


if __name__ == "__main__":
    what, file = sys.argv[1:]
    sys.exit({"measure": measure, "show": show}[what](Path(file)))
