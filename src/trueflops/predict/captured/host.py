"""What the host needs to issue a call: Python, autograd, the dispatcher, the launch itself."""

from __future__ import annotations

from trueflops.capture.lower import base_name
from trueflops.capture.recording import Call, StepPhase
from trueflops.profile import Curve


def between_calls(call: Call, law: Curve) -> float:
    """What a CPU that computes itself does beside its kernels, whose own dispatch was timed."""
    return call.views * law["view"] + call.modules * law["module"]


def host_seconds(call: Call, before: StepPhase, kernels: int, law: Curve) -> float:
    """Seconds of host work from the call before, in phase `before`, to the end of this one.

    A forward op passes Python, autograd and the dispatcher; its backward only the last two. An op
    on lists walks over their tensors. A checkpoint stores and restores the state around its part.
    """
    if call.region >= 0:  # generated code calls kernels one after another, without Python's detours
        return kernels * law["generated"]
    taken = call.views * law["view"] + call.modules * law["module"]
    if call.phase == "recompute" != before:
        taken += law["checkpoint"]
    if base_name(call.op).startswith(("_foreach_", "_fused_")):
        taken += len(call.inputs) * law["listed"]
    taken += law["backward" if call.phase == "backward" else "call"]
    return taken + max(0, kernels - 1) * law["launch"]
