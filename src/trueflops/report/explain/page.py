"""What the page of every explained kernel has: time, limits, roofline, and the curve behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.language import say, word
from trueflops.predict.explain import KernelExplained
from trueflops.report.encode import estimate
from trueflops.report.grid import Bar, grid
from trueflops.report.roofline import draw_roofline
from trueflops.report.tables import plural, ranged


def show_answer(out: Console, p: KernelExplained, bound: Mapping[str, str]) -> None:
    """Time, rate, bandwidth, and the one statement of what binds."""
    rate = p.flop_per_second
    table = grid("", ("", "right"), ("90 % interval", "right"), "", title="What it takes")
    table.add_row(
        "time", *ranged(p.seconds, "seconds"), say("origin: {origin}", origin=p.seconds.origin)
    )
    peak = say(
        "{value} of dense {peak}", value=percent(float(rate.value) / p.peak), peak=tera(p.peak)
    )
    table.add_row("rate", *ranged(rate, "flop_per_second"), peak)
    moved, has = p.bytes_per_second, units.show(p.bandwidth, "bytes_per_second")
    moved_share = say("{moved} of {has}", moved=percent(moved / p.bandwidth), has=has)
    table.add_row("memory", units.show(moved, "bytes_per_second"), "", moved_share)
    table.add_row("bound by", p.bound, "", bound[p.bound])
    out.print(table)
    out.print()


def show_limits(out: Console, p: KernelExplained, limit: Mapping[str, str]) -> None:
    """What each limit of the law alone would take, and what measurements nearby taught."""
    table = grid("", ("", "right"), "", "", title="What each limit alone would take")
    longest = max(p.limits.values())
    for name, taken in p.limits.items():
        text = units.show(taken, "seconds")
        table.add_row(name, text, Bar(taken / longest, 16, ""), limit[name])
    out.print(table)
    together = units.show(float(p.seconds.value) / p.correction, "seconds")
    learnt = ""
    if abs(p.correction - 1.0) > 0.005:
        why = (
            say("as measured near this shape")
            if p.law.landmarks
            else say("to stay below the dense peak")
        )
        learnt = f"; × {p.correction:.2f} {why}"
    out.print(
        Text(
            say("they overlap to {together}{learnt}", together=together, learnt=learnt), style="dim"
        )
    )
    out.print()


def show_roofline(out: Console, p: KernelExplained, beyond: str) -> None:
    """Where it lies under the roofs; `beyond` says why something binds that no roof shows."""
    out.print(Text(say("Roofline"), style="bold"))
    ridges = say(
        "{ridge} ({delivered_ridge} as delivered)",
        ridge=units.digits(p.ridge),
        delivered_ridge=units.digits(p.delivered_ridge),
    )
    side = "right" if p.roofline_side == "compute" else "left"
    said = say(
        "{intensity} flop/byte, {side} of the ridge at {ridges}",
        intensity=units.digits(p.intensity),
        side=side,
        ridges=ridges,
    )
    if p.beyond_roofline:
        said += say("; what binds is not in this picture: {beyond}", beyond=beyond)
    out.print(said)
    for line in draw_roofline(p, out.width):
        out.print(line)
    out.print()


def show_curve(out: Console, p: KernelExplained) -> None:
    """Which curve of which profile priced it, where that comes from, how far it was off."""
    table = grid("", "", title="Where the time comes from")
    table.add_row(
        "curve",
        Text(say("{found}, of the profile {profile}", found=p.choice.found, profile=p.profile)),
    )
    rows = (
        say(", fitted to {fitted_rows}", fitted_rows=plural(p.law.fitted_rows, "row"))
        if p.law.fitted_rows
        else ""
    )
    table.add_row("origin", Text(f"{word(p.law.origin)}{rows}: {p.law.source}"))
    error = say("one standard deviation of {error:.1f} %", error=100 * p.law.error)
    if p.law.held_out:
        off = p.law.held_out
        error = say(
            "on {rows} held out: median {median}, ",
            rows=plural(off.rows, "row"),
            median=percent(off.median),
        )
        error += f"p90 {percent(off.p90)}"
    table.add_row("error", error)
    out.print(table)


def encode_kernel(p: KernelExplained) -> dict[str, Any]:
    """For JSON, SI units in the key names."""
    off = p.law.held_out
    return {
        "on": p.chip.name,
        "profile": p.profile,
        "curve": {
            "name": str(p.choice.found),
            "origin": p.law.origin,
            "source": p.law.source,
            "fitted_rows": p.law.fitted_rows,
            "log_seconds_error": p.law.error,
            "held_out": off and {"rows": off.rows, "median": off.median, "p90": off.p90},
        },
        **estimate("seconds", p.seconds),
        **estimate("flop_per_second", p.flop_per_second),
        "flop": p.flop,
        "peak_flop_per_second": p.peak,
        "share_of_peak": float(p.flop_per_second.value) / p.peak,
        "bytes_per_second": p.bytes_per_second,
        "bandwidth_bytes_per_second": p.bandwidth,
        "bound": p.bound,
        "limits": {f"{name}_seconds": taken for name, taken in p.limits.items()},
        "measured_correction": p.correction,
        "intensity_flop_per_byte": p.intensity,
        "ridge_flop_per_byte": p.ridge,
        "delivered_peak_flop_per_second": p.delivered_peak,
        "delivered_bandwidth_bytes_per_second": p.delivered_bandwidth,
        "delivered_ridge_flop_per_byte": p.delivered_ridge,
        "units": p.units,
        "units_known": p.units_known,
        "unit": p.unit,
    }


def count_units(p: KernelExplained) -> str:
    """'132 SMs'."""
    return plural(p.units, p.unit)


def show_bytes(size: float) -> str:
    return units.show(size, "bytes")


def tera(rate: float) -> str:
    return units.show(rate, "flop_per_second")


def percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.01 else f"{100 * share:.2g} %"
