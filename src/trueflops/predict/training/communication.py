"""Communication between replicas and stages: what it takes, and how much of it is exposed.

ddp               gradients all-reduced (ZeRO 0), or scattered and the weights gathered (ZeRO 1–3),
                  beside the backward and forward that make and need them
dataparallel      one process: weights broadcast from the first accelerator and gradients gathered
                  there every step, so its link carries n−1 times the model (torch.nn.DataParallel)
parameter-server  the same through host memory
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from trueflops.clock import NOTHING, Clock, Transfer, either
from trueflops.graph.kinds import CollectiveKind
from trueflops.plan import BYTES, Plan
from trueflops.predict.training.memory import Held
from trueflops.predict.training.schedule import SlowestStage
from trueflops.sizes import Size


@dataclass(frozen=True)
class Exchange:
    """Communication of one step: all of it, and the seconds that nothing hides."""

    whole: Transfer
    exposed: Size
    host_bytes: Size = 0.0  # of these, what passes the lane to host memory


class Communication(NamedTuple):
    """Of one step, beside that inside its layers."""

    replicas: Exchange
    stages: Exchange


def communicate(
    clock: Clock, plan: Plan, held: Held, boundary_bytes: Size, m: Size, slow: SlowestStage
) -> Communication:
    """Between replicas and between stages, beside what the slowest stage computes."""
    replicas = _exchange_gradients(clock, plan, held, m, slow)
    return Communication(replicas, _pass_stages(clock, plan, boundary_bytes, m, slow))


def _exchange_gradients(
    clock: Clock, plan: Plan, held: Held, micro_batches: Size, slow: SlowestStage
) -> Exchange:
    """Data-parallel communication of a step.

    Parameters travel layer by layer, so that each layer's message pays its own latency.
    """
    if plan.engine != "ddp":
        return _through_one(clock, plan, held, micro_batches)
    zero, pieces = plan.zero, np.maximum(slow.layers, 1.0)
    forward, backward = slow.forward, slow.backward
    gradient_bytes = BYTES[plan.summed_dtype]
    gradients = Payload(held.dense * gradient_bytes, held.experts * gradient_bytes)
    whole = NOTHING
    exposed: Size = 0.0
    if np.any(zero == 0):
        whole = _over(clock, plan, gradients, CollectiveKind.ALL_REDUCE, plan.dp, pieces)
        exposed = _left(whole.seconds, backward, pieces)
    if np.any(zero > 0):
        scatter = _over(
            clock, plan, gradients, CollectiveKind.REDUCE_SCATTER, plan.dp_shard, pieces
        )
        weights = _gathered(plan, held, zero)
        gather = _over(clock, plan, weights, CollectiveKind.ALL_GATHER, plan.dp_shard, pieces)
        between = _between_replicas(clock, plan, held, gradient_bytes, pieces)
        # Stage 1 scatters once; stages 2 and 3 hold no whole gradient to add up in, so they
        # scatter every micro-batch; stage 3 also gathers the weights for each forward, backward.
        within = either(zero >= 3, gather + scatter, scatter)
        scatters = np.where(zero >= 2, micro_batches, np.where(zero > 0, 1.0, 0.0))
        gathers = np.where(zero >= 3, micro_batches, np.where(zero > 0, 1.0, 0.0))
        whole = either(zero == 0, whole, scatters * within + gathers * gather + between)
        # Shards are summed between replicas layer by layer behind the scatter, only in the last
        # backward, and beside it where the links are others: shards inside a node, sums outside.
        each = _left(within.seconds, backward, pieces)
        last = np.where(zero == 0, whole.seconds, within.seconds + between.seconds)
        final = _left(last, backward, pieces)
        beside = (zero >= 3) & np.logical_not(_share_a_tier(gather + scatter, between))
        if np.any(beside):
            apart = _left(between.seconds, backward, pieces) + within.seconds / pieces
            final = np.where(beside, np.maximum(each, apart), final)
        exposed = gathers * _left(gather.seconds, forward, pieces)
        exposed = exposed + np.maximum(scatters - 1.0, 0.0) * each + final
    return Exchange(whole, np.minimum(exposed, whole.seconds) if plan.overlap else whole.seconds)


class Payload(NamedTuple):
    """Bytes that replicas exchange."""

    dense: Size
    experts: Size


def _gathered(plan: Plan, held: Held, zero: Any) -> Payload:
    """The weights: those that an update changed, and under ZeRO-3 the frozen ones as well."""
    each, shared = plan.gathered_bytes, np.where(zero >= 3, 1.0, 0.0)
    return Payload(
        held.dense * each + shared * held.frozen_dense_bytes,
        held.experts * each + shared * held.frozen_expert_bytes,
    )


def _over(
    clock: Clock, plan: Plan, sent: Payload, kind: CollectiveKind, replicas: Size, pieces: Size
) -> Transfer:
    """One collective a layer over the dense parameters of so many replicas, one over experts'."""
    dense = clock.collective(kind, replicas * plan.cp, sent.dense / pieces, plan.tp)
    if not np.any(sent.experts):
        return pieces * dense
    payload = sent.experts / pieces
    stride = plan.ep * plan.etp
    return pieces * (dense + clock.collective(kind, plan.expert_ways(replicas), payload, stride))


