"""A training step as a tree of terms: what computes, what communicates, what waits.

step = m · mean stage + uneven stages + bubble + exposed communication + stragglers + optimizer
       + offload
"""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from math import hypot

import numpy as np

from trueflops.catalog import Cluster
from trueflops.clock import CLOCKED_CAUSES, Clock
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.predict.training.communication import Communication, Exchange
from trueflops.predict.training.pipeline import USEFUL, Pipeline
from trueflops.predict.training.schedule import dual_path, pairs
from trueflops.predict.training.slowest_chip import waiting_for_slowest
from trueflops.predict.training.upkeep import Upkeep
from trueflops.profile import Curve, Profile
from trueflops.runtime import (
    COMMUNICATION,
    COMPUTE,
    Term,
    achievable,
    busy_seconds,
    floor_seconds,
    leaf,
    lopsided,
    total,
)
from trueflops.sizes import Size, weighs
from trueflops.tables import summed


def step_term(
    plan: Plan,
    m: Size,
    pipeline: Pipeline,
    sent: Communication,
    upkeep: Upkeep,
    bubble: Size,
    clock: Clock,
    model: Model,
) -> Term:
    """A step of m micro-batches."""
    profile, usual = clock.profile, pipeline.usual.total
    uneven = m * (np.maximum(pipeline.slow.total, usual) - usual)
    compute = _compute(plan, pipeline, m, upkeep.moved, profile)
    communication = _communication(plan, pipeline, m, sent, clock)
    late_ranks = waiting_for_slowest(plan.world, compute.value, m * pipeline.usual.capped)
    # The host link is its own: compute, other communication and all waiting hide it.
    waited = upkeep.waited + upkeep.streamed
    if plan.overlap and weighs(upkeep.streamed):
        beside = summed((compute.value, communication.value, uneven, bubble, late_ranks))
        waited = upkeep.waited + np.maximum(upkeep.streamed - beside, 0.0)
    matmul, software = profile.curve("matmul"), profile.curve("framework")
    terms = (
        compute,
        communication,
        leaf("uneven stages", uneven, matmul, "matmul"),
        leaf("pipeline bubble", bubble, matmul, "matmul"),
        leaf("stragglers", late_ranks, profile.curve("power"), "power"),
        upkeep.update,
        leaf("offload", waited, profile.curve("host"), "host"),
        leaf("host, once a step", software["step"], software, "framework"),
    )
    # Whatever was hidden above, no step is shorter than its busiest link.
    inside, between = (m * link for link in pipeline.links), sent.replicas.whole.links
    tiers = zip_longest(inside, between, sent.stages.whole.links, fillvalue=0.0)
    links = tuple(map(summed, tiers))
    lane = upkeep.lane_bytes + sent.replicas.host_bytes
    floor = floor_seconds(busy_seconds(clock.cluster, links, lane))
    seconds = summed(term.value for term in terms)
    late = np.maximum(floor - seconds, 0.0)
    either_side, further = lopsided(*unseen(clock.cluster, software))
    whole = total(
        "step",
        *terms,
        leaf("busiest link", late, profile.curve("collective"), "collective"),
        value=np.maximum(seconds, floor),
        cause="framework",
        spread=hypot(either_side, software["experts_error"] * model.is_moe),
        least=np.maximum(floor, _least(plan, m, pipeline, clock)),
    )
    return replace(whole, unstated=further)


def unseen(cluster: Cluster, software: Curve) -> tuple[float, float]:
    """How far runs of this software that nobody has seen lie from their prediction: some are
    faster, many more slower.
    """
    nodes = "several" if cluster.nodes > 1 else "one"
    return software[f"faster_on_{nodes}"], software[f"slower_on_{nodes}"]


def _least(plan: Plan, m: Size, pipeline: Pipeline, clock: Clock) -> Size:
    """All that is computed, as fast as large products are, or these where they are faster."""
    reached = float(achievable(clock, plan.compute).high)
    share = reached / clock.chip.peak_flop_per_second(plan.compute)
    own: Size = 0.0
    for cause in CLOCKED_CAUSES:
        own = own + m * pipeline.mean.caused(cause, *USEFUL, "recompute")
    return np.minimum(pipeline.work.peak_seconds / share, own)


