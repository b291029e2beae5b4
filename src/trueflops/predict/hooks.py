"""What frameworks hang around a model's modules: host work beside that of the model's own calls."""

from __future__ import annotations

from dataclasses import replace

from trueflops.clock import Clock
from trueflops.plan import Plan
from trueflops.predict.costs import Costs, PieceCost


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

    return replace(
        costs,
        blocks=tuple(with_hooks(block) for block in costs.blocks),
        embedding=with_hooks(costs.embedding),
        head=with_hooks(costs.head),
    )
