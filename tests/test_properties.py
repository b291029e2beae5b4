"""Properties that must hold for every plan: more never hurts, work is conserved, parts sum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trueflops.catalog import Accelerator, Cluster, cluster
from trueflops.errors import ImpossiblePlan
from trueflops.graph import Op, Pass, compile_program
from trueflops.graph.build import build_block
from trueflops.graph.passes import Degrees, format_named, quantise, shard, traffic_bytes
from trueflops.graph.rules import RULES, work
from trueflops.model import Model, read_model
from trueflops.plan import Plan, check_plan
from trueflops.predict import Term, Trainer, TrainingStep
from trueflops.profile import from_datasheet
from trueflops.workload import Training

MODELS = ("Llama-3.1-8B", "Mixtral-8x7B", "DeepSeek-V2-Lite", "GPT-2-XL")
CLUSTERS = ("16xH100", "16xA100", "16xMI300X", "16xRTX4090")
POWERS = st.sampled_from([1, 2, 4, 8, 16])


@st.composite
def plans(draw: st.DrawFn, model: Model, count: int = 16) -> Plan:
    """A possible plan of a model on `count` accelerators."""
    tp, pp, cp = draw(POWERS), draw(POWERS), draw(st.sampled_from([1, 2, 4]))
    assume(count % (tp * pp * cp) == 0)
    dp = count // (tp * pp * cp)
    replicate = draw(st.sampled_from([d for d in (1, 2, 4, 8, 16) if dp % d == 0]))
    zero = draw(st.sampled_from([0, 1, 2, 3]))
    fraction = st.sampled_from([0.0, 0.5, 1.0])
    schedule: Any = draw(st.sampled_from(["1f1b", "gpipe", "zb-h1", "zb-h2", "dualpipe"]))
    plan = Plan(
        tp=tp,
        pp=pp,
        cp=cp,
        dp_replicate=replicate,
        dp_shard=dp // replicate,
        zero=zero,
        vpp=draw(st.sampled_from([1, 2])) if schedule == "1f1b" and pp > 1 else 1,
        ep=draw(POWERS) if model.is_moe else 1,
        sp=tp > 1 or draw(st.booleans()),
        micro_batch=draw(st.sampled_from([1, 2, 4])),
        schedule=schedule,
        recompute=draw(st.sampled_from(["none", "selective", "products", "full"])),
        recompute_layers=draw(st.sampled_from([1.0, 7.0, np.inf])),
        offload_optimizer=draw(fraction),
        offload_parameters=draw(fraction),
        offload_activations=draw(fraction),
        flash=draw(st.booleans()),
        fused=draw(st.booleans()),
        overlap=draw(st.booleans()),
        optimizer=draw(st.sampled_from(["adamw", "sgd", "muon"])),
        cp_kind=draw(st.sampled_from(["ring", "all-to-all"])),
    )
    try:
        check_plan(plan, model, count, Training(4096, 256, 1e9))
    except ImpossiblePlan:
        assume(False)
    return plan


@st.composite
def questions(draw: st.DrawFn) -> tuple[Model, Cluster, Plan]:
    model = read_model(draw(st.sampled_from(MODELS)))
    return model, cluster(draw(st.sampled_from(CLUSTERS))), draw(plans(model))


def predict(model: Model, where: Cluster, plan: Plan) -> TrainingStep:
    profile = from_datasheet(where.accelerator)
    return Trainer(model, Training(4096, 256, 1e9), where, profile).predict_one(plan)


def better(chip: Accelerator, paths: tuple[str, ...], factor: float) -> Accelerator:
    values = dict(chip.values)
    for path, value in chip.values.items():
        if value and path.startswith(paths):
            values[path] = value * factor
    return replace(chip, values=values)


@settings(max_examples=120, deadline=None)
@given(questions(), st.sampled_from(["memory.bandwidth", "peak.", "links"]), st.floats(1.05, 8.0))
def test_more_bandwidth_or_flops_never_makes_a_plan_slower(
    question: tuple[Model, Cluster, Plan], what: str, factor: float
) -> None:
    model, where, plan = question
    if what == "links":
        tiers = tuple(replace(t, bandwidth=t.bandwidth * factor) for t in where.tiers)
        host = (where.host_bandwidth or 1e9) * factor
        more = replace(where, tiers=tiers, host_bandwidth=host)
    else:
        # A faster chip's measured matmul rate rises with its peak.
        paths = (what, "measured.") if what == "peak." else (what,)
        more = replace(where, accelerator=better(where.accelerator, paths, factor))
    before, after = predict(model, where, plan), predict(model, more, plan)
    assert float(after.step.value) <= float(before.step.value) * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(questions(), st.floats(1.0, 8.0))
def test_more_memory_never_makes_a_plan_unfit(
    question: tuple[Model, Cluster, Plan], factor: float
) -> None:
    model, where, plan = question
    more = replace(where, accelerator=better(where.accelerator, ("memory.capacity",), factor))
    before, after = predict(model, where, plan), predict(model, more, plan)
    assert bool(after.fits) >= bool(before.fits)
    assert float(after.step.value) == float(before.step.value)


@settings(max_examples=100, deadline=None)
@given(questions())
def test_parts_sum_and_are_never_negative(question: tuple[Model, Cluster, Plan]) -> None:
    def walk(term: Term) -> None:
        assert float(term.value) >= 0.0, term.name
        if term.parts:
            assert float(term.value) == pytest.approx(sum(float(p.value) for p in term.parts))
        for part in term.parts:
            walk(part)

    step = predict(*question)
    walk(step.step)
    walk(step.memory)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(MODELS),
    POWERS,
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2]),
    st.booleans(),
    st.booleans(),
)
def test_flop_summed_over_ranks_is_conserved(
    name: str, tp: int, cp: int, ep: int, etp: int, flash: bool, ring: bool
) -> None:
    """Every rank's matmuls together are those of the whole model, however it is cut."""
    model = read_model(name)
    heads = min(attention.kv_heads for attention in model.attentions)
    assume(heads % tp == 0)
    if not model.is_moe:
        ep = etp = 1
    run = Pass(batch=2, seq=1024)

    def matrix_flop(plan: Plan) -> float:
        program = compile_program(model, plan.but(flash=flash), run)
        pieces = [(b, model.pattern.count(i)) for i, b in enumerate(program.blocks)]
        return sum(
            times * float(work(node).flop)
            for graph, times in [*pieces, (program.head, 1)]
            for node in graph
            if isinstance(node, Op) and RULES[node.kind].matrix
        )

    kind: Any = "ring" if ring else "all-to-all"
    cut = Plan(tp=tp, sp=True, cp=cp, cp_kind=kind, ep=ep, etp=etp)
    assert matrix_flop(cut) * tp * cp == pytest.approx(matrix_flop(Plan(sp=True)), rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(MODELS), st.sampled_from([1, 8, 512]), st.sampled_from([1, 2]))
