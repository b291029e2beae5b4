"""A plan in one line, in the words of the flags that ask for it: 'tp 8 · sp · pp 4 · vpp 2 · dp 2'.

Each word is a flag without its dashes, so that a plan that was found can be typed back
(`flags_of`); what is as usual is left out.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Any, Final

from trueflops.errors import BadInput, shorten
from trueflops.language import say
from trueflops.plan.plan import Plan
from trueflops.plan.serving import shares_experts


def describe_plan(plan: Plan) -> str:
    """'tp 4 · sp · cp 2 · pp 2 · vpp 10 · dp 4 · zero 1 · mb 1'."""
    return " · ".join(_words(plan))


def flags_of(plan: Plan) -> str:
    """The same as it is typed, '--tp 4 --sp --cp 2 …', habits of frameworks spelt out.

    So these flags ask for this plan under any --framework.
    """
    words = _words(plan)
    words += [word for word in _by_habit(plan) if word not in words]
    return " ".join(f"--{word}" for word in words)


def serving_words(plan: Plan) -> list[str]:
    """The flags of a plan that serves: replicas are what tp and pp leave of the cluster."""
    degrees = [_if_not(name, getattr(plan, name), 1) for name in ("dcp", "pp", "ep")]
    words = [f"tp {_number(plan.tp)}", *(word for each in degrees for word in each)]
    return words + (_if_not("etp", plan.etp, 1) if shares_experts(plan) else [])


def worker_words(plan: Plan) -> list[str]:
    """One worker of a pool: also the attention replicas in it, which share its experts."""
    return [*serving_words(plan), *_if_not("dp", plan.dp, 1)]


def read_worker(text: str, flag: str) -> tuple[int, dict[str, int]]:
    """How many workers, and their degrees: '2xtp4', '1xtp1dp16ep16'."""
    found = _WORKER.fullmatch(text.strip().casefold())
    if not found:
        raise BadInput(
            say(
                "--{flag} {text}: write how many workers and their degrees, as 2xtp4 or "
                "1xtp1dp16ep16 (tp, dcp, pp, ep, etp; dp: attention replicas that share experts)",
                flag=flag,
                text=shorten(text),
            )
        )
    degrees = _DEGREE.findall(found[2])
    if len({name for name, _ in degrees}) < len(degrees):
        raise BadInput(
            say("--{flag} {text}: a degree is given twice", flag=flag, text=shorten(text))
        )
    return int(found[1] or 1), {name: int(number) for name, number in degrees}


_WORKER: Final = re.compile(r"(?:([1-9]\d{0,5})x)?((?:(?:tp|dcp|pp|dp|ep|etp)[1-9]\d{0,5})+)")
_DEGREE: Final = re.compile(r"(tp|dcp|pp|dp|ep|etp)(\d+)")


def serving_flags(plan: Plan) -> str:
    """The same as they are typed."""
    return " ".join(f"--{word}" for word in serving_words(plan))


def changed_flags(before: Plan, after: Plan) -> str:
    """The flags to type beside those of one plan to get another."""
    words = _words(after)
    if _is_hybrid(before):  # dp beside dp-replicate and dp-shard would be refused
        words = [*_halves(after), *(word for word in words if not word.startswith("dp "))]
    return " ".join(f"--{word}" for word in words if word not in _words(before))


def _words(plan: Plan) -> list[str]:
    words = []
    if plan.tp > 1:
        words += [f"tp {_number(plan.tp)}", "sp" if plan.sp else "no-sp"]
    if plan.cp > 1:
        words.append(f"cp {_number(plan.cp)}")
        words += _if_not("cp-kind", plan.cp_kind, "ring")
    if plan.pp > 1:
        words.append(f"pp {_number(plan.pp)}")
        words += _if_not("vpp", plan.vpp, 1)
        words += _if_not("schedule", plan.schedule, "1f1b")
        words += _if_not("first-stage-layers", plan.first_stage_layers, 0)
        words += _if_not("last-stage-layers", plan.last_stage_layers, 0)
    words += _replicas(plan)
    words += _if_not("ep", plan.ep, 1)
    words += _if_not("etp", plan.etp, 1)
    words += _if_not("mtp", plan.mtp, 0)
    words += _if_not("dispatch", plan.dispatch, "all-to-all")
    words.append(f"mb {_number(plan.micro_batch)}")
    words += _if_not("recompute", plan.recompute, "none")
    if isfinite(plan.recompute_layers):
        words.append(f"recompute-layers {_number(plan.recompute_layers)}")
    return words + _unusual(plan)


def _replicas(plan: Plan) -> list[str]:
    """Data parallelism; HSDP by both of its degrees."""
    zero = [f"zero {_number(plan.zero)}"] if plan.dp * plan.cp > 1 else []
    engine = _if_not("dp-engine", plan.engine, "ddp")
    degrees = _halves(plan) if _is_hybrid(plan) else [f"dp {_number(plan.dp)}"]
    return [*degrees, *zero, *engine]


def _is_hybrid(plan: Plan) -> bool:
    return bool(plan.dp_replicate > 1 and plan.dp_shard > 1)


def _halves(plan: Plan) -> list[str]:
    return [f"dp-replicate {_number(plan.dp_replicate)}", f"dp-shard {_number(plan.dp_shard)}"]


def _unusual(plan: Plan) -> list[str]:
    """Whatever departs from bf16 AdamW with flash attention, fusion and overlap."""
    words = []
    for what in ("optimizer", "parameters", "activations"):
        words += _if_not(f"offload-{what}", getattr(plan, f"offload_{what}"), 0)
    if words:
        words += _if_not("offload-to", plan.offload_to, "host")
    words += _if_not("compute", plan.compute, "bf16")
    words += _if_not("optimizer", plan.optimizer, "adamw")
    kept = {"fp16": "fp16", "tf32": "fp32", "fp32": "fp32"}.get(plan.compute, "bf16")
    words += _if_not("parameter-dtype", plan.parameter_dtype, kept)
    words += _if_not("gradient-dtype", plan.gradient_dtype, kept)
    words += _if_not("mixed", plan.mixed, "autocast")
    words += _if_not("reduce-bucket", plan.reduce_bucket, 0)
    words += _if_not("implementation", plan.implementation, "library")
    words += _tuning(plan)
    words += _if_not("loss", plan.loss, "plain")
    words += _if_not("cuda-graphs", plan.cuda_graphs, "")
    switched = ("launch_blocking", "update_in_backward", "paged_states", "overlap_dispatch")
    words += [name.replace("_", "-") for name in switched if getattr(plan, name)]
    return words + [
        f"no-{name}" for name in ("flash", "fused", "overlap") if not getattr(plan, name)
    ]


def _tuning(plan: Plan) -> list[str]:
    """What is trained, where not everything is."""
    words = [f"{plan.adapters} {plan.lora_rank}"] if plan.adapters else []
    words += _if_not("lora-targets", plan.lora_targets, "attention")
    words += _if_not("lora-dropout", plan.lora_dropout, 0.0)
    words += ["lora-fused"] if plan.lora_fused else []
    words += _if_not("adapter-dtype", plan.adapter_dtype, "fp32")
    words += _if_not("base-format", plan.base_format, "nf4")
    words += _if_not("residual-dtype", plan.residual_dtype, "")
    return words + _if_not("freeze-layers", plan.freeze_layers, 0)


def _by_habit(plan: Plan) -> list[str]:
    """What `habits` of a framework set where no flag says otherwise."""
    fused = "fused" if plan.fused else "no-fused"
    loss = f"loss {plan.loss}"
    written = f"implementation {plan.implementation}"
    overlap = "overlap" if plan.overlap else "no-overlap"
    summed, narrowed = f"gradient-dtype {plan.gradient_dtype}", f"mixed {plan.mixed}"
    return [written, fused, loss, overlap, summed, narrowed]


def _if_not(flag: str, value: object, usual: object) -> list[str]:
    if value == usual:
        return []
    return [f"{flag} {_number(value)}" if isinstance(value, int | float) else f"{flag} {value}"]


def _number(value: Any) -> str:
    """Every digit of a whole number, however large."""
    return str(int(value)) if value == int(value) else f"{value:g}"
