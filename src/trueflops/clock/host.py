"""The host: what it needs to issue work, and how long a device waits for it.

    a call of a program   Python, autograd, the dispatcher, the launch: 25–35 µs of an eager op
    a kernel of a graph   the framework's `launch`; where it runs PyTorch op by op, that of a call
A device with a full queue only loses `gap` between two kernels; with an empty one it waits.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from trueflops.graph.ir import Collective, Graph, Node, Op, Phase
from trueflops.graph.rules import RULES
from trueflops.graph.variants import EagerKernel
from trueflops.profile import Profile
from trueflops.sizes import Size

OF_A_COLLECTIVE: Final = 0.3  # of what the host needs to launch an op: no autograd, no allocation
SHARPNESS: Final = 8.0  # of the smooth maximum of host and device
VIEWS_A_CALL: Final = 1.0  # as counted in the layers of Hugging Face's Llama: 38 of 37 calls
VIEWS_AGAIN: Final = 1.8  # in a checkpointed part, whose inputs are detached and laid out again
LISTED_A_WEIGHT: Final = 13.0  # places of a weight and its moments in the lists of a foreach AdamW
MODULES_A_CALL: Final = 0.33  # of a forward: 162 of 490, of 12 layers with embedding and head
# Eager kernels whose calls choose among several or take many arguments: norms, one filter a
# channel, dropout, look-ups, joins.
_SET_UP: Final = frozenset(
    kernel for kernel in EagerKernel
    if kernel.startswith(("depthwise", "batch_scale", "cudnn"))
    or ("norm" in kernel and kernel is not EagerKernel.LIST_NORM)
) | {
    EagerKernel.RANDOM, EagerKernel.GATHER, EagerKernel.TABLE_GRADIENT, EagerKernel.SORTED_ADD,
    EagerKernel.CAT, EagerKernel.JOIN,
}  # fmt: skip
LISTS: Final = ("_foreach_", "_fused_")  # ops that walk over lists of tensors


def is_library(op: Op) -> bool:
    """Whether a call sets a kernel up that has to be chosen first, or has many arguments."""
    return RULES[op.kind].matrix or op.variant in _SET_UP


class HostLaw:
    """The host of one chip under one framework."""

    def __init__(self, profile: Profile) -> None:
        self.framework, self.law = profile.curve("framework"), profile.curve("dispatch")
        self.session = profile.curve("session")  # of a graph that no Python runs
        self.by_calls = bool(self.framework["by_calls"])
        self.by_generated = bool(self.framework["by_generated"])

    @property
    def gap(self) -> float:
        """Seconds between two kernels of a graph in a full queue, where they are PyTorch's own."""
        return self.law["gap"] if self.by_calls or self.by_generated else 0.0

    def node_seconds(self, node: Node, phase: Phase) -> float:
        """Seconds of host work for one node of a graph."""
        backward = phase.startswith("backward")
        if self.by_calls or self.by_generated:
            launch = self.call_seconds(
                "backward" if backward else phase,
                kernels=1,
                views=VIEWS_AGAIN if phase == "recompute" else VIEWS_A_CALL,
                modules=0.0 if backward else MODULES_A_CALL,
                library=isinstance(node, Op) and is_library(node),
                generated=self.by_generated,
            )
        else:
            launch = self.framework["launch"]
        return OF_A_COLLECTIVE * launch if isinstance(node, Collective) else launch

    def graph_seconds(self, graph: Graph) -> dict[str, float]:
        """Seconds of host work by phase; a checkpoint stores and restores the generators' state."""
        found: dict[str, float] = {}
        for phase, node in graph.phases():
            found[phase] = found.get(phase, 0.0) + self.node_seconds(node, phase)
        if self.by_calls:
            if "recompute" in found:
                found["recompute"] += self.law["checkpoint"]
            if "backward" in found:  # autograd adds each gradient up; the optimizer looks it up
                each = self.law["parameter"] + LISTED_A_WEIGHT * self.law["listed"]
                found["backward"] += len(graph.weights) * each
        return found

    def call_seconds(
        self,
        phase: str,
        *,
        kernels: int,
        views: float = 0,
        modules: float = 0,
        listed: int = 0,
        trained: float = 0.0,
        library: bool = False,
        checkpoints: bool = False,
        generated: bool = False,
    ) -> float:
        """Seconds from the call before to the end of this one.

        A forward op passes Python, autograd and the dispatcher; its backward only the last two. An
        op on lists walks over their tensors. Generated code calls kernels one after another.
        """
        law = self.law
        if generated:
            return kernels * law["generated"]
        taken = self.between_calls(views, modules) + listed * law["listed"]
        taken += trained * law["parameter"] + library * law["library"]
        if checkpoints:
            taken += law["checkpoint"]
        taken += law["backward" if phase == "backward" else "call"]
        return taken + max(0, kernels - 1) * law["launch"]

    def between_calls(self, views: float, modules: float) -> float:
        """What a CPU that computes itself does beside its kernels, whose own dispatch was timed."""
        return views * self.law["view"] + modules * self.law["module"]


def waiting_for_host(host: Size, device: Size) -> Size:
    """Seconds that a stream of kernels waits for a host that issues them one by one.

    Stretches of short kernels wait even where the whole is device-bound: a smooth maximum.
    """
    share = host / np.maximum(device, 1e-300)
    sharp = np.square(np.square(np.square(share)))  # to the power of SHARPNESS, many times faster
    return device * np.expm1(np.log1p(sharp) / SHARPNESS)
