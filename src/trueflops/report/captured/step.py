"""A captured program for readers: its step, the kernels that cost most, its memory."""

from __future__ import annotations

from typing import Any, Final

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.language import say
from trueflops.predict.captured.groups import KernelGroup, alike_layers, bound_of
from trueflops.predict.captured.program import CapturedProgram
from trueflops.report import encode
from trueflops.report.grid import Bar, grid
from trueflops.report.tables import console, count, filled, plural, ranged

BARS: Final = 20
TELLING: Final = 0.001  # of the whole: what is worth a line
LISTED: Final = 8  # modules and holdings


def encode_program(found: CapturedProgram) -> dict[str, Any]:
    """Everything for JSON, SI units in the key names."""
    step, memory, fits = found.step, found.memory, found.fitting
    return {
        "on": found.clock.cluster.name,
        "profile": found.clock.profile.name,
        "world": found.recording.world,
        "rank": found.recording.rank,
        "parameters": found.recording.parameter_count,
        "step": {
            **encode.estimate("seconds", step.seconds),
            "host_seconds": step.host_seconds,
            "device_busy_seconds": step.device_seconds,
            "idle_seconds": step.idle_seconds,
            "gap_seconds": step.gap_seconds,
            "exposed_communication_seconds": step.exposed_seconds,
            "parts": encode.term(step.step)["parts"],
            "kernels": len(step.ran),
            "flop": step.flop,
            "share_of_dense_peak": found.peak_share,
            "clock_ratio": step.clock_ratio,
            "watts": step.watts or None,
        },
        "memory": {
            "peak_allocated_bytes": memory.peak_allocated_bytes,
            "peak_reserved_bytes": memory.peak_reserved_bytes,
            "graph_pool_bytes": memory.pool_bytes,
            "capacity_bytes": fits.capacity_bytes,
            "fits": fits.fits,
            "peak_by_category_bytes": memory.by("category"),
            "peak_by_module_bytes": memory.by("module"),
            "savings": [saving._asdict() for saving in fits.savings],
        },
        "kernels": [_encode(group, found) for group in found.groups],
        "warnings": list(found.recording.warnings),
    }


def _encode(group: KernelGroup, found: CapturedProgram) -> dict[str, Any]:
    return {
        "kernel": group.label,
        "cause": group.cause,
        "count": group.count,
        **encode.estimate("seconds", group.estimate),
        "flop": group.flop,
        "bytes": group.moved_bytes,
        "bound": bound_of(group, found.clock),
    }


def show_program(found: CapturedProgram, top: int) -> None:
    """Tables of 80 columns."""
    out = console()
    value, between = ranged(found.step.seconds, "seconds")
    recording, step = found.recording, found.step
    ranks = (
        say(", rank {rank} of {world}", rank=recording.rank, world=recording.world)
        if recording.world > 1
        else ""
    )
    what = say("a forward pass") if recording.by_session else say("a step")
    out.print(
        Text(
            say(
                "{what} of {value} ({between}) on {name}{ranks}",
                what=what,
                value=value,
                between=between,
                name=found.clock.chip.name,
                ranks=ranks,
            ),
            "bold",
        )
    )
    if not step.ran:
        out.print(
            say("nothing runs on the accelerator: put the model and its inputs there, .cuda()")
        )
        return
    rate = units.show(step.flop / float(step.seconds.value), "flop_per_second")
    said = [
        say("{parameter_count} parameters", parameter_count=count(recording.parameter_count)),
        plural(len(step.ran), "kernel"),
        say(
            "{rate}, {peak_share:.1f} % of dense peak",
            rate=rate,
            peak_share=100.0 * found.peak_share,
        ),
    ]
    if step.watts:
        said.append(f"{step.watts:,.0f} W")
    out.print(Text(filled(out, " · ".join(said)), style="dim"))
    out.print()
    _show_time(out, found)
    _show_kernels(out, found, top)
    _show_memory(out, found)
    for warning in found.recording.warnings:
        out.print(Text(filled(out, say("note: {warning}", warning=warning)), style="dim"))


