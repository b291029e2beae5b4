"""Calls of a recording as kernels with their seconds, priced by the one clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from trueflops.capture.lower import base_name
from trueflops.clock import CLOCKED_CAUSES, Clock
from trueflops.graph.ir import Op
from trueflops.graph.kinds import CollectiveKind, Kind
from trueflops.graph.rules import RULES, Work, work
from trueflops.predict.captured.lowering import Lowering
from trueflops.profile import Curve
from trueflops.records.recording import HOST, Call, Event

# How collectives are called -> ours, and whether what is sent is the input or the output.
_COLLECTIVES: Final[Mapping[str, tuple[CollectiveKind, Literal["inputs", "outputs"]]]] = {
    "allreduce": (CollectiveKind.ALL_REDUCE, "inputs"),
    "all_reduce": (CollectiveKind.ALL_REDUCE, "inputs"),
    "allgather": (CollectiveKind.ALL_GATHER, "outputs"),
    "all_gather": (CollectiveKind.ALL_GATHER, "outputs"),
    "reduce_scatter": (CollectiveKind.REDUCE_SCATTER, "inputs"),
    "alltoall": (CollectiveKind.ALL_TO_ALL, "inputs"),
    "all_to_all": (CollectiveKind.ALL_TO_ALL, "inputs"),
    "broadcast": (CollectiveKind.BROADCAST, "inputs"),
    "scatter": (CollectiveKind.BROADCAST, "inputs"),
    "gather": (CollectiveKind.ALL_GATHER, "outputs"),
    "reduce": (CollectiveKind.ALL_REDUCE, "inputs"),
    "send": (CollectiveKind.SEND_RECV, "inputs"),
    "recv": (CollectiveKind.SEND_RECV, "outputs"),
}  # a barrier sends nothing


@dataclass(slots=True)
class Kernel:
    """Something that occupies a stream for a while."""

    name: str
    call: Call
    cause: str  # matmul, attention, memory, communication, host copy
    seconds: float
    work: Work
    error: float  # of log(seconds)
    curve: str
    op: Op | None = None
    links: tuple[float, ...] = ()  # seconds for which it keeps each tier's links busy

    @property
    def clocked(self) -> bool:
        """Whether it slows down with the chip's clock."""
        return self.cause in CLOCKED_CAUSES

    @property
    def matrix(self) -> bool:
        """Whether its flop run on a matrix engine."""
        return self.op is not None and RULES[self.op.kind].matrix


def price_events(events: Sequence[Event], clock: Clock, lowering: Lowering) -> list[list[Kernel]]:
    """For each event the kernels that it launches; none for what is not a call."""
    found: list[list[Kernel]] = [[] for _ in events]
    lowered: list[tuple[int, Call, Op]] = []
    for i, event in enumerate(events):
        if not isinstance(event, Call):
            continue
        if event.group:
            found[i] = _sent(event, clock)
        else:
            lowered += [(i, event, op) for op in lowering(event)]
    ops = [op for _, _, op in lowered if op.kind is not Kind.HOST_COPY]
    priced = iter(clock.price_ops(ops))
    for i, call, op in lowered:
        if op.kind is Kind.HOST_COPY:
            found[i].append(_copied(call, op, clock))
            continue
        taken, _, done, (_, cause, key), law = next(priced)
        found[i].append(
            Kernel(
                base_name(call.op), call, cause, float(taken), done, law.error, str(key), op
            )
        )  # fmt: skip
    return found


def _sent(call: Call, clock: Clock) -> list[Kernel]:
    """A collective over the links between its ranks."""
    name = base_name(call.op)
    known = next((v for k, v in _COLLECTIVES.items() if name.strip("_").startswith(k)), None)
    count = len(call.group)
    if known is None or count < 2:
        return []
    kind, side = known
    payload = sum(a.bytes for a in getattr(call, side) if a.device != HOST)
    stride = max(1, (call.group[-1] - call.group[0]) // (count - 1))
    taken = clock.collective(kind, float(count), float(payload), float(stride))
    received = name.strip("_").startswith("recv")  # the sender's links carry it
    links = () if received else tuple(float(link) for link in taken.links)
    law = clock.profile.curve(f"collective.{kind}")
    none, curve = Work(0.0, 0.0, 0.0), f"collective.{kind}"
    seconds = float(taken.seconds)
    return [Kernel(kind, call, "communication", seconds, none, law.error, curve, links=links)]


def _copied(call: Call, op: Op, clock: Clock) -> Kernel:
    moved = sum(a.bytes for a in call.outputs)
    law: Curve = clock.profile.curve("host")
    known = clock.cluster.host_bandwidth is not None
    seconds = float(clock.host_copy(float(moved))) if known else 0.0
    return Kernel("host copy", call, "host copy", seconds, work(op), law.error, "host", op)
