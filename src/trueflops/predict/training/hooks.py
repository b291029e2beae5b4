"""What the host does of a training step beside, or instead of, issuing the model's kernels: a
framework's hooks around modules, and CUDA graphs in the place of what they captured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from trueflops.clock import Clock
from trueflops.plan import Plan
from trueflops.plan.captures import STEP
from trueflops.predict.costs import Costs, PieceCost
from trueflops.sizes import Size
from trueflops.tables import summed


def hooked(costs: Costs, plan: Plan, clock: Clock) -> Costs:
    """The same pieces with what the host does in the framework's hooks around them."""
    hooks = clock.host.hooks(plan.zero, shared=plan.dp * plan.cp > 1)
    if hooks is None:
        return costs

    def with_hooks(piece: PieceCost) -> PieceCost:
        host = {
            phase: seconds + piece.weight_tensors * hooks.of_weight.get(phase, 0.0)
            + piece.weight_modules * hooks.of_module.get(phase, 0.0)
            + hooks.of_unit.get(phase, 0.0)
            for phase, seconds in piece.host.items()
        }  # fmt: skip
        return replace(piece, host=host)

    return _each(costs, with_hooks)


def captured(costs: Costs, plan: Plan, clock: Clock) -> Costs:
    """The same pieces with a graph to launch where the plan captures a part of a layer; a whole
    step is one graph, whose launch no layer waits for.
    """
    parts, launch = plan.captured, clock.host.law["graph"]
    if STEP in parts:
        return _each(costs, lambda piece: replace(piece, host=dict.fromkeys(piece.host, 0.0)))

    def with_graphs(block: PieceCost) -> PieceCost:
        host: dict[str, Size] = dict(block.host)
        for phase in host:
            spared = summed(
                seconds
                for (at, part), seconds in block.host_of_parts.items()
                if at == phase and part in parts
            )
            # A graph has gradients of inputs and of weights; pipelines that part them launch two.
            again = phase == "backward_weight" and not plan.schedule.startswith("zb")
            host[phase] = host[phase] - spared + np.minimum(spared, 0.0 if again else launch)
        return replace(block, host=host)

    return replace(costs, blocks=tuple(map(with_graphs, costs.blocks))) if parts else costs


def slowed(costs: Costs, times: Size) -> Costs:
    """The same pieces on a host that takes so many times as long."""

    def on_host(piece: PieceCost) -> PieceCost:
        return replace(piece, host={phase: times * s for phase, s in piece.host.items()})

    return _each(costs, on_host)


def _each(costs: Costs, change: Callable[[PieceCost], PieceCost]) -> Costs:
    return replace(
        costs,
        blocks=tuple(map(change, costs.blocks)),
        embedding=change(costs.embedding),
        head=change(costs.head),
    )
