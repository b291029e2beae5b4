"""The loop: jobs within a budget, a line of progress, Ctrl-C, out of memory, resuming.

In: a device, a record and what to measure. Out: the record, saved all along.
"""

from __future__ import annotations

import gc
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch

from trueflops.measure import stopping
from trueflops.measure.device import Device
from trueflops.measure.job import Job
from trueflops.measure.products import Product, launcher
from trueflops.measure.sections import Section, lasting_loads, sections_of
from trueflops.measure.state import Meter
from trueflops.measure.timing import time_launch
from trueflops.records.ceilings import drift, winners
from trueflops.records.limits import Limits, beyond
from trueflops.records.measured import Record, Row

# Of the budget, until when: products and memory, lasting loads, attention. Loads come before
# attention, which slows what follows, and after what they would heat.
UNTIL: Final = (0.58, 0.78, 1.0)
LOAD_SECONDS: Final = 4.5  # that one of them takes about
SENTINEL_EVERY: Final = 8.0
SHRINKS: Final = 5
DRIFT: Final = 0.03  # of the sentinel, worth a warning


@dataclass
class Progress:
    """One line on stderr: what, the best so far, the time left."""

    deadline: float
    total: float
    quiet: bool = False
    live: bool = field(default_factory=lambda: sys.stderr.isatty())
    _shown: float = 0.0

    def show(self, what: str, best: str) -> None:
        """Say it, ten times a second on a terminal and every ten seconds in a log."""
        now = time.monotonic()
        if self.quiet or now - self._shown < (0.1 if self.live else 10.0):
            return
        self._shown = now
        left = max(0.0, self.deadline - now)
        done = min(1.0, 1.0 - left / self.total) if self.total else 1.0
        width = shutil.get_terminal_size().columns - 1 if self.live else 100
        bar = f"[{'#' * round(12 * done):<12}]"
        line = f"{bar} {left:4.0f} s left  {best:<25} {what}"[:width].ljust(
            width if self.live else 0
        )
        print(f"\r{line}" if self.live else line, end="" if self.live else "\n", file=sys.stderr)
        sys.stderr.flush()

    def end(self) -> None:
        """Leave the line."""
        if self.live and not self.quiet and self._shown:
            print(file=sys.stderr)


@dataclass
class Run:
    """One measurement in progress."""

    device: Device
    record: Record
    limits: Limits
    progress: Progress
    begun: float
    before: float  # seconds spent before this run was resumed
    deadline: float
    heard: float = -SENTINEL_EVERY  # when the sentinel last ran
    _best: str = ""

    def everything(self, sections: list[Section], lasting: Callable[[], Section]) -> None:
        """Products and memory side by side, lasting loads one by one, then attention."""
        start = self.begun - self.before  # as if it had never been interrupted
        whole = self.deadline - start
        products, loads, attention = (start + share * whole for share in UNTIL)
        self._side_by_side([s for s in sections if s.phase == 0], products)
        last = lasting()
        while time.monotonic() + 0.5 * LOAD_SECONDS < loads and self._one(last):
            pass
        self._side_by_side([s for s in sections if s.phase == 1], attention)

    def _side_by_side(self, sections: list[Section], until: float) -> None:
        active = list(sections)
        while active and time.monotonic() < until:
            section = min(active, key=lambda s: s.spent / s.weight)
            if not self._one(section):
                active.remove(section)
            self._sentinel(section.name)

    def _one(self, section: Section) -> bool:
        """One job of a section; False when it has no more."""
        stopping.check()
        job = section.next()
        if job is None:
            return False
        begun = time.monotonic()
        self.record.spent_seconds = self.before + begun - self.begun
        what = " ".join(str(cell) for cell in list(job.cells.values())[:6])
        self.progress.show(f"{section.name}: {what}", self._best)
        self.record.save_if_due()
        section.last = self._measure(job)
        section.spent += time.monotonic() - begun
        if job.table == "race":
            self._best = _best(self.record)
        return True

    def _measure(self, job: Job) -> Row | None:
        """Run a job and keep its row; smaller when memory runs out, not at all when it fails."""
        for _ in range(SHRINKS):
            if known := self.record.find(job.table, job.cells):
                return known
            failed = None
            try:
                row = {**job.cells, **job.measure()}
            except torch.OutOfMemoryError:
                failed = f"{job.table} {_told(job)}: out of memory"
            except (RuntimeError, NotImplementedError, TypeError) as error:
                short = (str(error).splitlines() or ["?"])[0][:100]
                if "out of memory" not in short and "can't allocate" not in short:
                    self.record.warn(f"{job.table} {_told(job)}: {short}")
                    return None
                failed = f"{job.table} {_told(job)}: out of memory"
            if failed is None:
                return self._kept(job, row)
            self._release()
            if job.smaller is None:
                self.record.warn(failed)
                return None
            job = job.smaller()
        return None

    def _kept(self, job: Job, row: Row) -> Row | None:
        why = beyond(job.table, row, self.limits)
        if why:
            self.record.warn(f"rejected: {job.table} {_told(job)}: {why}")
            return None
        self.record.add(job.table, row)
        return row

    def _release(self) -> None:
        gc.collect()
        self.device.synchronize()
        self.device.release()

    def _sentinel(self, after: str) -> None:
        """The same product again and again: what drifts is the device, not the shape."""
        now = self.before + time.monotonic() - self.begun
        if now - self.heard < SENTINEL_EVERY:
            return
        self.heard = now
        side, dtype = (512, "fp32") if self.device.is_cpu else (4096, "bf16")
        product = Product(side, side, side, dtype)
        try:
            taken = time_launch(self.device, launcher(product, self.device, 2), 2)
        except (RuntimeError, TypeError):  # no room just now, or no such kernel
            return
        self.record.add("sentinel", {"seconds": round(now, 1), "after": after, **taken.cells()})


def _told(job: Job) -> str:
    return " ".join(f"{name}={cell}" for name, cell in job.cells.items())


def _best(record: Record) -> str:
    found = winners(record)
    for dtype in ("bf16", "fp32", *found):
        if dtype in found:
            rate, unit = found[dtype].flop_per_second / 10**12, "TFLOP/s"
            if rate < 1.0:
                rate, unit = 1000.0 * rate, "GFLOP/s"
            return f"{dtype} {rate:.4g} {unit}"
    return ""


def measure(
    device: Device,
    record: Record,
    limits: Limits,
    sides: Sequence[tuple[int, int]] = (),
    dtypes: tuple[str, ...] = (),
    *,
    quiet: bool = False,
) -> None:
    """Fill a record within its budget. Ctrl-C keeps what is done and ends it."""
    begun = time.monotonic()
    before = record.spent_seconds
    left = max(0.0, record.budget_seconds - before)
    progress = Progress(begun + left, record.budget_seconds, quiet)
    try:
        with Meter(device, record) as meter:
            run = Run(device, record, limits, progress, begun, before, begun + left)
            sections = sections_of(device, record, sides, dtypes)
            run.everything(sections, lambda: lasting_loads(device, record, meter))
        record.finished = True
        _warn_of_drift(record)
    finally:
        record.spent_seconds = before + time.monotonic() - begun
        record.save()
        progress.end()


def _warn_of_drift(record: Record) -> None:
    moved = drift(record)
    if moved is not None and moved > DRIFT:
        record.warn(f"the same product drifted by {moved:.0%} within the run")
