"""The report of a measured profile: what a device delivers, under which conditions, how surely.

In: a Profile, the Record it was fitted to and the catalog's chip, whose status is "measured" where
there is no datasheet. Out: tables of 80 columns and a roofline, or the same numbers as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean, median
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.catalog import Accelerator, host_bandwidth
from trueflops.errors import printable
from trueflops.language import mark, say, word
from trueflops.profile import CurveKey, HeldOut, Profile
from trueflops.records.ceilings import cell, drift
from trueflops.records.measured import Record, Row
from trueflops.report import measured_plot as roofs
from trueflops.report.grid import grid
from trueflops.report.measured_plot import Numbers, printed, share
from trueflops.report.measured_plot import plot_measured as plot_measured
from trueflops.report.tables import console, plural

SOFTWARE: Final = ("torch", "cuda", "hip", "driver", "threads", "blas")
LABELS: Final = {
    "fp8_row": mark("fp8 row scales"),
    "fp8_fast": mark("fp8 fast sums"),
    "bf16_2:4": mark("bf16 2:4 sparse"),
}
WAYS: Final = {
    "to_device": mark("to the device"),
    "to_host": mark("to the host"),
    "both": mark("both at once"),
}
RATES: Final = ("burst_flop_per_second", "sustained_flop_per_second", "bandwidth_bytes_per_second")
BUSY: Final = 0.5  # of the highest power seen: under load
MARKS: Final = {
    0: ("*", mark("not confirmed: best single timing")),
    1: ("†", mark("confirmed by one lap")),
}


def encode_measured(profile: Profile, record: Record, chip: Accelerator) -> dict[str, Any]:
    """Everything for JSON, SI units in the key names; null where it is not known."""
    return {
        "profile": profile.name, "on": chip.name, "device": record.device.get("name"),
        "datasheet": chip.status != "measured", "software": record.software,
        "started": record.started, "finished": record.finished,
        "spent_seconds": record.spent_seconds, "budget_seconds": record.budget_seconds,
        "conditions": conditions(record),
        "products": {c.dtype: c.encoded() for c in roofs.ceilings(record, chip)},
        "memory": roofs.memory(record, chip),
        "host": host(record, chip),
        "numa": [{"node": row["node"], "memory_of": row["memory_of"],
                  "bytes_per_second": cell(row, "bandwidth")}
                 for row in record.tables.get("numa", ())],
        "launch": launch(record),
        "energy": energy(profile, record, chip),
        "collectives": collectives(record), "gpus": gpus(record),
        "held_out": {name: asdict(held) for name, held in held_out(profile).items()},
        "sentinel_drift": drift(record), "warnings": record.warnings,
    }  # fmt: skip


def conditions(record: Record) -> Numbers:
    """Limits of the device, and what it was like while it ran; a state of 0 is unknown."""
    clocks, watts, heat = ([row[i] for row in record.states] for i in (1, 2, 3))
    most = max(watts, default=0.0)
    busy = [mhz for mhz, drawn in zip(clocks, watts, strict=True) if mhz and drawn >= BUSY * most]
    known = [celsius for celsius in heat if celsius]
    return {
        "power_cap_watts": cell(record.device, "power_cap_watts") or None,
        "most_watts": most or None,
        "max_clock_hertz": cell(record.device, "max_mhz") * units.MILLION or None,
        "mean_clock_under_load_hertz": fmean(busy) * units.MILLION if busy else None,
        "least_celsius": min(known, default=None),
        "most_celsius": max(known, default=None),
    }


def host(record: Record, chip: Accelerator) -> dict[str, Numbers]:
    """The best copies over the link to the host, by way."""
    link = host_bandwidth(chip) if chip.status != "measured" else None
    best: dict[tuple[str, bool], float] = {}
    for row in record.tables.get("host", ()):
        key = str(row["way"]), bool(row["pinned"])
        best[key] = max(best.get(key, 0.0), cell(row, "bandwidth"))
    return {
        way: {
            "pinned_bytes_per_second": best.get((way, True)),
            "pageable_bytes_per_second": best.get((way, False)),
            "pinned_share_of_datasheet": share(best.get((way, True)), (link or 0.0) * ways),
        }
        for way, ways in zip(WAYS, (1.0, 1.0, 2.0), strict=True)
        if (way, True) in best or (way, False) in best
    }


def launch(record: Record) -> Numbers:
    """Seconds of one small kernel, the median over kinds."""
    rows, found = record.tables.get("launch", ()), Numbers()
    for way in ("eager", "graph"):
        if times := [cell(row, f"{way}_us") for row in rows if row.get(f"{way}_us")]:
            found[f"{way}_seconds"] = median(times) * units.MICRO
    return found


def energy(profile: Profile, record: Record, chip: Accelerator) -> dict[str, Numbers]:
    """Joules per flop of each format and per byte: all that is drawn, and the fitted part of it."""
    drawn: dict[str, float] = {}
    for row in record.tables.get("power", ()):
        watts = cell(row, "mean_watts") or cell(row, "watts")
        name = "byte" if row["load"] == "copy" else str(row.get("dtype"))
        work = cell(row, "bytes" if name == "byte" else "flop")
        if watts and work and not cell(row, "idle_share"):
            joules = watts * cell(row, "seconds_per_launch") / work
            drawn[name] = min(joules, drawn.get(name, joules))
    law, cap = profile.curves.get(CurveKey("power")), chip.get("power.tdp")
    fitted: dict[str, float] = {}
    for key, value in law.values.items() if law else ():
        kind, _, name = key.rpartition("_")  # flop_bf16, byte: of the cap at the peak; or joules_…
        peak = chip.get("memory.bandwidth" if name == "byte" else f"peak.{name}")
        if kind == "joules":
            fitted[name] = value
        elif key in ("byte", f"flop_{name}") and cap and peak:
            fitted[name] = value * cap / peak
    names = [name for name in (*roofs.DTYPES, "byte") if name in drawn or name in fitted]
    return {n: {"drawn_joules": drawn.get(n), "fitted_joules": fitted.get(n)} for n in names}


def collectives(record: Record) -> list[dict[str, Any]]:
    """Each collective in each group: the bandwidth of its largest message, the smallest's time."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in record.tables.get("collective", ()):
        key = tuple(row.get(name, "") for name in ("op", "gpus", "nodes", "backend"))
        groups.setdefault(key, []).append(row)
    found = []
    for key, rows in groups.items():
        small, large = (pick(rows, key=lambda row: cell(row, "bytes")) for pick in (min, max))
        found.append({
            **dict(zip(("op", "ranks", "nodes", "backend"), key, strict=True)),
            "bus_bytes_per_second": cell(large, "busbw"), "largest_bytes": large["bytes"],
            "seconds": cell(small, "latency_us") * units.MICRO, "smallest_bytes": small["bytes"],
            "slowest_rank": large.get("slowest_rank", ""),
        })  # fmt: skip
    return found


