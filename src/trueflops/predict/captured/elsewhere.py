"""The same recorded step on other chips: those that would surely be faster, or cheaper."""

from __future__ import annotations

from math import exp, sqrt
from typing import Final, NamedTuple

from trueflops.catalog import Accelerator, cluster_of, price
from trueflops.catalog.accelerators import accelerators
from trueflops.clock import Clock
from trueflops.errors import TrueflopsError
from trueflops.predict.captured.fitting import CONTEXT
from trueflops.predict.captured.program import CapturedProgram
from trueflops.predict.captured.step import captured_step
from trueflops.profile import profile_of
from trueflops.runtime.terms import Z90, Estimate
from trueflops.units import MILLION, SECONDS_PER_HOUR

VENDORS: Final = ("NVIDIA", "AMD")  # on whose chips a program for torch.cuda runs as it is
MOST: Final = 4  # chips that are told, the fastest and the cheapest


class Elsewhere(NamedTuple):
    """One step on another chip; dollars of a million steps, on all chips of the program."""

    chip: str
    seconds: Estimate
    usd: float | None
    faster: bool  # beyond the uncertainty of both predictions
    cheaper: bool


def usd_of(chip: Accelerator, seconds: float, count: int) -> float | None:
    """What a million steps cost at the going rent."""
    rent = price(chip)
    return (
        None if rent is None else MILLION * seconds * count * rent.usd_per_hour / SECONDS_PER_HOUR
    )


def elsewhere(found: CapturedProgram) -> list[Elsewhere]:
    """Chips that one can rent, hold the step, and are surely faster or cheaper; fastest first.

    Kernels are those that the program chose on its own chip.
    """
    here, count = found.clock.chip, found.clock.cluster.count
    before = found.step.seconds
    paid = usd_of(here, float(before.value), count)
    known: list[Elsewhere] = []
    for chip in () if here.is_cpu else accelerators():
        rent = price(chip)
        if chip.vendor not in VENDORS or rent is None or chip.name == here.name:
            continue
        if (chip.get("memory.capacity") or 0.0) < found.memory.peak_allocated_bytes + CONTEXT:
            continue
        try:
            clock = Clock(cluster_of(chip, count), profile_of(chip, "plain"))
            seconds = captured_step(found.recording, clock, found.lowering).seconds
        except TrueflopsError:  # the catalog lacks what its kernels need, such as a rate of bf16
            continue
        usd = usd_of(chip, float(seconds.value), count)
        # Errors of two chips are taken for independent of one another.
        spread = exp(Z90 * sqrt(float(before.spread) ** 2 + float(seconds.spread) ** 2))
        faster = float(seconds.value) * spread < float(before.value)
        cheaper = usd is not None and paid is not None and usd * spread < paid
        known.append(Elsewhere(chip.name, seconds, usd, faster, cheaper))
    return _best(known)


def _best(known: list[Elsewhere]) -> list[Elsewhere]:
    fastest = sorted((e for e in known if e.faster), key=lambda e: float(e.seconds.value))
    cheapest = sorted((e for e in known if e.cheaper), key=lambda e: e.usd or 0.0)
    chosen = {e.chip: e for e in (*fastest[: MOST // 2], *cheapest[: MOST // 2])}
    return sorted(chosen.values(), key=lambda e: float(e.seconds.value))
