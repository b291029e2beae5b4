"""What is to be run: a model, a plan and a batch, checked before any rank starts. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trueflops.errors import BadInput
from trueflops.language import mark, say
from trueflops.model import Model
from trueflops.plan import Plan, check_plan
from trueflops.predict.stragglers.simulate import Mode
from trueflops.workload import Training

SCHEDULES: Final = ("gpipe", "1f1b", "zb-h1", "zb-v")
"""Those that torch.distributed.pipelining has."""

FIRST_SCALE: Final = 65536.0
"""By which fp16's gradients are multiplied at first: torch/amp/grad_scaler.py, init_scale."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of a few steps."""

    model: Model
    plan: Plan
    workload: Training
    steps: int = 20
    seed: int = 0
    learning_rate: float = 1e-3
    text: Path | None = None
    checkpoint: Path | None = None  # a folder; None: nothing is saved
    save_every: int = 10
    trace: Path | None = None  # a file for rank 0's trace of a few steps
    updates: Mode = Mode.SYNCHRONOUS  # of a parameter server: when it uses a gradient
    staleness: int = 3  # that bounded staleness allows: steps ahead of the slowest worker
    drop: int = 1  # gradients of a step that Mode.DROPS does not wait for
    pause_seconds: float = 0.0  # that the first worker waits in each step: a straggler
    loss_scale: float = 0.0  # of fp16; 0: GradScaler finds it while it runs, 1: none

    @property
    def processes(self) -> int:
        """DataParallel is one process; a parameter server is one more than its workers."""
        world = int(self.plan.world)
        return {"dataparallel": 1, "parameter-server": world + 1}.get(self.plan.engine, world)

    @property
    def micro_batches(self) -> int:
        """That each pipeline works through in one step."""
        return int(self.plan.micro_batches(self.workload.global_batch))


def check_job(job: Job) -> None:
    """Refuse what no plan may be, and what this engine has no code for."""
    plan, model = job.plan, job.model
    check_plan(plan, model, int(plan.world), job.workload)
    check_runs(model)
    check_schedule(plan)
    both = plan.dp * plan.cp
    lacks = {
        "adapters": (bool(plan.adapters), mark("leave them out: run trains every weight")),
        "mtp": (plan.mtp > 0, mark("write 0")),
        "freeze_layers": (plan.freeze_layers > 0, mark("write 0")),
        "offload": (plan.offloads, mark("keep everything on the device")),
        "etp": (plan.etp > 1, mark("write 1")),
        "compute": (plan.compute in ("fp8", "fp4"), mark("write bf16 or fp32")),
        "recompute": (plan.recompute not in ("none", "full"), mark("write none or full")),
        "cp_kind": (plan.cp > 1 and plan.cp_kind != "ring", mark("write ring")),
        mark("tied weights over pipeline stages"): (model.tied and plan.pp > 1, mark("write pp 1")),
        mark("experts split by tp"): (model.is_moe and plan.tp > 1, mark("write tp 1")),
        mark("ep across replicas of HSDP"): (
            plan.ep > 1 and plan.dp_replicate > 1 and plan.zero > 0,
            mark("write dp_replicate 1"),
        ),
        mark("ZeRO 1 of spread experts"): (
            plan.ep > 1 and plan.zero == 1,
            mark("write zero 0, 2 or 3"),
        ),
        mark("fp16 but for whole replicas"): (
            plan.compute == "fp16" and (plan.world != plan.dp or plan.zero > 0),
            mark("write bf16, or tp, pp, cp 1 and zero 0"),
        ),
        say("ep {ep} over {both} replicas", ep=plan.ep, both=both): (
            both % plan.ep != 0,
            mark("write a divisor of dp × cp"),
        ),
    }
    for what, (there, instead) in lacks.items():
        if there:
            raise BadInput(
                say(
                    "run has no code for {what} of this plan; {instead}", what=what, instead=instead
                )
            )
    if plan.pp > 1 and job.micro_batches < plan.pp:
        raise BadInput(
            say(
                "{micro_batches} micro-batches for {pp} stages: torch's schedules need one a stage "
                "at least; write a smaller micro_batch or a larger --global-batch",
                micro_batches=job.micro_batches,
                pp=plan.pp,
            )
        )
    check_engine(job)
    for attention in model.attentions:
        if attention.kv_heads % plan.tp:
            raise BadInput(
                say(
                    "tp {tp}: run repeats no key/value heads, of which {name} has {kv_heads}; "
                    "write a tp that divides them",
                    tp=plan.tp,
                    name=model.name,
                    kv_heads=attention.kv_heads,
                )
            )


