"""Memory of a server: weights, the KV cache, and what a pass needs while it runs."""

from __future__ import annotations

import numpy as np

from trueflops.plan import Plan
from trueflops.predict.costs import Costs
from trueflops.predict.serving.passes import Passes
from trueflops.profile import Engine
from trueflops.runtime import Term, exact, leaf, total
from trueflops.sizes import Size
from trueflops.workload import Serving


class ServerMemory:
    """What one accelerator of a replica holds, and how many requests there is room for."""

    def __init__(self, passes: Passes, engine: Engine, workload: Serving) -> None:
        self.passes, self.engine, self.workload = passes, engine, workload

    @property
    def capacity(self) -> float:
        """Bytes of one accelerator that the engine may fill."""
        return self.engine.memory_share * self.passes.clock.chip.need("memory.capacity")

    def of(self, plan: Plan, reading: Costs, batch: int) -> tuple[Term, float, int, int]:
        """Weights, the cache of all requests, and what one prefill needs while it runs.

        Beside it the cache of one request, how many of them can end together, and how many can
        run: those under way have on average written half of their output.
        """
        stages = float(plan.pp)
        working: Size = 0.0
        layers: Size = 0.0
        for piece, times in reading.pieces(self.passes.model):
            layers = layers + times * piece.weight_bytes
            working = np.maximum(working, piece.working_bytes)
        ends = [reading.embedding.weight_bytes, reading.head.weight_bytes]
        layers = layers - sum(ends)
        tied = reading.head.tied_parameters * self.passes.bits / 8.0
        # The fullest stage has its share of the layers and the larger of embedding and head.
        weights = layers / stages + (sum(ends) - tied if stages == 1.0 else max(ends))
        chunk = min(1.0, self.engine.step_tokens / self.workload.input)
        per_request = self.cache_per_request(plan)
        law = self.passes.profile.curve("allocator")
        groups = float(plan.tp > 1) + float(plan.pp > 1)
        fixed = [
            exact("weights", weights, "bytes"),
            leaf(
                "working tensors",
                working * chunk,
                self.passes.profile.curve("activations"),
                "activations",
                "bytes",
            ),
            leaf("communication buffers", groups * law["communicator"], law, "allocator", "bytes"),
            leaf("context", law["context"], law, "allocator", "bytes"),
        ]
        left = self.capacity - sum(float(part.value) for part in fixed)
        most = max(int(left // per_request), 0) if per_request else batch
        half = self.workload.context - self.workload.output / 2.0
        room = max(int(most * self.workload.context / half), 1)
        cache = exact("KV cache", per_request * batch, "bytes")
        whole = total("memory", fixed[0], cache, *fixed[1:], unit="bytes")
        return whole, per_request, most, room

    def cache_per_request(self, plan: Plan) -> float:
        """Bytes of one request's keys and values on one accelerator, windows taken into account."""
        held = 0.0
        for kind, block in enumerate(self.passes.model.blocks):
            a = block.attention
            length = min(self.workload.context, a.window or self.workload.context)
            heads = 1.0 if a.latent else max(a.kv_heads / plan.tp, 1.0) / a.kv_heads
            held += self.passes.model.pattern.count(kind) * length * a.cache_width * float(heads)
        return float(held * self.passes.cache_bits / 8.0 / plan.pp)
