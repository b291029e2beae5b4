"""What a compiler could save: chains of memory-bound kernels, each writing what the next one reads.

A trace does not say which tensor is which. Within a run of such kernels, an input with as many
elements of the same type as an earlier result is taken to be that result, and of the results of one
size the last is taken to be needed later: a residual, or what the backward wants to see again.
Which of them then become one kernel is the one model of `graph/passes/compiled.py`. An estimate,
and called one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from trueflops.capture.lower import lower, tensor
from trueflops.clock import Clock
from trueflops.graph.ir import Op, Tensor
from trueflops.graph.passes.compiled import CompiledRegion, generated, joins
from trueflops.graph.rules import total_bytes
from trueflops.predict.diagnosis.groups import Pricer
from trueflops.records.recording import Call, RecordedTensor
from trueflops.records.trace import NOBODY, Launch, Trace, TracedKernel

REALISED: Final = 0.6
"""Of what fusing would save at best, what torch.compile saved a whole step: 24.5 of 45.6 ms, 13.6
of 22.8 and 19.5 of 28.5 on three Llamas (truth/h200/llama_steps_pairs.csv beside traces of the same
program); it also hands attention a mask, which costs some of it. Two others, seen at the same time,
47.8 of 102.9 and 36.5 of 55.5: all five together give 0.59."""


@dataclass
class Chain:
    """Consecutive memory-bound launches of one phase."""

    launches: list[Launch] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def moved_bytes(self) -> float:
        """As it is: every kernel reads its inputs and writes its results."""
        return sum(float(total_bytes((*op.inputs, *op.outputs))) for op in self.ops())

    def ops(self) -> Iterator[Op]:
        """Its kernels."""
        return (op for launch in self.launches for op in launch.ops)

    def fused(self) -> list[Op]:
        """The kernels that a compiler would make of it."""
        nodes, last = self._nodes()
        region = CompiledRegion(
            nodes, lambda name: name in last, lambda name: not region.readers[name]
        )
        return [
            generated(
                [nodes[i] for i in kernel.members],
                tuple(kernel.reads.values()),
                tuple(kernel.writes.values()),
            )
            for kernel in region.kernels(list(nodes))
        ]

    def _nodes(self) -> tuple[dict[int, Op], set[str]]:
        """A node for each launch, and the last result of every size."""
        nodes: dict[int, Op] = {}
        last: dict[tuple[int, str], str] = {}
        for i, launch in enumerate(self.launches):
            assert launch.call is not None
            inputs = tuple(
                _named(array, last.get(_size(array), f"in {i}.{n}"))
                for n, array in enumerate(_read(launch.call))
            )
            outputs = tuple(
                _named(array, f"out {i}.{n}") for n, array in enumerate(launch.call.outputs)
            )
            last |= {_size(a): t.name for a, t in zip(launch.call.outputs, outputs, strict=True)}
            nodes[i] = replace(launch.ops[0], inputs=inputs, outputs=outputs, weights=())
        return nodes, set(last.values())


def _named(array: RecordedTensor, name: str) -> Tensor:
    return replace(tensor(array), name=name)


def _size(array: RecordedTensor) -> tuple[int, str]:
    return array.elements, array.dtype


def _read(call: Call) -> Iterable[RecordedTensor]:
    """What a call reads; copy_ only writes its first argument."""
    inputs = call.inputs[1:] if call.op.startswith("aten.copy_") else call.inputs
    return (a for a in inputs if a.elements > 1)


@dataclass(frozen=True)
class Fusable:
    """All chains of a step together; `fused_seconds` at best."""

    launches: int
    chains: int
    seconds: float
    fused_seconds: float
    moved_bytes: float
    fused_bytes: float

    @property
    def saves_seconds(self) -> float:
        """What a compiler may be expected to save."""
        return REALISED * (self.seconds - self.fused_seconds)


def fusable(trace: Trace, kernels: Sequence[TracedKernel], clock: Clock) -> Fusable:
    """The chains of two or more launches that would be faster fused."""
    kept: list[tuple[Chain, list[Op], float]] = []
    for chain in chains(trace, kernels):
        if len(chain.launches) > 1:
            ops = chain.fused()
            seconds = sum(float(priced.seconds) for priced in clock.price_ops(ops))
            if seconds < chain.seconds:
                kept.append((chain, ops, seconds))
    return Fusable(
        sum(len(chain.launches) for chain, _, _ in kept),
        len(kept),
        sum(chain.seconds for chain, _, _ in kept),
        sum(seconds for _, _, seconds in kept),
        sum(chain.moved_bytes for chain, _, _ in kept),
        sum(float(total_bytes((*op.inputs, *op.outputs))) for _, ops, _ in kept for op in ops),
    )


def chains(trace: Trace, kernels: Sequence[TracedKernel]) -> list[Chain]:
    """Runs of memory-bound launches, in the order of the device."""
    found: list[Chain] = []
    current, phase, before = Chain(), "", NOBODY
    for kernel in kernels:
        launch = trace.launches[kernel.launch] if kernel.launch != NOBODY else None
        if launch is not None and launch.call is not None and _fuses(launch):
            if launch.phase != phase and current.launches:
                found.append(current)
                current = Chain()
            phase = launch.phase
            current.seconds += kernel.seconds
            if kernel.launch != before:
                current.launches.append(launch)
        elif current.launches:
            found.append(current)
            current = Chain()
        before = kernel.launch
    return [*found, current] if current.launches else found


def _fuses(launch: Launch) -> bool:
    """Whether a compiler may join all that it launches, and has not done so already."""
    return (
        launch.phase != "optimizer"
        and bool(launch.ops)
        and all(joins(op) and op.name != "fused" for op in launch.ops)
    )


# ── the optimizer's step, in one pass ────────────────────────────────────────────────────────────


def one_pass_seconds(members: Iterable[Launch], pricer: Pricer) -> float | None:
    """AdamW as one fused kernel over the elements that these foreach launches update."""
    updates = [m.call for m in members if m.call and "_foreach_addcdiv" in m.call.op]
    if not updates:
        return None
    total = 0.0
    for call in updates:
        count = sum(a.elements for a in call.outputs)
        flat = [RecordedTensor(i, (count,), (1,), call.outputs[0].dtype) for i in range(4)]
        steps = RecordedTensor(9, (1,), (1,), "float32")
        fused = call._replace(op="aten._fused_adamw_.default", inputs=(*flat, steps), outputs=())
        price = pricer.ops(lower(fused))
        if price.seconds is None:
            return None
        total += float(price.seconds.value)
    return total
