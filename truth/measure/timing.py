"""How a kernel is timed: graph replay over rotating buffers, random data, medians.

Method: CUTLASS's measurement guide. Random data (zeros run 13-15 % faster and lie), weights cold
(rotated through more than the L2 holds), one event pair around a captured batch of launches.
"""

from __future__ import annotations

import csv
import math
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

COLD_BYTES = 160 * 2**20  # well above the L2 of any chip so far
Launch = Callable[[int], Any]  # which of the rotating copies to use


def copies_of(moved_bytes: float, least: int = 2, most: int = 64) -> int:
    """How many copies of a buffer must rotate so that none is found in cache."""
    return max(least, min(most, math.ceil(COLD_BYTES / max(moved_bytes, 1))))


def seconds(launch: Launch, copies: int, batch_seconds: float = 2e-3, repeats: int = 5) -> float:
    """Median seconds of one launch, from replays of a captured batch of them."""
    guess = _eager_seconds(launch, copies)
    count = max(copies, min(400, round(batch_seconds / guess)))
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for i in range(count):
                launch(i % copies)
    except RuntimeError:  # a kernel that asks the host in between cannot be captured
        torch.cuda.synchronize()
        return guess
    times = []
    for _ in range(repeats + 1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e-3 / count)
    del graph
    return sorted(times[1:])[repeats // 2]


def _eager_seconds(launch: Launch, copies: int) -> float:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # warm-up on a side stream, as capture asks for
        for i in range(3):
            launch(i % copies)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for i in range(4):
            launch(i % copies)
        end.record()
        end.synchronize()
    torch.cuda.current_stream().wait_stream(side)
    return max(start.elapsed_time(end) * 1e-3 / 4, 1e-6)


class Meter:
    """Watts and clock of the first GPU while a block runs, ten times a second."""

    def __enter__(self) -> Meter:
        fields = "power.draw.instant,clocks.sm,temperature.gpu,clocks_event_reasons.active"
        self.samples: list[tuple[float, float, float, float, int]] = []
        self._process = subprocess.Popen(
            ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits", "-lms", "100"],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                watts, clock, heat, reasons = line.split(",")
                sample = (float(watts), float(clock), float(heat), int(reasons.strip(), 16))
            except ValueError:
                continue
            self.samples.append((time.monotonic(), *sample))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._thread.join(2)

    def mean(self, since: float, until: float) -> tuple[float, float, float]:
        """Mean watts, MHz and °C between two moments of time.monotonic()."""
        seen = [s for s in self.samples if since <= s[0] <= until]
        if not seen:
            return math.nan, math.nan, math.nan
        return tuple(sum(s[i] for s in seen) / len(seen) for i in (1, 2, 3))  # type: ignore[return-value]


def write(path: Path, rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> None:
    """A CSV of rows."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
