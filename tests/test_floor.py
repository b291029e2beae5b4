"""No step beats its busiest link, lane or engine, whatever plan, schedule and network.

The floors are computed here from the paper's formulas, not from the code under test: what a rank
of a dense model must send, divided by what its link carries.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from test_properties import plans
from trueflops.catalog import Cluster, cluster
from trueflops.model import Model, read_model
from trueflops.plan import BYTES, Plan
from trueflops.predict import Trainer, TrainingStep
from trueflops.predict.money.bill import training_bill
from trueflops.profile import frameworks, from_datasheet, profile_of
from trueflops.report.waterfall import training_waterfall
from trueflops.workload import Training

LLAMA = read_model("Llama-3.1-8B")
ASKED = Training(4096, 256, 1e9)
NODE = 8  # accelerators, of two nodes


def joined(inside: float, between: float, host: float = 64e9) -> Cluster:
    """Two nodes of eight H100s with links of one's own, in bytes a second of one accelerator."""
    where = cluster("16xH100")
    inner, outer = where.tiers
    tiers = (replace(inner, bandwidth=inside), replace(outer, bandwidth=between))
    return replace(where, tiers=tiers, host_bandwidth=host)


def predict(where: Cluster, plan: Plan, model: Model = LLAMA) -> TrainingStep:
    profile = from_datasheet(where.accelerator)
    return Trainer(model, ASKED, where, profile).predict_one(plan)


