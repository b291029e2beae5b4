"""Every possible plan of a space, as few large Plans: one per combination of what cannot be array.

In: a Model, a Training workload, a Cluster, a Space.
Out: Plans whose numeric fields are arrays, already rid of those that break a rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Final

import numpy as np

from trueflops.catalog import Cluster
from trueflops.model import Model
from trueflops.plan import Plan, possible
from trueflops.sizes import Array, divisors
from trueflops.workload import Training

MOST_PIECES: Final = 12  # interleaving deeper than this only adds messages


@dataclass(frozen=True)
class Space:
    """What to try. Empty tuples mean: every value that makes sense; `base` fixes all the rest."""

    tp: tuple[int, ...] = ()
    cp: tuple[int, ...] = ()
    pp: tuple[int, ...] = ()
    vpp: tuple[int, ...] = ()
    ep: tuple[int, ...] = ()
    dp: tuple[int, ...] = ()
    dp_replicate: tuple[int, ...] = ()
    dp_shard: tuple[int, ...] = ()
    sp: bool = True
    zero: tuple[int, ...] = (0, 1, 2, 3)
    micro_batch: tuple[int, ...] = (1, 2, 4, 8)
    recompute: tuple[str, ...] = ("none", "selective", "full")
    base: Plan = field(default_factory=Plan)


def enumerate_plans(
    model: Model, training: Training, cluster: Cluster, space: Space
) -> Iterator[Plan]:
    """All possible plans, one large Plan per recomputation policy.

    >>> import trueflops as tf
    >>> from trueflops.search import Space
    >>> where, asked = tf.cluster("8xH100"), tf.Training(seq=4096, global_batch=64, tokens=1e9)
    >>> model = tf.read_model("Llama-3.1-8B")
    >>> sum(many.count for many in tf.enumerate_plans(model, asked, where, Space(tp=(8,)))) > 1
    True
    """
    grid = _grid(model, training, cluster, space)
    if grid["tp"].size == 0:
        return
    for policy in space.recompute:
        if policy == "selective" and space.base.flash and len(space.recompute) > 1:
            continue  # flash attention keeps no scores: there is nothing left to select
        whole = space.base.but(**grid, recompute=policy, sp=space.sp)
        if policy == "full" and not np.isfinite(space.base.recompute_layers):
            whole = _some_layers(whole, model)
        fine = possible(whole, model, cluster.count, training)
        if fine.any():
            yield whole.take(fine)


def _some_layers(plan: Plan, model: Model) -> Plan:
    """Recompute every layer of a stage, or a half or a quarter of them."""
    rows = np.tile(np.arange(plan.count), 3)
    shares = np.repeat([np.inf, 0.5, 0.25], plan.count)
    many = plan.take(rows)
    layers = np.ceil(model.layers / np.asarray(many.pp))
    counts = np.where(np.isfinite(shares), np.ceil(shares * layers), np.inf)
    return many.but(recompute_layers=counts)


def _grid(model: Model, training: Training, cluster: Cluster, space: Space) -> dict[str, Array]:
    count = cluster.count
    heads = max(b.attention.heads for b in model.blocks)
    experts = max((b.experts.count for b in model.blocks if b.experts), default=1)
    domain = cluster.tiers[0].reach if cluster.tiers else 1.0
    # Tensor parallelism across the network is tried only just beyond the fast domain.
    tps = space.tp or [d for d in divisors(count) if d <= min(heads, 2 * domain)]
    pps = space.pp or [d for d in divisors(count) if d <= model.layers]
    # Below this many tokens a rank, splitting the sequence further only adds communication.
    cps = space.cp or [1, *(d for d in (2, 4, 8, 16, 32) if training.seq >= 4096 * d)]
    eps = space.ep or [d for d in divisors(experts) if d <= count]
    rows = []
    for tp, pp, cp in product(tps, pps, cps):
        if count % (tp * pp * cp):
            continue
        dp = count // (tp * pp * cp)
        if space.dp and dp not in space.dp:
            continue
        shards = list(space.dp_shard) or _shard_groups(dp, domain / (tp * cp))
        if space.dp_replicate and not space.dp_shard:
            shards = [dp // r for r in space.dp_replicate if dp % r == 0]
        replicas = space.dp_replicate or tuple(dp // s for s in shards)
        shards = [s for s in shards if dp % s == 0 and dp // s in replicas]
        vpps = space.vpp or _pieces(model.layers, pp)
        for vpp, ep, micro, zero in product(vpps, eps, space.micro_batch, space.zero):
            if training.global_batch % (micro * dp) or (zero and dp * cp == 1):
                continue
            if zero == 2 and pp > 1:
                continue  # gradients kept in shards cannot be added up across a pipeline's flush
            rows += [
                (tp, pp, cp, dp // shard, shard, vpp, ep, micro, zero)
                for shard in (shards if zero else [1])
            ]
    table = np.array(rows, dtype=np.float64).reshape(-1, len(_COLUMNS))
    return {name: table[:, i] for i, name in enumerate(_COLUMNS)}


_COLUMNS: Final = (
    "tp", "pp", "cp", "dp_replicate", "dp_shard", "vpp", "ep", "micro_batch", "zero",
)  # fmt: skip


def _shard_groups(dp: int, inside: float) -> list[int]:
    """Share states over all replicas, or (HSDP) only over those inside one fast domain."""
    near = int(min(inside, dp))  # a switch that joins everything is one domain
    return [dp, near] if 1 < near < dp and dp % near == 0 else [dp]


def _pieces(layers: int, pp: int) -> list[int]:
    """Ways to interleave: none, or pieces of equally many layers."""
    if pp == 1 or layers % pp:
        return [1]
    return [d for d in divisors(layers // pp) if d <= MOST_PIECES]