def gpus(record: Record) -> dict[str, Numbers]:
    """Least, median and most over all GPUs of the machine."""
    found: dict[str, Numbers] = {}
    for name in (*RATES, "celsius"):
        column = name.partition("_")[0]
        seen = sorted(cell(row, column) for row in record.tables.get("gpus", ()) if column in row)
        if seen:
            found[name] = {"min": seen[0], "median": median(seen), "max": seen[-1]}
    return found


def held_out(profile: Profile) -> dict[str, HeldOut]:
    """By curve; not power, which left nothing out, nor names that stand for a special one."""
    named = {str(key): curve for key, curve in profile.curves.items() if key.kind != "power"}
    curves = dict(sorted(named.items()))
    for name, curve in list(curves.items()):
        if any(n.startswith(f"{name}.") and c.values == curve.values for n, c in curves.items()):
            del curves[name]
    return {name: curve.held_out for name, curve in curves.items() if curve.held_out}


def show_measured(profile: Profile, record: Record, chip: Accelerator) -> None:
    """Conditions, ceilings, rates and energies, how surely it predicts, and the roofline."""
    out = console()
    _show_heading(out, record, chip)
    _show_products(out, roofs.ceilings(record, chip))
    _show_streams(out, record, chip)
    _show_energy(out, profile, energy(profile, record, chip))
    _print(out, "Collectives",
           ("", "ranks", "nodes", "busbw", "at", "latency", "at", say("slowest rank")),
           ([c["op"], str(c["ranks"]), str(c["nodes"]), _bytes(c["bus_bytes_per_second"]),
             units.show(c["largest_bytes"], "memory"), units.show(c["seconds"], "seconds"),
             units.show(c["smallest_bytes"], "memory"), str(c["slowest_rank"])]
            for c in collectives(record)))  # fmt: skip
    count = plural(len(record.tables.get("gpus", ())), "GPU")
    _print(out, say("All {count}", count=count), ("", "min", "median", "max"),
           ([name.partition("_")[0], *(_shown(name, each) for each in of.values())]
            for name, of in gpus(record).items()))  # fmt: skip
    _print(out, say("How well the fit predicts shapes left out"), ("", "rows", "median", "p90"),
           ([name, f"{held.rows:,}", _percent(held.median), _percent(held.p90)]
            for name, held in held_out(profile).items()))  # fmt: skip
    if lines := roofs.draw_roofs(record, chip, out.width):
        out.print(Text(say("Roofline"), style="bold"), *lines, "", sep="\n")
    if (moved := drift(record)) is not None:
        out.print(
            say("the same product, again and again, drifted by {moved:.1f} %", moved=100 * moved)
        )
    for warning in (w for w in record.warnings if not w.startswith("the same product")):
        out.print(Text(say("warning: {warning}", warning=printable(warning, 300)), style="yellow"))