def _show_time(out: Console, found: CapturedProgram) -> None:
    step, whole = found.step, float(found.step.seconds.value)
    rows = [(part.name, float(part.value)) for part in step.told()]
    rows.sort(key=lambda row: -row[1])
    table = grid("", ("", "right"), ("", "right"), "", title="Where the time goes")
    longest = max(taken for _, taken in rows) or 1.0
    for what, taken in rows:
        if taken > TELLING * whole:
            share = f"{100.0 * taken / whole:.1f} %"
            table.add_row(what, _time(taken), share, Bar(taken / longest, BARS))
    out.print(table)
    said = [say("the host needs {host_seconds} to issue it", host_seconds=_time(step.host_seconds))]
    hidden = step.by_cause.get("communication", 0.0) - step.exposed_seconds
    if hidden > TELLING * whole:
        said.append(say("{hidden} of communication runs beside kernels", hidden=_time(hidden)))
    if step.added_by_cap > TELLING * whole:
        held = say("{clock_ratio:.0f} % of its clock", clock_ratio=100.0 * step.clock_ratio)
        said.append(
            say(
                "at its power cap the chip holds {held}: {added_by_cap} of it",
                held=held,
                added_by_cap=_time(step.added_by_cap),
            )
        )
    if found.recording.by_session:
        fused = found.fused
        said.append(
            say(
                "a kernel for every node as it stands in the file; fused as a compiler "
                "would, {number} in {value}",
                number=plural(len(fused.ran), "kernel"),
                value=_time(float(fused.seconds.value)),
            )
        )
    out.print(Text(filled(out, say("; ").join(said)), style="dim"))
    out.print()


def _show_kernels(out: Console, found: CapturedProgram, top: int) -> None:
    many = (
        say(", {top} of {number}", top=top, number=len(found.groups))
        if len(found.groups) > top
        else ""
    )
    table = grid(
        "",
        ("n", "right"),
        ("time", "right"),
        ("TFLOP/s", "right"),
        ("GB/s", "right"),
        "bound by",
        title=say("Kernels that cost most{many}", many=many),
        gives_way=0,
    )
    for group in found.groups[:top]:
        taken = group.seconds or 1.0
        rate = units.digits(group.flop / taken / units.TERA) if group.first.matrix else ""
        moved = units.digits(group.moved_bytes / taken / units.GIGA) if group.moved_bytes else ""
        table.add_row(Text(group.label), f"{group.count:,}", _time(group.seconds), rate, moved,
                      bound_of(group, found.clock))  # fmt: skip
    out.print(table)
    out.print()


def _show_memory(out: Console, found: CapturedProgram) -> None:
    memory, fits = found.memory, found.fitting
    peak, reserved, have = (
        units.show(b, "memory")
        for b in (memory.peak_allocated_bytes, memory.peak_reserved_bytes, fits.capacity_bytes)
    )
    verdict = "" if fits.fits or not fits.capacity_bytes else say(": out of memory")
    out.print(
        Text(
            say(
                "Memory: {peak} at the peak, {reserved} reserved, of {have}{verdict}",
                peak=peak,
                reserved=reserved,
                have=have,
                verdict=verdict,
            ),
            "bold",
        )
    )
    table = grid("", ("", "right"), "", gives_way=0)
    by = memory.by("category")
    largest = max(by.values(), default=1)
    for what, size in by.items():
        if size > TELLING * memory.peak_allocated_bytes:
            table.add_row(what, units.show(size, "memory"), Bar(size / largest, BARS))
    out.print(table)
    if memory.pool_bytes > TELLING * memory.peak_allocated_bytes:
        kept = units.show(memory.pool_bytes, "memory")
        out.print(
            Text(say("CUDA graphs keep {kept} more for their replays", kept=kept), style="dim")
        )
    if not fits.fits:
        out.print()
        _show_why(out, found)
    elif fits.savings:
        best = fits.savings[0]
        text = say(
            "most would save: {text}, about {saves_bytes}",
            text=best.text,
            saves_bytes=units.show(best.saves_bytes, "memory"),
        )
        out.print(Text(filled(out, text), style="dim"))
    out.print()


def _show_why(out: Console, found: CapturedProgram) -> None:
    """Which tensors are alive at the peak, and what would help."""
    table = grid("", ("", "right"), "what", title="Alive at the peak", gives_way=0)
    groups: dict[tuple[str, str], int] = {}
    for holding in found.memory.alive:
        key = (alike_layers(holding.place), holding.category)
        groups[key] = groups.get(key, 0) + holding.size_bytes
    for (where, what), size in sorted(groups.items(), key=lambda g: -g[1])[:LISTED]:
        table.add_row(Text(where), units.show(size, "memory"), what)
    out.print(table)
    out.print()
    help_ = grid(("", "right"), "", title="What would help", gives_way=1)
    for saving in found.fitting.savings:
        help_.add_row(units.show(saving.saves_bytes, "memory"), saving.text)
    out.print(help_)


def _time(seconds: float) -> str:
    return units.show(seconds, "seconds")
