"""What would make a plan fit: the changes people make, tried one by one on the same predictor."""

from __future__ import annotations

from collections.abc import Iterator

from trueflops.errors import TrueflopsError
from trueflops.plan import Plan, check_plan
from trueflops.predict import Trainer, TrainingStep


def what_would_fit(trainer: Trainer, plan: Plan, most: int = 3) -> list[tuple[str, TrainingStep]]:
    """Changes of a single plan after which it fits, fastest first."""
    found: list[tuple[str, TrainingStep]] = []
    for words, changed in _changes(plan):
        try:
            check_plan(changed, trainer.model, trainer.cluster.count, trainer.workload)
            step = trainer.predict_one(changed)
        except TrueflopsError:  # not possible here, or the catalog lacks what it needs
            continue
        if step.fits and all(step.plan != other.plan for _, other in found):
            found.append((words, step))
    return sorted(found, key=lambda row: float(row[1].step.value))[:most]


def _changes(plan: Plan) -> Iterator[tuple[str, Plan]]:
    shard = plan.but(dp_shard=plan.dp, dp_replicate=1)
    for zero in range(int(plan.zero) + 1, 4):
        yield f"--zero {zero}", shard.but(zero=zero)
    if plan.micro_batch > 1:
        yield "--micro-batch 1", plan.but(micro_batch=1)
    if plan.recompute != "full":
        yield "--recompute full", plan.but(recompute="full")
        yield "--recompute full --zero 3", shard.but(recompute="full", zero=3)
        if plan.micro_batch > 1:
            yield "--recompute full --micro-batch 1", plan.but(recompute="full", micro_batch=1)
    for name in ("tp", "pp"):
        if plan.dp % 2 == 0:
            wider = {name: getattr(plan, name) * 2, "dp_shard": plan.dp / 2, "dp_replicate": 1}
            words = f"--{name} {wider[name]:g} --dp {wider['dp_shard']:g}"
            yield words, plan.but(**wider, sp=True)
            yield f"{words} --recompute full", plan.but(**wider, sp=True, recompute="full")
    yield "--offload-optimizer", plan.but(offload_optimizer=1.0)
