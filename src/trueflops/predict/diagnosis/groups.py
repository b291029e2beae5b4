"""Kernels beside their predictions: launches of one op in one shape, measured and priced.

The price is the clock's, for the ops that capture would have recorded; the kernels of one op are
summed (a split product and its memset, the five kernels of an attention's gradient).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from trueflops import units
from trueflops.clock import Clock
from trueflops.errors import MissingFact, shorten
from trueflops.graph.ir import Op
from trueflops.language import mark, say
from trueflops.predict.diagnosis.causes import WAYS, cause_of
from trueflops.predict.kernels import price_kernels
from trueflops.records.trace import NOBODY, Launch, Trace, TracedKernel
from trueflops.runtime.terms import Estimate

# `indexing`: each element is looked up by its own offsets, and that takes longer than moving it.
BOUNDS: Final = {"compute": "compute", "memory": "memory", "serial": "latency", "start": "latency"}
NO_CHIP: Final = mark("say where the trace was made with --on CHIP")


@dataclass(frozen=True)
class Price:
    """What one launch should take."""

    seconds: Estimate | None
    bound: str = ""
    flop: float = 0.0
    moved_bytes: float = 0.0
    why: str = ""  # there is none


@dataclass(frozen=True)
class Group:
    """All launches of one op in one shape; `predicted` is of all of them together."""

    label: str
    cause: str
    count: int
    kernels: int
    measured_seconds: float
    predicted: Estimate | None
    bound: str
    flop: float
    moved_bytes: float
    why: str
    phases: Mapping[str, float]  # measured seconds by phase

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        value = float(self.predicted.value) if self.predicted else 0.0
        return self.measured_seconds / value if value else None

    @property
    def slow(self) -> bool:
        """Whether it took longer than the upper end of the interval."""
        return self.predicted is not None and self.measured_seconds > float(self.predicted.high)

    @property
    def excess_seconds(self) -> float:
        """Beyond the prediction, where it is slow."""
        if self.predicted is None or not self.slow:
            return 0.0
        return self.measured_seconds - float(self.predicted.value)


class NamedKernel(NamedTuple):
    """All kernels of one name that one op launched."""

    kernel: str
    op: str  # empty where it is not known
    cause: str
    launches: int
    seconds: float


class Pricer:
    """Prices launches and copies on one clock, each distinct one once; nothing without a clock."""

    def __init__(self, clock: Clock | None) -> None:
        self.clock = clock
        self._known: dict[tuple[int, ...], Price] = {}

    def launch(self, launch: Launch) -> Price:
        """One op of the program."""
        if not launch.ops:
            return Price(None, why=say("no shapes that can be priced"))
        key = tuple(map(id, launch.ops))
        if key not in self._known:
            self._known[key] = self.ops(launch.ops)
        return self._known[key]

    def ops(self, ops: Sequence[Op]) -> Price:
        if self.clock is None:
            return Price(None, why=NO_CHIP)
        try:
            made = price_kernels(self.clock, ops, None, 1)
        except MissingFact as error:
            return Price(None, why=str(error))
        one, flop, moved = made.seconds.pick(0), float(made.flop[0]), float(made.moved_bytes[0])
        bound = BOUNDS.get(made.bound[0], made.bound[0])
        return Price(one, bound, flop, moved)

    def message(self, kernel: TracedKernel) -> Price:
        """One collective, alone on its links."""
        sent = kernel.message
        if sent is None:
            return Price(None, bound="links", why=say("the trace does not say what was sent"))
        if self.clock is None:
            return Price(None, bound="links", why=NO_CHIP)
        try:
            law = self.clock.profile.curve(f"collective.{sent.kind}")
            taken = self.clock.collective(
                sent.kind, float(sent.group), sent.payload_bytes, float(sent.stride)
            )
        except MissingFact as error:
            return Price(None, bound="links", why=str(error))
        estimate = Estimate(float(taken.seconds), {"collective": law.error}, law.origin)
        return Price(estimate, "links", moved_bytes=sent.payload_bytes)

    def copy(self, kernel: TracedKernel) -> Price:
        """A copy between host and device at what the link between them carries."""
        if self.clock is None:
            return Price(None, bound="host link", why=NO_CHIP)
        try:
            law = self.clock.profile.curve("host")
            seconds = float(self.clock.host_copy(kernel.moved_bytes)) + _START
        except MissingFact as error:
            return Price(None, bound="host link", why=str(error))
        return Price(Estimate(seconds, {"host": law.error}, law.origin), "host link",
                     moved_bytes=kernel.moved_bytes)  # fmt: skip


_START: Final = 2 * units.MICRO  # of a copy engine: seen as the time of one that moves 1 byte


def short_name(kernel: str) -> str:
    """`void at::native::(anonymous namespace)::f<int>(char*)` -> `f`."""
    name = kernel.replace("(anonymous namespace)::", "").removeprefix("void ")
    return shorten(re.split(r"[<(]", name, maxsplit=1)[0].rpartition("::")[2] or kernel, 60)


def group_kernels(trace: Trace, kernels: Sequence[TracedKernel], pricer: Pricer) -> list[Group]:
    """Every kernel of a window in one group, those that cost most first."""
    instances: dict[tuple[str, int], list[TracedKernel]] = defaultdict(list)
    for place, kernel in enumerate(kernels):
        launch = trace.launches[kernel.launch] if kernel.launch != NOBODY else None
        # Of a graph or a foreign op, whose parts nothing is known of, each kernel is itself.
        foreign = launch is None or not (launch.ops or launch.name.startswith("aten::"))
        alone = foreign or kernel.sort in ("collective", *WAYS)
        instances["" if alone else "op", place if alone else kernel.launch].append(kernel)
    gathered: dict[tuple[str, str, float], list[tuple[list[TracedKernel], Price, str]]] = {}
    for members in instances.values():
        label, price, phase = _priced(trace, members, pricer)
        each = float(price.seconds.value) if price.seconds else -1.0
        if members[0].sort in WAYS:
            each = 0.0  # of any size: a rate is what they share
        key = label, cause_of(members[0], trace.launches), each
        gathered.setdefault(key, []).append((members, price, phase))
    groups = [_group(label, cause, found) for (label, cause, _), found in gathered.items()]
    return sorted(groups, key=lambda g: -g.measured_seconds)


def name_kernels(trace: Trace, kernels: Sequence[TracedKernel]) -> list[NamedKernel]:
    """Kernels by their own name and the op that launched them, those that cost most first."""
    gathered: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for kernel in kernels:
        op = trace.launches[kernel.launch].name if kernel.launch != NOBODY else ""
        cause = cause_of(kernel, trace.launches)
        gathered[short_name(kernel.name), op, cause].append(kernel.seconds)
    found = [NamedKernel(*key, len(each), sum(each)) for key, each in gathered.items()]
    return sorted(found, key=lambda k: -k.seconds)


def _priced(trace: Trace, members: list[TracedKernel], pricer: Pricer) -> tuple[str, Price, str]:
    kernel = members[0]
    launch = trace.launches[kernel.launch] if kernel.launch != NOBODY else None
    phase = launch.phase if launch else ""
    if kernel.sort == "collective":
        return _message_label(kernel), pricer.message(kernel), phase
    if kernel.sort in WAYS:
        pinned = ", pageable" if kernel.pageable else ""
        return f"{WAYS[kernel.sort]}{pinned}", pricer.copy(kernel), phase
    if launch is None or not (launch.ops or launch.name.startswith("aten::")):
        by = (
            say("launched by {name}", name=shorten(launch.name, 40))
            if launch
            else say("no op is known of it")
        )
        return short_name(kernel.name), Price(None, why=by), phase
    return launch.label, pricer.launch(launch), phase


def _message_label(kernel: TracedKernel) -> str:
    sent = kernel.message
    if sent is None:
        return short_name(kernel.name)
    return say(
        "{kind} {payload_bytes} on {group}",
        kind=sent.kind,
        payload_bytes=units.show(sent.payload_bytes, "bytes"),
        group=sent.group,
    )


def _group(label: str, cause: str, found: Sequence[tuple[list[TracedKernel], Price, str]]) -> Group:
    prices = [price for _, price, _ in found]
    estimates = [p.seconds for p in prices if p.seconds is not None]
    whole = None
    if estimates:
        whole = Estimate(
            sum(float(e.value) for e in estimates), estimates[0].spreads, estimates[0].origin,
            sum(float(e.least) for e in estimates),
        )  # fmt: skip
    phases: dict[str, float] = defaultdict(float)
    for members, _, phase in found:
        phases[phase] += sum(k.seconds for k in members)
    return Group(
        label, cause, len(found), sum(len(m) for m, _, _ in found), sum(phases.values()), whole,
        prices[0].bound, sum(p.flop for p in prices), sum(p.moved_bytes for p in prices),
        prices[0].why, dict(phases),
    )  # fmt: skip