def _show_heading(out: Console, record: Record, chip: Accelerator) -> None:
    now, said, sheet = conditions(record), record.software, chip.status != "measured"
    when = record.started.replace("T", " ").removesuffix("Z")
    state = "finished" if record.finished else say("not finished: measure again to resume")
    low, high = now["least_celsius"], now["most_celsius"]
    words = {"power_cap_watts": say("power cap"), "max_clock_hertz": say("maximum clock"),
             "most_watts": say("at most, sampled"),
             "mean_clock_under_load_hertz": say("mean clock under load")}  # fmt: skip
    seen = [f"{_shown(key, now[key])} {word}" if now[key] else "" for key, word in words.items()]
    table = grid("", "")
    for label, *parts in (
        ("catalog", chip.name if sheet else mark("no datasheet: ceilings are the measured ones")),
        (
            "measured",
            f"{when} UTC",
            say("took {spent_seconds}", spent_seconds=units.show(record.spent_seconds, "seconds")),
            state,
        ),
        ("software", *(f"{key} {said[key]}" for key in SOFTWARE if key in said)),
        ("limits", *seen[:2]),
        (mark("ran at"), f"{low:.0f} – {high:.0f} °C" if low and high else "", *seen[2:]),
    ):
        if text := ", ".join(part for part in parts if part):
            table.add_row(Text(label, style="dim"), Text(printable(text)))
    name = printable(str(record.device.get("name", "?")), 60)
    out.print(Text(say("{name}, measured", name=name), style="bold"), table, "", sep="\n")


def _show_products(out: Console, found: Sequence[roofs.Ceiling]) -> None:
    size, unit = roofs.rate_unit(max((c.burst for c in found), default=0.0))

    def rate(value: float | None, mark: str = "") -> str:
        return f"{units.digits(value / size)}{mark}" if value else "–"

    laps = {c.laps for c in found}
    _print(out, say("Matrix products, dense {unit}", unit=unit),
           ("", "datasheet", "burst ", "share", "sustained", "share", say("fastest shape")),
           ([LABELS.get(c.dtype, c.dtype), rate(c.datasheet),
             rate(c.burst, MARKS.get(c.laps, " ")[0]), _percent(share(c.burst, c.datasheet)),
             rate(c.sustained), _percent(share(c.sustained, c.datasheet)),
             "×".join(map(str, c.shape))]
            for c in found),
           [*(f"{mark} {word(says)}" for n, (mark, says) in MARKS.items() if n in laps),
            *_other_loads(found)])  # fmt: skip


