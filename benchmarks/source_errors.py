"""How far a source that nobody has seen lies from its prediction: the errors of frameworks.

python benchmarks/source_errors.py [TABLE…]     published training runs; an error a framework,
                                                and one for each kind of peak of memory

Every source is predicted by settings chosen without it. What its errors exceed those of the step's
parts and of what was guessed by is the framework's: of runs on one node and on several apart, every
source counting once, lower trust half. Few sources say little: a framework's own error is drawn
towards that of all (two sources' worth). frameworks.toml and predict/peaks.py hold what this
prints.
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
DRAWN = 2.0  # sources that all frameworks together are worth beside a framework's own
FARTHEST = 1.5  # of a logarithm: beyond a factor of 4.5 a row was misread, not mispredicted
FAMILIES = {
    "nemo": "megatron", "transformers-compiled": "transformers", "fsdp-compiled": "fsdp",
    "composer": "fsdp", "torchtitan": "fsdp", "xla-gpu": "maxtext", "plain": "transformers",
    "compiled": "transformers",
}  # fmt: skip
"""Frameworks of one kind share their sources: each alone has too few."""


class Miss(NamedTuple):
    """What one row says: how much of its squared error no part explains."""

    family: str
    nodes: str
    source: str
    unexplained: float
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
            yield Miss(of, where, case.about.source, error**2 - own - guessed**2, weight)


def error_of(misses: Iterable[Miss]) -> tuple[float, float]:
    """The mean square over sources, and how many sources that is."""
    sources: dict[str, list[Miss]] = defaultdict(list)
    for miss in misses:
        sources[miss.source].append(miss)
    squares = weights = 0.0
    for rows in sources.values():
        weight = max(row.weight for row in rows)
        whole = sum(row.weight for row in rows)
        mean = sum(row.weight * row.unexplained for row in rows) / whole
        squares, weights = squares + weight * max(mean, 0.0), weights + weight
    return (squares / weights if weights else 0.0), weights


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
    for nodes in ("one node", "several", "peak memory"):
        here = [miss for miss in misses if miss.nodes == nodes]
        everyone, count = error_of(here)
        print(f"{nodes}: all {sqrt(everyone):.2f} ({count:g} sources)")
        for family in sorted({miss.family for miss in here}):
            own, sources = error_of(miss for miss in here if miss.family == family)
            drawn = (sources * own + DRAWN * everyone) / (sources + DRAWN)
            print(f"  {family:20s} {sqrt(drawn):.2f}  (own {sqrt(own):.2f}, {sources:g} sources)")
            for source in sorted({m.source for m in here if m.family == family}):
                alone, _ = error_of(m for m in here if (m.family, m.source) == (family, source))
                print(f"      {source:24s} {sqrt(alone):.2f}")


if __name__ == "__main__":
    main([Path(arg) for arg in sys.argv[1:]] or [PUBLISHED])
