"""How far a source that nobody has seen lies from its prediction: the errors of frameworks.

python benchmarks/source_errors.py [TABLE…]     published training runs; an error a framework,
                                                and one for each kind of peak of memory

Every source is predicted by settings chosen without it. A framework's error is the least that,
beside those of a step's parts and of what was guessed, covers nine in ten rows: of runs on one node
and on several apart, every source counting once, lower trust half. Few sources say little: to a
framework's own rows all others are added, worth two sources. frameworks.toml and predict/peaks.py
hold what this prints.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from math import log, sqrt
from pathlib import Path
from typing import NamedTuple

from trueflops.errors import TrueflopsError
from trueflops.records.tables import read_table
from trueflops.runtime.terms import Z90
from trueflops.verify.profiles import leaving_out
from trueflops.verify.training import Case, Predictor, read_case, row_id

PUBLISHED = Path(__file__).parents[1] / "truth/published/train_runs.csv"
DOUBTED = 0.5  # weight of a row of lower trust or incomplete; flagged ones contradict themselves
COVERED = 0.9  # of an interval
DRAWN = 2.0  # sources that all frameworks together are worth beside a framework's own
FARTHEST = 1.5  # of a logarithm: beyond a factor of 4.5 a row was misread, not mispredicted
FAMILIES = {
    "nemo": "megatron", "transformers-compiled": "transformers", "fsdp-compiled": "fsdp",
    "composer": "fsdp", "torchtitan": "fsdp", "xla-gpu": "maxtext", "plain": "transformers",
    "compiled": "transformers",
}  # fmt: skip
"""Frameworks of one kind share their sources: each alone has too few."""


class Miss(NamedTuple):
    """What one row says: the error that would just cover it, beside those of its parts."""

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
    for measured, term, of, where in (
        (case.step_seconds, step.step, family, nodes),
        (case.peak_bytes, step.peak(case.peak_kind), case.peak_kind, "peak memory"),
    ):
        if measured is None:
            continue
        told = term.estimate
        error = log(measured / float(told.value))
        if abs(error) <= FARTHEST:
            own = sum(float(s) ** 2 for cause, s in told.spreads.items() if cause != term.cause)
            guessed = float(told.unstated[int(error > 0.0)]) / Z90
            left = (error / Z90) ** 2 - own - guessed**2
            yield Miss(of, where, case.about.source, sqrt(max(left, 0.0)), weight)


def weighed(misses: Iterable[Miss], whole: float) -> Iterator[tuple[float, float]]:
    """What each row needs, with its weight: sources share `whole`, lower trust half as much."""
    sources: dict[str, list[Miss]] = defaultdict(list)
    for miss in misses:
        sources[miss.source].append(miss)
    most = {source: max(row.weight for row in rows) for source, rows in sources.items()}
    for source, rows in sources.items():
        share = whole * most[source] / sum(most.values()) / sum(row.weight for row in rows)
        yield from ((row.needed, row.weight * share) for row in rows)


def covering(rows: Iterable[tuple[float, float]]) -> float:
    """The least error that covers nine in ten, by weight."""
    ordered = sorted(rows)
    left = COVERED * sum(weight for _, weight in ordered)
    for needed, weight in ordered:
        left -= weight
        if left <= 0.0:
            return needed
    return 0.0


def count_of(misses: Iterable[Miss]) -> float:
    """How many sources they are, lower trust half."""
    most: dict[str, float] = defaultdict(float)
    for miss in misses:
        most[miss.source] = max(most[miss.source], miss.weight)
    return sum(most.values())


def main(paths: list[Path]) -> None:
    """Print the error of every framework, on one node and on several, and of every peak."""
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
        print(f"{where}: all {covering(weighed(here, 1.0)):.2f} ({count_of(here):g} sources)")
        for family in sorted({miss.family for miss in here}):
            own = [miss for miss in here if miss.family == family]
            count = count_of(own)
            drawn = covering([*weighed(own, count), *weighed(here, DRAWN)])
            alone = covering(weighed(own, 1.0))
            print(f"  {family:20s} {drawn:.2f}  (own {alone:.2f}, {count:g} sources)")


if __name__ == "__main__":
    main([Path(arg) for arg in sys.argv[1:]] or [PUBLISHED])
