"""Every op of a step, or of a pass, under the chip's roofs: as a table and as JSON.

In: what ran (predict/ran_ops.py) and the clock that priced it. Seconds are of each op alone on the
accelerator: what communication hides, what the host and a power cap add, stands in the step's tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from trueflops import units
from trueflops.clock import Clock
from trueflops.clock.works import MOVING
from trueflops.language import say
from trueflops.predict.ran_ops import Ran, RanOp
from trueflops.report.grid import grid
from trueflops.report.provenance import encode_choice
from trueflops.report.tables import plural

LISTED: Final = 24  # ops of a table, those that take longest; JSON has all


def print_ops(out: Console, ran: Sequence[Ran], clock: Clock, of: str) -> None:
    """Those that take longest, and how many there are."""
    table = grid(
        "op",
        ("time", "right"),
        ("share", "right"),
        ("TFLOP/s", "right"),
        ("GB/s", "right"),
        ("flop/byte", "right"),
        "bound by",
        title=say("Every op of {of}, alone on the accelerator", of=of),
        gives_way=0,
    )
    whole = sum(_seconds(each) * each.often for each in ran)
    longest = sorted(ran, key=lambda each: -_seconds(each) * each.often)
    for each in longest[:LISTED]:
        taken = _seconds(each)
        rates = ["", "", "", "links"]
        if isinstance(each, RanOp):
            rates = [
                units.digits(each.flop / taken / units.TERA),
                units.digits(each.moved_bytes / taken / units.GIGA),
                units.digits(each.flop / each.moved_bytes) if each.moved_bytes else "",
                each.bound(clock),
            ]
        table.add_row(
            say("{op}, {phase}", op=_name(each), phase=each.phase.replace("_", " ")),
            units.show(taken * each.often, "seconds"),
            f"{100.0 * taken * each.often / whole:.1f} %",
            *rates,
        )
    out.print()
    out.print(table)
    if len(longest) > LISTED:
        rest = say("… {ops}; --json lists all", ops=plural(len(longest) - LISTED, "shorter op"))
        out.print(Text(rest, style="dim"))


def encode_ops(ran: Sequence[Ran], clock: Clock, of: str) -> dict[str, Any]:
    """All of them, the roofs over them, and every curve once."""
    keys = {str(each.key): each.key for each in ran}
    return {
        "of": of,
        "roofs": _roofs(ran, clock),
        "ops": [_encode(each, clock) for each in ran],
        "curves": {text: encode_choice(clock.profile.choose(key)) for text, key in keys.items()},
    }


def _roofs(ran: Sequence[Ran], clock: Clock) -> dict[str, Any]:
    """Peaks of the dtypes in which matrices are multiplied, and the memory: on paper, delivered.

    Delivered is what a large product reaches for a moment, and what kernels that only move data do.
    """
    products = (e for e in ran if isinstance(e, RanOp) and e.priced.pricing.kind not in MOVING)
    share = clock.profile.curve("memory")["bandwidth"]
    return {
        "accelerator": clock.chip.name,
        "peaks": [
            {
                "dtype": dtype,
                "datasheet_flop_per_second": clock.chip.peak_flop_per_second(dtype),
                "delivered_flop_per_second": clock.matmul_rate(dtype),
            }
            for dtype in dict.fromkeys(each.op.dtype for each in products)
        ],
        "memory": {
            "datasheet_bytes_per_second": clock.silicon.bandwidth,
            "delivered_bytes_per_second": clock.silicon.bandwidth * share,
        },
    }


def _encode(each: Ran, clock: Clock) -> dict[str, Any]:
    """One op; of a collective the payload is what it moves, and links bind it."""
    shared: dict[str, Any] = {
        "name": _name(each),
        "where": each.where,
        "phase": each.phase,
        "often": each.often,
        "curve": str(each.key),
    }
    if isinstance(each, RanOp):
        own: dict[str, Any] = {
            "kind": each.priced.pricing.kind,
            "dtype": each.op.dtype,
            "flop": each.flop,
            "bytes": each.moved_bytes,
            "bound": each.bound(clock),
        }
    else:
        payload = float(each.sent.payload.bytes)
        own = {"kind": "collective", "dtype": None, "flop": 0.0, "bytes": payload, "bound": "links"}
    seconds = {name: float(getattr(each.seconds, name)) for name in ("value", "low", "high")}
    return shared | own | {"seconds": seconds.pop("value"), **seconds}


def _name(each: Ran) -> str:
    if isinstance(each, RanOp):
        return each.op.name
    return f"{each.sent.kind} {each.sent.axis}"


def _seconds(each: Ran) -> float:
    return float(each.seconds.value)
