"""What would make a plan fit: the changes people make, tried together on the same predictor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import compress
from typing import Final

import numpy as np

from trueflops.errors import TrueflopsError
from trueflops.plan import NUMERIC, Plan, possible
from trueflops.plan.words import changed_flags
from trueflops.predict import Trainer, TrainingStep

MOST: Final = 3  # changes that are told


def what_would_fit(trainer: Trainer, plan: Plan) -> list[tuple[str, TrainingStep]]:
    """Changes of a single plan after which it fits, fastest first."""
    found: list[tuple[str, TrainingStep]] = []
    for alike in _by_structure(_changes(plan)):
        try:
            found += _fitting(trainer, plan, alike)
        except TrueflopsError:  # the catalog lacks what they need
            continue
    return sorted(found, key=lambda row: float(row[1].step.value))[:MOST]


def _by_structure(plans: Iterable[Plan]) -> list[list[Plan]]:
    """Plans that differ in numbers alone, each once; what is offloaded needs facts of its own."""
    names = [field.name for field in fields(Plan) if field.name not in NUMERIC]
    groups: dict[tuple[object, ...], list[Plan]] = defaultdict(list)
    for plan in plans:
        alike = groups[plan.offloads, *(getattr(plan, name) for name in names)]
        if plan not in alike:
            alike.append(plan)
    return list(groups.values())


def _fitting(
    trainer: Trainer, plan: Plan, changes: Sequence[Plan]
) -> Iterator[tuple[str, TrainingStep]]:
    """Those that break no rule and fit: most do not, and memory is quicker to tell than time."""
    model, count, workload = trainer.model, trainer.cluster.count, trainer.workload
    legal = list(compress(changes, possible(_as_one(changes), model, count, workload)))
    if legal:
        held = np.broadcast_to(trainer.memory_alone(_as_one(legal)).value, len(legal))
        legal = list(compress(legal, held <= trainer.capacity))
    if legal:
        steps = trainer.predict(_as_one(legal))
        fits = np.broadcast_to(steps.fits, len(legal))  # the host's memory, too
        for at in np.flatnonzero(fits):
            yield changed_flags(plan, legal[at]), steps.pick(int(at))


def _as_one(plans: Sequence[Plan]) -> Plan:
    """Many plans as one whose numbers are arrays, where they differ."""
    columns = {name: [float(getattr(plan, name)) for plan in plans] for name in NUMERIC}
    return plans[0].but(
        **{name: np.array(each) for name, each in columns.items() if len(set(each)) > 1}
    )


def _changes(plan: Plan) -> Iterator[Plan]:
    """Plans that differ from a given one as people would have them differ."""
    shard = plan.but(dp_shard=plan.dp, dp_replicate=1)
    for zero in range(int(plan.zero) + 1, 4):
        yield shard.but(zero=zero)
    if plan.micro_batch > 1:
        yield plan.but(micro_batch=1)
    if plan.recompute != "full":
        yield plan.but(recompute="full")
        yield shard.but(recompute="full", zero=3)
        if plan.micro_batch > 1:
            yield plan.but(recompute="full", micro_batch=1)
    for name in ("tp", "pp"):
        if plan.dp % 2 == 0:
            shards = {"dp_shard": plan.dp / 2, "dp_replicate": 1}
            if not plan.zero:
                shards = {"dp_shard": 1, "dp_replicate": plan.dp / 2}
            wider = plan.but(**{name: getattr(plan, name) * 2}, **shards)
            wider = wider.but(sp=plan.sp or (name == "tp" and plan.tp == 1))
            yield wider
            yield wider.but(recompute="full")
    if plan.offload_optimizer < 1.0:
        yield plan.but(offload_optimizer=1.0)