def check_engine(job: Job) -> None:
    """Refuse what the older ways of data parallelism cannot do."""
    plan, workers = job.plan, int(job.plan.world)
    if plan.engine != "parameter-server" and job.updates is not Mode.SYNCHRONOUS:
        raise BadInput(
            say(
                "{asked} is for a parameter server; add --dp-engine parameter-server, or leave it "
                "out",
                asked=f"--updates {job.updates.name.lower()}",
            )
        )
    if plan.engine == "ddp":
        return
    if job.checkpoint is not None:
        raise BadInput(
            say(
                "--checkpoint with engine {engine}: run saves those of ddp alone",
                engine=plan.engine,
            )
        )
    if plan.engine == "parameter-server" and plan.compute == "fp16":
        raise BadInput(say("compute fp16 with a parameter server: write bf16 or fp32"))
    if job.updates is Mode.DROPS and not 0 <= job.drop < workers:
        raise BadInput(
            say(
                "--drop {drop}: of {workers} workers at most {most} can be left out",
                drop=job.drop,
                workers=workers,
                most=workers - 1,
            )
        )


def check_runs(model: Model) -> None:
    """Refuse what this network is not written for."""
    for block in model.blocks:
        attention = block.attention
        lacks = {
            mark("layers that keep a state, or one half alone"): not attention
            or block.recurrent is not None
            or len(block.parts) < 2,
            mark("latent attention"): bool(attention and attention.latent),
            mark("attention in windows"): bool(attention and attention.window),
            mark("attention sinks"): bool(attention and attention.sinks),
            mark("norms of queries and keys"): bool(attention and attention.qk_norm != "none"),
            mark("norms behind layers"): block.norms != "pre",
            mark("attention beside the FFN"): block.parallel,
        }
        for what, there in lacks.items():
            if there:
                raise BadInput(
                    say(
                        "{name} has {what}, for which run has no code; take a Llama, GPT-2 or "
                        "Mixtral",
                        name=model.name,
                        what=what,
                    )
                )
    if model.embedding_dim not in (0, model.hidden) or model.embedding_norm:
        raise BadInput(
            say("{name} projects or norms its embedding: run has no code for that", name=model.name)
        )


def check_schedule(plan: Plan) -> None:
    """Refuse a schedule that torch has no code for."""
    if plan.pp > 1 and plan.schedule not in SCHEDULES:
        raise BadInput(
            say(
                "schedule {schedule}: torch.distributed.pipelining has none like it; write gpipe, "
                "1f1b, zb-h1 or zb-v",
                schedule=plan.schedule,
            )
        )
    if plan.pp > 1 and plan.schedule.startswith("zb") and plan.zero >= 2 and plan.dp_shard > 1:
        raise BadInput(
            say(
                "schedule {schedule} with ZeRO {zero}: torch 2.13's pipelining loses gradients of "
                "sharded weights in a backward of two halves; write zero 0 or 1, or 1f1b",
                schedule=plan.schedule,
                zero=plan.zero,
            )
        )
    if plan.pp > 1 and plan.schedule == "gpipe" and plan.vpp > 1:
        raise BadInput(say("schedule gpipe with vpp above 1: write 1f1b, which interleaves"))
