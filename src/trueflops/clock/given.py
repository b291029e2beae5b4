"""A profile that a user names: anyone may have written it, so each curve is held to its law.

A curve must have what its law asks for, within what fits are bounded by (and some room: bounds
move between versions), and may not beat the chip itself: no share of a peak or of a bandwidth is
above 1.02 of it, or of what a fit may reach where caches and skipped work make that more.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from trueflops import units
from trueflops.catalog import PROTOCOLS, Accelerator, accelerator
from trueflops.clock.law import residual
from trueflops.clock.works import LAWS
from trueflops.errors import BadInput, UnknownName, printable
from trueflops.profile import Curve, CurveKey, Profile, read_profile
from trueflops.profile.correction import FACTORS, RESERVE
from trueflops.profile.host_speed import TIMES
from trueflops.profile.keys import STREAMS
from trueflops.records.limits import TOLERANCE

ROOM: Final = 10.0  # beyond the bounds of a fit
FARTHEST: Final = 4.0  # that landmarks may move log(time): what is shipped moves it by 2.6


class Range(NamedTuple):
    """Between what a parameter may lie; `needed` if the law cannot do without it."""

    low: float
    high: float
    needed: bool = True
    limit: str = ""  # what of the chip it is a share of


_NO_LAW: Final[Mapping[str, Mapping[str, Range]]] = {
    "host": {"efficiency": Range(1e-3, TOLERANCE, limit="host.bandwidth")},
    "collective": {
        **{f"base_{p}": Range(0.0, 1e-2) for p in PROTOCOLS},
        **{f"hop_{p}": Range(0.0, 1e-2) for p in PROTOCOLS},
        **{f"rate_{p}": Range(1e-4, TOLERANCE, needed=False) for p in PROTOCOLS},
        "efficiency": Range(1e-3, TOLERANCE),
        "crowding": Range(-4.0, 8.0),
        "blend": Range(0.5, 200.0),
    },
    # Seconds, but for `issue`, which is a factor; a measured host is some times as fast as usual.
    "dispatch": {name: Range(0.0, 100.0) for name in (*TIMES, "gap", "latency", "node")},
    "correction": {
        **{name: Range(0.05, 20.0) for name in FACTORS},
        RESERVE: Range(0.0, units.TERA),
    },
    "power": {
        "static": Range(0.0, 1.0),
        "byte": Range(0.0, 20.0),
        "exponent": Range(0.1, 6.0),
        "clocked": Range(0.0, 1.0),
    },
}
_OF_POWER: Final = Range(0.0, 20.0)  # flop_<dtype>, of the cap at full rate
_CAP: Final = Range(1.0, 1e5)


def given_profile(path: Path) -> Profile:
    """Read a profile and hold it to the laws and to its chip."""
    profile = read_profile(path)
    chip = profile.chip or accelerator(profile.accelerator)
    for key, curve in profile.curves.items():
        _check(printable(str(path)), key, curve, chip)
    return profile


def _check(where: str, name: CurveKey, curve: Curve, chip: Accelerator) -> None:
    kind = name.kind
    known = ranges(kind)
    if not known:
        raise UnknownName(f"curve in {where}", str(name), [*LAWS, "cast", *_NO_LAW])
    for key, of in known.items():
        if of.needed and key not in curve.values:
            said = f"{name} has no {key!r}: it is not as trueflops measure writes it"
            raise BadInput(f"{where}: {said}")
    for key, value in curve.values.items():
        may = known.get(key) or _of_power(kind, key)
        if may is None and kind in STREAMS:
            raise BadInput(
                f"{where}: unknown parameter {key!r} of {name}: earlier releases wrote others; fit "
                "it anew with trueflops measure fit"
            )
        if may is None:
            raise UnknownName(f"parameter of {name} in {where}", key, known)
        if may.limit and value > may.high:
            has = _shown(chip, may.limit)
            raise BadInput(
                f"{where}: {name}: {key} = {value:g} beats {chip.name} itself: at most "
                f"{may.high:g} of {may.limit}{has} can be"
            )
        if not may.low <= value <= may.high:
            said = f"must lie between {may.low:g} and {may.high:g}"
            raise BadInput(f"{where}: {name}: {key} = {value:g} {said}")
    marks = curve.landmarks
    if marks is not None and np.max(np.abs(residual(marks.points, marks)), initial=0.0) > FARTHEST:
        raise BadInput(f"{where}: {name}: its landmarks move times by more than e^{FARTHEST:g}")


def ranges(kind: str) -> Mapping[str, Range]:
    """What a curve of this kind may hold; nothing for an unknown kind."""
    if kind in _NO_LAW:
        return _NO_LAW[kind]
    law = LAWS.get("memory" if kind == "cast" else kind)
    if law is None:
        return {}
    # Of many kinds of kernel, those that a profile does not know run as a plain one.
    plain = dict.fromkeys(("memory", "cast", "eager"), ("start_cycles", "bandwidth"))
    needed = plain.get(kind, tuple(law.parameters))
    found = {}
    for key, parameter in law.parameters.items():
        limit = _limit(key)
        high = max(TOLERANCE, parameter.high * TOLERANCE) if limit else parameter.high * ROOM
        found[key] = Range(parameter.low / ROOM, high, key in needed, limit)
    return found


def _limit(key: str) -> str:
    """What of a chip a parameter is a share of."""
    if key.startswith("efficiency"):
        return "the dense peak"
    return "memory.bandwidth" if key == "bandwidth" else ""


def _of_power(kind: str, key: str) -> Range | None:
    if kind != "power":
        return None
    return _CAP if key == "cap_watts" else _OF_POWER if key.startswith("flop_") else None


def _shown(chip: Accelerator, limit: str) -> str:
    value = chip.get(limit)
    return f", {units.show(value, 'bytes_per_second')}," if value else ""
