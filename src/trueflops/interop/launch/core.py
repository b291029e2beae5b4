"""megatron-core's settings, which Megatron-LM takes as flags and NeMo (Megatron-Bridge) as YAML.

In: a plan. Out: its settings by the names of megatron-core's dataclasses; and back.
As of megatron-core 0.16.1: model_parallel_config.py, transformer/transformer_config.py,
distributed/distributed_data_parallel_config.py, optimizer/optimizer_config.py.
"""

from __future__ import annotations

from math import inf, isfinite
from typing import Any, Final

from trueflops.errors import BadInput
from trueflops.interop.launch.core_graphs import graph_settings, read_graphs
from trueflops.interop.launch.core_stages import read_stages, stage_settings
from trueflops.interop.launch.settings import Asked, Said, Settings, refused
from trueflops.language import say
from trueflops.model import Model
from trueflops.plan import Plan

STATES: Final = frozenset(
    [
        "tp",
        "sp",
        "cp",
        "cp_kind",
        "pp",
        "vpp",
        "first_stage_layers",
        "last_stage_layers",
        "dp_replicate",
        "dp_shard",
        "zero",
        "ep",
        "etp",
        "dispatch",
        "overlap_dispatch",
        "cuda_graphs",
        "micro_batch",
        "recompute",
        "recompute_layers",
        "offload_optimizer",
        "optimizer",
        "compute",
        "parameter_dtype",
        "gradient_dtype",
        "flash",
        "loss",
        "overlap",
        "reduce_bucket",
        "residual_dtype",
    ]
)
IMPLIES: Final = {"mixed": "engine", "implementation": "library", "fused": True}
"""Weights are held as narrow as they are used; TransformerEngine's kernels, fused by hand."""

DEGREES: Final = {
    "tp": "model.tensor_model_parallel_size",
    "cp": "model.context_parallel_size",
    "pp": "model.pipeline_model_parallel_size",
    "ep": "model.expert_model_parallel_size",
    "etp": "model.expert_tensor_parallel_size",
    "micro_batch": "train.micro_batch_size",
}
_CP_KINDS: Final = {"p2p": "ring", "a2a": "all-to-all"}
_DISPATCH: Final = {"alltoall": "all-to-all", "flex": "deduplicated"}
_OPTIMIZERS: Final = {"adam": "adamw", "sgd": "sgd", "muon": "muon"}
_LATER: Final = {"lion": "lion"}
"""Since pull request 3813 of March 2026 (core 0.20): read, and not yet written."""
_SHARDED: Final = {"optim_grads": 2, "optim_grads_params": 3}  # by Megatron-FSDP; 1: without it
_ATTENTION: Final = {"auto": True, "flash": True, "fused": True, "unfused": False, "local": False}
_HOW: Final = ("method", "num_layers", "modules")  # of recomputation
_HELD: Final = {"bf16": "bf16", "fp8": "bf16", "fp4": "bf16", "fp16": "fp16", "fp32": "fp32"}
"""Of weights, by what products compute in."""


def core_settings(tool: str, asked: Asked) -> Settings:
    """A plan in megatron-core's words; what it has none for is refused."""
    plan = asked.plan
    said: Settings = {key: int(getattr(plan, name)) for name, key in DEGREES.items()}
    if not asked.model.is_moe:
        del said[DEGREES["ep"]], said[DEGREES["etp"]]
    said |= {
        "train.global_batch_size": asked.workload.global_batch,
        "train.train_iters": asked.steps,
        "model.sequence_parallel": plan.sp,
        "model.cp_comm_type": _word(_CP_KINDS, plan.cp_kind) if plan.cp > 1 else None,
        "model.attention_backend": "auto" if plan.flash else "unfused",
        "model.fp32_residual_connection": plan.residual_dtype == "fp32",
    }
    if plan.residual_dtype not in ("", "fp32"):
        raise refused(tool, "residual_dtype", plan.residual_dtype, "fp32 or as wide as products")
    if asked.model.is_moe:
        said["model.moe_token_dispatcher_type"] = _word(_DISPATCH, plan.dispatch)
        if plan.dispatch == "deduplicated":
            said["model.moe_flex_dispatcher_backend"] = "deepep"
        said["model.overlap_moe_expert_parallel_comm"] = _beside_compute(tool, plan)
    said |= stage_settings(tool, asked) | graph_settings(tool, asked)
    return said | _recomputed(tool, plan) | _narrow(tool, plan) | _shared(tool, plan)


def environment(asked: Asked) -> list[str]:
    """One hardware queue orders kernels and collectives of tp and cp; FSDP needs several, and so
    do tokens that travel beside compute (arguments.py, validate_args; 32 in NVIDIA's recipes).
    """
    if asked.plan.zero >= 2:
        return []
    return [f"export CUDA_DEVICE_MAX_CONNECTIONS={32 if asked.plan.overlap_dispatch else 1}"]


