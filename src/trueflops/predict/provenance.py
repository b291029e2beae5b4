"""Which number priced what: the seconds of an answer by the curve that each was priced with.

In: what was priced (one kernel, rows of a table, a step, a pass of a server, a trace). Out: a
Provenance, whose parts sum to it; of a captured step, whose streams overlap, each is alone. Prices
are the clock's, asked for once more op by op; parts that are no ops (what of communication shows,
waits for the host) are the answer's own leaves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from trueflops.clock import Clock
from trueflops.clock.attention import OTHERWISE
from trueflops.clock.matmul import VECTOR
from trueflops.clock.works import law_of
from trueflops.graph import Op
from trueflops.graph.ir import Collective
from trueflops.language import say
from trueflops.plan import Plan
from trueflops.predict.ran_ops import Ran, RanOp, key_of, pass_ops, step_ops
from trueflops.predict.training.step import TrainingStep
from trueflops.predict.training.trainer import Trainer
from trueflops.profile import Choice, CurveKey, Profile
from trueflops.records.trace import NOBODY
from trueflops.runtime.terms import COMMUNICATION, COMPUTE, Term

if TYPE_CHECKING:  # of one command each: the others need not load them
    from trueflops.graph import Program
    from trueflops.predict.captured.step import CapturedStep
    from trueflops.predict.diagnosis import Diagnosis
    from trueflops.predict.explain import KernelExplained
    from trueflops.predict.serving import Server, ServingPoint

BY_OPS: Final = tuple(COMPUTE.values())  # leaves that are the seconds of ops
_CURVE_OF_CAUSE: Final = {"vendor": "models"}  # the others are named as their curve is


class PricedParameter(NamedTuple):
    """One number of the law that priced a kernel."""

    name: str
    value: float
    unit: str
    meaning: str
    at_bound: bool


@dataclass(frozen=True)
class PricedLaw:
    """The formula that priced a kernel, by the name of its function, with its numbers."""

    formula: str
    parameters: tuple[PricedParameter, ...]
    landmarks: int  # shapes whose measurements correct it nearby


@dataclass(frozen=True)
class PricedPart:
    """Seconds that one curve priced; several where a part is of several kinds of collective."""

    what: str
    choices: tuple[Choice, ...]
    seconds: float
    kernels: float = 0.0  # 0 where it is no kernels


@dataclass(frozen=True)
class Provenance:
    """All parts of an answer, the largest first."""

    of: str
    parts: tuple[PricedPart, ...]
    law: PricedLaw | None = None  # of a single kernel

    @property
    def seconds(self) -> float:
        """All parts together."""
        return sum(part.seconds for part in self.parts)


class _Ledger:
    """Seconds and kernels by curve."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.ops: dict[tuple[str, CurveKey], list[float]] = defaultdict(lambda: [0.0, 0.0])
        self.others: list[PricedPart] = []

    def add(self, what: str, key: CurveKey, seconds: float, kernels: float) -> None:
        """Kernels of one class."""
        sums = self.ops[what, key]
        sums[0] += seconds
        sums[1] += kernels

    def part(self, what: str, keys: Iterable[CurveKey], seconds: float) -> None:
        """A part that is no kernels of one class."""
        choices = tuple(self.profile.choose(key) for key in dict.fromkeys(keys))
        self.others.append(PricedPart(what, choices, seconds))

    def run(self, nodes: Sequence[Ran], share: float = 1.0) -> dict[str, list[CurveKey]]:
        """The ops of a step or pass, of which a share counts; curves of what is sent, by part."""
        sent: dict[str, list[CurveKey]] = defaultdict(list)
        for node in nodes:
            if isinstance(node, RanOp):
                seconds = share * node.often * float(node.priced.seconds)
                self.add(node.priced.pricing.kind, node.key, seconds, node.often)
            else:
                sent[COMMUNICATION.get(node.sent.axis, "")].append(node.key)
        return sent

    def closed(self, of: str) -> Provenance:
        """Everything that took any time."""
        ops = (
            PricedPart(what, (self.profile.choose(key),), *sums)
            for (what, key), sums in self.ops.items()
        )
        parts = [part for part in (*ops, *self.others) if part.seconds > 0.0]
        return Provenance(of, tuple(sorted(parts, key=lambda part: -part.seconds)))


def kernel_provenance(kernel: KernelExplained) -> Provenance:
    """Of one explained kernel: its law in full."""
    choice = kernel.choice
    law, curve = law_of(choice.key), choice.curve
    told = {**VECTOR, **OTHERWISE}
    known = {**told, **{name: (p.unit, p.meaning) for name, p in law.parameters.items()}}
    parameters = tuple(
        PricedParameter(name, value, *known.get(name, ("", "")), name in curve.at_bounds)
        for name, value in curve.values.items()
    )
    formula = f"{law.formula.__module__}.{law.formula.__qualname__}"
    marks = 0 if curve.landmarks is None else len(curve.landmarks.weights)
    part = PricedPart(choice.key.kind, (choice,), float(kernel.seconds.value), 1.0)
    return Provenance(kernel.name, (part,), PricedLaw(formula, parameters, marks))


