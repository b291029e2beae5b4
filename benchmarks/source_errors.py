"""How far a source that nobody has seen lies from its prediction: the errors of frameworks.

python benchmarks/source_errors.py [TABLE…]     published training runs; errors of a framework to
                                                either side, and of each kind of peak of memory

Every source is predicted by settings chosen without it. Runs are slower than told far more often
than they are faster, and hold more: an error each is the least that, beside those of a step's parts
and of what was guessed, leaves few rows beyond it on its side. Runs on one node and on several
stand apart; every source counts once, lower trust half. Few sources say little: to a framework's
own rows all others are added, worth two sources. Of a peak, slower means larger. frameworks.toml
and predict/training/peaks.py hold what this prints of the published runs and of the first edition
of sources gathered afterwards; the second judges it.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from math import copysign, log, sqrt
from pathlib import Path
from typing import NamedTuple

from trueflops.errors import TrueflopsError
from trueflops.predict.training.peaks import UNSEEN
from trueflops.predict.training.step_terms import unseen
from trueflops.records.tables import read_table
from trueflops.runtime.terms import Z90
from trueflops.verify.profiles import leaving_out
from trueflops.verify.training.runs import Case, Predictor, read_case, row_id

TRUTH = Path(__file__).parents[1] / "truth"
USUAL = ("published/train_runs.csv", "unseen/pretraining_runs.csv", "unseen/finetuning_runs.csv")
DOUBTED = 0.5  # weight of a row of lower trust or incomplete; flagged ones contradict themselves
SIDES = {"slower": 0.10, "faster": 0.05}
"""Of all rows so many may lie farther to a side: those of lower trust, which are here, lie farther
than those that are not."""
DRAWN = 2.0  # sources that all frameworks together are worth beside a framework's own
FARTHEST = 1.5  # of a logarithm: beyond a factor of 4.5 a row was misread, not mispredicted
FAMILIES = {
    "nemo": "megatron", "transformers-compiled": "transformers", "fsdp-compiled": "fsdp",
    "composer": "fsdp", "torchtitan": "fsdp", "torchtitan-eager": "fsdp", "prime-rl": "fsdp",
    "olmo-core": "fsdp", "megatron-core": "megatron", "xla-gpu": "maxtext", "plain": "transformers",
    "compiled": "transformers",
}  # fmt: skip
"""Frameworks of one kind share their sources: each alone has too few."""


class Miss(NamedTuple):
    """What one row says: the error that would just cover it, beside those of its parts; below zero
    where it was faster than told.
    """

    family: str
    where: str
    source: str
    needed: float
    weight: float


def missed(predictor: Predictor, case: Case) -> Iterator[Miss]:
    """A row's errors beyond those of its parts: of the step by framework, of the peak by kind."""
    if case.about.apart == "flagged":
        return
    step = predictor.predict(case)
    family = FAMILIES.get(case.framework, case.framework)
    nodes = "one node" if case.cluster.nodes == 1 else "several"
    weight = DOUBTED if case.about.apart in ("trust C", "incomplete") else 1.0
    software = predictor.trainer(case).profile.curve("framework")
    kind = case.peak_kind
    for measured, term, allowed, of, where in (
        (case.step_seconds, step.step, unseen(case.cluster, software), family, nodes),
        (case.peak_bytes, step.peak(kind), UNSEEN[kind], kind, "peak memory"),
    ):
        if measured is None:
            continue
        told = term.estimate
        error = log(measured / float(told.value))
        if abs(error) <= FARTHEST:
            side = int(error > 0.0)
            left = (error**2 - float(told.reach(side)) ** 2) / Z90**2 + allowed[side] ** 2
            needed = copysign(sqrt(max(left, 0.0)), error)
            yield Miss(of, where, case.about.source, needed, weight)


def weighed(misses: Iterable[Miss], whole: float) -> Iterator[tuple[float, float]]:
    """What each row needs, with its weight: sources share `whole`, lower trust half as much."""
    sources: dict[str, list[Miss]] = defaultdict(list)
    for miss in misses:
        sources[miss.source].append(miss)
    most = {source: max(row.weight for row in rows) for source, rows in sources.items()}
    for source, rows in sources.items():
        share = whole * most[source] / sum(most.values()) / sum(row.weight for row in rows)
        yield from ((row.needed, row.weight * share) for row in rows)


def reaching(rows: Iterable[tuple[float, float]], side: str) -> float:
    """The least error to one side that leaves few beyond it, by weight."""
    sign = 1.0 if side == "slower" else -1.0
    farthest = sorted(((sign * needed, weight) for needed, weight in rows), reverse=True)
    left = SIDES[side] * sum(weight for _, weight in farthest)
    for needed, weight in farthest:
        left -= weight
        if left < 0.0:
            return max(needed, 0.0) + 0.0
    return 0.0


def count_of(misses: Iterable[Miss]) -> float:
    """How many sources they are, lower trust half."""
    most: dict[str, float] = defaultdict(float)
    for miss in misses:
        most[miss.source] = max(most[miss.source], miss.weight)
    return sum(most.values())


def main(paths: list[Path]) -> None:
    """Print the errors of every framework, on one node and on several, and of every peak."""
    predictor = Predictor(leaving_out)
    misses: list[Miss] = []
    for path in paths:
        for line, row in read_table(path).rows:
            try:
                misses += missed(predictor, read_case(row, row_id(line, row)))
            except TrueflopsError:
                continue
    for where in ("one node", "several", "peak memory"):
        here = [miss for miss in misses if miss.where == where]
        every = ", ".join(f"{side} {reaching(weighed(here, 1.0), side):.2f}" for side in SIDES)
        print(f"{where}: all {every} ({count_of(here):g} sources)")
        for family in sorted({miss.family for miss in here}):
            own = [miss for miss in here if miss.family == family]
            count = count_of(own)
            drawn = [*weighed(own, count), *weighed(here, DRAWN)]
            found = "  ".join(f"{side} {reaching(drawn, side):.2f}" for side in SIDES)
            print(f"  {family:20s} {found}  ({count:g} sources)")


if __name__ == "__main__":
    main([Path(arg) for arg in sys.argv[1:]] or [TRUTH / name for name in USUAL])
