"""Memory of a pipeline whose stages are on cards of their own: each card by itself.

An engine lets in as many requests as the card with the least room can hold: vLLM gives every rank
as many blocks as the smallest has (v1/core/kv_cache_utils.py), and llama.cpp fails to start where
the context of all requests does not fit one of them.
"""

from __future__ import annotations

from trueflops.plan import Plan
from trueflops.predict.costs import Costs
from trueflops.predict.serving.memory import KvCache, ServerMemory
from trueflops.predict.serving.stages import StagedPasses, by_stage
from trueflops.profile import Engine
from trueflops.runtime import Term
from trueflops.workload import Serving


class StagedMemory(ServerMemory):
    """What each card holds; of the whole, what the card with the least room holds."""

    def __init__(
        self, passes: StagedPasses, engine: Engine, workload: Serving, *, length: int | None = None
    ) -> None:
        super().__init__(passes, engine, workload, length=length)
        self.each = [ServerMemory(one, engine, workload, length=length) for one in passes.each]

    def of(self, plan: Plan, reading: Costs, batch: int) -> tuple[Term, float, int, int]:
        """As ServerMemory does, of the card that limits how many requests can run."""
        at = self.fullest(plan, reading)
        return self.each[at].of(plan, by_stage(reading)[at], batch)

    def stage(self, at: int, plan: Plan, reading: Costs, batch: int) -> tuple[Term, float]:
        """What one card holds with so many requests, and what it may hold."""
        memory = self.each[at]
        return memory.of(plan, by_stage(reading)[at], batch)[0], memory.capacity(plan)

    def capacity(self, plan: Plan) -> float:
        """Bytes of the fullest card that may be filled."""
        reading = self.passes.costs(plan, 1.0, float(self.workload.input), 0.0)
        return self.each[self.fullest(plan, reading)].capacity(plan)

    def kv_cache(self, plan: Plan, reading: Costs) -> KvCache:
        """The pool of the fullest card, after which the others' are cut."""
        at = self.fullest(plan, reading)
        return self.each[at].kv_cache(plan, by_stage(reading)[at])

    def layers_that_fit(self, plan: Plan, reading: Costs, batch: int) -> int:
        """On all cards, each filled with layers; the head and others are left to the host."""
        return sum(self.rooms(plan, reading, batch))

    def rooms(self, plan: Plan, reading: Costs, batch: int) -> list[int]:
        """The same, card by card."""
        each = self.layer_bytes(plan, reading, batch)
        return [memory.fitting(plan, reading, each) for memory in self.each]

    def fullest(self, plan: Plan, reading: Costs) -> int:
        """The card that has room for the fewest requests; of those that have none, the fullest."""
        own = by_stage(reading)

        def room(at: int) -> float:
            memory = self.each[at]
            fixed = sum(float(part.value) for part in memory.fixed(plan, own[at]))
            per_request = memory.cache(plan).request_bytes(self.workload.context)
            return (memory.capacity(plan) - fixed) / max(per_request, 1.0)

        return min(range(len(self.each)), key=room)
