"""From flags to a workload and a plan, with a reason for every default."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any, Final

import numpy as np

from trueflops import units
from trueflops.catalog import Cluster
from trueflops.cli.arguments.several import Several
from trueflops.cli.counts import count_of
from trueflops.cli.question import check_length
from trueflops.errors import BadInput
from trueflops.language import say, word
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.plan.captures import captures_text
from trueflops.plan.guesses import EVERY_FIELD, LAID_OUT, Guess, unstated
from trueflops.plan.usual import usual_batch, usual_seq, usual_tokens
from trueflops.profile.frameworks import USUAL, frameworks, habits, lacking
from trueflops.report.tables import plural
from trueflops.workload import Training

DEGREES = ("tp", "pp", "cp", "dp", "dp_replicate", "dp_shard", "ep")
GRAPHED: Final = ("NVIDIA", "AMD")  # whose chips have CUDA graphs, by that name or HIP's


def workload_of(
    options: argparse.Namespace, model: Model, where: Cluster
) -> tuple[Training, list[str]]:
    """The workload, with a reason for every default."""
    notes = [word(note) for note in model.notes]
    if options.seq is not None:
        seq = count_of(options.seq, "--seq")
        notes += check_length(model, seq, "--seq")
    else:
        seq = usual_seq(model)
        notes.append(
            say("sequence {seq:,}: the usual pre-training length, at most the model's own", seq=seq)
        )
    if options.global_batch is not None:
        batch = count_of(options.global_batch, "--global-batch")
    else:
        batch = usual_batch(seq, where.count, _replicas(options, where.count))
        step = units.show(batch * seq, "count")
        notes.append(
            say(
                "global batch {batch:,}: {step} tokens a step, to suit {chips}",
                batch=batch,
                step=step,
                chips=plural(where.count, "chip"),
            )
        )
    if options.tokens is not None:
        tokens = float(count_of(options.tokens, "--tokens"))
    else:
        tokens = usual_tokens(model)
        active = "active " if model.is_moe else ""
        notes.append(say("tokens: 20 for each {active}parameter (Hoffmann 2022)", active=active))
    return Training(seq, batch, tokens), notes


def _replicas(options: argparse.Namespace, count: int) -> int:
    """How many replicas the flags ask for; 1 where a search is left to choose."""
    if searched(options):
        return 1
    if options.dp is not None:
        return int(options.dp)
    within = (options.tp or 1) * (options.pp or 1) * (options.cp or 1)
    return max(count // within, 1)


def base_plan(options: argparse.Namespace, where: Cluster) -> tuple[Plan, list[str]]:
    """The fields that are not degrees: given ones, or defaults with their reason."""
    given: dict[str, Any] = {}
    if options.framework is not None:
        _check_degrees(options)
        usual = habits(options.framework)
        given["fused"], given["loss"] = usual.fused, usual.loss
        given["implementation"], given["mixed"] = usual.implementation, usual.mixed
        if usual.gradient_dtype:
            given["gradient_dtype"] = usual.gradient_dtype
        if usual.stored:
            given["parameter_dtype"] = usual.stored
        options.zero = usual.zero if options.zero is None else options.zero
        several = isinstance(options.zero, Several)  # a search weighs stages that overlap
        given["overlap"] = usual.overlap if several else usual.overlaps(options.zero)
    for field in fields(Plan):
        value = getattr(options, field.name, None)
        if value is not None and field.name not in DEGREES and not isinstance(value, Several):
            given[field.name] = value
    given |= _tuned(options)
    if "cuda_graphs" in given:
        given["cuda_graphs"] = captures_text(given["cuda_graphs"])
        if given["cuda_graphs"] and where.accelerator.vendor not in GRAPHED:
            raise BadInput(
                say(
                    "--cuda-graphs: {chip} runs none; they are PyTorch's on GPUs of NVIDIA and AMD",
                    chip=where.accelerator.name,
                )
            )
    notes = []
    if "compute" not in given:
        given["compute"], note = compute_dtype(where)
        notes += note
    if given["compute"] in ("fp16", "tf32", "fp32"):
        wide = "fp32" if given["compute"] in ("tf32", "fp32") else "fp16"
        given.setdefault("parameter_dtype", wide)
        given.setdefault("gradient_dtype", wide)
    if options.framework is not None and not habits(options.framework).master:
        trained = "adapter_dtype" if given.get("adapters") else "parameter_dtype"
        usual_dtype = "fp32" if given.get("adapters") else "bf16"
        narrow = given.get(trained, usual_dtype) == "bf16"
        if narrow and given.setdefault("optimizer", "adamw-bf16") == "adamw-bf16":
            notes.append(say("moments in bf16, as torch.optim keeps them of bf16 weights"))
    if "recompute_layers" in given and given.get("recompute", "none") == "none":
        raise BadInput(
            say(
                "--recompute-layers says how many; say also --recompute full, products or selective"
            )
        )
    scores = habits(options.framework or USUAL).recomputation(1.0)["recompute"] == "selective"
    if given.get("recompute") == "selective" and scores and given.get("flash", True):
        notes.append(
            say("selective recomputation saves little here: flash attention keeps no scores")
        )
    if options.dp_shard is not None and not options.zero:
        raise BadInput(
            say("--dp-shard shares states between replicas; say how with --zero 1, 2 or 3")
        )
    return Plan(**given), notes


def _splits_experts(
    options: argparse.Namespace, model: Model, degrees: dict[str, int], ranks: int
) -> bool:
    """Whether a framework splits each expert as the rest of a layer, where nobody says how."""
    if options.framework is None or options.etp is not None or not model.is_moe:
        return False
    fits = ranks % (degrees["ep"] * degrees["tp"]) == 0
    return fits and habits(options.framework).splits_experts


def _tuned(options: argparse.Namespace) -> dict[str, Any]:
    """Adapters, by the flag that asks for them; those that only say how need one of these."""
    if options.lora is not None and options.qlora is not None:
        raise BadInput(say("give --lora or --qlora, not both: QLoRA is LoRA beside 4-bit weights"))
    if options.lora is not None:
        if options.base_format is not None:
            raise BadInput(
                say("--base-format packs the frozen weights of --qlora; --lora keeps them")
            )
        return {"adapters": "lora", "lora_rank": options.lora or Plan().lora_rank}
    if options.qlora is not None:
        return {"adapters": "qlora", "lora_rank": options.qlora or Plan().lora_rank}
    how = ("lora_targets", "lora_dropout", "lora_fused", "adapter_dtype", "base_format")
    for name in how:
        if getattr(options, name) is not None:
            flag = name.replace("_", "-")
            raise BadInput(
                say("--{flag} says how adapters are trained; say also --lora or --qlora", flag=flag)
            )
    return {}


def _check_degrees(options: argparse.Namespace) -> None:
    """Refuse a degree that the framework has no code for."""
    for name in lacking(options.framework):
        if np.max(getattr(options, name) or 1) > 1:
            others = [f for f in frameworks(serving=False) if name not in lacking(f)]
            raise BadInput(
                say(
                    "--{name} {options}: {framework} has no {degree}; leave it out, or name "
                    "another --framework: {names}",
                    name=name,
                    options=getattr(options, name),
                    framework=options.framework,
                    degree=_DEGREE[name],
                    names=", ".join(others),
                )
            )


_DEGREE = {"pp": "pipeline parallelism", "cp": "context parallelism"}


def guessed(
    options: argparse.Namespace, plan: Plan, framework: str, model: Model
) -> tuple[Guess, ...]:
    """What a named framework does by default, where no flag says it."""
    if options.framework is None:
        return ()
    said = {name for name in EVERY_FIELD if getattr(options, name, None) is not None}
    return unstated(plan, said | LAID_OUT, framework, experts=model.is_moe)


def compute_dtype(where: Cluster) -> tuple[str, list[str]]:
    """bf16 where the chip has it; else the next best, said aloud."""
    chip = where.accelerator
    if chip.computes("bf16"):
        return "bf16", []
    dtype = next((d for d in ("fp16", "tf32", "fp32") if chip.computes(d)), "bf16")
    return dtype, [say("computing in {dtype}: {name} has no bf16", dtype=dtype, name=chip.name)]


def searched(options: argparse.Namespace) -> bool:
    """Whether the user left the plan to us, or a part of it."""
    several = any(isinstance(value, Several) for value in vars(options).values())
    nothing = all(getattr(options, name) is None for name in DEGREES)
    return bool(options.search) or several or nothing


def given_plan(options: argparse.Namespace, base: Plan, where: Cluster, model: Model) -> Plan:
    """The plan that the flags spell out; data parallelism takes what is left."""
    degrees = {name: getattr(options, name) or 1 for name in ("tp", "pp", "cp", "ep")}
    left = max(where.count // (degrees["tp"] * degrees["pp"] * degrees["cp"]), 1)
    replicate, shard = options.dp_replicate, options.dp_shard
    if options.dp is not None and (replicate or shard):
        raise BadInput(say("give --dp, or --dp-replicate and --dp-shard, not both"))
    if replicate is None and shard is None:
        dp = options.dp if options.dp is not None else left
        replicate, shard = (1, dp) if options.zero else (dp, 1)
    elif shard is None:
        shard = max(left // replicate, 1) if options.zero else 1
    elif replicate is None:
        replicate = max(left // shard, 1)
    sp = options.sp if options.sp is not None else degrees["tp"] > 1
    if _splits_experts(options, model, degrees, where.count // degrees["pp"]):
        degrees["etp"] = degrees["tp"]
    if base.recompute == "selective" and options.framework is not None:
        stage = model.layers / degrees["pp"]
        base = base.but(**habits(options.framework).recomputation(stage))
    return base.but(**degrees, dp_replicate=replicate, dp_shard=shard, sp=sp)
