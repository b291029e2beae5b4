"""What a few real steps correct of a profile: factors of time, and memory that is taken besides.

In: a profile whose curve `correction` says them (`trueflops run --calibrate` writes it).
    compute  every kernel takes so many times as long
    host     every call, launch and hook
    links    every collective
    reserve  bytes a device, beside tensors
Out: the same profile with its curves changed. All laws are sums and smooth maxima of parts that go
with a rate or with cycles, so that changing these changes the whole by the factor.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from trueflops.profile.host_speed import slower_host
from trueflops.profile.keys import ATTENTION, CONVOLUTIONS, PRODUCTS, STREAMS, CurveKey
from trueflops.profile.profile import Curve, Profile

CORRECTION: Final = CurveKey("correction")
FACTORS: Final = ("compute", "host", "links")
RESERVE: Final = "reserve"
_KERNELS: Final = (*PRODUCTS, *ATTENTION, *STREAMS, *CONVOLUTIONS, "cast", "vector")
_RATES: Final = ("efficiency", "bandwidth", "vector_flop", "vector_b", "cache_bytes", "piece_bytes")
_OF_HOST: Final = ("launch", "graph", "step")  # of a framework


def corrected(profile: Profile) -> Profile:
    """As real steps were seen to be; without a correction, as it is."""
    law = profile.curves.get(CORRECTION)
    if law is None:
        return profile
    curves: dict[CurveKey, Curve] = {}
    for key, curve in profile.curves.items():
        if key.kind in _KERNELS:
            curves[key] = _slower(curve, law["compute"])
        elif key.kind == "collective":
            curves[key] = _slower_links(curve, law["links"])
    host = law["host"]
    dispatch, framework, allocator = (
        CurveKey(kind) for kind in ("dispatch", "framework", "allocator")
    )
    told = f"× {host:.2f}: by real steps"
    curves[dispatch] = slower_host(profile.curve(dispatch), host, told)
    values = dict(profile.curve(framework).values)
    values |= {name: values[name] * host for name in _OF_HOST if name in values}
    curves[framework] = replace(profile.curve(framework), values=values).because(told)
    kept = profile.curve(allocator)
    more = {"context": kept["context"] + law[RESERVE]}
    curves[allocator] = replace(kept, values={**kept.values, **more})
    return profile.having(curves)


def _slower(curve: Curve, times: float) -> Curve:
    values = {
        name: value / times if name.startswith(_RATES)
        else value * times if name.endswith("_cycles") else value
        for name, value in curve.values.items()
    }  # fmt: skip
    return replace(curve, values=values).because(f"× {times:.2f}: by real steps")


def _slower_links(curve: Curve, times: float) -> Curve:
    values = {
        name: value * times if name.startswith(("base_", "hop_"))
        else value / times if name == "efficiency" else value
        for name, value in curve.values.items()
    }  # fmt: skip
    return replace(curve, values=values).because(f"× {times:.2f}: by real steps")
