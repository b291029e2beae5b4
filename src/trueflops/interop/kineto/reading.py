"""From a profiler's events to a Trace: kernels, the ops that launched them, and the steps."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any, Final

from trueflops.dtypes import BY_SCALAR
from trueflops.errors import BadInput, printable
from trueflops.graph.kinds import CollectiveKind
from trueflops.interop.kineto import host
from trueflops.interop.kineto.arguments import TracedOp
from trueflops.interop.kineto.calls import call_of, label_of, ops_of
from trueflops.interop.kineto.file import (
    ANNOTATIONS,
    DEVICE_WORK,
    HOW,
    OPS,
    Document,
    Event,
    plain_key,
    read_document,
)
from trueflops.interop.kineto.on_cpu import GLOO, work_on_cpu
from trueflops.interop.kineto.outputs import OWNERS
from trueflops.language import say
from trueflops.records.trace import (
    NOBODY,
    HostEvent,
    Launch,
    Message,
    Sort,
    Step,
    Trace,
    TracedKernel,
)
from trueflops.units import BITS_PER_BYTE

_COLLECTIVE: Final = re.compile(r"nccl|rccl|cross_device_reduce|multimem_all_reduce", re.IGNORECASE)
_KINDS: Final[tuple[tuple[str, CollectiveKind], ...]] = (
    ("allreduce", CollectiveKind.ALL_REDUCE),
    ("allgather", CollectiveKind.ALL_GATHER),
    ("reducescatter", CollectiveKind.REDUCE_SCATTER),
    ("alltoall", CollectiveKind.ALL_TO_ALL),
    ("broadcast", CollectiveKind.BROADCAST),
    ("send", CollectiveKind.SEND_RECV),
    ("recv", CollectiveKind.SEND_RECV),
)
_PROFILER_ITSELF: Final = ("Activity Buffer", "Instrumentation", "Resource")
MOST_RANKS: Final = 1_000_000


def read_trace(path: Path) -> Trace:
    """Read a trace of the profiler: the busiest device of it."""
    document = read_document(path)
    work = [e for e in document.events if e.category in DEVICE_WORK]
    ops = [e for e in document.events if e.category in OPS]
    calls = [e for e in document.events if host.is_runtime(e)]
    named = [e for e in document.events if e.category in ANNOTATIONS]
    threads = host.nest([*ops, *calls, *named])
    of_host = not any(e.end > e.start for e in work)
    if not of_host:
        device, work, warnings = _busiest(work, document)
        kernels, launches = _kernels(work, ops, calls)
    else:
        device, warnings = "", []
        kernels, launches = _on_cpu([*ops, *named])
        if calls or not kernels:  # of a device that did nothing; or without shapes
            raise BadInput(
                say(
                    "{where}: no kernels of an accelerator in it; make one {how}",
                    where=document.where,
                    how=HOW,
                )
            )
    return Trace(
        document.where,
        device,
        tuple(kernels),
        tuple(launches),
        threads,
        tuple(_waits(calls)),
        tuple(_overheads(document.events)),
        tuple(_steps(named)),
        any(e.args.get("Input Dims") for e in ops),
        median([e.end - e.start for e in calls if "LaunchKernel" in e.name] or [0.0]),
        tuple(warnings),
        of_host,
    )


def _busiest(work: list[Event], document: Document) -> tuple[str, list[Event], list[str]]:
    """The device with most to do: its name and its work."""
    members: dict[object, list[Event]] = defaultdict(list)
    for event in work:
        members[plain_key(event.args.get("device", event.process))].append(event)
    most = max(members, key=lambda device: sum(e.end - e.start for e in members[device]))
    name = document.devices.get(most, "") if isinstance(most, int) else ""
    said = f"work on {len(members)} devices; shown is the busiest, number {most}"
    mine = sorted(members[most], key=lambda e: e.start)
    return name, mine, [said] if len(members) > 1 else []


# ── kernels and who launched them ────────────────────────────────────────────────────────────────


def _kernels(
    work: Sequence[Event], ops: Sequence[Event], calls: Sequence[Event]
) -> tuple[list[TracedKernel], list[Launch]]:
    by_id = {key: e for e in ops if (key := _external(e)) is not None}
    by_correlation = {key: e for e in calls if (key := _correlation(e)) is not None}
    made_in: list[Event | None] = []
    members: dict[int, list[Event]] = defaultdict(list)
    for event in work:
        call = by_correlation.get(_correlation(event))
        op = by_id.get(_external(event)) or host.innermost_op(call)
        owner = _owner(op)
        made_in.append(owner)
        if owner is not None:
            members[id(owner)].append(event)
    places: dict[int, int] = {}
    launches: list[Launch] = []
    known: dict[TracedOp, tuple[Any, ...]] = {}
    kernels = []
    for event, owner in zip(work, made_in, strict=True):
        if owner is not None and id(owner) not in places:
            places[id(owner)] = len(launches)
            launches.append(_launch(owner, members[id(owner)], known))
        call = by_correlation.get(_correlation(event))
        kernels.append(_kernel(event, call, places[id(owner)] if owner else NOBODY))
    return kernels, _with_clipping(launches)


def _on_cpu(events: Sequence[Event]) -> tuple[list[TracedKernel], list[Launch]]:
    """Of a trace that no accelerator is in: what ops of the host took themselves."""
    known: dict[TracedOp, tuple[Any, ...]] = {}
    work = work_on_cpu(events, lambda op: bool(_launch(op, [op], known).ops))
    kernels: list[TracedKernel] = []
    launches: list[Launch] = []
    for event in work:
        sends = event.name.startswith(GLOO)
        place = NOBODY if sends else len(launches)
        if not sends:
            launches.append(_launch(event, [event], known))
        thread = event.thread if isinstance(event.thread, int) else NOBODY
        kernels.append(
            TracedKernel(
                event.name,
                event.start,
                event.end - event.start,
                thread,  # a thread runs one op after another, as a stream does
                "collective" if sends else "kernel",
                event.start,
                thread,
                place,
            )
        )
    return kernels, _with_clipping(launches)


def _external(event: Event) -> object:
    """The number that kernels share with the op that launched them."""
    return plain_key(event.args.get("External id", event.args.get("external id")))


def _correlation(event: Event) -> object:
    """The number that a kernel shares with the call that launched it."""
    return plain_key(event.args.get("correlation"))


def _owner(op: Event | None) -> Event | None:
    """The op whose price covers this one's kernels: itself, or a larger one that it serves."""
    found = op
    for each in host.ancestors(op):
        if each.category in OPS and each.name.rpartition("::")[2].rstrip("_") in OWNERS:
            found = each
    return found


