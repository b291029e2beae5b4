"""A diagnosis for readers: where the time went, kernel by kernel, and what would help."""

from __future__ import annotations

from typing import Any, Final

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.clock import Clock
from trueflops.errors import shorten
from trueflops.language import mark, say, word
from trueflops.predict import Estimate
from trueflops.predict.diagnosis import Diagnosis
from trueflops.predict.diagnosis.advice import SHORT
from trueflops.predict.diagnosis.groups import Group
from trueflops.report import encode
from trueflops.report.grid import Bar, grid
from trueflops.report.tables import console, filled, plural, show_list

CAUSES: Final = {
    "matmul": mark("matrix products"),
    "attention": "attention",
    "memory": "memory-bound",
    "other": mark("other kernels"),
    "communication": mark("communication, exposed"),
    "copies": "copies",
}
HOST: Final = {
    "op": mark("in torch's ops"), "python": mark("in Python"), "launch": mark("in launch calls"),
    "wait": mark("waiting for the device"), "allocate": mark("asking for memory"),
    "profiler": mark("in the profiler's own buffers"),
}  # fmt: skip
BARS: Final = 24  # characters of the longest bar
LISTED_GAPS: Final = 100  # in JSON; thousands of a microsecond tell nothing
PAUSES: Final = 5
OP_WIDE: Final = 20  # characters of an op beside the name of its kernel
TELLING: Final = 0.02  # of the step: idle time, or kernels without a price, worth a line
NOTED: Final = 0.005  # of the step: a gap or an excess worth a row


def encode_diagnosis(found: Diagnosis, clock: Clock | None) -> dict[str, Any]:
    """Everything for JSON, SI units in the key names."""
    return {
        "file": found.trace.file,
        "device": found.trace.device or None,
        "on": clock.cluster.name if clock else None,
        "profile": clock.profile.name if clock else None,
        "shapes": found.trace.shapes,
        "step": {"name": found.window.name or None, "seconds": found.window.seconds,
                 "kernels": len(found.window.kernels)},
        "steps": [{"name": name or None, "seconds": seconds} for name, seconds in found.steps],
        "busy_seconds": found.busy_seconds,
        "idle_seconds": found.occupied.idle,
        "idle_host_late_seconds": found.late_seconds,
        "seconds_by_cause": found.occupied.by_cause,
        "exposed_communication_seconds": found.occupied.by_cause["communication"],
        "hidden_communication_seconds": found.occupied.hidden,
        "kernel_seconds_by_phase": found.phases,
        "host_seconds_while_device_waits": found.spent,
        "launch_call_seconds": found.trace.launch_call_seconds,
        "kernel_seconds": found.kernel_seconds,
        "share_of_dense_peak": found.peak_share,
        "predicted_kernel_share": _share(found.priced_seconds, found.kernel_seconds),
        **encode.estimate("predicted_kernel_seconds", found.predicted),
        "kernels": [_encode(group) for group in found.groups],
        "kernel_names": [named._asdict() for named in found.named],
        "kernels_below_10_us": found.short_kernels,
        "gaps": len(found.pauses),
        "longest_gaps": [pause._asdict() for pause in found.pauses[:LISTED_GAPS]],
        "possible": [p._asdict() for p in found.possible],
        "advice": [
            {"code": a.code, "text": a.text, "saves_seconds": a.saves_seconds}
            for a in found.advice
        ],
        "warnings": list(warnings(found)),
    }  # fmt: skip


def _encode(group: Group) -> dict[str, Any]:
    return {
        "kernel": group.label,
        "cause": group.cause,
        "count": group.count,
        "kernels": group.kernels,
        "measured_seconds": group.measured_seconds,
        **encode.estimate("predicted_seconds", group.predicted),
        "ratio": group.ratio,
        "slow": group.slow,
        "excess_seconds": group.excess_seconds,
        "bound": group.bound or None,
        "flop": group.flop,
        "bytes": group.moved_bytes,
        "seconds_by_phase": {phase or "unknown": s for phase, s in group.phases.items()},
        "why_not_predicted": group.why or None,
    }


def warnings(found: Diagnosis) -> list[str]:
    """What a reader must know before believing a figure."""
    said = list(found.trace.warnings)
    if found.late_seconds > TELLING * found.window.seconds:
        said.append(
            say(
                "the profiler makes the host slower, so there is less idle time without it: "
                "time a step with the profiler off before you act on that"
            )
        )
    unpriced = found.kernel_seconds - found.priced_seconds
    if not found.trace.shapes:
        said.append(
            say(
                "the ops of this trace have no shapes: profile with record_shapes=True to "
                "see what each kernel should take, which are slow, and what fusing them "
                "would save"
            )
        )
    elif unpriced > TELLING * found.kernel_seconds:
        worst = [g for g in found.groups if g.predicted is None][:3]
        said.append(
            say(
                "{unpriced} of the kernels' time has no prediction: ",
                unpriced=_percent(unpriced, found.kernel_seconds),
            )
            + "; ".join(f"{g.label} ({g.why})" for g in worst)
        )
    return said