def table_provenance(
    clock: Clock, rows: Iterable[tuple[Sequence[Op], Collective | None, int]]
) -> Provenance:
    """Of rows of kernel tables: the ops, or the collective, of so many rows at once."""
    ledger = _Ledger(clock.profile)
    for ops, sent, count in rows:
        if sent is not None:
            taken = clock.collective(
                sent.kind, sent.group, sent.payload.bytes, 1.0, 0.0, sent.library
            )
            every = np.broadcast_to(taken.seconds, (count,))
            ledger.add("collective", key_of(sent), float(every.sum()), count)
        for op in clock.price_ops(ops):
            every = np.broadcast_to(op.seconds, (count,))
            ledger.add(op.pricing.kind, op.pricing.key, float(every.sum()), count)
    return ledger.closed(say("all rows, one after another"))


def captured_provenance(step: CapturedStep, profile: Profile) -> Provenance:
    """Of a captured step: every kernel alone on the chip, and what the host and the cap add."""
    ledger = _Ledger(profile)
    for ran in step.ran:
        kernel = ran.kernel
        key = CurveKey.parse(kernel.curve)
        ledger.add(key.kind, key, kernel.seconds, 1.0)
    waits = step.idle_seconds + step.gap_seconds
    ledger.part("waits for the host", (CurveKey(step.step.cause),), waits)
    ledger.part("power cap", (CurveKey("power"),), step.added_by_cap)
    return ledger.closed(say("the step's kernels, each alone, and what is added"))


def step_provenance(trainer: Trainer, step: TrainingStep) -> Provenance:
    """Of one plan's step, on the average stage: its parts sum to the step."""
    plan, ledger = step.plan, _Ledger(trainer.profile)
    sent = ledger.run(step_ops(trainer, step))
    sent["data parallel"] = list(_data_parallel(plan))
    sent["pipeline sends"] = [_sending("send_recv"), *([] if plan.sp else [_sending("all_gather")])]
    for leaf in step.step.leaves():
        if leaf.name not in BY_OPS:
            ledger.part(leaf.name, sent.get(leaf.name) or [_cause_key(leaf)], float(leaf.value))
    return ledger.closed(say("one step, on the average pipeline stage"))


def serving_provenance(server: Server, point: ServingPoint) -> dict[str, Provenance]:
    """Of a decode step and of the prefill of one request: their parts sum to them."""
    plan = point.plan
    writing = server.decode_program(plan, point.running)
    reading, share = server.prefill_program(plan), server.mix.chunks * server.share_alone(plan)
    return {
        "decode": _pass(server, writing, plan, point.decode, 1.0, say("one decode step")),
        "prefill": _pass(
            server, reading, plan, point.prefill, share, say("the prefill of one request")
        ),
    }


def _pass(
    server: Server, program: Program, plan: Plan, term: Term, share: float, of: str
) -> Provenance:
    """A forward pass through all layers."""
    ledger = _Ledger(server.profile)
    sent = ledger.run(pass_ops(server, program, plan), share)
    sent["pipeline sends"] = [_sending("send_recv")]
    for leaf in term.leaves():
        if leaf.name not in BY_OPS:
            ledger.part(leaf.name, sent.get(leaf.name) or [_cause_key(leaf)], float(leaf.value))
    return ledger.closed(of)


def diagnosis_provenance(found: Diagnosis, clock: Clock) -> Provenance:
    """Of a diagnosed step: the predictions of its kernels, one after another."""
    ledger = _Ledger(clock.profile)
    launched = dict.fromkeys(k.launch for k in found.window.kernels if k.launch != NOBODY)
    lowered = [op for launch in launched for op in found.trace.launches[launch].ops]
    for seconds, _, _, (kind, _, key), _ in clock.price_ops(lowered):
        ledger.add(kind, key, float(seconds), 1.0)
    for kernel in found.window.kernels:
        if kernel.message is not None:
            sent = kernel.message
            taken = clock.collective(
                sent.kind, float(sent.group), sent.payload_bytes, float(sent.stride)
            )
            ledger.add("collective", _sending(sent.kind), float(taken.seconds), 1.0)
    copies = sum(
        float(group.predicted.value)
        for group in found.groups
        if group.cause == "copies" and group.predicted is not None
    )
    ledger.part("copies", (CurveKey("host"),), copies)
    return ledger.closed(say("the step's kernels as predicted, one after another"))


def _data_parallel(plan: Plan) -> Iterator[CurveKey]:
    """The collectives that exchange gradients and weights between replicas."""
    if plan.engine != "ddp":
        yield _sending("send_recv")
    elif plan.zero == 0:
        yield _sending("all_reduce")
    else:
        yield from (_sending("reduce_scatter"), _sending("all_gather"))
        if plan.dp_replicate > 1:
            yield _sending("all_reduce")


def _cause_key(leaf: Term) -> CurveKey:
    return CurveKey.parse(_CURVE_OF_CAUSE.get(leaf.cause, leaf.cause))


def _sending(operation: str) -> CurveKey:
    return CurveKey("collective", operation=operation)
