"""How a kernel is timed: replayed graphs over rotating buffers, random data, medians.

Method: CUTLASS's measurement guide. Weights are cold (rotated through more than the last cache
holds), one event pair around a captured batch of launches; where a device has no graphs a batch
is launched and waited for; a CPU is timed launch by launch.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from trueflops.measure.device import Device

Launch = Callable[[int], Any]  # which of the rotating copies to use
COLD_BYTES: Final = 160 * 2**20  # at least; twice the last cache where that is more
MOST_LAUNCHES: Final = 400  # in one graph
BATCH_SECONDS: Final = 2e-3  # long enough for any timer, short enough not to heat
REPEATS: Final = 5
LEAST_REPEATS: Final = 3
BURST: Final = 0.02  # seconds at most of one kernel, but for those that take longer
REST: Final = 0.03
CROWDED: Final = 0.4  # of the memory, cached
SHORTEST: Final = 1e-6
MICRO: Final = 1e-6


@dataclass(frozen=True)
class Timed:
    """Seconds of one launch: the median over batches, and the quantiles around it."""

    seconds: float
    low: float  # 10th percentile
    high: float  # 90th
    eager: bool = False  # launched one by one where a graph would not be captured

    def cells(self) -> dict[str, float]:
        """As columns of a row, in microseconds."""
        return {
            "latency_us": _short(self.seconds / MICRO),
            "p10_us": _short(self.low / MICRO),
            "p90_us": _short(self.high / MICRO),
            **({"eager": 1} if self.eager else {}),
        }


def copies_of(moved_bytes: float, device: Device, least: int = 2, most: int = 64) -> int:
    """How many copies of a buffer must rotate so that none is found in cache."""
    twice = 2 * int(device.identity.get("l2_bytes") or 0)
    cold = twice if device.is_cpu else max(COLD_BYTES, twice)  # a CPU takes long to allocate
    return max(least, min(most, math.ceil(cold / max(moved_bytes, 1))))


def time_launch(
    device: Device,
    launch: Launch,
    copies: int = 1,
    *,
    repeats: int = REPEATS,
    rest: float = REST,
) -> Timed:
    """Seconds of one launch, the buffers rotating, in a burst after a rest.

    Without rests a chip soon runs at its power cap, and a kernel's time is that of those before.
    """
    device.release(full=CROWDED)
    guess = _warm_up(device, launch, copies)
    count = max(1, min(MOST_LAUNCHES, round(BATCH_SECONDS / guess)))
    if not device.is_cpu:  # every copy its turn, unless that takes so long that none stays cached
        count = max(count, min(copies, MOST_LAUNCHES, math.ceil(2.0 * BATCH_SECONDS / guess)))
    repeats = max(LEAST_REPEATS, min(repeats, round(BURST / (count * guess))))
    run = _captured(device, launch, copies, count) if device.has_graphs else None
    captured = run is not None
    if run is None:
        turn = itertools.count()  # goes on from batch to batch, so that every copy has its turn
        run = lambda: [launch(next(turn) % copies) for _ in range(count)]  # noqa: E731
    if not device.is_cpu:
        time.sleep(rest)
    times = [seconds_of(device, run) / count for _ in range(repeats + 1)][1:]
    return summary(times, eager=device.has_graphs and not captured)


def summary(times: list[float], *, eager: bool = False) -> Timed:
    """Median and quantiles of several batches."""
    ordered = sorted(times)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]

    return Timed(at(0.5), at(0.1), at(0.9), eager)


def seconds_of(device: Device, run: Callable[[], Any]) -> float:
    """What a device takes for a run: by its own events, else until it is done."""
    if device.kind == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3
    device.synchronize()
    begun = time.perf_counter()
    run()
    device.synchronize()
    return time.perf_counter() - begun


def _warm_up(device: Device, launch: Launch, copies: int) -> float:
    """Seconds of one launch, roughly: what the batch is sized by."""
    launch(0)
    if device.is_cpu:
        return max(seconds_of(device, lambda: launch(1 % copies)), SHORTEST)
    launch(1 % copies)
    return max(seconds_of(device, lambda: [launch(i % copies) for i in range(3)]) / 3, SHORTEST)


def _captured(device: Device, launch: Launch, copies: int, count: int) -> Callable[[], Any] | None:
    """A graph of `count` launches; None for what asks the host in between."""
    graph = torch.cuda.CUDAGraph()
    device.synchronize()
    try:
        # Not torch.cuda.graph(), which collects garbage and empties the cache every time.
        graph.capture_begin()
        try:
            for i in range(count):
                launch(i % copies)
        finally:
            graph.capture_end()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        device.synchronize()
        return None
    return graph.replay


def _short(value: float) -> float:
    """Five digits are more than any timer knows."""
    return float(f"{value:.5g}")