def _launch(op: Event, work: Sequence[Event], known: dict[TracedOp, tuple[Any, ...]]) -> Launch:
    phase, named = host.phase_of(op), host.within(op)
    ways = [_sort(e) for e in work]
    if "to_device" in ways or "to_host" in ways or "collective" in ways:
        return Launch(op.name, op.name, None, (), phase, named)
    traced = TracedOp(
        op.name,
        _frozen(op.args.get("Input Dims")),
        tuple(str(t) for t in _frozen(op.args.get("Input type"))),
        _frozen(op.args.get("Input Strides")),
        tuple(str(v) for v in _frozen(op.args.get("Concrete Inputs"))),
        tuple((e.name, _blocks(e)) for e in work),
    )
    if traced not in known:
        call = call_of(traced)
        made = ops_of(traced, call) if call else ()
        label = label_of(call, made) if call and made else ""
        known[traced] = call if made else None, made, label
    call, made, label = known[traced]
    return Launch(op.name, label or printable(op.name, 60), call, made, phase, named)


def _frozen(value: Any, depth: int = 3) -> tuple[Any, ...]:
    """Lists as tuples, so that equal arguments are one; what is no list is an empty one."""
    if not isinstance(value, list) or depth == 0:
        return ()
    return tuple(_frozen(v, depth - 1) if isinstance(v, list) else plain_key(v) for v in value)


