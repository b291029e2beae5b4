"""All passes in order: from a Model, a Plan and a Pass to the Program that one rank runs."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np

from trueflops.graph.build import (
    TRAIN_ALL,
    Pass,
    Tuning,
    build_block,
    build_embedding,
    build_head,
)
from trueflops.graph.formulas import Sheet
from trueflops.graph.ir import Graph
from trueflops.graph.liveness import Live
from trueflops.graph.passes import (
    Degrees,
    Format,
    autocast,
    dequantise,
    differentiate,
    format_named,
    fuse,
    merge_steps,
    quantise,
    recompute,
    run_beside,
    shard,
    spread_keys,
    write_out,
)
from trueflops.graph.template import Template
from trueflops.model import Model, read_targets
from trueflops.plan import BYTES, Plan
from trueflops.sizes import Size
from trueflops.units import BITS_PER_BYTE

AXES: Final = ("tp", "cp", "ep", "etp")
SHAPING: Final = (*AXES, "micro_batch")  # axes first: predict/costs relies on it
"""The numeric plan fields that change the graph of a rank; all others only combine graphs."""
STRUCTURE: Final = (
    "sp", "cp_kind", "flash", "fused", "loss", "implementation", "recompute", "compute",
    "dispatch", "adapters", "lora_rank", "lora_targets", "lora_dropout", "lora_fused",
    "adapter_dtype", "base_format", "residual_dtype", "parameter_dtype", "mixed", "dcp",
)  # fmt: skip
"""The other plan fields that do."""
Structure = tuple[Any, ...]  # their values
_STRUCTURE_OF: Final = attrgetter(*STRUCTURE)
_DEGREES_OF: Final = attrgetter(*AXES)
_SIZES: Final = ("batch", "seq", "past")
_KIND_OF: Final = attrgetter(*(field.name for field in fields(Pass) if field.name not in _SIZES))

MOST_REMEMBERED: Final = 64  # programs, of 30 to 70 kB each
MOST_TEMPLATES: Final = 128  # of some 100 kB each

NARROW: Final = {"fp8": "fp8", "fp4": "nvfp4"}
"""Training dtypes below 16 bits, and the format in which their matmuls run."""


class Alive(NamedTuple):
    """Of each of a program's graphs."""

    blocks: tuple[Live, ...]
    recomputing: tuple[Live, ...]
    embedding: Live
    head: Live


class Split(NamedTuple):
    """What of a plan's degrees decides which collectives there are."""

    axes: tuple[str, ...]  # of more than one rank
    experts_within_tp: bool  # see Degrees


@dataclass(frozen=True)
class Program:
    """What one rank can be asked to run: each distinct block, the embedding, the head.

    A block comes in two forms: as it runs, and `recomputing`, the same with recomputation, for the
    layers that recompute. `alive` is what is alive while each of these runs.
    """

    blocks: tuple[Graph, ...]
    recomputing: tuple[Graph, ...]
    embedding: Graph
    head: Graph
    alive: Alive


def compile_program(model: Model, plan: Plan, run: Pass, weights: Format | None = None) -> Program:
    """Lay out, quantise, shard, fuse; then, for training, differentiate and recompute.

    No pass looks at a size, but for the compiler's: programs that differ in sizes alone are lowered
    once, with formulas in their place. A program knows no chip, so one that was compiled for one
    chip is remembered for the next.
    """
    structure, degrees = _STRUCTURE_OF(plan), _DEGREES_OF(plan)
    if any(isinstance(size, np.ndarray) for size in (*degrees, run.batch, run.seq, run.past)):
        return _program(model, structure, degrees, run, weights)
    return _remembered(model, structure, degrees, run, weights)


