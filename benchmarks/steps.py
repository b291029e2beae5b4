"""How a step of a real program is timed on a GPU: the one way, shared by all that measure steps."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from trueflops.measure.host_speed import python_loop_seconds

WARM_STEPS = 3


def measure_step(
    step: Callable[[], Any], settle_seconds: float, timed_seconds: float, least: int
) -> dict[str, Any]:
    """Seconds of the median step and the peak of what was allocated and reserved.

    Clock and temperature settle for a while before steps count; each of them ends when the GPU
    is done. `host_seconds`: until the step's last call is issued, which is the host's own time
    where it is behind, or where its calls fit into the queue. A loop of plain Python before and
    after says how fast the host was.
    """
    for _ in range(WARM_STEPS):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    _steps_for(step, settle_seconds, 1)
    before = python_loop_seconds()
    times, issued = _steps_for(step, timed_seconds, least)
    loop = (before + python_loop_seconds()) / 2
    return {
        "step_seconds": round(statistics.median(times), 6),
        "host_seconds": round(statistics.median(issued), 6),
        "python_loop_seconds": round(loop, 6),
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def _steps_for(
    step: Callable[[], Any], seconds: float, least: int
) -> tuple[list[float], list[float]]:
    times: list[float] = []
    issued: list[float] = []
    since = time.perf_counter()
    while len(times) < least or time.perf_counter() < since + seconds:
        begun = time.perf_counter()
        step()
        issued.append(time.perf_counter() - begun)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return times, issued
