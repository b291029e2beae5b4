"""Communication between replicas and stages: what it takes, and how much of it shows.

ddp               gradients all-reduced (ZeRO 0), or scattered and the weights gathered (ZeRO 1–3),
                  beside the backward and forward that make and need them
dataparallel      one process: weights broadcast from the first accelerator and gradients gathered
                  there every step, so its link carries n−1 times the model (torch.nn.DataParallel)
parameter-server  the same through host memory
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trueflops.clock import Clock
from trueflops.plan import BYTES, Plan
from trueflops.predict.memory import Held
from trueflops.sizes import Size


@dataclass(frozen=True)
class Exchange:
    """Seconds of data-parallel communication of one step: all of it, and what is not hidden."""

    whole: Size
    exposed: Size


def exchange_gradients(
    clock: Clock,
    plan: Plan,
    held: Held,
    micro_batches: Size,
    layers: Size,
    forward: Size,
    backward: Size,
) -> Exchange:
    """Data-parallel communication of a step. forward and backward: one micro-batch's seconds.

    Parameters travel layer by layer, so that each layer's message pays its own latency.
    """
    if plan.engine != "ddp":
        return _through_one(clock, plan, held, micro_batches)
    zero = np.asarray(plan.zero)
    pieces = np.maximum(layers, 1.0)
    weight_bytes, gradient_bytes = BYTES[plan.parameter_dtype], BYTES[plan.gradient_dtype]
    whole = _over(clock, plan, held, "all_reduce", gradient_bytes, plan.dp, pieces)
    shown = _left(whole, backward, pieces)
    if np.any(zero > 0):
        scatter = _over(clock, plan, held, "reduce_scatter", gradient_bytes, plan.dp_shard, pieces)
        gather = _over(clock, plan, held, "all_gather", weight_bytes, plan.dp_shard, pieces)
        between = _between_replicas(clock, plan, held, gradient_bytes, pieces)
        # Stage 1 scatters once; stages 2 and 3 hold no whole gradient to add up in, so they
        # scatter every micro-batch; stage 3 also gathers the weights for each forward, backward.
        often = np.where(zero >= 2, micro_batches, 1.0)
        last = _left(scatter + between, backward, pieces)
        scattering = (often - 1.0) * _left(scatter, backward, pieces) + last
        once = often * scatter + between + gather
        shown_once = scattering + _left(gather, forward, pieces)
        every = micro_batches * (2.0 * gather + scatter) + between
        shown_every = between / pieces + micro_batches * (
            _left(gather, forward, pieces) + _left(gather + scatter, backward, pieces)
        )
        whole = np.where(zero == 0, whole, np.where(zero >= 3, every, once))
        shown = np.where(zero == 0, shown, np.where(zero >= 3, shown_every, shown_once))
    return Exchange(whole, np.minimum(shown, whole) if plan.overlap else whole)


def _over(
    clock: Clock, plan: Plan, held: Held, kind: str, each: float, replicas: Size, pieces: Size
) -> Size:
    """One collective a layer over the dense parameters of so many replicas, one over experts'."""
    payload = held.dense * each / pieces
    dense = clock.collective(kind, replicas * plan.cp, payload, plan.tp)
    if not np.any(held.experts):
        return dense * pieces
    payload = held.experts * each / pieces
    stride = plan.ep * plan.etp
    return pieces * (dense + clock.collective(kind, plan.expert_ways(replicas), payload, stride))


def _between_replicas(clock: Clock, plan: Plan, held: Held, each: float, pieces: Size) -> Size:
    """HSDP: the shards of a gradient are summed between the replicas that hold the same one."""
    if not np.any(np.asarray(plan.dp_replicate) > 1):
        return 0.0
    ways = plan.dp_shard * plan.cp
    own = held.dense / ways + held.experts / plan.expert_ways(plan.dp_shard)
    return pieces * clock.collective(
        "all_reduce", plan.dp_replicate, own * each / pieces, plan.tp * ways
    )


def _left(taken: Size, beside: Size, pieces: Size) -> Size:
    """What shows of a communication that runs beside compute: its excess, and its last piece."""
    return np.maximum(taken - beside * (1.0 - 1.0 / pieces), taken / pieces)


def _through_one(clock: Clock, plan: Plan, held: Held, micro_batches: Size) -> Exchange:
    """All replicas' weights and gradients pass one link: cost grows with their number.

    DataParallel copies the weights out at every forward and gathers gradients at every backward.
    """
    moved = held.all * (BYTES[plan.parameter_dtype] + BYTES[plan.gradient_dtype])
    others = np.maximum(plan.dp - 1.0, 0.0)
    if plan.engine == "parameter-server":
        taken = clock.host_copy(moved * np.where(np.asarray(plan.dp) > 1, plan.dp, 0.0))
    else:
        once = clock.collective("send_recv", np.minimum(plan.dp, 2.0), moved, 1.0)
        taken = micro_batches * others * once
    return Exchange(taken, taken)


def pass_stages(clock: Clock, plan: Plan, boundary_bytes: Size, micro_batches: Size) -> Exchange:
    """Activations forward and gradients back between neighbouring stages, once per piece."""
    stride = plan.tp * plan.cp * plan.dp
    others = np.maximum(plan.pp - 1.0, 0.0)
    # The slowest boundary sets the pace: some stages may be neighbours only across the network.
    # Ranks of tp hold the same activation: each sends a slice, put together again inside the node
    # (scatter-gather, Narayanan et al. 2021 §4.1); with sequence parallelism it is sliced anyway.
    slices = 1.0 if plan.sp else plan.tp
    sent = boundary_bytes / slices
    one = clock.collective("send_recv", plan.pp, sent, stride) / np.maximum(others, 1.0)
    if not plan.sp:
        joined = clock.collective("all_gather", plan.tp, boundary_bytes, 1.0)
        one = one + np.where(others > 0.0, joined, 0.0)
    whole = one * 2.0 * micro_batches * plan.vpp
    # Interleaving overlaps sends with another piece's compute; without it each one is waited for.
    hidden = np.asarray(plan.vpp) > 1
    return Exchange(whole, np.where(hidden, np.minimum(2.0 * one * others, whole), whole))
