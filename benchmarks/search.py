"""How long a full search takes, and where published plans stand in it.

For three models on the clusters they were trained on: every legal plan, on one core; the best plan,
and for the published one its rank and gap, and which term says so where the gap exceeds a tenth.

    OMP_NUM_THREADS=1 python benchmarks/search.py [--only GPT-3]

Calculon (Isaev et al. 2023, github.com/calculon-ai/calculon) searches 3.2 million executions of
GPT-3 175B on 64 A100 at 46 to 84 a second.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from dataclasses import dataclass, field

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from trueflops.catalog import cluster
from trueflops.model import read_model
from trueflops.plan import Plan, check_plan
from trueflops.plan.words import describe_plan
from trueflops.predict import Trainer, TrainingStep
from trueflops.profile import profile_of
from trueflops.search import OFFLOADS, Found, Space, search_plans
from trueflops.units import GIBI
from trueflops.workload import Training


@dataclass(frozen=True)
class Case:
    """A model on a cluster, and how it was run there."""

    model: str
    on: str
    seq: int
    batch: int
    space: Space = field(default_factory=Space)
    published: tuple[Plan, ...] = ()
    source: str = ""


NARROW = Plan(compute="fp8")
CASES = (
    Case("GPT-3-175B", "64xA100-80GB", 2048, 512, Space(offload=OFFLOADS)),
    Case(
        "GPT-3-175B",
        "1536xA100-80GB",
        2048,
        1536,
        published=(
            Plan(tp=8, pp=12, dp_replicate=16, recompute="full", gradient_dtype="fp32"),
        ),
        source="SC21, arXiv 2104.04473 table 2: 96 ranks a replica",
    ),
    Case(
        "Llama-3.1-405B",
        "16384xH100",
        8192,
        2048,
        published=(Plan(tp=8, sp=True, pp=16, vpp=8, dp_shard=128, zero=1),),
        source="Llama 3, arXiv 2407.21783 table 4 and §3.3.2",
    ),
    Case(
        "DeepSeek-V3",
        "2048xH800",
        4096,
        15360,
        Space(base=NARROW),
        published=(
            NARROW.but(
                pp=16, ep=64, dp_shard=128, zero=1, schedule="dualpipe", dispatch="deduplicated",
                recompute="products",
            ),
        ),
        source="DeepSeek-V3, arXiv 2412.19437 §3.2",
    ),
)  # fmt: skip


def main() -> None:
    """Time every case."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default="", help="models whose name begins so")
    wanted = options.parse_args().only
    for case in CASES:
        if case.model.startswith(wanted):
            _run(case)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{peak / GIBI:.2f} GiB peak memory of the process")


def _run(case: Case) -> None:
    where, model = cluster(case.on), read_model(case.model)
    asked = Training(case.seq, case.batch, 1e12)
    trainer = Trainer(model, asked, where, profile_of(where.accelerator))
    began = time.process_time()
    found = search_plans(trainer, case.space)
    taken = time.process_time() - began
    print(f"{case.model} on {case.on}: {found.legal:,} plans in {taken:.1f} s of one core,")
    print(f"  {found.legal / taken:,.0f} a second; {found.fitting:,} predicted and fit")
    best = found.best[0]
    print(f"  best: {describe_plan(best.plan)}: {_words(best)}")
    for plan in case.published:
        check_plan(plan, model, where.count, asked)
        _rank(case, trainer, plan, found)


def _rank(case: Case, trainer: Trainer, plan: Plan, found: Found) -> None:
    step, best = trainer.predict_one(plan), found.best[0]
    own = float(step.step.value)
    print(f"  published ({case.source}): {describe_plan(plan)}: {_words(step)}")
    again = search_plans(trainer, case.space, most=1, at_least=own, with_front=False)
    gap = own / float(best.step.value) - 1.0
    rank = f"{again.faster + 1:,} of {found.legal:,}"
    print(f"  its rank by our clock: {rank}; the best is {gap:.1%} faster")
    if gap > 0.1:
        parts = {part.name: float(part.value) for part in step.step.parts}
        ours = {part.name: float(part.value) for part in best.step.parts}
        name = max(parts, key=lambda part: parts[part] - ours[part])
        print(f"  mostly by {name}: {parts[name]:.2f} s against {ours[name]:.2f} s")


def _words(step: TrainingStep) -> str:
    flop = float(step.work.model_flop) / float(step.step.value)
    memory = float(step.memory.value) / GIBI
    return f"{float(step.step.value):.2f} s, {flop / 1e12:.0f} TFLOP/s, {memory:.1f} GiB"


if __name__ == "__main__":
    main()
