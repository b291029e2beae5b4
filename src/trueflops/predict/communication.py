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
    """Data-parallel communication of a step. forward and backward: one micro-batch's seconds."""
    if plan.engine != "ddp":
        return _through_one(clock, plan, held)
    zero = np.asarray(plan.zero)
    weight_bytes, gradient_bytes = BYTES[plan.parameter_dtype], BYTES[plan.gradient_dtype]
    bucket = 1.0 / np.maximum(layers, 1.0)
    reduce_all = _over(clock, plan, held, "all_reduce", gradient_bytes, plan.dp)
    once, shown_once = reduce_all, _left(reduce_all, backward, bucket)
    often: Size = 0.0
    shown_often: Size = 0.0
    if np.any(zero > 0):
        scatter = _over(clock, plan, held, "reduce_scatter", gradient_bytes, plan.dp_shard)
        gather = _over(clock, plan, held, "all_gather", weight_bytes, plan.dp_shard)
        between = _between_replicas(clock, plan, held, gradient_bytes)
        sharded = scatter + between + gather
        shown = _left(scatter + between, backward, bucket) + _left(gather, forward, bucket)
        once = np.where(zero == 0, once, sharded)
        shown_once = np.where(zero == 0, shown_once, shown)
        # Stage 3 gathers the weights for every forward and backward and scatters every gradient.
        often = micro_batches * (2.0 * gather + scatter) + between
        shown_often = between * bucket + micro_batches * (
            _left(gather, forward, bucket) + _left(gather + scatter, backward, bucket)
        )
    whole = np.where(zero >= 3, often, once)
    if not plan.overlap:
        return Exchange(whole, whole)
    shown = np.where(zero >= 3, shown_often, shown_once)
    return Exchange(whole, np.minimum(shown, whole))


def _over(clock: Clock, plan: Plan, held: Held, kind: str, each: float, replicas: Size) -> Size:
    """One collective over the dense parameters of so many replicas and one over the experts'."""
    dense = clock.collective(kind, replicas * plan.cp, held.dense * each, plan.tp)
    if not np.any(held.experts):
        return dense
    stride = plan.ep * plan.etp
    ways = np.maximum(plan.tp * plan.cp * replicas / stride, 1.0)
    return dense + clock.collective(kind, ways, held.experts * each, stride)


def _between_replicas(clock: Clock, plan: Plan, held: Held, each: float) -> Size:
    """HSDP: the shards of a gradient are summed between the replicas that hold the same one."""
    if not np.any(np.asarray(plan.dp_replicate) > 1):
        return 0.0
    ways = plan.dp_shard * plan.cp
    return clock.collective("all_reduce", plan.dp_replicate, held.all * each / ways, plan.tp * ways)


def _left(taken: Size, beside: Size, bucket: Size) -> Size:
    """What shows of a communication that runs beside compute: its excess, and its last bucket."""
    return np.maximum(taken - beside * (1.0 - bucket), taken * bucket)


def _through_one(clock: Clock, plan: Plan, held: Held) -> Exchange:
    """All replicas' weights and gradients pass one link: cost grows with their number."""
    moved = held.all * (BYTES[plan.parameter_dtype] + BYTES[plan.gradient_dtype])
    others = np.maximum(plan.dp - 1.0, 0.0)
    if plan.engine == "parameter-server":
        taken = clock.host_copy(moved * np.where(np.asarray(plan.dp) > 1, plan.dp, 0.0))
    else:
        taken = others * clock.collective("send_recv", np.minimum(plan.dp, 2.0), moved, 1.0)
    return Exchange(taken, taken)


def pass_stages(clock: Clock, plan: Plan, boundary_bytes: Size, micro_batches: Size) -> Exchange:
    """Activations forward and gradients back between neighbouring stages, once per piece."""
    stride = plan.tp * plan.cp * plan.dp
    one = clock.collective("send_recv", np.minimum(plan.pp, 2.0), boundary_bytes, stride)
    crossings = 2.0 * micro_batches * plan.vpp
    whole = one * crossings
    # Interleaving overlaps sends with another piece's compute; without it each one is waited for.
    filling = 2.0 * one * np.maximum(plan.pp - 1.0, 0.0)
    hidden = (np.asarray(plan.vpp) > 1) & plan.overlap
    return Exchange(whole, np.where(hidden, np.minimum(filling, whole), whole))
