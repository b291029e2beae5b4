"""The whole bill for the terminal and as JSON: failures, goodput, time, dollars, energy, buying."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.catalog.operation import failure_logs, usual_fact
from trueflops.language import say, word
from trueflops.predict import WholeBill
from trueflops.report.encode import estimate
from trueflops.report.grid import Grid, grid
from trueflops.report.tables import NO_PRICE, ranged

PERCENT: Final = 100.0
HARDLY: Final = 0.01  # interruptions of a run, of which more digits tell nobody anything
Row = Callable[..., None]


def print_whole_bill(out: Console, bill: WholeBill) -> None:
    """A table, and under it what was not given."""
    out.print(_table(bill))
    if unsaid := _unsaid(bill):
        out.print(Text(unsaid, style="dim"))


def _table(bill: WholeBill) -> Grid:
    table = grid("", ("", "right"), ("90 % interval", "right"), "", title="The whole bill")

    def row(name: str, value: tuple[str, str], note: str = "") -> None:
        table.add_row(name, *value, Text(word(note), style="dim"))

    every = units.show(float(bill.mtbf_seconds.value), "seconds")
    if bill.hopeless:
        again = units.show(float(bill.interrupted.restart_seconds), "seconds")
        why = say("fails every {every}, restarts in {again}", every=every, again=again)
        table.add_row("time", "?", "", Text(say("hardly gets on: {why}", why=why), style="red"))
        return table
    _failures(bill, row, every)
    row("time", ranged(bill.seconds, "seconds"))
    price = bill.ideal.price
    if bill.usd and price:
        row("cost", ranged(bill.usd, "usd"), say("rented, {kind}", kind=price.kind))
    else:
        row("cost", ("?", ""), say("{no_price}; give --price 2", no_price=NO_PRICE))
    if bill.kwh:
        energy = ranged(bill.kwh.times(units.JOULES_PER_KWH), "joules")
        row("energy", energy, say("at the meter: PUE {pue:g}", pue=bill.operation.pue))
    else:
        row("energy", ("?", ""), "no power figure known for this chip")
    _owned(bill, row)
    return table


def _failures(bill: WholeBill, row: Row, every: str) -> None:
    run, one = bill.interrupted, bill.checkpoint
    times = float(bill.interruptions.value)
    low, high = float(bill.interruptions.low), float(bill.interruptions.high)
    shown = (f"{units.digits(times)} ×", units.show_between(low, times, high, "count"))
    if high < HARDLY:
        shown = (f"< {HARDLY:g} ×", "")
    by = say(" (failures, reclaims)") if bill.operation.spot else ""
    row("interrupted", shown, say("every {every}{by}", every=every, by=by))
    between = say(
        "every {interval_seconds}",
        interval_seconds=units.show(float(run.interval_seconds), "seconds"),
    )
    best = "" if bill.operation.interval_seconds else say(", the best")
    often = f"{between}{best}" if bill.checkpoints > 1.0 else say("one, at the end")
    row("checkpoint", (units.show(one.size_bytes, "bytes"), ""), often)
    stall, safe = (units.show(s, "seconds") for s in (one.stall_seconds, one.write_seconds))
    beside = (
        say("stalls {stall}, written in {safe}", stall=stall, safe=safe)
        if one.asynchronous
        else say("stalls {safe}", safe=safe)
    )
    row("", ("", ""), beside)
    stalled, again, over = (
        _share(float(share)) for share in (run.stalled, run.restarting, run.repeated)
    )
    good = bill.goodput
    interval = f"{_number(float(good.low))} – {_number(float(good.high))} %"
    row(
        "goodput",
        (_share(float(good.value)), interval),
        say("checkpoints {stalled}", stalled=stalled),
    )
    row("", ("", ""), say("restarts {again}, repeats {over}", again=again, over=over))


def _owned(bill: WholeBill, row: Row) -> None:
    owned, own = bill.owned_usd, bill.ownership
    if owned is None or own is None:
        row("owned", ("?", ""), "no purchase price known; give --buy 30000")
        return
    each = units.show(own.purchase_usd, "usd")
    row(
        "owned",
        ranged(owned, "usd"),
        say("{each} a chip, server and network, always in use", each=each),
    )
    if bill.ideal.price is None:
        return
    rent = units.show(bill.ideal.price.usd_per_hour, "usd_per_hour")
    hour = units.show(float(own.usd_per_hour.value), "usd_per_hour")
    years = say("{years:g} years", years=bill.operation.years)
    if bill.break_even is None:
        said = say(
            "{hour} over {years}: never cheaper than {rent} of rent",
            hour=hour,
            years=years,
            rent=rent,
        )
    else:
        said = say(
            "{hour} over {years}: cheaper than rent above {break_even} use",
            hour=hour,
            years=years,
            break_even=_share(bill.break_even),
        )
    row("", ("", ""), said)


def _unsaid(bill: WholeBill) -> str:
    """What stands in for what the user did not say, and where to read more."""
    how = bill.operation
    chip = units.show(how.mtbf.seconds, "seconds")
    said = {
        "mtbf": say("a chip fails every {chip} ({why})", chip=chip, why=how.mtbf.why),
        "restart": say(
            "{restart_seconds} to restart (MegaScale)",
            restart_seconds=units.show(how.restart_seconds, "seconds"),
        ),
        "storage": say(
            "{storage_bytes_per_second} of storage",
            storage_bytes_per_second=units.show(how.storage_bytes_per_second, "bytes_per_second"),
        ),
        "pue": say("PUE {pue:g} (Uptime Institute 2023)", pue=how.pue),
    }
    left = [text for name, text in said.items() if name not in how.given]
    if how.spot and how.spot.why != "given":
        lasts = units.show(how.spot.seconds, "seconds")
        left.append(
            say("a spot node is taken back every {lasts} ({why})", lasts=lasts, why=how.spot.why)
        )
    return say("not given: {names}", names=say("; ").join(left)) if left else ""


def _share(value: float) -> str:
    return f"{_number(value)} %"


def _number(share: float) -> str:
    """Percent, with more digits near nothing and near all."""
    near = min(share, 1.0 - share)
    places = 0 if near >= 0.1 else 1 if near >= 0.01 else 2
    return f"{PERCENT * share:.{places}f}"


def encode_whole_bill(bill: WholeBill) -> dict[str, Any]:
    """The same for JSON, with the source of every usual value."""
    how, run, one, own = bill.operation, bill.interrupted, bill.checkpoint, bill.ownership
    if bill.hopeless:
        return {
            "hopeless": True,
            **estimate("mtbf_seconds", bill.mtbf_seconds),
            "restart_seconds": float(run.restart_seconds),
        }
    return {
        "hopeless": False,
        **estimate("mtbf_seconds", bill.mtbf_seconds),
        **estimate("interruptions", bill.interruptions),
        "checkpoint": {
            "bytes": one.size_bytes,
            "asynchronous": one.asynchronous,
            "stall_seconds": one.stall_seconds,
            "write_seconds": one.write_seconds,
            "interval_seconds": float(run.interval_seconds),
            "count": bill.checkpoints,
        },
        "restart_seconds": float(run.restart_seconds),
        **estimate("goodput", bill.goodput),
        "lost": {
            "checkpoints": float(run.stalled),
            "repeated_work": float(run.repeated),
            "restarts": float(run.restarting),
        },
        **estimate("training_seconds", bill.seconds),
        **estimate("accelerator_hours", bill.accelerator_hours),
        **estimate("cost_usd", bill.usd),
        **estimate("energy_kwh", bill.kwh),
        "pue": how.pue,
        "owned": own
        and {
            "purchase_usd": own.purchase_usd,
            **estimate("usd_per_hour", own.usd_per_hour),
            **estimate("cost_usd", bill.owned_usd),
            "break_even_use": bill.break_even,
            "years": how.years,
            "usd_per_kwh": how.usd_per_kwh,
        },
        "given": sorted(how.given),
        "usual": {
            "mtbf": [{"log": log.name, "mtbf_seconds": log.mtbf_seconds, "source": log.source}
                     for log in failure_logs()],
            **{name: {"value": usual_fact(name).text, "source": usual_fact(name).source,
                      "note": usual_fact(name).note}
               for name in ("restart", "stall", "storage", "pue", "electricity", "hosting",
                            "server", "network", "years")},
        },
    }  # fmt: skip
