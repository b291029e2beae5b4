"""What one step of an engine takes, fast enough to be asked a million times.

In: a Server and a Plan. Out: a StepClock. A few passes are priced at once, as arrays; between them
it is interpolated:
    decode(n, C)     = a[n] + b[n] · C             n requests whose caches hold C tokens together
    prompts(T, pairs) = G(T) + c · (pairs − usual)  T tokens read, pairs of a query and a key
    mixed            = max(G(T + n) + c · (…) + b'[n] · C, a[n] + b[n] · C)
b' is what the chip takes for each cached token; of a step that waits for its host b is less.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from trueflops.plan import Plan
from trueflops.predict import Server
from trueflops.sizes import Array

FINEST: Final = 16.0  # tokens: shorter prompts take as long


@dataclass(frozen=True)
class StepClock:
    """Seconds of steps of one replica; lists, because single numbers are looked up."""

    writing: list[float]  # a[n]
    per_cached: list[float]  # b[n], seconds for each token in the cache
    tokens: list[float]  # the grid of G
    reading: list[float]  # G
    per_pair: float  # c
    usual: float  # length of the prompts that G was priced with
    stages: float = 1.0  # of a pipeline: as many batches of prompts are read at once, if equal
    beside: list[float] | None = None  # b' where it is not b

    def paced(self, by: float) -> StepClock:
        """The same, every step so many times as long."""
        return replace(
            self,
            writing=[by * seconds for seconds in self.writing],
            per_cached=[by * seconds for seconds in self.per_cached],
            reading=[by * seconds for seconds in self.reading],
            per_pair=by * self.per_pair,
            beside=self.beside and [by * seconds for seconds in self.beside],
        )

    def prompts(self, tokens: float, pairs: float) -> float:
        """Seconds of a pass that reads so many tokens, which attend to so many keys in all."""
        grid, seconds = self.tokens, self.reading
        at = min(max(bisect_right(grid, tokens), 1), len(grid) - 1)
        low, high = grid[at - 1], grid[at]
        share = (max(tokens, low) - low) / (high - low)
        flat = seconds[at - 1] + share * (seconds[at] - seconds[at - 1])
        more = self.per_pair * (pairs - tokens * min(tokens, self.usual) / 2.0)
        return max(flat + more, seconds[0])

    def mixed(self, tokens: float, pairs: float, running: int, cached: float) -> float:
        """Seconds of a step that reads prompts beside so many requests that write."""
        if not running:
            return self.prompts(tokens, pairs) / self.stages
        # The tokens that are written go through the same products; their keys are counted apart.
        own = running * min(tokens + running, self.usual) / 2.0
        read = self.prompts(tokens + running, pairs + own) / self.stages
        slope = self.per_cached[running]
        chip = self.beside[running] if self.beside else slope
        return max(read + chip * cached, self.writing[running] + slope * cached)


def step_clock(
    server: Server, plan: Plan, most: int, longest: float, step_tokens: int
) -> StepClock:
    """Price a grid for up to `most` requests a replica, of up to `longest` tokens each."""
    usual, written = float(server.workload.input), float(server.workload.output)
    stages = 1.0 / server.slowest_share(plan)
    a, b, beside = _decode(server, plan, most, max(usual, 1.0), max(usual + written, longest, 2.0))
    top = float(step_tokens + most)
    grid = np.unique(np.r_[np.geomspace(FINEST, max(top, 2.0 * FINEST), 18), usual, step_tokens])
    grid = grid[grid >= FINEST]
    prompts = np.maximum(grid / usual, 1.0)
    # Beside the grid, a chunk alone and the last of its prompt, behind one at least: what a pair of
    # query and key takes on the way from one to the other.
    chunk = float(np.clip(usual, FINEST, step_tokens))
    behind = max(usual - chunk, chunk)
    batch, length = np.r_[prompts, 1.0, 1.0], np.r_[grid / prompts, chunk, chunk]
    past = np.r_[np.zeros(len(grid) + 1), behind]
    costs = server.passes.costs(plan, batch, length, past)
    timed = server.passes.time("prefill", costs, plan, graphs=False)
    *reading, alone, last = np.asarray(timed.value).tolist()
    pair = max(last - alone, 0.0) / (chunk * behind)
    return StepClock(a, b, grid.tolist(), reading, pair, usual, stages, beside)


def _decode(
    server: Server, plan: Plan, most: int, short: float, long: float
) -> tuple[list[float], list[float], list[float] | None]:
    """The lists a, b and b' for 0…most requests: a line through two lengths of their caches."""
    powers = 2.0 ** np.arange(int(np.ceil(np.log2(max(most, 2)))) + 1)
    batches = np.unique(np.minimum(powers, max(most, 2)))
    each = np.maximum(batches / float(plan.pp), 1.0)  # a stage has a share of them at a time
    alone: Array | None = None  # far less near, of the chip alone
    if (drafts := server.speculator) is not None:  # a token's share of a step that verifies some
        near, far = (
            np.array([float(drafts.token(plan, n, past).value) for n in each.tolist()])
            for past in (short, long)
        )
    else:
        past = np.repeat([short, long], len(batches))
        costs = server.passes.costs(plan, np.tile(each, 2), 1.0, past)
        tokens = np.tile(batches, 2)
        timed = partial(server.passes.time, "decode step", costs, plan, graphs=True, tokens=tokens)
        near, far = np.split(np.asarray(timed().value), 2)
        if not server.passes.captures:
            alone = np.subtract(*np.split(np.asarray(timed(issued=0.0).value), 2)[::-1])
    cached = batches * (long - short)
    slope = np.maximum((far - near) / cached, 0.0)
    start = np.maximum(near - slope * batches * short, 0.0)
    counts = np.arange(most + 1.0)
    beside = None if alone is None else _between(counts, batches, alone / cached)
    return _between(counts, batches, start), _between(counts, batches, slope), beside


def _between(counts: Array, grid: Array, values: Array) -> list[float]:
    """Interpolated at every count; of 0 as of 1."""
    return [float(value) for value in np.interp(counts, grid, values)]
