"""What is trained, in words."""

from __future__ import annotations

from trueflops import units
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.predict.checkpoint import trained_parameters

_METHODS = {"lora": "LoRA", "qlora": "QLoRA"}
_TARGETS = {"all-linear": "all linear layers", "attention": "the layers of attention"}


def describe_tuning(model: Model, plan: Plan) -> str:
    """'42 M of 8.03 B parameters are trained (LoRA rank 16 on all linear layers)', or nothing."""
    if not plan.adapters and not plan.freeze_layers:
        return ""
    trained = units.show(trained_parameters(model, plan), "count")
    whole = units.show(model.parameter_count, "count")
    how = []
    if plan.adapters:
        where = _TARGETS.get(plan.lora_targets, plan.lora_targets.replace(",", ", "))
        how.append(f"{_METHODS[plan.adapters]} rank {plan.lora_rank} on {where}")
    if plan.adapters == "qlora":
        how.append(f"beside {plan.base_format} weights")
    if plan.freeze_layers:
        how.append(f"embedding and first {plan.freeze_layers} layers frozen")
    return f"{trained} of {whole} parameters are trained ({', '.join(how)})"
