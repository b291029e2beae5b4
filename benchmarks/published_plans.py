"""Where the plans that experts published stand among all legal ones, by our own clock.

    OMP_NUM_THREADS=1 python benchmarks/published_plans.py [--source Megatron-Bridge] [--most 12]

Every published run of a source is predicted, then every plan that its framework could run there is
searched: the published plan's rank, how much faster the best one is, and where that is more than a
tenth, which part of the step says so. A search takes only plans that surely fit: of a published
one that does not by our account, the best may be slower; of all others that would be a bug.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from trueflops.errors import TrueflopsError
from trueflops.plan import Plan
from trueflops.plan.words import describe_plan
from trueflops.predict import TrainingStep
from trueflops.profile.frameworks import lacking, schedules
from trueflops.records.tables import read_table
from trueflops.search import Space, search_plans
from trueflops.verify.profiles import best_known
from trueflops.verify.training.runs import Case, Predictor, read_case, row_id

PUBLISHED = Path(__file__).parents[1] / "truth/published/train_runs.csv"
SURPRISING = 0.1  # faster than an expert's choice: which term says so?


def main() -> None:
    """Rank the published plans of some rows."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--source", default="", help="a part of a source's name")
    options.add_argument("--most", type=int, default=12, help="runs, evenly out of all")
    asked = options.parse_args()
    predictor = Predictor(best_known)
    cases = list(_distinct(asked.source))
    chosen = np.unique(np.linspace(0, len(cases) - 1, min(asked.most, len(cases))).round())
    gaps = [_rank(cases[int(place)], predictor) for place in chosen]
    surprising, slower = sum(g > SURPRISING for g in gaps), sum(g < 0.0 for g in gaps)
    print(f"{len(gaps)} of {len(cases)} published plans: the best is {np.median(gaps):.1%} faster")
    print(f"(median), more than a tenth in {surprising}, slower in {slower}")


def _distinct(source: str) -> list[Case]:
    """Runs of a source that state their plan, each model and cluster once."""
    found: dict[tuple[object, ...], Case] = {}
    for line, row in read_table(PUBLISHED).rows:
        if source.casefold() not in str(row.get("source", "")).casefold():
            continue
        try:
            case = read_case(row, row_id(line, row))
        except TrueflopsError:
            continue
        if not case.about.apart and case.cluster.count > 1:
            key = (case.model.name, case.cluster.count, case.cluster.accelerator.name, case.dtype)
            found.setdefault(key, case)
    return list(found.values())


def _rank(case: Case, predictor: Predictor) -> float:
    """Print one; how much faster the best plan is."""
    trainer = predictor.trainer(case)
    step = trainer.predict_one(predictor.predict(case).plan)
    own = float(step.step.value)
    found = search_plans(trainer, _space(case, step.plan), at_least=own, with_front=False)
    where = f"{case.cluster.count} × {case.cluster.accelerator.name}"
    print(f"{case.model.name} on {where}, {case.dtype}, {case.framework} ({case.id})")
    tight = "" if step.fits_surely else ", may not fit"
    print(f"  published: {describe_plan(step.plan)}: {own:.3f} s{tight}")
    if not found.best:
        print("  none of the plans searched surely fits")
        return 0.0
    best = found.best[0]
    gap = own / float(best.step.value) - 1.0
    print(f"  best:      {describe_plan(best.plan)}: {float(best.step.value):.3f} s")
    print(f"  rank {found.faster + 1:,} of {found.legal:,}; {gap:+.1%}{_why(step, best, gap)}")
    return gap


def _space(case: Case, plan: Plan) -> Space:
    """What its framework could have run, everything else as published."""
    usual = Plan()
    open_ = {field.name for field in fields(Space)} & {field.name for field in fields(Plan)}
    open_ -= {"compute"}
    base = plan.but(**{name: getattr(usual, name) for name in open_})
    space = Space(schedule=schedules(case.framework) or ("1f1b",), base=base)
    absent: dict[str, Any] = dict.fromkeys(open_ & set(lacking(case.framework)), (1,))
    return replace(space, **absent)


def _why(step: TrainingStep, best: TrainingStep, gap: float) -> str:
    if gap <= SURPRISING:
        return ""
    own = {part.name: float(part.value) for part in step.step.parts}
    other = {part.name: float(part.value) for part in best.step.parts}
    name = max(own, key=lambda part: own[part] - other.get(part, 0.0))
    return f", mostly by {name}: {own[name]:.3f} s against {other.get(name, 0.0):.3f} s"


if __name__ == "__main__":
    main()
