"""At which batch drafts stop paying: passes as predicted beside passes as measured.

    python benchmarks/drafts.py [FILE.csv]     default: truth/h200/decoding_passes.csv

The file has passes of models and drafters alone (`benchmarks/decoding_passes.py`), in captured
graphs and without an engine's host. A round verifies what was drafted and drafts anew:
    speed-up = tokens a round · decode step / (verification + drafting passes)
whose tokens a round are given here. Printed are the error of the speed-up over all batches, and the
batch from which a round takes longer than it brings, for several acceptances.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping
from math import exp, inf, log
from pathlib import Path
from typing import NamedTuple

from trueflops import read_model
from trueflops.predict.serving.speculation import Speculation
from trueflops.predict.serving.speculator import TAKEN_IN
from trueflops.records.tables import read_table
from trueflops.verify.findings import PassRow
from trueflops.verify.profiles import best_known
from trueflops.verify.serving.passes import passes_findings

USUAL = Path(__file__).parents[1] / "truth" / "h200" / "decoding_passes.csv"
ACCEPTED = (1.5, 2.0, 2.5, 3.0, 4.0)  # tokens a round, the model's own included


class Network(NamedTuple):
    """A model, or what a method of drafting has beside it."""

    model: str
    drafter: str = ""


class Drafted(NamedTuple):
    """A model, how its tokens are drafted, and how many at once."""

    model: str
    method: str
    tokens: int
    draft: str = ""

    @property
    def speculation(self) -> Speculation:
        """As predictions have it."""
        draft = read_model(self.draft) if self.draft else None
        return Speculation.of(read_model(self.model), self.method, drafted=self.tokens, draft=draft)

    @property
    def drafter(self) -> Network | None:
        """What drafts; None where drafts are looked up."""
        if self.draft:
            return Network(self.draft)
        return Network(self.model, self.method) if self.speculation.drafter else None

    def round(self) -> list[tuple[Network, int, float]]:
        """What runs for every request: a network, tokens of a pass, and how many such passes."""
        verified = (Network(self.model), self.tokens + 1, 1.0)
        if self.drafter is None:
            return [verified]
        first = round(TAKEN_IN) if self.draft else self.tokens + 1
        later = self.speculation.passes - 1.0
        return [verified, (self.drafter, first, 1.0), (self.drafter, 1, later)]


DRAFTED = (
    Drafted("Llama-3.1-8B", "draft", 4, "Llama-3.2-1B"),
    Drafted("Llama-3.1-8B", "eagle3", 4),
    Drafted("Llama-3.1-8B", "ngram", 4),
    Drafted("Qwen2.5-32B", "draft", 4, "Qwen2.5-0.5B"),
    Drafted("Qwen2.5-32B", "eagle3", 4),
)
Passes = Mapping[tuple[Network, int, int, int], float]
"""Seconds by network, tokens of a request, those before them, and requests."""


def main(path: Path) -> None:
    """Compare speed-ups and turning batches."""
    measured, told = passes_in(path)
    for case in DRAFTED:
        for past in sorted({key[2] for key in measured}):
            real, guess = (speedups(case, past, passes) for passes in (measured, told))
            if real:
                print(f"{case.model}, {case.method} of {case.tokens}, {past} cached", end=": ")
                compare(real, guess)


def passes_in(path: Path) -> tuple[Passes, Passes]:
    """As measured, and as predicted."""
    measured, told = {}, {}
    for row in passes_findings(read_table(path), best_known).rows:
        about = row.about
        assert isinstance(about, PassRow)
        key = (Network(about.model, about.drafter), about.tokens, about.past, about.batch)
        measured[key], told[key] = row.measured, row.predicted
    return measured, told


def speedups(case: Drafted, past: int, passes: Passes) -> dict[int, float]:
    """For one token a round, at every batch of which all passes are known."""
    found = {}
    for batch in sorted({key[3] for key in passes if key[2] == past}):
        runs = [((of, tokens, past, batch), times) for of, tokens, times in case.round()]
        plain = (Network(case.model), 1, past, batch)
        if plain in passes and all(key in passes for key, _ in runs):
            found[batch] = passes[plain] / sum(times * passes[key] for key, times in runs)
    return found


def compare(real: dict[int, float], guess: dict[int, float]) -> None:
    """One way of drafting after so many cached tokens."""
    off = statistics.mean(abs(guess[batch] / real[batch] - 1.0) for batch in real)
    print(f"speed-up off by {off:.1%} ({len(real)} batches, up to {max(real)})")
    for accepted in ACCEPTED:
        ends = " measured, ".join(said(turning(found, accepted)) for found in (real, guess))
        print(f"  {accepted:g} tokens a round: {ends} told")


def turning(speedups: dict[int, float], accepted: float) -> float:
    """The batch from which drafts no longer pay; between two that were run, by logarithms."""
    before: tuple[int, float] | None = None
    for batch, each in sorted(speedups.items()):
        gain = accepted * each
        if gain < 1.0:
            if before is None:
                return float(batch)
            share = log(before[1]) / log(before[1] / gain)
            return exp(log(before[0]) + share * log(batch / before[0]))
        before = (batch, gain)
    return inf


def said(batch: float) -> str:
    """Where drafts stop paying."""
    return "always pays" if batch == inf else f"no gain from {batch:.0f}"


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else USUAL)
