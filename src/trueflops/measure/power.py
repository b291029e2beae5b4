"""Lasting loads: what a device draws, at which clock it settles, and what it still delivers.

A load runs until power and rate are flat, not for a fixed time; only what follows is counted.
Burst and sustained are two figures: an H200 falls from 830 to 665 TFLOP/s within a second or two.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

import torch

from trueflops.measure.device import Device
from trueflops.measure.job import Job
from trueflops.measure.products import Product, launcher
from trueflops.measure.state import Meter
from trueflops.measure.timing import Launch
from trueflops.records.formats import moved_bytes
from trueflops.records.measured import Row

WINDOW: Final = 0.5  # seconds over which power and rate are averaged
FLAT: Final = 0.015  # rates of two windows that differ by less are alike
CALM: Final = 0.04  # likewise of power, which is sampled
ALIKE: Final = 2  # so many times in a row is flat
LONGEST: Final = 8.0  # seconds; a load that never settles is counted from then on
LISTEN: Final = 2.0
SIDE: Final = 8192  # so large that caches save little of its energy
OTHERS: Final = ("fp8", "fp16", "tf32", "int8", "fp32")
ROTATING: Final = 4  # copies of the weights: more than a cache holds, at these sizes


def idle_job(meter: Meter) -> Job:
    """What is drawn when nothing runs."""

    def measure() -> dict[str, float]:
        time.sleep(2.0)
        now = time.monotonic()
        return _state(meter, now - 1.0, now)

    return Job("power", {"load": "idle"}, measure)


def product_job(device: Device, meter: Meter, product: Product, idle_share: float = 0.0) -> Job:
    """A product again and again, with rests in between where asked."""

    def measure() -> dict[str, float]:
        launch = launcher(product, device, ROTATING)
        moved = moved_bytes(product.dtype, product.m, product.n, product.k)
        found = lasting(device, launch, meter, idle_share)
        return found | {"flop": product.flop, "bytes": moved,
                        "flop_per_second": product.flop / found["seconds_per_launch"]}  # fmt: skip

    cells: Row = {"load": "matmul", "dtype": product.dtype, "m": product.m, "n": product.n,
                  "k": product.k, "idle_share": idle_share}  # fmt: skip
    return Job("power", cells, measure)


def copy_job(device: Device, meter: Meter, bytes_: int) -> Job:
    """A large copy again and again."""

    def measure() -> dict[str, float]:
        xs = [torch.empty(bytes_ // 4, device=device.at).normal_() for _ in range(2)]
        found = lasting(device, lambda i: xs[i % 2].copy_(xs[1 - i % 2]), meter)
        return found | {"flop": 0.0, "bytes": 2.0 * bytes_}

    cells: Row = {"load": "copy", "dtype": "bf16", "m": bytes_, "n": 0, "k": 0, "idle_share": 0.0}
    return Job("power", cells, measure)


def lasting(
    device: Device, launch: Launch, meter: Meter, idle_share: float = 0.0
) -> dict[str, float]:
    """Run until it is flat, then listen."""
    launch(0)
    device.synchronize()
    count = 4
    begun = time.monotonic()
    windows: list[tuple[float, float]] = []  # rate, watts
    alike = 0
    while alike < ALIKE and time.monotonic() - begun < LONGEST - LISTEN:
        at = time.monotonic()
        busy, launched = _window(device, launch, count, idle_share, WINDOW)
        count = max(1, round(0.05 * launched / busy))
        windows.append((launched / busy, meter.mean(at, time.monotonic()).watts))
        alike = alike + 1 if len(windows) > 1 and _flat(windows[-2], windows[-1]) else 0
    heard = time.monotonic()
    busy, launched = _window(device, launch, count, idle_share, LISTEN)
    found = {"seconds_per_launch": busy / launched, "settled_seconds": round(heard - begun, 1)}
    return found | _state(meter, heard, time.monotonic())


def _window(
    device: Device, launch: Launch, count: int, idle_share: float, length: float
) -> tuple[float, int]:
    """Busy seconds and launches within about `length` seconds."""
    busy, launched, begun = 0.0, 0, time.monotonic()
    while time.monotonic() - begun < length:
        at = time.perf_counter()
        for i in range(count):
            launch(i % ROTATING)
        device.synchronize()
        taken = time.perf_counter() - at
        busy, launched = busy + taken, launched + count
        if idle_share:
            time.sleep(taken * idle_share / (1.0 - idle_share))
    return busy, launched


def _flat(before: tuple[float, float], after: tuple[float, float]) -> bool:
    def near(a: float, b: float, within: float) -> bool:
        return math.isnan(a) or math.isnan(b) or abs(a - b) <= within * max(a, b)

    return near(before[0], after[0], FLAT) and near(before[1], after[1], CALM)


def _state(meter: Meter, since: float, until: float) -> dict[str, float]:
    seen = meter.mean(since, until)
    joules = meter.joules(since, until)
    cells = {"watts": seen.watts, "clock_mhz": seen.mhz, "celsius": seen.celsius,
             "mean_watts": joules / max(until - since, 1e-9)}  # fmt: skip
    return {name: round(value, 1) for name, value in cells.items() if not math.isnan(value)}


Ceilings = Callable[[], dict[str, Product]]


def power_jobs(device: Device, meter: Meter, ceilings: Ceilings) -> list[Job]:
    """Loads in order of what they teach: the fastest shapes, a copy, other products, rests."""
    best = ceilings()
    main = best.get("bf16") or next(iter(best.values()), None)
    jobs = []
    if main is not None:
        jobs.append(product_job(device, meter, main))
    if device.is_cpu:
        return jobs
    whole = 2**31 if device.free_bytes > 2**33 else 2**28
    jobs.append(copy_job(device, meter, whole))
    squares = {d: Product(SIDE, SIDE, SIDE, d) for d in ("bf16", *OTHERS) if d in best}
    jobs += [product_job(device, meter, square) for square in squares.values()]
    if "bf16" in squares:  # the same at other clocks, since a rest lets the clock rise
        jobs.insert(3, product_job(device, meter, squares["bf16"], 0.5))
        jobs.append(product_job(device, meter, squares["bf16"], 0.25))
    jobs.append(idle_job(meter))
    return jobs