def _blocks(event: Event) -> int:
    grid = event.args.get("grid")
    sizes = grid if isinstance(grid, list) else [0]
    count = 1
    for size in sizes[:3]:
        count *= size if isinstance(size, int) and 0 <= size < 2**31 else 0
    return count


def _with_clipping(launches: list[Launch]) -> list[Launch]:
    """Count ops between the backward and the optimizer's step, such as clipping, to the step."""
    found, serves = list(launches), False
    if not any(launch.phase == "backward" for launch in launches):
        return found
    for place in range(len(found) - 1, -1, -1):
        if found[place].phase != "forward":
            serves = found[place].phase == "optimizer"
        elif serves:
            found[place] = found[place]._replace(phase="optimizer")
    return found


def _kernel(event: Event, call: Event | None, launch: int) -> TracedKernel:
    sort = _sort(event)
    moved = event.args.get("bytes")
    return TracedKernel(
        event.name,
        event.start,
        event.end - event.start,
        stream if isinstance(stream := event.args.get("stream"), int) else 0,
        sort,
        call.start if call is not None and call.start <= event.start else None,
        call.thread if call is not None and isinstance(call.thread, int) else NOBODY,
        launch,
        _message(event) if sort == "collective" else None,
        float(moved) if isinstance(moved, int) and 0 <= moved < 2**50 else 0.0,
        "Pageable" in event.name,
    )


def _sort(event: Event) -> Sort:
    name = event.name
    if event.category.endswith("memcpy"):
        if "HtoD" in name or "HostToDevice" in name:
            return "to_device"
        return "to_host" if "DtoH" in name or "DeviceToHost" in name else "within"
    sends = "Collective name" in event.args or _sends(name)
    return "collective" if sends else "kernel"


@lru_cache(maxsize=65536)
def _sends(kernel: str) -> bool:
    return _COLLECTIVE.search(kernel) is not None


def _message(event: Event) -> Message | None:
    """What a collective sends, where the profiler wrote it down (PyTorch 2.3 and later)."""
    name = str(event.args.get("Collective name", "")).lower().replace("_", "")
    kind = next((kind for word, kind in _KINDS if word in name), None)
    sizes = [event.args.get(f"{way} msg nelems") for way in ("In", "Out")]
    elements = max((n for n in sizes if isinstance(n, int)), default=0)
    group = event.args.get("Group size")
    dtype = BY_SCALAR.get(str(event.args.get("dtype")))
    if kind is None or not 0 < elements < 2**50 or dtype is None or not isinstance(group, int):
        return None
    if not 1 < group <= MOST_RANKS:
        return None
    ranks = re.findall(r"\d{1,7}", str(event.args.get("Process Group Ranks", ""))[:40])
    stride = int(ranks[1]) - int(ranks[0]) if len(ranks) > 1 else 1
    return Message(kind, elements * dtype.bits / BITS_PER_BYTE, group, max(stride, 1))


# ── the rest ─────────────────────────────────────────────────────────────────────────────────────


def _waits(calls: Sequence[Event]) -> list[HostEvent]:
    """Calls that wait for the device or for memory, named by the op that asked for them."""
    found = []
    for call in calls:
        what = host.doing(call)
        if what in ("wait", "allocate"):
            by = host.asked_by(call)
            name = f"{call.name} in {by}" if by else call.name
            found.append(HostEvent(name, call.start, call.end, what))
    return sorted(found, key=lambda e: e.start)


def _overheads(events: Sequence[Event]) -> list[HostEvent]:
    """What the profiler took for itself; a full command buffer is the device's, not its own."""
    return [
        HostEvent(e.name, e.start, e.end, "annotation")
        for e in events
        if e.category == "overhead" and e.name.startswith(_PROFILER_ITSELF)
    ]


def _steps(named: Sequence[Event]) -> list[Step]:
    found = [Step(e.name, e.start, e.end) for e in named if e.name.startswith("ProfilerStep#")]
    return sorted(found, key=lambda step: step.start)