def crossing(group: Any, stride: Any) -> tuple[Any, Any]:
    """How many of a group share a node, and how many nodes it spans."""
    inner = min(max(NODE // stride, 1), group)
    return inner, group / inner


def sent_by_pipeline(plan: Plan, model: Model) -> tuple[Any, Any]:
    """Bytes that the busiest rank hands to other stages, inside its node and across the network.

    Activations go on and gradients come back: vpp times each for every micro-batch, less one where
    there are two stages.
    """
    if plan.pp == 1:
        return 0.0, 0.0
    boundary = plan.micro_batch * ASKED.seq / plan.cp * model.hidden * 2.0 / plan.tp
    m = float(plan.micro_batches(ASKED.global_batch))
    inner, nodes = crossing(plan.pp, plan.tp * plan.cp * plan.dp)
    both = m * boundary * (2 * plan.vpp - (plan.pp == 2))
    one = m * boundary * plan.vpp
    inside = 0.0 if inner == 1 else both if inner >= 3 or nodes == 1 else one
    between = 0.0 if nodes == 1 else both if inner == 1 else one
    return inside, between


def sent_by_replicas(plan: Plan, model: Model) -> tuple[Any, Any]:
    """Bytes of gradients that a rank sends once a step, at least: those of its mean stage.

    A ring or a hierarchy over n ranks sends (n−1)/n of a tensor to scatter it, and as much to
    gather; out of a node of k of them only 1/k of that through each.
    """
    parameters = model.parameter_count / (plan.tp * plan.pp)
    bytes_ = parameters * BYTES[plan.gradient_dtype]
    if plan.zero == 0:
        inner, nodes = crossing(plan.dp * plan.cp, plan.tp)
        twice = 2.0
    else:  # scattered over the ranks that share; gathering weights is counted for none
        inner, nodes = crossing(plan.dp_shard * plan.cp, plan.tp)
        twice = 1.0
    return (
        twice * bytes_ * (inner - 1) / inner,
        twice * bytes_ * (nodes - 1) / nodes / inner,
    )


def sent_between_replicas(plan: Plan, model: Model) -> tuple[Any, Any]:
    """HSDP: each rank's shard of the gradients is all-reduced between the replicas."""
    if plan.zero == 0 or plan.dp_replicate == 1:
        return 0.0, 0.0
    ways = plan.dp_shard * plan.cp
    own = model.parameter_count / (plan.tp * plan.pp) / ways * BYTES[plan.gradient_dtype]
    inner, nodes = crossing(plan.dp_replicate, plan.tp * ways)
    return 2.0 * own * (inner - 1) / inner, 2.0 * own * (nodes - 1) / nodes / inner


def sent_by_tensor_parallelism(plan: Plan, model: Model) -> tuple[Any, Any]:
    """Two all-reduces (or gathers and scatters) a layer forward, two back (Shoeybi 2019)."""
    whole = plan.micro_batch * ASKED.seq / plan.cp * model.hidden * 2.0
    m = float(plan.micro_batches(ASKED.global_batch))
    inner, nodes = crossing(plan.tp, 1)
    each = m * model.layers / plan.pp * 4 * 2.0 * whole
    return each * (inner - 1) / inner, each * (nodes - 1) / nodes / inner


def link_floor(plan: Plan, model: Model, where: Cluster) -> Any:
    """Seconds of the busiest link of a rank."""
    sent = np.array(
        [
            sent_by_pipeline(plan, model),
            sent_by_replicas(plan, model),
            sent_between_replicas(plan, model),
            sent_by_tensor_parallelism(plan, model),
        ]
    ).sum(axis=0)
    return max(bytes_ / tier.bandwidth for bytes_, tier in zip(sent, where.tiers, strict=True))


RATES = st.floats(7.0, 12.0).map(lambda exponent: 10.0**exponent)  # 10 MB/s to 1 TB/s


@settings(max_examples=150, deadline=None)
@given(plans(LLAMA), RATES, RATES, RATES)
def test_no_step_is_shorter_than_its_busiest_link(
    plan: Plan, inside: float, between: float, host: float
) -> None:
    where = joined(inside, between, host)
    step = predict(where, plan)
    floor = link_floor(plan, LLAMA, where)
    assert float(step.step.value) >= floor * (1 - 1e-6)
    assert float(step.step.estimate.low) >= floor * (1 - 1e-6)


@settings(max_examples=60, deadline=None)
@given(plans(LLAMA), st.sampled_from([1e8, 1e9, 64e9]))
def test_no_step_is_shorter_than_what_it_offloads_takes_one_way(plan: Plan, host: float) -> None:
    assume(plan.offload_optimizer)
    where = joined(450e9, 50e9, host)
    made = LLAMA.parameter_count / (plan.tp * plan.pp) * BYTES[plan.trained_dtype]
    ways = plan.dp_shard * plan.cp if plan.zero else 1
    floor = plan.offload_optimizer * made / ways / host  # states stay; new weights come back
    assert float(predict(where, plan).step.value) >= floor


@settings(max_examples=100, deadline=None)
@given(plans(LLAMA), RATES)
def test_no_interval_reaches_beyond_what_is_achievable(plan: Plan, between: float) -> None:
    step = predict(joined(450e9, between), plan)
    bill = training_bill(step)
    for estimate in (bill.mfu, bill.hfu, bill.tokens_per_second, bill.step_seconds):
        assert estimate.low <= estimate.value <= estimate.high
    assert bill.hfu.high <= 1.0 + 1e-9
    assert bill.mfu.high <= bill.hfu.high + 1e-9


@pytest.mark.parametrize(
    "plan",
    [
        Plan(pp=2, dp_replicate=8, vpp=8),
        Plan(pp=4, dp_replicate=4, schedule="dualpipe"),
        Plan(dp_replicate=2, dp_shard=8, zero=3),
        Plan(cp=2, pp=2, vpp=8, dp_shard=4, zero=1),
    ],
    ids=["interleaved", "dualpipe", "hsdp", "context and pipeline"],
)
def test_a_slow_network_is_never_hidden_whole(plan: Plan) -> None:
    """Two nodes joined by 1 GbE: all of these once cost the same as on a fast network."""
    slow, fast = joined(450e9, 0.125e9 / NODE), joined(450e9, 400e9 / NODE)
    assert float(predict(slow, plan).step.value) > 3 * float(predict(fast, plan).step.value)
    assert float(predict(slow, plan).step.value) >= link_floor(plan, LLAMA, slow)


def test_stage_boundaries_over_one_gigabit() -> None:
    """A plan of cp 2 · pp 2 · vpp 8 moves 515 GB out of each node: over 4,000 s at 0.125 GB/s."""
    plan = Plan(cp=2, pp=2, vpp=8, dp_shard=4, zero=1)
    where = joined(450e9, 0.125e9 / NODE)
    profile = from_datasheet(where.accelerator)
    trainer = Trainer(LLAMA, Training(8192, 512, 1e9), where, profile)
    assert float(trainer.predict_one(plan).step.value) > 4000.0


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["Llama-3.1-8B", "Mixtral-8x7B", "GPT-2-XL"]),
    st.sampled_from(["8xH100", "8xL40S", "8xMI300X", "8xGaudi2", "8xTPUv5e"]),
    st.sampled_from(["none", "full"]),
    st.sampled_from([1024, 8192]),
)
def test_the_waterfall_never_rises_and_ends_below_what_is_achievable(
    name: str, on: str, recompute: Any, seq: int
) -> None:
    where, model = cluster(on), read_model(name)
    asked = Training(seq, 256, 1e9)
    trainer = Trainer(model, asked, where, profile_of(where.accelerator))
    step = trainer.predict_one(Plan(dp_shard=8, zero=3, recompute=recompute, micro_batch=2))
    falls = [fall.flop_per_second for fall in training_waterfall(step)]
    assert falls == sorted(falls, reverse=True)
    achievable = falls[2]
    peak = where.accelerator.peak_flop_per_second("bf16")
    law = trainer.profile.curve("matmul")
    if law.origin not in ("derived", "assumed"):  # there nobody knows what is achievable
        assert float(training_bill(step).mfu.high) <= achievable / peak * (1 + 1e-9)
    assert float(training_bill(step).hfu.high) <= 1 + 1e-9


