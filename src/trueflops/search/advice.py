"""What would make a plan fit: the changes people make, tried one by one on the same predictor."""

from __future__ import annotations

from collections.abc import Iterator

from trueflops.errors import TrueflopsError
from trueflops.plan import Plan, check_plan
from trueflops.plan.words import changed_flags
from trueflops.predict import Trainer, TrainingStep


def what_would_fit(trainer: Trainer, plan: Plan, most: int = 3) -> list[tuple[str, TrainingStep]]:
    """Changes of a single plan after which it fits, fastest first."""
    found: list[tuple[str, TrainingStep]] = []
    for changed in _changes(plan):
        try:
            check_plan(changed, trainer.model, trainer.cluster.count, trainer.workload)
            costs = trainer.keyed_costs(changed).spread()
            if trainer.memory(changed, costs).value > trainer.capacity:
                continue  # most do not fit, and memory is quicker to tell than time
            step = trainer.predict_one(changed)
        except TrueflopsError:  # not possible here, or the catalog lacks what it needs
            continue
        if step.fits and all(step.plan != other.plan for _, other in found):
            found.append((changed_flags(plan, changed), step))
    return sorted(found, key=lambda row: float(row[1].step.value))[:most]


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
