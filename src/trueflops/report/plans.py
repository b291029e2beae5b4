"""A plan in one line, in the field's own words."""

from __future__ import annotations

from math import isfinite

from trueflops.plan import Plan


def describe_plan(plan: Plan) -> str:
    """'tp 8 sp · pp 4 × 2 · dp 2 ZeRO-1 · mb 1 · recompute full': all that is not usual."""
    parts = [f"tp {plan.tp:g}{' sp' if plan.sp else ''}"] if plan.tp > 1 else []
    if plan.cp > 1:
        parts.append(f"cp {plan.cp:g}{'' if plan.cp_kind == 'ring' else ' ' + plan.cp_kind}")
    if plan.pp > 1:
        interleaved = f" × {plan.vpp:g}" if plan.vpp > 1 else ""
        schedule = "" if plan.schedule == "1f1b" else f" {plan.schedule}"
        ends = (plan.first_stage_layers, plan.last_stage_layers)
        given = f" ({ends[0] or '·'}…{ends[1] or '·'} layers)" if any(ends) else ""
        parts.append(f"pp {plan.pp:g}{interleaved}{schedule}{given}")
    parts.append(_replicas(plan))
    if plan.ep > 1 or plan.etp > 1:
        parts.append(f"ep {plan.ep:g}" + (f" × etp {plan.etp:g}" if plan.etp > 1 else ""))
    parts.append(f"mb {plan.micro_batch:g}")
    if plan.recompute != "none":
        some = f" {plan.recompute_layers:g} layers" if isfinite(plan.recompute_layers) else ""
        parts.append(f"recompute {plan.recompute}{some}")
    return " · ".join([*parts, *_unusual(plan)])


def _replicas(plan: Plan) -> str:
    if plan.engine != "ddp":
        return f"{plan.engine} {plan.dp:g}"
    sharing = f" ZeRO-{plan.zero:g}" if plan.zero else ""
    if plan.dp_replicate > 1 and plan.dp_shard > 1:
        return f"dp {plan.dp_replicate:g} × {plan.dp_shard:g}{sharing}"
    return f"dp {plan.dp:g}{sharing}"


def _unusual(plan: Plan) -> list[str]:
    """Whatever departs from bf16 AdamW with flash attention, fusion and overlap."""
    parts = []
    for what in ("optimizer", "parameters", "activations"):
        share = getattr(plan, f"offload_{what}")
        if share:
            parts.append(f"{what} {100 * share:.0f} % to {plan.offload_to}")
    if plan.compute != "bf16":
        parts.append(plan.compute)
    if plan.optimizer != "adamw":
        parts.append(plan.optimizer)
    if (plan.parameter_dtype, plan.gradient_dtype) != (plan.wide_dtype, plan.wide_dtype):
        parts.append(f"{plan.parameter_dtype} weights, {plan.gradient_dtype} gradients")
    if plan.dispatch != "all-to-all":
        parts.append(f"{plan.dispatch} dispatch")
    parts += [f"no {name}" for name in ("flash", "fused", "overlap") if not getattr(plan, name)]
    return parts
