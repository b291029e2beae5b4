"""A call as a memory-bound kernel: what lowering shares."""

from __future__ import annotations

from trueflops.graph.ir import Op, Tensor
from trueflops.graph.kinds import Kind
from trueflops.graph.variants import EagerKernel
from trueflops.records.recording import Call, RecordedTensor
from trueflops.sizes import Size


def base_name(op: str) -> str:
    """`aten.mul_.Tensor` -> `mul`: in place or not, a kernel is the same."""
    name = op.split(".")[1]
    return name if name.startswith("__") else name.rstrip("_")


def tensor(array: RecordedTensor, elements: int | None = None) -> Tensor:
    """An array as a tensor of the IR, named by its storage."""
    count = float(array.distinct if elements is None else elements)
    return Tensor(f"s{array.storage}", (("elements", count),), array.bits)


def kernel(
    call: Call,
    kind: Kind,
    variant: EagerKernel | None = None,
    indexed: float = 0.0,
    **more: Size,
) -> Op:
    """One that reads its inputs and writes its outputs, `indexed` elements looked up one by one."""
    facts: dict[str, Size] = {"indexed": float(indexed), **more}
    return Op(
        base_name(call.op),
        kind,
        tuple(tensor(a) for a in call.inputs),
        tuple(tensor(a) for a in call.outputs),
        part=call.module,
        facts=facts,
        variant=variant,
    )


def flags(call: Call) -> list[bool]:
    """Its yes-or-no arguments, in order."""
    return [n for n in call.numbers if isinstance(n, bool)]


def whole_numbers(call: Call) -> list[int]:
    """Its integer arguments, in order."""
    return [n for n in call.numbers if isinstance(n, int) and not isinstance(n, bool)]
