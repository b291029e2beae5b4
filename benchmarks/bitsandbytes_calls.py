"""What bitsandbytes' optimizers and linear layers take, on one GPU.

    PYTHONPATH=build python benchmarks/bitsandbytes_calls.py FILE.csv

`build/bitsandbytes` is the unpacked wheel. A row is one way of updating the weights of a Llama, or
one linear layer of frozen weights with an input that wants its gradient: the device's own time by a
profiler's kernels, the wall clock of a call that is waited for, kernels launched, bytes that come
with the call.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import bitsandbytes as bnb
import torch
from torch import nn

COLUMNS: Final = (
    "call", "what", "dtype", "tokens", "columns", "rows", "parameters", "tensors", "device_us",
    "wall_us", "kernels", "beside_bytes", "torch", "software",
)  # fmt: skip
LAPS: Final = 15
# hidden, intermediate, layers, keys' width, vocabulary (config.json of each; 3B's table is tied)
LLAMAS: Final = {
    "Llama-3.2-1B": (2048, 8192, 16, 512, 128256),
    "Llama-3.2-3B": (3072, 8192, 28, 1024, 128256),
    "Llama-160M-like": (768, 3072, 12, 768, 32000),
}
LINEARS: Final = ((2048, 2048), (4096, 4096), (4096, 1024), (4096, 14336), (14336, 4096))
TOKENS: Final = (512, 2048, 8192)


def sides(name: str) -> list[tuple[int, ...]]:
    """The weights of a Llama, its table once."""
    hidden, inner, layers, keys, vocabulary = LLAMAS[name]
    layer: list[tuple[int, ...]] = [
        (hidden, hidden), (keys, hidden), (keys, hidden), (hidden, hidden),
        (inner, hidden), (inner, hidden), (hidden, inner), (hidden,), (hidden,),
    ]  # fmt: skip
    return [(vocabulary, hidden), *layer * layers, (hidden,)]


def optimizers() -> Iterator[tuple[str, Callable[[list[nn.Parameter]], Any]]]:
    """As the Trainer makes them, by its names."""
    optim = bnb.optim
    yield "adamw_torch_fused", lambda p: torch.optim.AdamW(p, lr=1e-4, fused=True)
    yield "adamw_bnb_8bit", lambda p: optim.AdamW(p, lr=1e-4, optim_bits=8)
    yield "paged_adamw_8bit", lambda p: optim.AdamW(p, lr=1e-4, optim_bits=8, is_paged=True)
    yield "paged_adamw_32bit", lambda p: optim.AdamW(p, lr=1e-4, is_paged=True)
    yield "lion_32bit", lambda p: optim.Lion(p, lr=1e-4)
    yield "lion_8bit", lambda p: optim.Lion(p, lr=1e-4, optim_bits=8)


def timed(run: Callable[[], Any]) -> dict[str, Any]:
    """Medians of laps that are waited for, and the kernels of one more."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    walls = []
    for _ in range(LAPS):
        begun = time.perf_counter()
        run()
        torch.cuda.synchronize()
        walls.append(time.perf_counter() - begun)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    ran = [e for e in seen.events() if "CUDA" in str(e.device_type)]
    return {
        "device_us": sum(e.device_time_total for e in ran),
        "wall_us": 1e6 * median(walls),
        "kernels": len(ran),
        "beside_bytes": torch.cuda.max_memory_allocated() - before,
    }


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def updates() -> Iterator[dict[str, Any]]:
    """One step of each optimizer over the weights of each model."""
    for model in LLAMAS:
        for dtype in (torch.float32, torch.bfloat16):
            for name, make in optimizers():
                weights = [nn.Parameter(0.02 * torch.randn(s, device="cuda", dtype=dtype))
                           for s in sides(model)]  # fmt: skip
                for weight in weights:
                    weight.grad = 1e-3 * torch.randn_like(weight)
                step = make(weights).step
                about = {
                    "call": name,
                    "what": model,
                    "dtype": _named(dtype),
                    "tensors": len(weights),
                }
                about["parameters"] = sum(weight.numel() for weight in weights)
                yield about | timed(step)
                del weights, step
                torch.cuda.empty_cache()


def layers() -> Iterator[tuple[str, Callable[[int, int], nn.Module]]]:
    """Linear layers of frozen weights, made on the host and packed on the way to the device."""

    def eight(threshold: float) -> Callable[[int, int], nn.Module]:
        def make(columns: int, rows: int) -> nn.Module:
            made = bnb.nn.Linear8bitLt(columns, rows, bias=False, has_fp16_weights=False,
                                       threshold=threshold)  # fmt: skip
            return made.cuda()

        return make

    def four(columns: int, rows: int) -> nn.Module:
        made = bnb.nn.Linear4bit(columns, rows, bias=False, compute_dtype=torch.bfloat16,
                                 compress_statistics=True, quant_type="nf4")  # fmt: skip
        return made.cuda()

    def wide(columns: int, rows: int) -> nn.Module:
        return nn.Linear(columns, rows, bias=False, device="cuda", dtype=torch.bfloat16)

    yield "linear", wide
    yield "nf4", four
    yield "llm.int8, threshold 6", eight(6.0)
    yield "llm.int8, threshold 6, 8 outliers", eight(6.0)
    yield "llm.int8, threshold 0", eight(0.0)


def products() -> Iterator[dict[str, Any]]:
    """Forward and backward apart, of an input that wants its gradient."""
    for name, make in layers():
        for columns, rows in LINEARS:
            layer = make(columns, rows).requires_grad_(False)
            for tokens in TOKENS:
                given = torch.randn(1, tokens, columns, device="cuda", dtype=torch.bfloat16)
                given.clamp_(-5.0, 5.0)
                if "outliers" in name:
                    given[:, :: tokens // 4, :: columns // 8] = 20.0
                given.requires_grad_()
                above = torch.randn(1, tokens, rows, device="cuda", dtype=torch.bfloat16)
                about = {"what": name, "dtype": "bfloat16", "tokens": tokens, "columns": columns,
                         "rows": rows}  # fmt: skip
                forward = partial(layer, given)
                yield about | {"call": "forward"} | timed(forward)
                back = partial(torch.autograd.grad, forward(), given, above, retain_graph=True)
                yield about | {"call": "backward"} | timed(back)


def main(path: Path) -> None:
    """Write every row as it is done."""
    torch.manual_seed(0)
    software = {"torch": torch.__version__, "software": f"bitsandbytes {bnb.__version__}"}
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for rows in (updates(), products()):
            for row in rows:
                row |= {k: f"{row[k]:.1f}" for k in ("device_us", "wall_us")}
                writer.writerow(row | software)
                file.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
