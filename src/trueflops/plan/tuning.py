"""Which adapters are possible: the conditions of rules.py on what a plan trains."""

from __future__ import annotations

from trueflops.errors import join_or
from trueflops.language import say
from trueflops.model import Model, is_target, read_targets
from trueflops.model.adapters import TARGETS
from trueflops.plan.plan import Plan


def sizes_suit(plan: Plan) -> bool:
    """A rank of at least one, and a dropout that leaves something."""
    return not plan.adapters or (plan.lora_rank >= 1 and 0.0 <= plan.lora_dropout < 1.0)


def widths_suit(plan: Plan) -> bool:
    """Packed weights are written out for products of at least 16 bits."""
    return plan.adapters != "qlora" or plan.compute in ("bf16", "fp16", "tf32", "fp32")


def has_targets(plan: Plan, model: Model) -> bool:
    """Whether the model has the layers that are to have adapters."""
    if not plan.adapters:
        return True
    targets = read_targets(plan.lora_targets)
    return any(is_target(name, targets) for name in _layers(model))


def targets_advice(plan: Plan, model: Model) -> str:
    """Which layers it has instead."""
    there = [key for key, names in TARGETS.items() if _layers(model).intersection(names)]
    return say(
        "{name} has no layer {lora_targets} for adapters; try {names}",
        name=model.name,
        lora_targets=plan.lora_targets,
        names=join_or([*there, "all-linear"]),
    )


def _layers(model: Model) -> set[str]:
    return {p.name for block in model.blocks for p in block.parameters(model.hidden)}
