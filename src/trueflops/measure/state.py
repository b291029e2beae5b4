"""Clock, watts, heat and throttle reasons of a device while it runs, ten times a second.

A thread reads the device's sensors; means and joules of any interval can be asked for, and the
record gets a line a second, so that every figure in it has its conditions beside it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple

import numpy as np

from trueflops.measure.device import Device
from trueflops.measure.sensors import (
    BRAKE,
    IDLE,
    REASONS,
    SLOWDOWN,
    TOO_HOT,
    WARM,
    Reader,
    find_reader,
    words,
)
from trueflops.records.measured import Record

__all__ = ["COLUMNS", "REASONS", "Meter", "Reader", "Sample", "State", "words"]
COLUMNS: Final = ("seconds", "mhz", "watts", "celsius", "reasons")  # 0 is unknown: JSON has no nan
HARM: Final = SLOWDOWN | WARM | TOO_HOT | BRAKE  # the power cap is no harm: a matmul lives there
PERIOD, SUMMARY = 0.1, 1.0  # seconds between samples, and between lines of the record
HOT: Final = 80.0  # °C
FALLEN: Final = 0.95  # of the highest clock seen
ODD: Final = 2.0  # an energy counter so far from watts × seconds is not believed: AMD has had some


class State(NamedTuple):
    """What a device is like; nan where that is not known."""

    watts: float
    mhz: float
    celsius: float


class Sample(NamedTuple):
    """One reading, with its moment of time.monotonic()."""

    at: float
    watts: float
    mhz: float
    celsius: float
    reasons: float
    joules: float


class Meter:
    """Listens to a device while a block runs."""

    def __init__(
        self, device: Device, record: Record | None = None, reader: Reader | None = None
    ) -> None:
        self.record = record
        self.reader = reader or find_reader(device)
        self.samples: list[Sample] = []
        self._begun = time.monotonic()
        self._before = record.spent_seconds if record else 0.0  # of the run that is resumed
        self._told, self._told_at = 0, self._begun  # samples that are in the record, and when
        self._highest = math.nan  # MHz
        self._stop = threading.Event()
        self._reading = threading.Lock()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    @property
    def limits(self) -> dict[str, Any]:
        """power_cap_watts, max_mhz and driver, as far as they are known."""
        return self.reader.limits

    def __enter__(self) -> Meter:
        self._begun = self._told_at = time.monotonic()
        self.sample()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(2.0)  # a driver that hangs does not hold us
        self._summarize()

    def _listen(self) -> None:
        due = self._begun
        while True:
            due = max(due + PERIOD, time.monotonic())  # what was missed is not made up for
            if self._stop.wait(due - time.monotonic()):
                return
            self.sample()
            if time.monotonic() - self._told_at >= SUMMARY:
                self._summarize()

    def sample(self) -> Sample:
        """Read once, now. Never raises."""
        with self._reading:
            try:
                watts, mhz, celsius, reasons, joules = self.reader.read()
            except Exception:  # a driver may go away under us; the measurement goes on
                watts = mhz = celsius = reasons = joules = math.nan
            at = time.monotonic()
            if math.isnan(watts) and self.samples:  # a CPU tells joules alone
                last = self.samples[-1]
                near = at - last.at < 0.2 * PERIOD  # too near for a counter's steps
                watts = last.watts if near else (joules - last.joules) / (at - last.at)
            taken = Sample(at, watts, mhz, celsius, reasons, joules)
            self.samples.append(taken)
        self._warn(taken)
        return taken

    def _warn(self, taken: Sample) -> None:
        mask = 0 if math.isnan(taken.reasons) else int(taken.reasons)
        self._highest = float(np.fmax(self._highest, taken.mhz))
        if self.record is None:
            return
        if taken.celsius > HOT:
            self.record.warn(f"above {HOT:.0f} °C: better cooled, this device may be faster")
        if mask & HARM and not mask & IDLE and taken.mhz < FALLEN * self._highest:
            self.record.warn(
                f"the clock fell more than {1.0 - FALLEN:.0%} below its highest: "
                f"{words(mask & HARM)}; figures may be too low"
            )

    def _summarize(self) -> None:
        """A line of the record for the samples since the last one."""
        self._told_at = time.monotonic()
        with self._reading:
            new, self._told = self.samples[self._told :], len(self.samples)
        known = [s for s in new if not all(math.isnan(x) for x in s[1:])]
        if self.record is None or not known:
            return
        mean, mask = _mean(known), 0
        for each in known:
            mask |= 0 if math.isnan(each.reasons) else int(each.reasons)
        hottest = float(np.fmax.reduce([s.celsius for s in known]))
        seconds = self._before + known[-1].at - self._begun
        told = (mean.mhz, mean.watts, hottest)
        row = [seconds, *(0.0 if math.isnan(value) else value for value in told), mask]
        self.record.states.append([round(float(value), 1) for value in row])

    def now(self) -> State:
        """The latest sample."""
        return _mean(self.samples[-1:])

    def mean(self, since: float, until: float) -> State:
        """The mean between two moments of time.monotonic()."""
        return _mean([s for s in list(self.samples) if since <= s.at <= until])

    def joules(self, since: float, until: float) -> float:
        """Energy between two moments: the device's counter, else mean watts × seconds."""
        if not self._stop.is_set() and self.samples and self.samples[-1].at < until:
            self.sample()  # the counter at the end, not a tenth of a second before
        seen = [s for s in list(self.samples) if not math.isnan(s.joules)]
        drawn = self.mean(since, until).watts * (until - since)
        if not seen or since < seen[0].at or until > seen[-1].at + PERIOD:
            return drawn
        counted = float(
            np.diff(np.interp((since, until), [s.at for s in seen], [s.joules for s in seen]))[0]
        )
        if counted > ODD * drawn or counted * ODD < drawn:
            return drawn
        return counted


def _mean(samples: Sequence[Sample]) -> State:
    def of(values: list[float]) -> float:
        known = [value for value in values if not math.isnan(value)]
        return sum(known) / len(known) if known else math.nan

    return State(
        of([s.watts for s in samples]),
        of([s.mhz for s in samples]),
        of([s.celsius for s in samples]),
    )
