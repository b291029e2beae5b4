"""From an op of a trace to a call of ATen, as capture would have recorded it, and to ops of the IR.

What no family claims is pointwise if its kernel says so, and has no price otherwise: better none
than a wrong one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from trueflops import units
from trueflops.capture.lower import lower, tensor
from trueflops.dtypes import short_name
from trueflops.graph.ir import Op
from trueflops.graph.kinds import Kind
from trueflops.graph.variants import EagerKernel
from trueflops.interop.kineto.arguments import LARGEST, Arguments, MissingArgument, TracedOp
from trueflops.interop.kineto.outputs import FAMILIES, everything, list_of_tensors, pointwise
from trueflops.records.recording import Call, RecordedTensor

ATEN: Final = ("aten::", "flash_attn::", "flash_attn_3::")
_COMPILED: Final = ("triton_poi_", "triton_red_", "triton_per_")  # inductor's, not its products
_TENSOR_CORES: Final = ("tf32", "s1688", "s16816", "nvjet")  # in names of products of fp32


def call_of(op: TracedOp) -> Call | None:
    """The call that an op was, or None where too little is known of it."""
    torchs = op.name.startswith(ATEN)
    family = FAMILIES.get(op.bare) if torchs else None
    if family is None:
        if torchs and op.bare.startswith(("_foreach_", "_fused_")):
            family = list_of_tensors
        elif op.name.startswith(_COMPILED):
            family = everything
        elif torchs and any("elementwise" in name for name, _ in op.kernels):
            family = pointwise
        else:
            return None
    try:
        made = family(Arguments(op))
    except MissingArgument:
        return None
    if made is None or not made.outputs or not all(map(_there, (*made.inputs, *made.outputs))):
        return None
    name = made.name or op.bare + "_" * op.in_place
    library = "aten" if torchs else "foreign"
    return Call(f"{library}.{name}.default", tuple(made.inputs), tuple(made.outputs),
                made.numbers, "forward", "", 0, -1)  # fmt: skip


def _there(array: RecordedTensor) -> bool:
    return 0 < array.elements <= LARGEST


def ops_of(op: TracedOp, call: Call) -> tuple[Op, ...]:
    """What the call should launch. Shapes that no program could have give nothing."""
    if call.op.startswith("foreign"):  # a compiler's own kernel: it moves each of them once
        reads, writes = (tuple(tensor(a) for a in side) for side in (call.inputs, call.outputs))
        return (
            Op(
                "fused",
                Kind.POINTWISE,
                reads,
                writes,
                facts={"indexed": 0.0},
                variant=EagerKernel.VECTOR,
            ),
        )
    try:
        made = lower(call)
    except (ValueError, IndexError, KeyError, ZeroDivisionError):
        return ()  # lowering trusts its recorder; a file may say anything
    if _on_tensor_cores(op):
        made = [replace(o, dtype="tf32") if o.dtype == "fp32" else o for o in made]
    return tuple(made)


def _on_tensor_cores(op: TracedOp) -> bool:
    return any(word in name for name, _ in op.kernels for word in _TENSOR_CORES)


# ── in a few words ───────────────────────────────────────────────────────────────────────────────


def label_of(call: Call, ops: tuple[Op, ...]) -> str:
    """`mm 8192×2048×8192 bf16` (m×n×k), `attention backward 4×32×2048×64 causal`, `mul 4×2048`."""
    name, first = call.op.split(".")[1].strip("_"), call.inputs[0] if call.inputs else None
    name = name.replace("_backward_data", " backward")
    if ops and ops[0].kind is Kind.MATMUL and "convolution" not in name:
        a, b = [x for x in call.inputs if len(x.shape) == len(call.outputs[0].shape)][-2:]
        many = f"{a.shape[0]} of " if len(a.shape) == 3 else ""
        product = _sizes((a.shape[-2], b.shape[-1], a.shape[-1]))
        return f"{name} {many}{product} {ops[0].dtype}"
    if "scaled_dot_product" in name:
        back = "backward" in name
        q, k = call.inputs[1:3] if back else call.inputs[:2]
        heads = f"{q.shape[1]}/{k.shape[1]}" if k.shape[1] != q.shape[1] else f"{q.shape[1]}"
        shape = f"{q.shape[0]}×{heads}×{q.shape[2]}×{q.shape[3]}"
        causal = " causal" if any(n is True for n in call.numbers) else ""
        return f"attention{' backward' if back else ''} {shape}{causal}"
    if name.startswith(("foreach", "fused_a", "fused_s")):
        count = sum(a.elements for a in call.outputs)
        elements = units.show(float(count), "count") if count >= 1000 else f"{count}"
        return f"{name} {elements} {short_name(call.outputs[0].dtype)}"
    sizes = dict.fromkeys(_sizes(a.shape) for a in call.inputs if a.elements > 1)
    made = call.outputs[0]
    types = short_name(first.dtype) if first else short_name(made.dtype)
    if name == "copy" and len(call.inputs) > 1:
        types = f"{short_name(call.inputs[1].dtype)}→{short_name(made.dtype)}"
        types = types if call.inputs[1].dtype != made.dtype else short_name(made.dtype)
    return f"{name} {' · '.join(list(sizes)[:2]) or '1'} {types}"


def _sizes(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape))
