"""What is trained, in words."""

from __future__ import annotations

from trueflops import units
from trueflops.language import mark, say
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.predict.money.checkpoint import trained_parameters

_METHODS = {"lora": "LoRA", "qlora": "QLoRA"}
_TARGETS = {"all-linear": mark("all linear layers"), "attention": mark("the layers of attention")}


def describe_tuning(model: Model, plan: Plan) -> str:
    """'42 M of 8.03 B parameters are trained (LoRA rank 16 on all linear layers)', or nothing."""
    if not plan.adapters and not plan.freeze_layers:
        return ""
    trained = units.show(trained_parameters(model, plan), "count")
    whole = units.show(model.parameter_count, "count")
    how = []
    if plan.adapters:
        where = _TARGETS.get(plan.lora_targets, plan.lora_targets.replace(",", ", "))
        how.append(
            say(
                "{methods} rank {lora_rank} on {where}",
                methods=_METHODS[plan.adapters],
                lora_rank=plan.lora_rank,
                where=where,
            )
        )
    if plan.adapters == "qlora":
        how.append(say("beside {base_format} weights", base_format=plan.base_format))
    if plan.freeze_layers:
        how.append(
            say(
                "embedding and first {freeze_layers} layers frozen",
                freeze_layers=plan.freeze_layers,
            )
        )
    return say(
        "{trained} of {whole} parameters are trained ({names})",
        trained=trained,
        whole=whole,
        names=", ".join(how),
    )
