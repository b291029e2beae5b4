"""A call as a memory-bound kernel: what lowering shares."""

from __future__ import annotations

from collections.abc import Sequence

from trueflops.graph.ir import Op, Tensor
from trueflops.graph.kinds import Kind
from trueflops.graph.variants import EagerKernel
from trueflops.records.call_text import plain_strides
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
    **more: float,
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


def by_rows(array: RecordedTensor, row: int) -> dict[str, float]:
    """What a kernel that gives a block to each row says of its pieces."""
    return {"run": float(row), "pieces": array.elements / max(row, 1)}


def laid_out(call: Call, arrays: Sequence[RecordedTensor]) -> list[Op]:
    """Copies that an op makes of operands whose rows do not lie one after another."""
    found = []
    for array in arrays:
        plain = plain_strides(array.shape)
        apart = [
            own != usual for n, own, usual in zip(array.shape, array.strides, plain, strict=True)
            if n > 1
        ]  # fmt: skip
        if any(apart):
            copy = call._replace(inputs=(array,), outputs=(array._replace(strides=plain),))
            run = float(array.shape[-1]) if array.strides[-1] == 1 else 1.0
            found.append(kernel(copy, Kind.POINTWISE, EagerKernel.TURNED, array.elements, run=run))
    return found


def channels_last(array: RecordedTensor) -> bool:
    """Whether a picture's channels lie next to each other."""
    return len(array.shape) > 2 and array.shape[1] > 1 and array.strides[1] == 1


def flags(call: Call) -> list[bool]:
    """Its yes-or-no arguments, in order."""
    return [n for n in call.numbers if isinstance(n, bool)]


def whole_numbers(call: Call) -> list[int]:
    """Its integer arguments, in order."""
    return [n for n in call.numbers if isinstance(n, int) and not isinstance(n, bool)]
