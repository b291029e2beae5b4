"""A Kineto trace of a few steps, which `trueflops diagnose` reads.

In: a file, and steps that go by. Out: the file, once two steps have been recorded, with shapes. The
first step under the profiler is slower than the next and is not recorded (torch.profiler.schedule).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Self

import torch
from torch.profiler import ProfilerActivity, profile, schedule

WARM_UP, RECORDED = 1, 2
STEPS: Final = WARM_UP + RECORDED


class Tracing:
    """Records while it is entered; without a file it does nothing."""

    def __init__(self, path: Path | None, device: torch.device) -> None:
        self.left = STEPS if path else 0
        self._profiler: Any = None
        if path is not None:
            kinds = [ProfilerActivity.CPU]
            kinds += [ProfilerActivity.CUDA] if device.type == "cuda" else []
            self._profiler = profile(
                activities=kinds,
                record_shapes=True,
                schedule=schedule(wait=0, warmup=WARM_UP, active=RECORDED, repeat=1),
                on_trace_ready=lambda done: done.export_chrome_trace(str(path)),
            )

    @property
    def on(self) -> bool:
        """Whether the step that comes is slowed down by it."""
        return self.left > 0

    def step(self) -> None:
        """A step is over; after the last that is recorded the file is written."""
        if self.left:
            self.left -= 1
            self._profiler.step()
            if not self.left:
                self._profiler.stop()

    def __enter__(self) -> Self:
        if self._profiler:
            self._profiler.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self.left:  # too few steps came: what there is, is written
            self.left = 0
            self._profiler.stop()
