"""Traces of a CPU alone: the host's own ops are the device's work.

In: ops and named stretches, nested. Out: the outermost ops that a price is known for, each as one
kernel, and gloo's collectives, which threads of their own run. Ops that only look at what is there
(views) have no price and count as the host's time, like Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from trueflops.interop.kineto import host
from trueflops.interop.kineto.file import OPS, Event

GLOO: Final = "gloo:"
_MAYBE: Final = ("to", "contiguous", "reshape", "flatten", "type_as")
"""They copy only where they must: what they call says so."""


def work_on_cpu(events: Iterable[Event], is_priced: Callable[[Event], bool]) -> list[Event]:
    """What took the place of kernels, in the order in which it began."""
    chosen: set[int] = set()
    found = []
    for event in sorted(events, key=lambda e: (e.start, -e.end)):
        if event.category not in OPS:
            if event.name.startswith(GLOO) and event.end > event.start:
                found.append(event)
            continue
        if any(id(outer) in chosen for outer in host.ancestors(event.parent)):
            continue
        library, _, name = event.name.partition("::")
        if library != "aten" or name in _MAYBE or event.end <= event.start:
            continue
        if is_priced(event):
            chosen.add(id(event))
            found.append(event)
    return found
