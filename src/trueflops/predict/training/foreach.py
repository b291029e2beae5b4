"""torch.optim's update over lists of tensors: a kernel for every step of the formula.

AdamW without `fused=True` decays the weights, averages gradients and their squares, and divides,
each in a launch over all tensors (torch/optim/adamw.py, _multi_tensor_adamw); clipping takes a norm
and scales (torch/nn/utils/clip_grad.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from trueflops.capture.lower import CHUNK, CHUNKS_A_LAUNCH
from trueflops.clock import Clock
from trueflops.graph import Op, Tensor
from trueflops.graph.kinds import Kind
from trueflops.graph.variants import EagerKernel
from trueflops.plan import BYTES, OPTIMIZERS, Plan
from trueflops.profile import Profile
from trueflops.sizes import Size
from trueflops.units import BITS_PER_BYTE

OPTIMIZERS_BY_LISTS: Final = ("adamw", "adamw-bf16")


class Lists(NamedTuple):
    """What one launch reads and writes: w(eights), g(radients), m(oments), v(ariances), t(emps)."""

    name: str
    reads: str
    writes: str

    @property
    def kernel(self) -> EagerKernel:
        """By what is written: a number for each tensor, new tensors, or what was read."""
        if not self.writes:
            return EagerKernel.LIST_NORM
        again = set(self.writes) <= set(self.reads)
        return EagerKernel.FOREACH if again else EagerKernel.FOREACH_APART


CLIPPING: Final = (Lists("norm", "g", ""), Lists("clip", "g", "g"))
UPDATING: Final = (
    Lists("decay", "w", "w"),
    Lists("lerp", "mg", "m"),
    Lists("mul", "v", "v"),
    Lists("addcmul", "vgg", "v"),
    Lists("sqrt", "v", "t"),
    Lists("div", "t", "t"),
    Lists("add", "t", "t"),
    Lists("addcdiv", "wmt", "w"),
)


def updates_by_lists(profile: Profile, plan: Plan) -> bool:
    """Whether the framework's optimizer runs over lists."""
    return bool(profile.curve("framework")["foreach"]) and plan.optimizer in OPTIMIZERS_BY_LISTS


class Update(NamedTuple):
    """What an update takes, and the bytes that it reads and writes."""

    seconds: Size
    moved_bytes: Size


def update_by_lists(clock: Clock, plan: Plan, own: Size) -> Update:
    """All launches over so many parameters."""
    clips = bool(clock.profile.curve("framework")["clips"])
    return _launched(clock, plan, own, (*CLIPPING, *UPDATING) if clips else UPDATING)


def clip_lists(clock: Clock, plan: Plan, own: Size) -> Update:
    """Those alone that clip gradients; there is no norm before all of them are made."""
    clips = bool(clock.profile.curve("framework")["clips"]) and not plan.update_in_backward
    return _launched(clock, plan, own, CLIPPING if clips else ())


def _launched(clock: Clock, plan: Plan, own: Size, steps: Sequence[Lists]) -> Update:
    moved: Size = 0.0
    seconds: Size = 0.0
    for launch in clock.price_ops([_op(step, plan, own) for step in steps]):
        moved = moved + launch.work.bytes_read + launch.work.bytes_written
        seconds = seconds + launch.seconds
    return Update(seconds, moved)


def temporary_bytes(plan: Plan, own: Size) -> Size:
    """The roots of the variances, whole, while the weights are updated."""
    return own * _moment_bytes(plan)


def _op(step: Lists, plan: Plan, own: Size) -> Op:
    wide = BYTES["fp32"] if plan.has_master else BYTES[plan.trained_dtype]
    moment = _moment_bytes(plan)
    each = {"w": wide, "g": BYTES[plan.summed_dtype], "m": moment, "v": moment, "t": moment}

    def lists(letters: str) -> tuple[Tensor, ...]:
        return tuple(
            Tensor(letter, (("parameters", own),), BITS_PER_BYTE * each[letter])
            for letter in letters
        )

    chunks = np.maximum(own / CHUNK, 1.0)
    launches = np.ceil(chunks / CHUNKS_A_LAUNCH)
    facts: dict[str, Size] = {"indexed": own, "launches": launches, "pieces": np.ceil(chunks)}
    return Op(
        step.name,
        Kind.POINTWISE,
        lists(step.reads),
        lists(step.writes),
        facts=facts,
        variant=step.kernel,
    )


def _moment_bytes(plan: Plan) -> float:
    return OPTIMIZERS[plan.optimizer].state_bytes / 2.0