def _program(
    model: Model, structure: Structure, degrees: tuple[Size, ...], run: Pass, weights: Format | None
) -> Program:
    """What is lowered already, with these sizes."""
    tp, _, ep, etp = degrees
    split = Split(
        tuple(axis for axis, degree in zip(AXES, degrees, strict=True) if np.any(degree != 1)),
        experts_within_tp=bool(np.all(ep * etp <= tp)),
    )
    like = Pass(0.0, 0.0, 0.0, *_KIND_OF(run))
    given = dict(zip(AXES, degrees, strict=True))
    graphs, live = _template(model, structure, split, like, weights).fill(
        {**given, "batch": run.batch, "seq": run.seq, "past": run.past}
    )
    kinds = len(model.blocks)  # two graphs of each, or one where nothing runs again
    return Program(
        blocks=tuple(graphs[2 : 2 + kinds]),
        recomputing=tuple(graphs[-kinds:]),
        embedding=graphs[0],
        head=graphs[1],
        alive=Alive(tuple(live[2 : 2 + kinds]), tuple(live[-kinds:]), live[0], live[1]),
    )


_remembered = lru_cache(maxsize=MOST_REMEMBERED)(_program)


@lru_cache(maxsize=MOST_TEMPLATES)
def _template(
    model: Model, structure: Structure, split: Split, run: Pass, weights: Format | None
) -> Template:
    """The program of all plans with this structure, at whatever sizes."""
    plan = Plan(**dict(zip(STRUCTURE, structure, strict=True)))
    sheet, graphs = _lowered(model, plan.but(recompute="none"), split, run, weights)
    if run.training and plan.recompute != "none":
        early = plan.implementation != "library"
        again = [recompute(graph, plan.recompute, stops_early=early) for graph in graphs[2:]]
        graphs = (*graphs, *again)
    return Template(sheet, graphs, compiles=plan.implementation == "compiled")


@lru_cache(maxsize=MOST_TEMPLATES)
def _lowered(
    model: Model, plan: Plan, split: Split, run: Pass, weights: Format | None
) -> tuple[Sheet, tuple[Graph, ...]]:
    """Embedding, head and blocks with unknown sizes, in which nothing runs again."""
    sheet = Sheet()
    plan = plan.but(**{axis: sheet.unknown(axis) for axis in split.axes})
    batch, seq, past = map(sheet.unknown, _SIZES)
    run = replace(run, batch=batch, seq=seq, past=past)
    return sheet, _lower(model, plan, split, run, weights)


def _lower(
    model: Model, plan: Plan, split: Split, run: Pass, weights: Format | None
) -> tuple[Graph, ...]:
    """Embedding, head and blocks as a framework issues them."""
    chosen = max((b.experts.per_token for b in model.blocks if b.experts), default=0)
    by = Degrees(
        tp=plan.tp,
        sp=plan.sp or plan.tp == 1,  # one rank of tp holds all tokens, as it would with sp
        cp=plan.cp,
        cp_kind=plan.cp_kind,
        ep=plan.ep,
        etp=plan.etp,
        copies_once=float(chosen) if plan.dispatch == "deduplicated" else 0.0,
        gathered_once=1.0 if run.training else float(max(chosen, 1)),
        experts_within_tp=split.experts_within_tp,
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
        masks = run.sparse is not None and run.sparse.masks
        graph = spread_keys(shard(graph, by), plan.dcp, decoding=run.decoding, masks=masks)
        if freezes:
            graph = dequantise(graph, packed)
        graph = fuse(
            graph,
            flash=plan.flash,
            chains=plan.fused and not written,
            loss=plan.loss in ("fused", "chunked"),
            narrow_loss=plan.loss == "narrow",
            experts=not run.training,
            decoding=run.decoding,
        )
        if run.shared_beside:
            graph = run_beside(graph, "shared")
        if plan.autocasts and run.training:
            graph = autocast(graph, apart=written)
        if written:
            graph = write_out(
                graph,
                compiled=compiled,
                autocast=plan.autocasts,
                wide_softmax=any(a.rope for a in model.attentions),
            )
        if run.training:
            graph = differentiate(graph, eager=written, carries=carries)
        return merge_steps(graph)

    blocks = [
        lower(build_block(model, block, run, f"block {i}", tuning), carries=not block.frozen)
        for i, block in enumerate(model.blocks)
    ]
    ends = (lower(build(model, run, tuning)) for build in (build_embedding, build_head))
    return (*ends, *blocks)


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
