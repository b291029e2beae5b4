"""Price plans in chunks that fit the cache, keep the best that fit in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from trueflops.plan import Plan
from trueflops.predict import Trainer, TrainingStep
from trueflops.sizes import Array

CHUNK: Final = 16384  # plans at a time: forty arrays of this length stay in a core's cache


@dataclass(frozen=True)
class Found:
    """What a search returns: the best plans first, and why others fell out."""

    best: tuple[TrainingStep, ...]
    tried: int
    fitting: int
    smallest_bytes: float  # memory of the leanest plan, to say how far none fits


def search_plans(trainer: Trainer, plans: Iterable[Plan], most: int = 5) -> Found:
    """Rank by step time among the plans that fit at the upper end of their memory's interval.

    >>> import trueflops as tf
    >>> from trueflops.search import Space
    >>> where, asked = tf.cluster("8xH100"), tf.Training(seq=4096, global_batch=64, tokens=1e9)
    >>> model, profile = tf.read_model("Llama-3.1-8B"), tf.profile_of(where.accelerator)
    >>> trainer = tf.Trainer(model, asked, where, profile)
    >>> found = tf.search_plans(trainer, tf.enumerate_plans(model, asked, where, Space(tp=(8,))))
    >>> found.best[0].plan.tp, found.fitting <= found.tried
    (8.0, True)
    """
    ranked: list[tuple[float, Plan]] = []
    tried = fitting = 0
    smallest = np.inf
    for large in plans:
        keyed = trainer.keyed_costs(large)
        for start in range(0, large.count, CHUNK):
            part = slice(start, min(start + CHUNK, large.count))
            plan = large.take(part)
            step = trainer.combine(plan, keyed.spread(part))
            seconds, memory = np.ravel(step.step.value), np.ravel(step.memory.value)
            fits = np.broadcast_to(step.fits_surely, seconds.shape)
            tried, fitting = tried + seconds.size, fitting + int(fits.sum())
            smallest = min(smallest, float(memory.min()))
            ranked += _top(plan, np.where(fits, seconds, np.inf), most)
    ranked.sort(key=lambda row: row[0])
    best = _different([plan for _, plan in ranked], most)
    return Found(tuple(trainer.predict_one(plan) for plan in best), tried, fitting, smallest)


def _top(plan: Plan, seconds: Array, most: int) -> list[tuple[float, Plan]]:
    count = min(4 * most, seconds.size)
    rows = np.argpartition(seconds, count - 1)[:count]
    return [(float(seconds[row]), plan.pick(int(row))) for row in rows if np.isfinite(seconds[row])]


def _different(plans: list[Plan], most: int) -> list[Plan]:
    """The best of each kind: runners-up that differ only in ZeRO stage or vpp say little."""
    chosen: dict[tuple[object, ...], Plan] = {}
    for plan in plans:
        key = (plan.tp, plan.cp, plan.pp, plan.ep, plan.micro_batch, plan.recompute)
        chosen.setdefault(key, plan)
    return list(chosen.values())[:most]