def _beside_compute(tool: str, plan: Plan) -> bool:
    """Whether tokens travel beside another micro-batch's compute; what it asserts is refused."""
    if not plan.overlap_dispatch:
        return False
    for name, is_so, instead in (
        ("vpp", plan.pp > 1 and plan.vpp == 1, "--vpp 2"),
        ("recompute", plan.recompute == "full", "--recompute selective"),
        ("compute", plan.compute == "fp32", "--compute bf16"),
    ):
        if is_so:
            because = f"{instead} goes beside --overlap-dispatch"
            raise refused(tool, name, getattr(plan, name), because)
    return True


def _recomputed(tool: str, plan: Plan) -> Settings:
    """Granularity, method and layers; 'block' counts those of one interleaved piece."""
    key, some = "model.recompute", isfinite(plan.recompute_layers)
    said: Settings = dict.fromkeys(f"{key}_{what}" for what in ("granularity", *_HOW))
    if plan.recompute == "none":
        return said
    if plan.recompute == "products" or (plan.recompute == "selective" and some):
        what = "recompute_layers" if some else "recompute"
        raise refused(tool, what, getattr(plan, what), "--recompute selective or full is")
    if plan.recompute == "selective":
        return said | {f"{key}_granularity": "selective", f"{key}_modules": ["core_attn"]}
    if some and plan.recompute_layers % plan.vpp:
        instead = f"a multiple of vpp {plan.vpp:g} is"
        raise refused(tool, "recompute_layers", plan.recompute_layers, instead)
    return said | {
        f"{key}_granularity": "full",
        f"{key}_method": "block" if some else "uniform",
        f"{key}_num_layers": int(plan.recompute_layers // plan.vpp) if some else 1,
    }


def _narrow(tool: str, plan: Plan) -> Settings:
    """Dtypes, the loss and the optimizer."""
    if plan.compute not in _HELD:
        raise refused(tool, "compute", plan.compute, "fp32, bf16, fp16, fp8 or fp4 is")
    if plan.parameter_dtype != _HELD[plan.compute]:
        own = f"--parameter-dtype {_HELD[plan.compute]} beside --compute {plan.compute} is"
        raise refused(tool, "parameter_dtype", plan.parameter_dtype, own)
    if plan.gradient_dtype not in ("fp32", plan.parameter_dtype):
        raise refused(tool, "gradient_dtype", plan.gradient_dtype, "fp32 or as wide as weights is")
    if plan.loss == "chunked":
        raise refused(tool, "loss", plan.loss, "--loss plain or fused is")
    if plan.optimizer not in _OPTIMIZERS.values():
        raise refused(tool, "optimizer", plan.optimizer, "--optimizer adamw, sgd or muon is")
    fused = plan.loss == "fused"
    share = float(plan.offload_optimizer)
    return {
        "model.bf16": _HELD[plan.compute] == "bf16",
        "model.fp16": plan.compute == "fp16",
        "model.fp8": "hybrid" if plan.compute == "fp8" else None,
        "model.fp8_recipe": "delayed",
        "model.fp4": "e2m1" if plan.compute == "fp4" else None,
        "model.cross_entropy_loss_fusion": fused,
        "model.cross_entropy_fusion_impl": "te" if fused else "native",
        "ddp.grad_reduce_in_fp32": plan.gradient_dtype == "fp32",
        "optimizer.optimizer": _word(_OPTIMIZERS, plan.optimizer),
        # Offloaded states go through the optimizer that takes states of any width (arguments.py).
        "optimizer.use_precision_aware_optimizer": share > 0.0,
        "optimizer.optimizer_cpu_offload": share > 0.0,
        "optimizer.optimizer_offload_fraction": share,
    }


def _shared(tool: str, plan: Plan) -> Settings:
    """ZeRO 1 is the distributed optimizer, 2 and 3 are Megatron-FSDP; HSDP is instances of it."""
    if plan.optimizer == "muon" and (plan.zero or plan.overlap):
        raise BadInput(
            say(
                "--emit {tool}: muon shares and overlaps nothing there; add --zero 0 --no-overlap",
                tool=tool,
            )
        )
    if plan.offload_optimizer and not plan.zero:
        raise BadInput(
            say("--emit {tool}: only shared states are offloaded there; add --zero 1", tool=tool)
        )
    said: Settings = {
        "ddp.use_distributed_optimizer": plan.zero >= 1,
        "ddp.overlap_grad_reduce": plan.overlap,
        "ddp.overlap_param_gather": plan.overlap and plan.zero >= 1,
        "ddp.bucket_size": int(plan.reduce_bucket) or None,
    }
    if plan.zero >= 1 and plan.dp_replicate > 1:
        said["ddp.num_distributed_optimizer_instances"] = int(plan.dp_replicate)
    if plan.zero >= 2:
        said["ddp.use_megatron_fsdp"] = True
        said["ddp.data_parallel_sharding_strategy"] = _word(_SHARDED, int(plan.zero))
    return said


def _word(words: dict[str, Any], value: Any) -> str:
    """Their word for ours."""
    return next(theirs for theirs, ours in words.items() if ours == value)


# ── and back ─────────────────────────────────────────────────────────────────────────────────────


def core_plan(said: Said, model: Model, accelerators: int) -> dict[str, Any]:
    """The fields of a plan that settings of megatron-core say, as its defaults have them if not."""
    plan: dict[str, Any] = {name: said.whole(key, 1) for name, key in DEGREES.items()}
    if said.get(DEGREES["etp"]) is None:  # validate_args: experts are split as the rest is
        plan["etp"] = plan["tp"] if plan["ep"] > 1 or said.get("model.num_moe_experts") else 1
    plan |= {
        "sp": said.switch("model.sequence_parallel") and plan["tp"] > 1,
        "cp_kind": said.choice("model.cp_comm_type", _CP_KINDS, "p2p"),
        "dispatch": said.choice(
            "model.moe_token_dispatcher_type", _DISPATCH | {"allgather": "all-to-all"}, "allgather"
        ),
        "flash": said.choice("model.attention_backend", _ATTENTION, "auto"),
        "residual_dtype": "fp32" if said.switch("model.fp32_residual_connection") else "",
        "loss": "fused" if said.switch("model.cross_entropy_loss_fusion") else "plain",
    }
    plan["overlap_dispatch"] = said.switch("model.overlap_moe_expert_parallel_comm")
    plan["cuda_graphs"] = read_graphs(said, model)
    plan |= read_stages(said, said.whole("model.num_layers", model.layers), plan["pp"])
    for unused in ("model.moe_flex_dispatcher_backend", "model.cross_entropy_fusion_impl"):
        said.get(unused)
    return plan | _read_recomputed(said, plan["vpp"]) | _read_shared(said, plan, accelerators)


def _read_recomputed(said: Said, vpp: int) -> dict[str, Any]:
    kinds = {"none": "none", "None": "none", "selective": "selective", "full": "full"}
    kind = said.choice("model.recompute_granularity", kinds, "none")
    method = said.choice("model.recompute_method", {"uniform": "", "block": "block"}, "uniform")
    count = said.whole("model.recompute_num_layers", 1)
    modules = said.get("model.recompute_modules")
    if kind == "selective" and modules not in (None, "core_attn", ["core_attn"]):
        raise said.wrong("model.recompute_modules", "core_attn")
    some = kind == "full" and method == "block"
    return {"recompute": kind, "recompute_layers": count * vpp if some else inf}


def _read_shared(said: Said, plan: dict[str, Any], accelerators: int) -> dict[str, Any]:
    """Replicas are what the other degrees leave of the cluster."""
    within = plan["tp"] * plan["cp"] * plan["pp"]
    replicas = max(accelerators // within, 1)
    zero = int(said.switch("ddp.use_distributed_optimizer"))
    strategies = {"no_shard": 0, "optim": 1, **_SHARDED}
    strategy = said.choice("ddp.data_parallel_sharding_strategy", strategies, "no_shard")
    if said.switch("ddp.use_megatron_fsdp"):
        zero = strategy
    copies = said.whole("ddp.num_distributed_optimizer_instances", 1)
    if replicas % copies:
        raise said.wrong(
            "ddp.num_distributed_optimizer_instances", say("a divisor of dp {dp}", dp=replicas)
        )
    offloaded = said.real("optimizer.optimizer_offload_fraction", 1.0)
    said.get("optimizer.use_precision_aware_optimizer")
    said.get("ddp.overlap_param_gather")
    return {
        "zero": zero,
        "dp_replicate": copies if zero else replicas,
        "dp_shard": replicas // copies if zero else 1,
        "overlap": said.switch("ddp.overlap_grad_reduce"),
        "reduce_bucket": said.real("ddp.bucket_size", 0.0),
        "offload_optimizer": offloaded if said.switch("optimizer.optimizer_cpu_offload") else 0.0,
        "optimizer": said.choice("optimizer.optimizer", _OPTIMIZERS | _LATER, "adam"),
    }


def computed_in(said: Said) -> str:
    """The dtype of products."""
    if said.get("model.fp4"):
        return "fp4"
    said.get("model.fp8_recipe")
    if said.get("model.fp8"):
        return "fp8"
    if said.switch("model.bf16"):
        return "bf16"
    return "fp16" if said.switch("model.fp16") else "fp32"


def held_in(compute: str) -> str:
    """The dtype of weights beside products in another."""
    return _HELD[compute]
