"""Changes made on a recording: compiled, with a fused loss, in TF32 or fp8, as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from trueflops.capture.lower import base_name
from trueflops.records.recording import Call, Event, RecordedTensor, Recording
from trueflops.units import GIGA

FUSION_ERROR: Final = 0.15
"""Of what compiling saves: predicted beside measured, +4, +29, +12, −1 and −5 % on five Llamas
(truth/h200/llama_steps_pairs.csv), which is 14 % in the mean square."""
ALIKE: Final = 0.1  # by which a shifted tensor of logits may differ in elements


def modules_compiled(recorded: Recording) -> Recording:
    """All that modules do, and its backward, marked as one compiled region."""
    return _marked(recorded, lambda call: bool(call.module) and call.phase != "optimizer")


def loss_compiled(recorded: Recording) -> Recording | None:
    """What reads or makes a tensor of logits, products left out, marked; None without such a loss.

    A softmax over classes is told by its op; the casts and the picking around it by its shape.
    """
    shapes = [
        call.outputs[0]
        for call in recorded.calls()
        if base_name(call.op) == "_log_softmax" and call.outputs and call.region < 0
    ]
    if not shapes:
        return None
    logits = max(shapes, key=lambda array: array.elements)

    def of_loss(call: Call) -> bool:
        product = base_name(call.op) in _PRODUCTS
        touched = any(_like(array, logits) for array in (*call.inputs, *call.outputs))
        return touched and not product and call.phase != "optimizer"

    return _marked(recorded, of_loss)


_PRODUCTS: Final = ("mm", "addmm", "bmm", "baddbmm")


def _like(array: RecordedTensor, logits: RecordedTensor) -> bool:
    if not array.shape or not logits.shape or array.shape[-1] != logits.shape[-1]:
        return False
    return abs(array.elements - logits.elements) <= ALIKE * logits.elements


def _marked(recorded: Recording, belongs: Callable[[Call], bool]) -> Recording:
    """Calls that belong, and are in no region yet, as a region of their own."""
    own = 1 + max((call.region for call in recorded.calls()), default=-1)
    begun = len(recorded.events) - len(recorded.step())
    events = [
        event._replace(region=own)
        if i >= begun
        and isinstance(event, Call)
        and event.region < 0
        and not event.group
        and belongs(event)
        else event
        for i, event in enumerate(recorded.events)
    ]
    return replace(recorded, events=events)


def as_one_graph(recorded: Recording) -> Recording:
    """The step launched as one CUDA graph."""
    own = 1 + max((call.graph for call in recorded.calls()), default=-1)
    events = [e._replace(graph=own) if isinstance(e, Call) else e for e in recorded.events]
    return replace(recorded, events=events)


def with_tf32(recorded: Recording) -> Recording:
    """Products of fp32 as TF32."""
    events = [e._replace(tf32=True) if isinstance(e, Call) else e for e in recorded.events]
    return replace(recorded, events=events)


def with_fp8(recorded: Recording) -> Recording:
    """Products of linear layers in fp8, forward and backward, each tensor scaled as a whole.

    As torchao's float8 training does it: every operand is read for its largest value, then cast,
    once a phase. For a compiler to fuse; what the narrow copies hold is not followed.
    """
    begun = len(recorded.events) - len(recorded.step())
    narrow: dict[tuple[int, str], RecordedTensor] = {}
    made = _UNUSED
    events: list[Event] = list(recorded.events[:begun])
    for event in recorded.events[begun:]:
        if not isinstance(event, Call) or not _takes_fp8(event, recorded):
            events.append(event)
            continue
        for operand in _factors(event):
            if (operand.storage, event.phase) not in narrow:
                made += 2
                largest = RecordedTensor(made, (), (), "float32")
                cast = operand._replace(storage=made + 1, dtype="float8_e4m3fn")
                narrow[operand.storage, event.phase] = cast
                plain = event._replace(numbers=(), views=0, modules=0)
                events += [
                    plain._replace(op="aten.amax.default", inputs=(operand,), outputs=(largest,)),
                    plain._replace(op="aten._to_copy.default", inputs=(operand,), outputs=(cast,)),
                ]
        factors = tuple(
            a._replace(storage=narrow[a.storage, event.phase].storage, dtype="float8_e4m3fn")
            for a in _factors(event)
        )
        events.append(event._replace(op="aten._scaled_mm.default", inputs=factors))
    return replace(recorded, events=events)


_UNUSED: Final = 2 * int(GIGA)  # no recording has so many storages, and compiling makes up others
_ALIGNED: Final = 16  # elements, which fp8 kernels ask of every side


def _factors(call: Call) -> tuple[RecordedTensor, RecordedTensor]:
    left, right = call.inputs[1:3] if base_name(call.op) == "addmm" else call.inputs[:2]
    return left, right


def _takes_fp8(call: Call, recorded: Recording) -> bool:
    """A product of a linear layer in 16 bits whose sides the kernels take."""
    if base_name(call.op) not in ("mm", "addmm") or recorded.modules.get(call.module) != "Linear":
        return False
    return all(
        a.dtype in ("bfloat16", "float16") and not any(n % _ALIGNED for n in a.shape)
        for a in _factors(call)
    )
