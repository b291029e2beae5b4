"""What a compiler could save: chains of memory-bound kernels, each writing what the next one reads.

A trace does not say which tensor is which. Within a run of such kernels, an input with as many
elements of the same type as an earlier result is taken to be that result: fused, it is neither
written nor read. What is left is read and written once. An estimate, and called one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from trueflops.capture.lower import lower
from trueflops.capture.recording import Array, Call
from trueflops.clock import Clock
from trueflops.graph.kinds import EAGER_KINDS, Kind
from trueflops.graph.variants import EagerKernel
from trueflops.predict.diagnosis.groups import Pricer
from trueflops.predict.diagnosis.trace import NOBODY, Kernel, Launch, Trace

# Kernels that no compiler merges.
_LISTS: Final = (EagerKernel.FOREACH, EagerKernel.FUSED_OPTIMIZER, EagerKernel.SCATTER)
REALISED: Final = 0.55
"""Of what fusing could save at best, what torch.compile saved: 26 of 45 ms and 15 of 29 ms on two
Llamas of 1B (truth/h200/llama_steps.csv and llama_steps_compiled.csv beside traces of the same)."""


@dataclass
class Chain:
    """Consecutive memory-bound launches of one phase."""

    calls: list[Call] = field(default_factory=list)
    seconds: float = 0.0
    reductions: int = 0

    @property
    def moved_bytes(self) -> float:
        """As it is: every kernel reads its inputs and writes its results."""
        return sum(a.bytes for call in self.calls for a in (*call.inputs, *call.outputs))

    @property
    def fused_bytes(self) -> float:
        """Fused: inputs that the chain did not make, results that it does not use.

        Of the results of one size that it does use, one is taken to be needed later all the same:
        a residual, or what the backward wants to see again.
        """
        made: dict[tuple[int, str], list[float]] = {}
        total = 0.0
        for call in self.calls:
            for array in _read(call):
                key = array.elements, array.dtype
                if key in made:
                    made[key] = made[key][-1:]
                else:
                    total += array.bytes
            for array in call.outputs:
                made.setdefault((array.elements, array.dtype), []).append(array.bytes)
        return total + sum(sum(left) for left in made.values())


def _read(call: Call) -> Iterable[Array]:
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


def fusable(trace: Trace, kernels: Sequence[Kernel], clock: Clock) -> Fusable:
    """The chains of two or more launches that would be faster fused."""
    found = [c for c in chains(trace, kernels) if len(c.calls) > 1]
    kept = []
    for chain in found:
        fused = float(clock.stream(chain.fused_bytes, "", max(1.0, float(chain.reductions))))
        if fused < chain.seconds:
            kept.append((chain, fused))
    return Fusable(
        sum(len(chain.calls) for chain, _ in kept),
        len(kept),
        sum(chain.seconds for chain, _ in kept),
        sum(fused for _, fused in kept),
        sum(chain.moved_bytes for chain, _ in kept),
        sum(chain.fused_bytes for chain, _ in kept),
    )


def chains(trace: Trace, kernels: Sequence[Kernel]) -> list[Chain]:
    """Runs of memory-bound launches, in the order of the device."""
    found: list[Chain] = []
    current, phase, before = Chain(), "", NOBODY
    for kernel in kernels:
        launch = trace.launches[kernel.launch] if kernel.launch != NOBODY else None
        if launch is not None and launch.call is not None and _fuses(launch):
            if launch.phase != phase and current.calls:
                found.append(current)
                current = Chain()
            phase = launch.phase
            current.seconds += kernel.seconds
            if kernel.launch != before:
                current.calls.append(launch.call)
                current.reductions += any(op.kind is Kind.REDUCTION for op in launch.ops)
        elif current.calls:
            found.append(current)
            current = Chain()
        before = kernel.launch
    return [*found, current] if current.calls else found


def _fuses(launch: Launch) -> bool:
    return launch.phase != "optimizer" and all(
        op.kind in EAGER_KINDS and op.variant not in _LISTS and op.name != "fused"
        for op in launch.ops
    )


# ── the optimizer's step, in one pass ────────────────────────────────────────────────────────────


def one_pass_seconds(trace: Trace, members: Iterable[Launch], pricer: Pricer) -> float | None:
    """AdamW as one fused kernel over the elements that these foreach launches walk."""
    walked = [m.call for m in members if m.call and "_foreach_addcdiv" in m.call.op]
    if not walked:
        return None
    total = 0.0
    for call in walked:
        count = sum(a.elements for a in call.outputs)
        flat = [Array(i, (count,), (1,), call.outputs[0].dtype) for i in range(4)]
        steps = Array(9, (1,), (1,), "float32")
        fused = call._replace(op="aten._fused_adamw_.default", inputs=(*flat, steps), outputs=())
        price = pricer.ops(lower(fused))
        if price.seconds is None:
            return None
        total += float(price.seconds.value)
    return total
