"""All passes in order: from a Model, a Plan and a Pass to the Program that one rank runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

import numpy as np

from trueflops.graph.build import (
    TRAIN_ALL,
    Pass,
    Tuning,
    build_block,
    build_embedding,
    build_head,
)
from trueflops.graph.ir import Graph
from trueflops.graph.liveness import Live, liveness
from trueflops.graph.passes import (
    Degrees,
    Format,
    autocast,
    compile_graph,
    dequantise,
    differentiate,
    format_named,
    fuse,
    merge_steps,
    quantise,
    recompute,
    shard,
    write_out,
)
from trueflops.model import Model, read_targets
from trueflops.plan import BYTES, Plan
from trueflops.units import BITS_PER_BYTE

SHAPING: Final = ("tp", "cp", "ep", "etp", "micro_batch")  # axes first: predict/costs relies on it
"""The numeric plan fields that change the graph of a rank; all others only combine graphs."""
STRUCTURE: Final = (
    "sp", "cp_kind", "flash", "fused", "loss", "implementation", "recompute", "compute",
    "dispatch", "adapters", "lora_rank", "lora_targets", "lora_dropout", "lora_fused",
    "adapter_dtype", "base_format", "residual_dtype", "parameter_dtype", "mixed",
)  # fmt: skip
"""The other plan fields that do."""

MOST_REMEMBERED: Final = 256  # programs, of some 100 kB each: sixteen plans on sixteen chips

NARROW: Final = {"fp8": "fp8", "fp4": "nvfp4"}
"""Training dtypes below 16 bits, and the format in which their matmuls run."""


class Alive(NamedTuple):
    """Of each of a program's graphs."""

    blocks: tuple[Live, ...]
    recomputing: tuple[Live, ...]
    embedding: Live
    head: Live


@dataclass(frozen=True)
class Program:
    """What one rank can be asked to run: each distinct block, the embedding, the head.

    A block comes in two forms: as it runs, and `recomputing`, the same with recomputation, for the
    layers that recompute. `plain` is the program in which none does.
    """

    blocks: tuple[Graph, ...]
    recomputing: tuple[Graph, ...]
    embedding: Graph
    head: Graph
    plain: Program | None = None

    @cached_property
    def alive(self) -> Alive:
        """What is alive while each of its graphs runs: remembered with it, whatever the chip."""
        if self.plain is not None:
            return self.plain.alive._replace(recomputing=tuple(map(liveness, self.recomputing)))
        whole = tuple(map(liveness, self.blocks))
        return Alive(whole, whole, liveness(self.embedding), liveness(self.head))

    def map(self, change: Callable[[Graph], Graph]) -> Program:
        """A plain program with every graph changed."""
        blocks = tuple(map(change, self.blocks))
        return Program(blocks, blocks, change(self.embedding), change(self.head))


def compile_program(model: Model, plan: Plan, run: Pass, weights: Format | None = None) -> Program:
    """Lay out, quantise, shard, fuse; then, for training, differentiate and recompute.

    A program knows no chip, so one that was compiled for one chip is remembered for the next.
    """
    fields = {name: getattr(plan, name) for name in (*SHAPING, *STRUCTURE)}
    sizes = (*(fields[name] for name in SHAPING), run.batch, run.seq, run.past)
    if any(isinstance(size, np.ndarray) for size in sizes):
        return _finish(_lower(model, plan, run, weights), plan, run)
    return _finished(model, Plan(**fields), run, weights)


def _finish(lowered: Program, plan: Plan, run: Pass) -> Program:
    """What recomputation and a compiler make of a program: the first of its blocks alone."""
    compiled = plan.implementation == "compiled"
    plain = lowered.map(compile_graph) if compiled else lowered
    if not run.training or plan.recompute == "none":
        return plain
    early = plan.implementation != "library"
    again = tuple(recompute(g, plan.recompute, stops_early=early) for g in lowered.blocks)
    recomputing = tuple(map(compile_graph, again)) if compiled else again
    return replace(plain, recomputing=recomputing, plain=plain)


def _lower(model: Model, plan: Plan, run: Pass, weights: Format | None) -> Program:
    """The program in which nothing runs again, as a framework issues it."""
    # One rank of tp holds all tokens, as it would with sequence parallelism.
    alone = not isinstance(plan.tp, np.ndarray) and plan.tp == 1
    chosen = max((b.experts.per_token for b in model.blocks if b.experts), default=0)
    by = Degrees(
        tp=plan.tp,
        sp=plan.sp or alone,
        cp=plan.cp,
        cp_kind=plan.cp_kind,
        ep=plan.ep,
        etp=plan.etp,
        copies_once=float(chosen) if plan.dispatch == "deduplicated" else 0.0,
        gathered_once=1.0 if run.training else float(max(chosen, 1)),
    )
    if weights is None and run.training and plan.compute in NARROW:
        weights = format_named(NARROW[plan.compute])

    written = plan.implementation != "library"
    compiled = written and plan.implementation == "compiled"

    tuning = tuning_of(plan) if run.training else TRAIN_ALL
    packed = plan.base_format if plan.adapters == "qlora" else ""
    freezes = run.training and (tuning.freezes or any(block.frozen for block in model.blocks))

    def lower(graph: Graph, carries: bool = True) -> Graph:
        if weights is not None:
            graph = quantise(graph, weights, training=run.training)
        graph = shard(graph, by)
        if freezes:
            graph = dequantise(graph, packed)
        graph = fuse(
            graph,
            flash=plan.flash,
            chains=plan.fused and not written,
            loss=plan.loss != "plain",
            experts=not run.training,
            decoding=run.decoding,
        )
        if plan.autocasts and run.training:
            graph = autocast(graph, apart=written)
        if written:
            graph = write_out(
                graph,
                compiled=compiled,
                autocast=plan.autocasts,
                wide_softmax=model.blocks[0].attention.rope,
            )
        if run.training:
            graph = differentiate(graph, eager=written, carries=carries)
        return merge_steps(graph)

    blocks = tuple(
        lower(build_block(model, block, run, f"block {i}", tuning), carries=not block.frozen)
        for i, block in enumerate(model.blocks)
    )
    embedding, head = (lower(build(model, run, tuning)) for build in (build_embedding, build_head))
    return Program(blocks, blocks, embedding, head)


def tuning_of(plan: Plan) -> Tuning:
    """What a plan trains."""
    kept = BYTES[plan.stream_dtype or plan.parameter_dtype] * BITS_PER_BYTE
    if not plan.adapters:
        return Tuning(frozen_bits=kept)
    return Tuning(
        freezes=True,
        rank=plan.lora_rank,
        targets=read_targets(plan.lora_targets),
        dropout=plan.lora_dropout,
        bits=BYTES[plan.adapter_dtype] * BITS_PER_BYTE,
        frozen_bits=kept,
        casts=plan.adapters == "lora",  # PEFT's layers of packed weights leave that to autocast
        clones=plan.adapters == "qlora" and plan.base_format == "nf4",
        returns_wide=plan.adapters == "qlora" and plan.base_format == "nf4",
        fused=plan.lora_fused,
    )


_lowered = lru_cache(maxsize=MOST_REMEMBERED)(_lower)


@lru_cache(maxsize=MOST_REMEMBERED)
def _finished(model: Model, plan: Plan, run: Pass, weights: Format | None) -> Program:
    return _finish(_lowered(model, plan.but(recompute="none"), run, weights), plan, run)