def _other_loads(found: Sequence[roofs.Ceiling]) -> list[str]:
    """Which sustained figures are not of the fastest shape."""
    others: dict[tuple[int, int, int], list[str]] = {}
    for each in found:
        if each.lasting_shape and each.lasting_shape != each.shape:
            others.setdefault(each.lasting_shape, []).append(each.dtype)
    return [
        say("sustained {names}: of {shape}", names=", ".join(of), shape="×".join(map(str, s)))
        for s, of in others.items()
    ]


def _show_streams(out: Console, record: Record, chip: Accelerator) -> None:
    sheet = printed(chip, "memory.bandwidth")
    _print(out, say("Memory, datasheet {sheet}", sheet=_bytes(sheet)) if sheet else "Memory",
           ("", "bandwidth", "share", say("in buffers of"), say("from cache")),
           ([op, _bytes(n["bytes_per_second"]), _percent(n["share_of_datasheet"]),
             units.show(n["buffer_bytes"] or 0.0, "memory"), _bytes(n["cache_bytes_per_second"])]
            for op, n in roofs.memory(record, chip).items()))  # fmt: skip
    _print(out, say("Link to the host"), ("", "pinned", say("of link"), "pageable"),
           ([WAYS[way], _bytes(n["pinned_bytes_per_second"]),
             _percent(n["pinned_share_of_datasheet"]), _bytes(n["pageable_bytes_per_second"])]
            for way, n in host(record, chip).items()))  # fmt: skip
    near: dict[bool, list[float]] = {True: [], False: []}
    for row in record.tables.get("numa", ()):
        near[row["node"] == row["memory_of"]].append(cell(row, "bandwidth"))
    if own := near[True]:
        said = say(
            "{number}: {own} of own memory",
            number=plural(len(own), "NUMA node"),
            own=_bytes(fmean(own)),
        )
        if far := near[False]:
            lost = _percent(1.0 - min(far) / fmean(own))
            said += say(", {far} of another's ({lost} less)", far=_bytes(min(far)), lost=lost)
        out.print(said, "", sep="\n")
    if times := [f"{way.partition('_')[0]} {_shown(way, t)}" for way, t in launch(record).items()]:
        said = say("  {names}, the median of kinds", names=", ".join(times))
        out.print(Text.assemble((say("Launch of a small kernel"), "bold"), said), "", sep="\n")


def _show_energy(out: Console, profile: Profile, joules: Mapping[str, Numbers]) -> None:
    law, notes = profile.curves.get(CurveKey("power")), []
    if law and law.fitted_rows and law.fitted_rows < len(law.values):
        fit = say(
            "{fitted_rows} for {number} parameters",
            fitted_rows=plural(law.fitted_rows, "load"),
            number=len(law.values),
        )
        notes.append(say("{fit}: they stay near what is known of such chips", fit=fit))
    _print(out, say("Energy, pJ"), ("", say("drawn, when settled"), say("fitted, at full clock")),
           ([name if name == "byte" else say("{name} flop", name=name),
             *(units.digits(each * units.TERA) if each else "–" for each in of.values())]
            for name, of in joules.items()), notes)  # fmt: skip


def _print(
    out: Console, title: str, heads: Sequence[str], rows: Iterable[Sequence[str]],
    notes: Sequence[str] = (),
) -> None:  # fmt: skip
    """A table without columns of which nothing is known; nothing where there are no rows."""
    columns = [c for c in zip(heads, *rows, strict=True) if any(each != "–" for each in c[1:])]
    if not columns:
        return
    table = grid(columns[0][0], *((c[0], "right") for c in columns[1:]), title=title, gives_way=0)
    for row in zip(*(c[1:] for c in columns), strict=True):
        table.add_row(*map(Text, row))
    out.print(table, *(Text(note, style="dim") for note in notes), "", sep="\n")


def _bytes(rate: float | None) -> str:
    return units.show(rate, "bytes_per_second") if rate else "–"


def _percent(part: float | None) -> str:
    return "–" if part is None else f"{100 * part:.1f} %"


def _shown(name: str, value: float | None) -> str:
    """A number in the unit that its name ends in."""
    for unit in ("flop_per_second", "bytes_per_second", "watts", "hertz", "seconds"):
        if name.endswith(unit):
            return units.show(value or 0.0, unit)
    return f"{value:.0f} °C"