def show_diagnosis(found: Diagnosis, clock: Clock | None, top: int) -> None:
    """Tables of 80 columns."""
    out = console()
    step = found.window.seconds
    name = f"{found.window.name}, " if found.window.name else ""
    said = say(
        "{file}: {name}a step of {step}, ", file=found.trace.file, name=name, step=_time(step)
    )
    out.print(Text(said + plural(len(found.window.kernels), "kernel"), style="bold"))
    if clock is not None and found.trace.shapes:
        peak = say(", at {peak_share:.1f} % of its dense peak", peak_share=100.0 * found.peak_share)
        said = say(
            "predictions for {name}{peak}",
            name=clock.chip.name,
            peak=peak if found.peak_share else "",
        )
        out.print(Text(said, style="dim"))
    if len(found.steps) > 1:
        lengths = ", ".join(_time(seconds) for _, seconds in found.steps[:8])
        out.print(
            Text(
                say(
                    "{number} steps: {lengths}; shown is the median",
                    number=len(found.steps),
                    lengths=lengths,
                ),
                style="dim",
            )
        )
    out.print()
    _show_causes(out, found)
    if found.trace.shapes:
        _show_groups(out, found, top)
    else:
        _show_names(out, found, top)
    _show_slow(out, found, top)
    _show_pauses(out, found)
    _show_possible(out, found)
    show_list(out, "What would help", [
        (f"{say('about') if a.code == 'fuse' else say('up to')} {_time(a.saves_seconds)}", a.text)
        for a in found.advice
    ])  # fmt: skip
    for text in warnings(found):
        out.print(Text(filled(out, say("note: {text}", text=text)), style="dim"))


def _show_causes(out: Console, found: Diagnosis) -> None:
    step, shares = found.window.seconds, found.occupied
    rows = [(CAUSES[cause], seconds) for cause, seconds in shares.by_cause.items() if seconds]
    rows.sort(key=lambda row: -row[1])
    late = found.late_seconds
    if any(kernel.launched is not None for kernel in found.window.kernels):
        rows += [
            (mark("idle, the host was late"), late),
            (mark("idle, between kernels"), shares.idle - late),
        ]
    else:
        rows.append((say("idle, the trace has no launches"), shares.idle))
    table = grid("", ("", "right"), ("", "right"), "", title="Where the time went")
    longest = max(seconds for _, seconds in rows) or 1.0
    for what, seconds in rows:
        if seconds > NOTED / 10 * step:
            drawn = Bar(seconds / longest, BARS)
            table.add_row(what, _time(seconds), _percent(seconds, step), drawn)
    out.print(table)
    kernels = len(found.window.kernels)
    said = [
        say(
            "launches: {kernels:,}, one every {step}; {short_kernels:,} kernels take "
            "less than {short:.0f} µs",
            kernels=kernels,
            step=_time(step / kernels),
            short_kernels=found.short_kernels,
            short=SHORT / units.MICRO,
        )
    ]
    if len(found.phases) > 1:
        said.append(
            say("kernels: ") + ", ".join(f"{p} {_time(s)}" for p, s in found.phases.items())
        )
    if shares.hidden:
        said.append(
            say("communication hidden behind kernels: {hidden}", hidden=_time(shares.hidden))
        )
    if late > TELLING * step:
        spent = sorted(found.spent.items(), key=lambda each: -each[1])
        did = ", ".join(f"{_time(s)} {word(HOST[w])}" for w, s in spent if s > TELLING * late)
        said.append(say("while the device waited, the host was {did}", did=did))
    for text in said:
        out.print(Text(filled(out, text), style="dim"))
    out.print()


def _show_groups(out: Console, found: Diagnosis, top: int) -> None:
    table = grid("", ("n", "right"), ("measured", "right"), ("predicted", "right"),
                 ("ratio", "right"), "bound by", title=_some("Kernels", top, len(found.groups)),
                 gives_way=0)  # fmt: skip
    for group in found.groups[:top]:
        table.add_row(Text(group.label), f"{group.count:,}", _time(group.measured_seconds),
                      _between(group.predicted), _ratio(group), group.bound)  # fmt: skip
    if found.predicted is not None:
        ratio = found.priced_seconds / float(found.predicted.value)
        table.add_row("all that have a prediction", "", _time(found.priced_seconds),
                      _between(found.predicted), f"{ratio:.2f}", "")  # fmt: skip
    out.print(table)
    out.print()


