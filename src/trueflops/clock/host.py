"""The host: what it needs to issue work, and how long a device waits for it.

    a call of a program   Python, autograd, the dispatcher, the launch: 25–35 µs of an eager op
    a kernel of a graph   the framework's `launch`; where it runs PyTorch op by op, that of a call
A device with a full queue only loses `gap` between two kernels; with an empty one it waits.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from trueflops.graph.ir import Collective, Graph, Node, Phase
from trueflops.profile import Profile
from trueflops.sizes import Size

OF_A_COLLECTIVE: Final = 0.3  # of what the host needs to launch an op: no autograd, no allocation
SHARPNESS: Final = 8.0  # of the smooth maximum of host and device
LISTS: Final = ("_foreach_", "_fused_")  # ops that walk over lists of tensors


class HostLaw:
    """The host of one chip under one framework."""

    def __init__(self, profile: Profile) -> None:
        self.framework, self.law = profile.curve("framework"), profile.curve("dispatch")

    @property
    def gap(self) -> float:
        """Seconds between two kernels of a graph in a full queue."""
        return self.framework["gap"]

    def node_seconds(self, node: Node, phase: Phase) -> float:
        """Seconds of host work for one node of a graph."""
        backward = phase.startswith("backward")
        launch = self.framework["launch_backward" if backward else "launch"]
        return OF_A_COLLECTIVE * launch if isinstance(node, Collective) else launch

    def graph_seconds(self, graph: Graph) -> dict[str, float]:
        """Seconds of host work by phase; a checkpoint stores and restores the generators' state."""
        found: dict[str, float] = {}
        for phase, node in graph.phases():
            found[phase] = found.get(phase, 0.0) + self.node_seconds(node, phase)
        if "recompute" in found:
            found["recompute"] += self.framework["checkpoint"]
        return found

    def call_seconds(
        self,
        phase: str,
        *,
        kernels: int,
        views: int = 0,
        modules: int = 0,
        listed: int = 0,
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
        if checkpoints:
            taken += law["checkpoint"]
        taken += law["backward" if phase == "backward" else "call"]
        return taken + max(0, kernels - 1) * law["launch"]

    def between_calls(self, views: int, modules: int) -> float:
        """What a CPU that computes itself does beside its kernels, whose own dispatch was timed."""
        return views * self.law["view"] + modules * self.law["module"]


def waiting_for_host(host: Size, device: Size) -> Size:
    """Seconds that a stream of kernels waits for a host that issues them one by one.

    Stretches of short kernels wait even where the whole is device-bound: a smooth maximum.
    """
    share = host / np.maximum(device, 1e-300)
    sharp = np.square(np.square(np.square(share)))  # to the power of SHARPNESS, many times faster
    return device * np.expm1(np.log1p(sharp) / SHARPNESS)