def _between_replicas(clock: Clock, plan: Plan, held: Held, each: float, pieces: Size) -> Transfer:
    """HSDP: the shards of a gradient are summed between the replicas that hold the same one."""
    if not np.any(plan.dp_replicate > 1):
        return NOTHING
    ways = plan.dp_shard * plan.cp
    own = held.dense / ways + held.experts / plan.expert_ways(plan.dp_shard)
    return pieces * clock.collective(
        CollectiveKind.ALL_REDUCE, plan.dp_replicate, own * each / pieces, plan.tp * ways
    )


def _left(taken: Size, beside: Size, pieces: Size) -> Size:
    """The exposed part of a communication beside compute: all but one piece of either can run
    beside the others, as long as both last.
    """
    return taken - (1.0 - 1.0 / pieces) * np.minimum(taken, beside)


def _share_a_tier(one: Transfer, other: Transfer) -> Any:
    """Whether both keep the links of some tier busy."""
    shared: Any = False
    for a, b in zip(one.links, other.links, strict=False):
        shared = shared | ((a > 0.0) & (b > 0.0))
    return shared


def _through_one(clock: Clock, plan: Plan, held: Held, micro_batches: Size) -> Exchange:
    """All replicas' weights and gradients pass one link: cost grows with their number.

    DataParallel copies the weights out at every forward and gathers gradients at every backward.
    Replicas beyond its fast domain come through the network of the one that holds the weights.
    """
    moved = held.all * (BYTES[plan.trained_dtype] + BYTES[plan.summed_dtype]) + held.frozen_bytes
    domain = clock.cluster.tiers[0].reach if clock.cluster.tiers else 1.0
    near = np.minimum(plan.dp, domain) - 1.0
    far = np.maximum(plan.dp - domain, 0.0)
    away = np.where(far > 0.0, 2.0, 1.0)
    # All ways out of a node carry it together: that of one accelerator a part of it.
    part = moved / clock.cluster.per_node
    abroad = far * clock.collective(
        CollectiveKind.SEND_RECV, away, part, min(domain, clock.cluster.count)
    )
    if plan.engine == "parameter-server":
        through = moved * np.where(plan.dp > 1, plan.dp, 0.0)
        taken = Transfer(clock.host_copy(through)) + abroad
        return Exchange(taken, taken.seconds, through / 2.0)  # weights one way, gradients the other
    once = clock.collective(CollectiveKind.SEND_RECV, np.minimum(plan.dp, 2.0), moved, 1.0)
    taken = micro_batches * (near * once + abroad)
    return Exchange(taken, taken.seconds)


def _pass_stages(
    clock: Clock, plan: Plan, boundary_bytes: Size, micro_batches: Size, slow: SlowestStage
) -> Exchange:
    """Activations forward and gradients back between neighbouring stages, once per piece."""
    stride = plan.tp * plan.cp * plan.dp
    others = np.maximum(plan.pp - 1.0, 0.0)
    # The slowest boundary sets the pace: some stages may be neighbours only across the network.
    # Ranks of tp hold the same activation: each sends a slice, put together again inside the node
    # (scatter-gather, Narayanan et al. 2021 §4.1); with sequence parallelism it is sliced anyway.
    slices = 1.0 if plan.sp else plan.tp
    sent = boundary_bytes / slices
    one = clock.collective(CollectiveKind.SEND_RECV, plan.pp, sent, stride).seconds / np.maximum(
        others, 1.0
    )
    links = clock.stage_links(plan.pp, plan.pieces, sent, stride)
    moved = Transfer(2.0 * plan.pieces * one, links)
    if not plan.sp:
        joined = clock.collective(CollectiveKind.ALL_GATHER, plan.tp, boundary_bytes, 1.0)
        joined = np.where(others > 0.0, 1.0, 0.0) * joined
        one = one + joined.seconds
        moved = moved + 2.0 * plan.pieces * joined
    whole = micro_batches * moved
    # Interleaving overlaps a send with another piece's compute, but for those that fill and drain
    # the pipeline; without it each one is waited for.
    longer = np.maximum(one - slow.forward / plan.pieces, 0.0)
    longer = longer + np.maximum(one - slow.backward / plan.pieces, 0.0)
    exposed = micro_batches * plan.pieces * longer + 2.0 * one * others
    hidden = plan.pieces > 1
    return Exchange(whole, np.where(hidden, np.minimum(exposed, whole.seconds), whole.seconds))