def test_halving_the_width_never_raises_bytes(name: str, seq: int, batch: int) -> None:
    model = read_model(name)
    for block in model.blocks:
        wide = build_block(model, block, Pass(batch, seq, bits=32.0))
        half = build_block(model, block, Pass(batch, seq, bits=16.0))
        assert float(traffic_bytes(half.forward)) <= float(traffic_bytes(wide.forward))
        sizes = [
            float(traffic_bytes(quantise(half, format_named(f)).forward))
            for f in ("bf16", "w8a16", "int4")
        ]
        assert sizes == sorted(sizes, reverse=True)


@settings(max_examples=40, deadline=None)
@given(questions())
def test_narrower_states_never_take_more_memory(question: tuple[Model, Cluster, Plan]) -> None:
    model, where, plan = question
    plan = plan.but(offload_parameters=0.0)  # what stays is then the fp32 master copy alone
    wide = predict(model, where, plan.but(parameter_dtype="fp32", gradient_dtype="fp32"))
    half = predict(model, where, plan.but(parameter_dtype="bf16", gradient_dtype="bf16"))
    assert float(half.memory.value) <= float(wide.memory.value)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(MODELS), st.sampled_from([2, 4, 8]), st.booleans())
def test_sharding_never_makes_a_rank_do_more(name: str, tp: int, sp: bool) -> None:
    model = read_model(name)
    heads = min(attention.kv_heads for attention in model.attentions)
    assume(heads % tp == 0)
    for block in model.blocks:
        graph = build_block(model, block, Pass(1, 1024))
        whole, part = shard(graph, Degrees()), shard(graph, Degrees(tp=tp, sp=sp))
        assert float(traffic_bytes(part.forward)) <= float(traffic_bytes(whole.forward))
        for a, b in zip(whole.weights, part.weights, strict=True):
            assert float(b.elements) <= float(a.elements)
