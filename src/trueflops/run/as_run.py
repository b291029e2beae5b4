"""The plan that is really run: what PyTorch has no code for is replaced, and said.

In: a Plan. Out: the Plan whose prediction the run is held against, and a note for each change.
Needs no torch.
"""

from __future__ import annotations

from trueflops.errors import BadInput
from trueflops.language import say
from trueflops.plan import Plan


def as_run(plan: Plan) -> tuple[Plan, list[str]]:
    """The network is PyTorch's functions one by one, and torch.optim keeps no second weights."""
    notes: list[str] = []
    if plan.factored and (plan.tp > 1 or plan.ep > 1 or _shares_weights(plan)):
        # Of a part its norms would be others; fully_shard's DTensors have no rule for them: torch
        # 2.13 fails at "aten.pow_.Scalar: in-place operations that require placement changes".
        raise BadInput(
            say(
                "optimizer {optimizer}: torch.optim.Adafactor takes norms of whole matrices; write "
                "tp 1, ep 1 and zero 0 or 1",
                optimizer=plan.optimizer,
            )
        )
    if plan.compute == "tf32":
        raise BadInput(say("compute tf32: run computes in fp32, bf16 or fp16; write one of these"))
    changes: dict[str, object] = {"implementation": "eager", "loss": "plain", "fused": False}
    if plan.has_master:
        changes |= {"parameter_dtype": "fp32", "gradient_dtype": "fp32"}
        notes.append(
            say(
                "weights are kept in fp32 and narrowed where they are used: torch.optim has no "
                "master copy beside narrow ones"
            )
        )
    elif plan.parameter_dtype != plan.gradient_dtype and plan.zero < 2:
        changes["gradient_dtype"] = plan.parameter_dtype
        notes.append(say("gradients are as wide as the weights: DDP has no other ones"))
    changes["mixed"] = "engine" if _shares_weights(plan) else "autocast"
    if plan.parameter_dtype == "bf16" and not plan.has_master and plan.compute != "bf16":
        raise BadInput(
            say(
                "compute {compute} of bf16 weights: write compute bf16, or parameter_dtype fp32",
                compute=plan.compute,
            )
        )
    if plan.parameter_dtype == "fp16" and not plan.has_master:
        raise BadInput(
            say(
                "fp16 weights without a wider copy lose their updates (--compare precisions shows "
                "it); write parameter_dtype fp32"
            )
        )
    if plan.captured or plan.overlap_dispatch:
        changes |= {"cuda_graphs": "", "overlap_dispatch": False}
        notes.append(
            say(
                "the host issues every kernel, one after another: neither CUDA graphs nor "
                "micro-batches side by side are run"
            )
        )
    if plan.tp == 1 and plan.sp:
        changes["sp"] = False
    if plan.dp_replicate > 1 and plan.dp_shard == 1 and plan.cp == 1 and plan.zero:
        changes["zero"] = 0
        notes.append(
            say("ZeRO {zero} left out: dp_shard 1 leaves nothing to share", zero=plan.zero)
        )
    return plan.but(**changes), notes


def _shares_weights(plan: Plan) -> bool:
    """Whether fully_shard holds the weights."""
    return bool(plan.zero >= 2 and plan.dp_shard * plan.cp > 1)
