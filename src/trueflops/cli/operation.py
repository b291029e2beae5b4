"""From flags to how a cluster is run and paid for."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any, Final

from trueflops import units
from trueflops.catalog import Cluster
from trueflops.catalog.operation import Lasting, spot_lifetime
from trueflops.catalog.prices import Purchase
from trueflops.cli.question import dollars, pue_of
from trueflops.errors import BadInput, shorten
from trueflops.language import say
from trueflops.predict.money.operation import Operation, usual_operation

SHORTEST: Final = 1.0  # second: of any time that is given
LONGEST: Final = units.MILLION * 365 * units.SECONDS_PER_DAY  # enough for what never fails
LEAST_STORAGE: Final = units.MILLION  # bytes a second
DEAREST: Final = units.GIGA  # dollars an accelerator
MOST_YEARS: Final = 50.0
DEAREST_KWH: Final = 100.0


def operation_of(options: argparse.Namespace, where: Cluster) -> Operation:
    """What the flags say, else what is usual."""
    given: dict[str, Any] = {}
    if options.mtbf is not None:
        given["mtbf"] = Lasting(_time(options.mtbf, "--mtbf", "50000h"), 0.0, "--mtbf")
    if options.restart is not None:
        given["restart_seconds"] = _time(options.restart, "--restart", "10min")
    if options.checkpoint_every is not None:
        given["interval_seconds"] = _time(options.checkpoint_every, "--checkpoint-every", "30min")
    if options.storage is not None:
        rate = units.parse(options.storage, "bytes_per_second", what="--storage", example="100GB/s")
        if not LEAST_STORAGE <= rate <= units.SANE["bytes_per_second"][1]:
            raise BadInput(
                say(
                    "--storage {storage}: must be at least 1 MB/s; write what all accelerators "
                    "together write at, as 100GB/s",
                    storage=shorten(options.storage),
                )
            )
        given["storage_bytes_per_second"] = rate
    if options.checkpoint is not None:
        given["asynchronous"] = options.checkpoint == "async"
    given |= _paid(options)
    if options.pue is not None:
        given["pue"] = pue_of(options)
    if options.spot:
        given["spot"] = spot_lifetime(where.accelerator)
    if options.spot_lifetime is not None:
        if not options.spot and options.price is None:
            raise BadInput(
                say(
                    "--spot-lifetime says how long spot nodes last: say also --spot, or their "
                    "--price"
                )
            )
        lasts = _time(options.spot_lifetime, "--spot-lifetime", "24h")
        given["spot"] = Lasting(lasts, 0.0, "given")
    names = {name.partition("_")[0] for name in given}
    return replace(usual_operation(where), **given, given=frozenset(names))


def _paid(options: argparse.Namespace) -> dict[str, Any]:
    """What owning costs."""
    given: dict[str, Any] = {}
    if options.buy is not None:
        usd = dollars(options.buy, "--buy", "30000", DEAREST)
        given["purchase"] = Purchase(usd, usd, usd, "", 0)
    if options.years is not None:
        if not 0.0 < options.years <= MOST_YEARS:
            raise BadInput(
                say(
                    "--years {years:g}: must be above 0 and at most {most_years:g}",
                    years=options.years,
                    most_years=MOST_YEARS,
                )
            )
        given["years"] = options.years
    if options.electricity is not None:
        given["usd_per_kwh"] = dollars(
            options.electricity.removesuffix("/kWh"), "--electricity", "0.09", DEAREST_KWH
        )
    return given


def _time(text: str, flag: str, example: str) -> float:
    seconds = units.parse(text, "seconds", what=flag, example=example)
    if not SHORTEST <= seconds <= LONGEST:
        raise BadInput(
            say(
                "{flag} {text}: must lie between a second and a million years",
                flag=flag,
                text=shorten(text),
            )
        )
    return seconds
