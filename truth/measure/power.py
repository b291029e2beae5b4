"""What a chip draws and at which clock it settles under lasting load, as CSV.

    python power.py FOLDER [--gpu h200]        power.csv
Each load runs for some seconds; the first part, while clock and heat settle, is left out.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from kernels import like, normal, product
from timing import Meter, write

COLUMNS = "gpu load dtype m n k idle_share seconds_per_launch flop bytes watts clock_mhz celsius"
SETTLE, LISTEN = 3.0, 4.0


def loads() -> list[tuple[str, str, int, int, int, float, Any]]:
    """(name, dtype, m, n, k, idle share, launcher) of each lasting load."""
    square = (8192, 8192, 8192)
    others = (
        (4096, 4096, 4096), (16384, 4096, 4096), (8192, 28672, 8192), (2048, 2048, 2048),
        (512, 8192, 8192), (64, 8192, 8192),
    )  # fmt: skip
    dtypes = ("bf16", "fp16", "fp8", "tf32", "fp32", "int8")
    found = [("matmul", dtype, *square, 0.0, None) for dtype in dtypes]
    found += [("matmul", "bf16", *shape, 0.0, None) for shape in others]
    found += [("matmul", "bf16", *square, idle, None) for idle in (0.2, 0.4, 0.6)]
    found.append(("copy", "bf16", 2**15, 2**15, 0, 0.0, None))
    found.append(("layer_norm", "bf16", 2**16, 8192, 0, 0.0, None))
    found.append(("attention", "bf16", 4, 8192, 32, 0.0, None))
    found.append(("attention_backward", "bf16", 4, 8192, 32, 0.0, None))
    return found


def launcher(load: str, dtype: str, m: int, n: int, k: int) -> tuple[Any, float, float]:
    """The launch, its flop and its bytes."""
    if load == "matmul":
        width = {"fp8": 1, "int8": 1, "tf32": 4, "fp32": 4}.get(dtype, 2)
        copies = 4
        launch = product(m, n, k, dtype, "nt", copies)
        return launch, 2.0 * m * n * k, width * (m * k + n * k) + 2.0 * m * n
    if load == "copy":
        x, y = normal(m, n), normal(m, n)
        return (lambda i: y.copy_(x)), 0.0, 4.0 * m * n
    if load == "layer_norm":
        x = normal(m, n)
        return (lambda i: F.layer_norm(x, (n,))), 0.0, 4.0 * m * n
    backward = load.endswith("backward")
    q, key, v = (normal(m, k, n, 128).requires_grad_(backward) for _ in range(3))

    def forward(_: int) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, key, v, is_causal=True)

    flop = 2.0 * m * k * 128 * n * n
    moved = 8.0 * m * k * n * 128
    if not backward:
        return forward, flop, moved
    out = forward(0)
    grad = like(out)
    return (
        lambda i: torch.autograd.grad(out, (q, key, v), grad, retain_graph=True),
        2.5 * flop,
        2.0 * moved,
    )


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("folder", type=Path)
    words.add_argument("--gpu", default="h200")
    asked = words.parse_args()
    rows = []
    with Meter() as meter:
        time.sleep(3.0)
        watts, clock, heat = meter.mean(time.monotonic() - 2.0, time.monotonic())
        rows.append({"gpu": asked.gpu, "load": "idle", "watts": round(watts, 1),
                     "clock_mhz": round(clock), "celsius": round(heat, 1)})  # fmt: skip
        for load, dtype, m, n, k, idle, _ in loads():
            launch, flop, moved = launcher(load, dtype, m, n, k)
            rows.append(
                {"gpu": asked.gpu, "load": load, "dtype": dtype, "m": m, "n": n, "k": k,
                 "idle_share": idle, "flop": flop, "bytes": moved}
                | lasting(launch, idle, meter)
            )  # fmt: skip
            print(rows[-1], flush=True)
            torch.cuda.empty_cache()
    write(asked.folder / "power.csv", rows, COLUMNS.split())


def lasting(launch: Any, idle: float, meter: Meter) -> dict[str, float]:
    """Run for some seconds; report the later ones."""
    launch(0)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for i in range(4):
        launch(i % 4)
    torch.cuda.synchronize()
    count = max(4, round(0.05 / max((time.perf_counter() - begun) / 4, 1e-6)))
    busy, launched = 0.0, 0
    begun = heard = time.monotonic()
    while time.monotonic() < begun + SETTLE + LISTEN:
        if busy == 0.0 and time.monotonic() > begun + SETTLE:
            heard = time.monotonic()
        at = time.perf_counter()
        for i in range(count):
            launch(i % 4)
        torch.cuda.synchronize()
        taken = time.perf_counter() - at
        if time.monotonic() > begun + SETTLE:
            busy, launched = busy + taken, launched + count
        if idle:
            time.sleep(taken * idle / (1.0 - idle))
    watts, clock, heat = meter.mean(heard + 0.3, time.monotonic())
    return {"seconds_per_launch": busy / launched, "watts": round(watts, 1),
            "clock_mhz": round(clock), "celsius": round(heat, 1)}  # fmt: skip


if __name__ == "__main__":
    main()
