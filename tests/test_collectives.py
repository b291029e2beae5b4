"""Collectives: the algorithms' own formulas, on the tiers of real clusters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trueflops.catalog import cluster
from trueflops.catalog.fabric import UNMEASURED
from trueflops.catalog.links import link
from trueflops.clock.collectives import collective_transfer
from trueflops.graph.kinds import CollectiveKind
from trueflops.model import read_model
from trueflops.plan import Plan
from trueflops.predict import Trainer
from trueflops.profile import Curve, profile_of
from trueflops.workload import Training

# A law without latency, so that only bandwidth is left of each formula.
PURE = Curve(
    {
        "efficiency": 1.0,
        "base_ll": 0.0,
        "base_ll128": 0.0,
        "base_simple": 0.0,
        "rate_ll": 0.5,
        "rate_ll128": 0.92,
    },
    0.0,
    "assumed",
    "test",
)
GIGABYTE = 64e9  # large enough that hops do not count
NDR, ROCE = (
    link(name).values["reached"] for name in ("InfiniBand NDR (4x port)", "RoCE v2 400GbE")
)
"""What collectives reach of these networks, whatever they reach inside of a node."""


def seconds(kind: str, n: float, payload: float, on: str = "64xH100", stride: float = 1.0) -> float:
    sent = CollectiveKind(kind)
    return float(collective_transfer(sent, n, payload, stride, cluster(on).tiers, PURE).seconds)


@pytest.mark.parametrize("n", [2, 4, 8])
def test_ring_formulas_inside_a_node(n: int) -> None:
    link = 450e9
    assert seconds("all_reduce", n, GIGABYTE) == pytest.approx(
        2 * (n - 1) / n * GIGABYTE / link, rel=0.01
    )
    for kind in ("all_gather", "reduce_scatter", "all_to_all"):
        assert seconds(kind, n, GIGABYTE) == pytest.approx((n - 1) / n * GIGABYTE / link, rel=0.01)
    assert seconds("broadcast", n, GIGABYTE) == pytest.approx(GIGABYTE / link, rel=0.01)
    assert seconds("send_recv", n, GIGABYTE) == pytest.approx((n - 1) * GIGABYTE / link, rel=0.01)


def test_whole_nodes_leave_through_all_their_ports_together() -> None:
    """64 ranks in 8 full nodes: 8 × 50 GB/s out of each, a little less than NVLink."""
    inside, outside = seconds("all_gather", 8, GIGABYTE), seconds("all_gather", 64, GIGABYTE)
    assert outside == pytest.approx(63 / 64 * GIGABYTE / (NDR * 400e9), rel=0.05)
    assert outside > inside


def test_one_rank_a_node_leaves_through_its_own_port() -> None:
    assert seconds("all_gather", 8, GIGABYTE, stride=8) == pytest.approx(
        7 / 8 * GIGABYTE / (NDR * 50e9), rel=0.01
    )


def test_a_network_is_no_slower_for_what_is_lost_inside_of_a_node() -> None:
    lossy = replace(PURE, values={**PURE.values, "rate_simple": 0.5, "rate_ll128": 0.4})
    gather, tiers = CollectiveKind.ALL_GATHER, cluster("64xH100").tiers
    inside, outside = (
        [float(collective_transfer(gather, 8, GIGABYTE, stride, tiers, law).seconds)
         for law in (PURE, lossy)]
        for stride in (1.0, 8.0)
    )  # fmt: skip
    assert inside[1] == pytest.approx(2.0 * inside[0], rel=0.01)
    assert outside[1] == pytest.approx(outside[0], rel=0.01)


def test_a_network_that_nobody_measured_says_so_in_its_width() -> None:
    known, unknown = cluster("64xH100"), cluster("2xFrontier-node")
    measured, slingshot = known.tiers[-1].network, unknown.tiers[-1].network
    assert measured is not None
    assert measured.error < UNMEASURED.error
    assert slingshot == UNMEASURED
    assert all(tier.network is None for tier in known.tiers[:-1])
    steps = []
    for network in (measured, UNMEASURED):
        where = replace(known, tiers=(*known.tiers[:-1], replace(known.tiers[-1], network=network)))
        asked = Trainer(
            read_model("Llama-3.1-8B"),
            Training(2048, 64, 1e9),
            where,
            profile_of(where.accelerator),
        )
        step = asked.predict_one(Plan(dp_replicate=64)).step["exposed communication"].estimate
        steps.append(float(step.high) / float(step.low))
    assert steps[0] < steps[1]


def test_small_messages_cost_latency_and_prefer_trees() -> None:
    tiny, n = 1024.0, 64.0
    ring_hops = 2 * ((64 - 8) * 0.6e-6 + 7 * 2.7e-6)
    assert seconds("all_reduce", n, tiny) < ring_hops


def test_a_mesh_gives_a_pair_one_of_its_links() -> None:
    pair = seconds("all_gather", 2, GIGABYTE, "8xMI300X")
    assert pair == pytest.approx(0.5 * GIGABYTE / 64e9, rel=0.01)
    assert seconds("all_gather", 8, GIGABYTE, "8xMI300X") < pair


def test_a_torus_gives_a_short_group_one_axis() -> None:
    row, pod = (seconds("all_gather", n, GIGABYTE, "256xTPUv5e") for n in (16, 256))
    assert row == pytest.approx(15 / 16 * GIGABYTE / 100e9, rel=0.01)
    assert pod == pytest.approx(255 / 256 * GIGABYTE / 200e9, rel=0.02)


def test_cards_without_peer_access_pay_twice() -> None:
    assert seconds("all_gather", 8, GIGABYTE, "8xRTX4090") == pytest.approx(
        7 / 8 * GIGABYTE / (31.5e9 / 2), rel=0.01
    )


def test_thin_links_between_pods_show() -> None:
    """A reduction crosses pods once; an all-to-all sends most of its bytes across."""
    inside = seconds("all_to_all", 384, GIGABYTE, "Meta-24k-RoCE", stride=8)
    between = seconds("all_to_all", 3072, GIGABYTE, "Meta-24k-RoCE", stride=8)
    assert between == pytest.approx(7 / 8 * GIGABYTE / (ROCE * 50e9 / 7), rel=0.01)
    assert between > 6 * inside


def test_a_group_of_one_is_free() -> None:
    for kind in CollectiveKind:
        assert seconds(kind, 1, GIGABYTE) == 0.0


def test_arrays_give_what_numbers_give() -> None:
    groups, sizes = np.array([1.0, 2, 8, 16, 64]), np.array([1e3, 1e6, 1e9, 1e5, 1e10])
    tiers = cluster("64xH100").tiers
    many = collective_transfer(
        CollectiveKind.ALL_REDUCE, groups, sizes, np.ones(5), tiers, PURE
    ).seconds
    alone = [
        float(collective_transfer(CollectiveKind.ALL_REDUCE, g, s, 1.0, tiers, PURE).seconds)
        for g, s in zip(groups, sizes, strict=True)
    ]
    assert np.asarray(many) == pytest.approx(alone)
