"""Kernels beside their predictions: launches of one op in one shape, measured and priced.

The price is the clock's, for the ops that capture would have recorded; the kernels of one op are
summed (a split product and its memset, the five kernels of an attention's gradient).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from trueflops import units
from trueflops.clock import Clock, op_class
from trueflops.errors import MissingFact, shorten
from trueflops.graph.ir import Op
from trueflops.predict.kernels import price_kernels
from trueflops.records.trace import NOBODY, Launch, Trace, TracedKernel
from trueflops.runtime.terms import Estimate

# `indexing`: each element is looked up by its own offsets, and that takes longer than moving it.
BOUNDS: Final = {"compute": "compute", "memory": "memory", "serial": "latency", "start": "latency"}
_WAYS: Final = {"to_device": "copy to the device", "to_host": "copy to the host"}


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


class Pricer:
    """Prices launches and copies on one clock, each distinct one once."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._known: dict[tuple[int, ...], Price] = {}

    def launch(self, launch: Launch) -> Price:
        """One op of the program."""
        if not launch.ops:
            return Price(None, why="no shapes that can be priced")
        key = tuple(map(id, launch.ops))
        if key not in self._known:
            self._known[key] = self.ops(launch.ops)
        return self._known[key]

    def ops(self, ops: Sequence[Op]) -> Price:
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
            return Price(None, bound="links", why="the trace does not say what was sent")
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
        try:
            law = self.clock.profile.curve("host")
            seconds = float(self.clock.host_copy(kernel.moved_bytes)) + _START
        except MissingFact as error:
            return Price(None, bound="host link", why=str(error))
        return Price(Estimate(seconds, {"host": law.error}, law.origin), "host link",
                     moved_bytes=kernel.moved_bytes)  # fmt: skip


_START: Final = 2 * units.MICRO  # of a copy engine: seen as the time of one that moves 1 byte


def cause_of(kernel: TracedKernel, launches: Sequence[Launch]) -> str:
    """Under which heading a kernel's time is shown."""
    if kernel.sort == "collective":
        return "communication"
    if kernel.sort in _WAYS:
        return "copies"
    if kernel.launch == NOBODY:
        return _by_name(kernel.name)
    return launch_cause(launches[kernel.launch], kernel.name)


def launch_cause(launch: Launch, kernel: str) -> str:
    """By what it lowers to; where that is not known, by the name of its kernel."""
    kinds = {op_class(op) for op in launch.ops}
    if "matmul" in kinds:
        return "matmul"
    if any(kind.startswith("attention") for kind in kinds):
        return "attention"
    return "memory" if kinds else _by_name(kernel)


_PRODUCTS: Final = re.compile(r"gemm|nvjet|cutlass|xmma|Cijk_|triton_tem|matmul|convolve|_conv_")
_ATTENDS: Final = re.compile(r"flash|fmha|attention|sdpa", re.IGNORECASE)
_MOVES: Final = re.compile(r"elementwise|reduce_kernel|triton_(poi|red|per)|multi_tensor|Memset")


def _by_name(kernel: str) -> str:
    for cause, pattern in (("attention", _ATTENDS), ("matmul", _PRODUCTS), ("memory", _MOVES)):
        if pattern.search(kernel):
            return cause
    return "other"


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
        alone = foreign or kernel.sort in ("collective", *_WAYS)
        instances["" if alone else "op", place if alone else kernel.launch].append(kernel)
    gathered: dict[tuple[str, str, float], list[tuple[list[TracedKernel], Price, str]]] = {}
    for members in instances.values():
        label, price, phase = _priced(trace, members, pricer)
        each = float(price.seconds.value) if price.seconds else -1.0
        if members[0].sort in _WAYS:
            each = 0.0  # of any size: a rate is what they share
        key = label, cause_of(members[0], trace.launches), each
        gathered.setdefault(key, []).append((members, price, phase))
    groups = [_group(label, cause, found) for (label, cause, _), found in gathered.items()]
    return sorted(groups, key=lambda g: -g.measured_seconds)


def _priced(trace: Trace, members: list[TracedKernel], pricer: Pricer) -> tuple[str, Price, str]:
    kernel = members[0]
    launch = trace.launches[kernel.launch] if kernel.launch != NOBODY else None
    phase = launch.phase if launch else ""
    if kernel.sort == "collective":
        return _message_label(kernel), pricer.message(kernel), phase
    if kernel.sort in _WAYS:
        pinned = ", pageable" if kernel.pageable else ""
        return f"{_WAYS[kernel.sort]}{pinned}", pricer.copy(kernel), phase
    if launch is None or not (launch.ops or launch.name.startswith("aten::")):
        by = f"launched by {shorten(launch.name, 40)}" if launch else "no op is known of it"
        return short_name(kernel.name), Price(None, why=by), phase
    return launch.label, pricer.launch(launch), phase


def _message_label(kernel: TracedKernel) -> str:
    sent = kernel.message
    if sent is None:
        return short_name(kernel.name)
    return f"{sent.kind} {units.show(sent.payload_bytes, 'bytes')} on {sent.group}"


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