def test_gradients_leave_with_the_states_that_are_offloaded() -> None:
    """13B trains on one V100 of 32 GB (ZeRO-Offload, arXiv 2101.06840 §6.2.1)."""
    where, model = cluster("1xV100-SXM2-32GB"), read_model("OPT-13B")
    narrow: dict[str, Any] = dict.fromkeys(("compute", "parameter_dtype", "gradient_dtype"), "fp16")
    plan = Plan(recompute="full", offload_optimizer=1.0, **narrow)
    trainer = Trainer(model, Training(512, 4, 1e9), where, profile_of(where.accelerator))
    step = trainer.predict_one(plan)
    assert step.fits
    one_layer = model.parameter_count / model.layers * 2.0
    assert float(step.memory["gradients"].value) < 2.0 * one_layer
    assert float(step.host_bytes) == pytest.approx(model.parameter_count * (12.0 + 2.0), rel=0.01)


def test_the_busiest_stage_and_engine_have_the_floor_too() -> None:
    """Experts on an uneven stage, and a parameter server whose lane also carries activations."""
    where = joined(450e6, 50e6)
    mixtral = read_model("Mixtral-8x7B")
    plan = Plan(
        pp=4, dp_shard=4, zero=1, ep=4, schedule="dualpipe", first_stage_layers=1,
        last_stage_layers=1,
    )  # fmt: skip
    step = predict(where, plan, mixtral)
    # Each token's two copies, three in four of them for another rank: to the expert and back,
    # forward and backward, in each of the 15 layers of the largest stages.
    sent = 4 * 0.75 * 2 * plan.micro_batch * ASKED.seq * mixtral.hidden * 2.0 * 15
    tier = where.tiers[0].bandwidth
    m = float(plan.micro_batches(ASKED.global_batch))
    assert float(step.step.value) >= m * sent / tier

    one_node = cluster("8xH100")
    server = Plan(dp_replicate=8, engine="parameter-server")
    alone = predict(one_node, server)
    both = predict(one_node, server.but(offload_activations=1.0))
    assert one_node.host_bandwidth is not None
    weights = LLAMA.parameter_count * 2.0 * 8
    kept = float(both.host_bytes) * 32  # micro-batches of 256 sequences over 8 replicas
    assert float(both.step.value) > float(alone.step.value)
    assert float(both.step.value) >= (weights + kept) / one_node.host_bandwidth


@pytest.mark.parametrize("compute", ["tf32", "fp32", "fp16", "fp8"])
def test_every_format_trains_under_every_framework(compute: str) -> None:
    where = cluster("8xH100")
    wide = {"fp16": "fp16", "fp8": "bf16"}.get(compute, "fp32")
    plan = Plan(dp_shard=8, zero=3, compute=compute, parameter_dtype=wide, gradient_dtype=wide)
    for framework in frameworks(serving=False):
        profile = profile_of(where.accelerator, framework)
        assert float(Trainer(LLAMA, ASKED, where, profile).predict_one(plan).step.value) > 0.0


def test_a_parameter_server_of_two_nodes_waits_for_the_network() -> None:
    """Eight replicas of another node send 16 GB each, and get as much, through 1 GbE."""
    for engine in ("parameter-server", "dataparallel"):
        plan = Plan(dp_replicate=16, engine=engine)
        slow, fast = joined(450e9, 0.125e9 / NODE), joined(450e9, 50e9)
        moved = LLAMA.parameter_count * (2.0 + 2.0)
        assert float(predict(slow, plan).step.value) >= 8 * moved / 0.125e9
        assert float(predict(fast, plan).step.value) < float(predict(slow, plan).step.value) / 10


def test_one_stage_alone_keeps_one_micro_batch_whatever_the_schedule() -> None:
    plan = Plan(dp_shard=16, zero=3)
    plain, gpipe = (
        predict(joined(450e9, 50e9), plan.but(schedule=schedule)) for schedule in ("1f1b", "gpipe")
    )
    assert float(plain.memory.value) == float(gpipe.memory.value)
