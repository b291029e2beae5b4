"""Memory of a pipeline whose stages are on cards of their own: each card by itself.

An engine lets in as many requests as the card with the least room can hold: vLLM gives every rank
as many blocks as the smallest has (v1/core/kv_cache_utils.py), and llama.cpp fails to start where
the context of all requests does not fit one of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from trueflops.plan import Plan
from trueflops.predict.costs import Costs
from trueflops.predict.serving.memory import KvCache, ServerMemory
from trueflops.predict.serving.passes import Passes
from trueflops.predict.serving.speculator import Speculator
from trueflops.profile import Engine
from trueflops.runtime import Term
from trueflops.workload import Serving


def memory_of(
    passes: Passes, engine: Engine, workload: Serving, *, length: int | None = None,
    speculator: Speculator | None = None,
) -> ServerMemory:  # fmt: skip
    """Of one accelerator like any other, or card by card where stages have cards of their own."""
    if passes.stages:
        return StagedMemory(passes, engine, workload, length=length)
    return ServerMemory(passes, engine, workload, length=length, speculator=speculator)


class StagedMemory(ServerMemory):
    """What each card holds; of the whole, what the card with the least room holds."""

    def __init__(
        self, passes: Passes, engine: Engine, workload: Serving, *, length: int | None = None
    ) -> None:
        super().__init__(passes, engine, workload, length=length)
        self._cards = [ServerMemory(one, engine, workload, length=length) for one in passes.cards]

    @property
    def cards(self) -> Sequence[ServerMemory]:
        """Of each card."""
        return self._cards

    def of(self, plan: Plan, reading: Costs, batch: int) -> tuple[Term, float, int, int]:
        """As ServerMemory does, of the card that limits how many requests can run."""
        at = self.fullest(plan, reading)
        return self.cards[at].of(plan, self.passes.by_card(reading)[at], batch)

    def capacity(self, plan: Plan) -> float:
        """Bytes of the fullest card that may be filled."""
        reading = self.passes.costs(plan, 1.0, float(self.workload.input), 0.0)
        return self.cards[self.fullest(plan, reading)].capacity(plan)

    def kv_cache(self, plan: Plan, reading: Costs) -> KvCache:
        """The pool of the fullest card, after which the others' are cut."""
        at = self.fullest(plan, reading)
        return self.cards[at].kv_cache(plan, self.passes.by_card(reading)[at])

    def layers_that_fit(self, plan: Plan, reading: Costs, batch: int) -> int:
        """On all cards, each filled with layers; the head and others are left to the host."""
        return sum(self.rooms(plan, reading, batch))

    def fullest(self, plan: Plan, reading: Costs) -> int:
        """The card that has room for the fewest requests; of those that have none, the fullest."""
        own = self.passes.by_card(reading)

        def room(at: int) -> float:
            memory = self.cards[at]
            fixed = sum(float(part.value) for part in memory.fixed(plan, own[at]))
            per_request = memory.cache(plan).request_bytes(self.workload.context)
            return (memory.capacity(plan) - fixed) / max(per_request, 1.0)

        return min(range(len(self.cards)), key=room)