def _show_names(out: Console, found: Diagnosis, top: int) -> None:
    """Of a trace without shapes: its time by op, and by the kernels' own names."""
    whole = found.kernel_seconds
    table = grid("", ("n", "right"), ("measured", "right"), ("", "right"), ("each", "right"),
                 "", title=_some("Ops", top, len(found.groups)), gives_way=0)  # fmt: skip
    for group in found.groups[:top]:
        table.add_row(
            Text(_bare(group.label)), f"{group.count:,}", _time(group.measured_seconds),
            _percent(group.measured_seconds, whole), _time(group.measured_seconds / group.count),
            CAUSES[group.cause],
        )  # fmt: skip
    out.print(table)
    out.print()
    table = grid("", ("n", "right"), ("measured", "right"), ("", "right"), ("each", "right"),
                 "in", title=_some("Kernels", top, len(found.named)), gives_way=0)  # fmt: skip
    for named in found.named[:top]:
        table.add_row(
            Text(named.kernel), f"{named.launches:,}", _time(named.seconds),
            _percent(named.seconds, whole), _time(named.seconds / named.launches),
            Text(shorten(_bare(named.op), OP_WIDE)),
        )  # fmt: skip
    out.print(table)
    out.print()


def _bare(op: str) -> str:
    """`aten::_scaled_dot_product_attention` -> `scaled_dot_product_attention`."""
    return op.removeprefix("aten::").lstrip("_")


def _some(what: str, top: int, many: int) -> str:
    return say("{what}, {top} of {many}", what=what, top=top, many=many) if many > top else what


def _show_slow(out: Console, found: Diagnosis, top: int) -> None:
    slow = [g for g in found.slow if g.excess_seconds > NOTED * found.busy_seconds / 5][:top]
    if not slow and not found.trace.shapes:
        return
    if not slow:
        out.print(say("No kernel that matters is below its predicted range.\n"))
        return
    table = grid("", ("n", "right"), ("each", "right"), ("predicted", "right"), ("ratio", "right"),
                 ("costs", "right"), title="Far below their limit", gives_way=0)  # fmt: skip
    for group in slow:
        each = float(group.predicted.value) / group.count if group.predicted else 0.0
        table.add_row(
            Text(group.label), f"{group.count:,}", _time(group.measured_seconds / group.count),
            _time(each), _ratio(group), _time(group.excess_seconds),
        )  # fmt: skip
    out.print(table)
    out.print()


def _show_pauses(out: Console, found: Diagnosis) -> None:
    pauses = [p for p in found.pauses if p.seconds > NOTED * found.window.seconds][:PAUSES]
    if not pauses:
        return
    table = grid(("at", "right"), ("idle", "right"), "the host was in", "before",
                 title="Longest gaps", gives_way=3)  # fmt: skip
    for pause in pauses:
        where = pause.host.replace("autograd::engine::evaluate_function: ", "")
        doing = word(where) or ("" if pause.late else say("(queued)"))
        table.add_row(_time(pause.at_seconds), _time(pause.seconds), Text(doing),
                      Text(pause.before))  # fmt: skip
    out.print(table)
    out.print()


def _show_possible(out: Console, found: Diagnosis) -> None:
    if len(found.possible) < 2:
        return
    table = grid("", ("", "right"), ("", "right"), "", title="What the step could be")
    whole = found.window.seconds
    for case in found.possible:
        saved = whole - case.seconds
        less = f"−{_percent(saved, whole)}" if saved > NOTED / 10 * whole else ""
        between = units.show_between(case.low, case.seconds, case.high, "seconds")
        said = between if case.high - case.low > NOTED * case.seconds / 5 else ""
        if not less and case is not found.possible[0]:
            said = say("the host would be late all the same")
        table.add_row(case.name, _time(case.seconds), less, said)
    out.print(table)
    out.print()


def _between(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    low, value, high = (float(x) for x in (estimate.low, estimate.value, estimate.high))
    return units.show_between(low, value, high, "seconds")


def _ratio(group: Group) -> str:
    if group.ratio is None:
        return ""
    text = f"{group.ratio:.2f}"
    return f"[red]{text}[/]" if group.slow else text


def _time(seconds: float) -> str:
    return units.show(seconds, "seconds")


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _percent(part: float, whole: float) -> str:
    share = 100.0 * part / whole if whole else 0.0
    return f"{share:.0f} %" if share >= 0.95 else f"{share:.1f} %"
