"""The kernels of every call, found once: fusion and the clock ask for the same ones."""

from __future__ import annotations

from trueflops.capture.lower import lower
from trueflops.graph.ir import Op
from trueflops.records.recording import Call


class Lowering:
    """Remembers calls by identity: they are large, and the same ones are asked for again."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Call, list[Op]]] = {}

    def __call__(self, call: Call) -> list[Op]:
        """The kernels that a call launches."""
        known = self._known.get(id(call))
        if known is None:
            known = self._known[id(call)] = call, lower(call)
        return known[1]