def _compute(plan: Plan, pipeline: Pipeline, m: Size, moved: Size, profile: Profile) -> Term:
    mean = pipeline.mean
    curves = {cause: cause for cause in COMPUTE}
    if plan.implementation != "library":  # its memory-bound kernels are PyTorch's own
        curves["memory"] = "eager"

    def caused(*phases: str) -> list[Term]:
        return [
            leaf(label, m * mean.caused(cause, *phases), profile.curve(name), name)
            for (cause, name), label in zip(curves.items(), COMPUTE.values(), strict=True)
        ]

    return total(
        "compute",
        *caused(*USEFUL),
        total("recomputation", *caused("recompute")),
        leaf("weights, gradients", moved, profile.curve("memory"), "memory"),
        *pipeline.usual.added(profile, m),
    )


def _communication(
    plan: Plan, pipeline: Pipeline, m: Size, sent: Communication, clock: Clock
) -> Term:
    profile = clock.profile
    outside = _over_network(clock)
    law, mean, handed = profile.curve("collective"), pipeline.mean, sent.stages.exposed
    inside = {axis: mean.caused(axis, *USEFUL, "recompute") for axis in COMMUNICATION}
    busy = 1.0 - pipeline.usual.gaps / np.maximum(pipeline.usual.total, 1e-300)
    inside["tp"] = inside["tp"] * pipeline.exposed["tp"]
    waited = {axis: m * seconds for axis, seconds in inside.items()}
    if plan.bidirectional:
        # A pair hides it behind what it computes, and the sends behind what is then left over.
        path = dual_path(plan, m, pipeline.slow, pipeline.dispatched)
        alone = path.forwards * pipeline.dispatched.forward
        alone = alone + path.backwards * pipeline.dispatched.backward
        own = summed(mean.by_cause.values()) - summed(inside.values())
        send = sent.stages.whole.seconds / m  # of a forward and a backward
        in_pairs = path.pairs * np.maximum(inside["ep"] - own, 0.0)
        longer = path.pairs * np.maximum(inside["ep"] + send - own, 0.0)
        waited["ep"] = alone + in_pairs
        handed = longer - in_pairs + (path.forwards + path.backwards) * send / 2.0
    elif plan.overlap_dispatch:
        # A pair hides it behind what it computes; that of others shows while a stage waits for it.
        own = summed(mean.by_cause.values()) - summed(inside.values())
        alone, beside = pipeline.exposed["ep"], pairs(plan, m)
        others = (plan.pp - 1.0) / plan.pieces * (1.0 - alone)
        waited["ep"] = (m * alone + others) * inside["ep"]
        waited["ep"] = waited["ep"] + beside * np.maximum(inside["ep"] - own, 0.0)
    return total(
        "exposed communication",
        *(leaf(label, waited[axis], law, "collective") for axis, label in COMMUNICATION.items()),
        leaf(
            "data parallel", _between_replicas(sent.replicas, busy, profile), outside, "collective"
        ),
        leaf("pipeline sends", handed, outside, "collective"),
    )


def _over_network(clock: Clock) -> Curve:
    """The law of collectives with the error that it has where ranks of several nodes take part:
    the network's own, beside that of the links inside.
    """
    law = clock.profile.curve("collective")
    errors = [tier.network.error for tier in clock.cluster.tiers if tier.network]
    return replace(law, error=max(law.error, *errors)) if errors else law


def _between_replicas(sent: Exchange, busy: Size, profile: Profile) -> Size:
    """What data-parallel communication costs: its exposed part, and what its kernels and their
    traffic take from the compute beside which the rest runs, while that is not waiting itself.

    Messages inside a node pass through its memories at the speed of its links; those that wait for
    the network take little from anyone.
    """
    law = profile.curve("framework")
    hidden = (sent.whole.seconds - sent.exposed) * law["hidden_dp"]
    inside = sent.whole.links[0] if sent.whole.links else 0.0
    near = inside / np.maximum(sent.whole.seconds, 1e-300)
    lost = law["contention"] * near + law["contention_network"] * (1.0 - near)
    return sent.whole.seconds - hidden + lost * busy * hidden
