"""Ring attention runs in steps: what stays as it was, and what the steps cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trueflops.catalog import cluster
from trueflops.clock import Clock
from trueflops.clock.works import steps_of
from trueflops.graph.build import Pass
from trueflops.graph.ir import Collective, Op
from trueflops.graph.kinds import Kind
from trueflops.graph.program import Program, compile_program
from trueflops.graph.rules import work
from trueflops.model import Model, read_model
from trueflops.plan import Plan
from trueflops.predict import Trainer
from trueflops.profile import profile_of
from trueflops.workload import Training

LLAMA = read_model("Llama-3.1-8B")
GPT = read_model("Megatron-529.6B")  # drops a tenth of its attention
WHERE = cluster("8xH100")
CLOCK = Clock(WHERE, profile_of(WHERE.accelerator, "megatron"))
SEQ = 8192


def ops(model: Model, plan: Plan) -> list[Op]:
    program: Program = compile_program(model, plan, Pass(1.0, float(SEQ)))
    return [node for node in program.blocks[0] if isinstance(node, Op)]


def attention(model: Model, kind: Kind, plan: Plan) -> Op:
    (found,) = (op for op in ops(model, plan) if op.kind is kind)
    return found


@pytest.mark.parametrize("kind", [Kind.ATTENTION, Kind.ATTENTION_BACKWARD])
def test_a_ring_does_the_same_work_in_more_kernels(kind: Kind) -> None:
    whole, ring = (attention(LLAMA, kind, Plan(cp=cp)) for cp in (1, 8))
    assert 8.0 * work(ring).flop == pytest.approx(work(whole).flop)
    assert (steps_of(whole), steps_of(ring)) == (1.0, 8.0)
    # Shorter kernels fill the chip less: never faster than an eighth of the whole.
    alone, in_steps = CLOCK.price_ops([whole, ring])
    assert in_steps.seconds > alone.seconds / 8.0


def test_every_step_is_merged_forward_and_backward() -> None:
    merged = [op for op in ops(LLAMA, Plan(cp=4)) if op.name.endswith(".merge")]
    forward, backward = (work(op) for op in merged)
    out = attention(LLAMA, Kind.ATTENTION, Plan(cp=4)).outputs[0].bytes
    keys = out / 4.0  # of eight heads for thirty-two
    assert forward.bytes_read == pytest.approx(4 * 3 * out)
    assert backward.bytes_read == pytest.approx(4 * 3 * (out + (keys + keys) / 2.0))


def test_without_a_ring_nothing_is_merged() -> None:
    for plan in (Plan(cp=1), Plan(cp=4, cp_kind="all-to-all")):
        assert not [op for op in ops(LLAMA, plan) if op.name.endswith(".merge")]


def test_the_host_issues_every_step_and_every_round() -> None:
    (attend,) = (op for op in ops(LLAMA, Plan(cp=8)) if op.kind is Kind.ATTENTION)
    once = CLOCK.host.node_seconds(attention(LLAMA, Kind.ATTENTION, Plan(cp=1)), "forward")
    assert CLOCK.host.node_seconds(attend, "forward") > once
    ring, pair = (rounds(Plan(cp=cp)) for cp in (8, 2))
    assert ring == pytest.approx(7 * pair)


def rounds(plan: Plan) -> float:
    """Seconds of the host for handing keys and values on."""
    block = compile_program(LLAMA, plan, Pass(1.0, float(SEQ))).blocks[0]
    (ring,) = (n for n in block.forward if isinstance(n, Collective) and n.hides)
    return float(CLOCK.host.node_seconds(ring, "forward"))


def test_many_plans_at_once_are_as_one_by_one() -> None:
    trainer = Trainer(LLAMA, Training(SEQ, 8, 8.0 * SEQ), WHERE, profile_of(WHERE.accelerator))
    degrees = np.array([1, 2, 4, 8])
    both = trainer.predict(Plan(cp=degrees, dp_shard=8 // degrees, zero=1))
    for i, cp in enumerate(degrees):
        one = trainer.predict_one(Plan(cp=int(cp), dp_shard=8 // int(cp), zero=1))
        assert float(np.asarray(both.step.value)[i]) == pytest.approx(float(one.step.value))


def test_fused_attention_draws_its_dropout() -> None:
    drawn = attention(GPT, Kind.ATTENTION, Plan())
    assert drawn.facts["drawn"] == 1.0
    assert "drawn" not in attention(LLAMA, Kind.ATTENTION, Plan()).facts
    kept = {name: fact for name, fact in drawn.facts.items() if name != "drawn"}
    slow, fast = CLOCK.price_ops([drawn, replace(drawn, facts=kept)])
    assert slow.seconds > fast.seconds
