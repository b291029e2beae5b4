"""A plan in one line, in the field's own words."""

from __future__ import annotations

from math import isfinite

from trueflops.plan import Plan


def describe_plan(plan: Plan) -> str:
    """'tp 8 · pp 4 × 2 · dp 2 (ZeRO-1) · micro-batch 1 · full recompute'."""
    parts = [f"tp {plan.tp:g}{' sp' if plan.sp and plan.tp > 1 else ''}"] if plan.tp > 1 else []
    if plan.cp > 1:
        parts.append(f"cp {plan.cp:g}")
    if plan.pp > 1:
        interleaved = f" × vpp {plan.vpp:g}" if plan.vpp > 1 else ""
        schedule = "" if plan.schedule == "1f1b" else f" {plan.schedule}"
        parts.append(f"pp {plan.pp:g}{interleaved}{schedule}")
    parts.append(_replicas(plan))
    if plan.ep > 1 or plan.etp > 1:
        parts.append(f"ep {plan.ep:g}" + (f" × etp {plan.etp:g}" if plan.etp > 1 else ""))
    parts.append(f"micro-batch {plan.micro_batch:g}")
    if plan.recompute != "none":
        some = f" of {plan.recompute_layers:g} layers" if isfinite(plan.recompute_layers) else ""
        parts.append(f"{plan.recompute} recompute{some}")
    if plan.offloads:
        parts.append(f"offload to {plan.offload_to}")
    if plan.compute != "bf16":
        parts.append(plan.compute)
    return " · ".join(parts)


def _replicas(plan: Plan) -> str:
    if plan.engine != "ddp":
        return f"{plan.engine} {plan.dp:g}"
    sharing = f" ZeRO-{plan.zero:g}" if plan.zero else ""
    if plan.dp_replicate > 1 and plan.dp_shard > 1:
        return f"dp {plan.dp_replicate:g} × {plan.dp_shard:g}{sharing}"
    return f"dp {plan.dp:g}{sharing}"
