"""Memory of a server: weights, what a pass needs, and the KV cache that engines make of the rest.

Engines size their cache at start (`pool` of profile/engines.py):
    vLLM          share · total − weights − trial pass − graphs − libraries and communicators
                  (older releases count less, or more: `counted`)
    SGLang        free after loading − (1 − share) · free at start
    TensorRT-LLM  share · (free after loading and a trial pass)
    llama.cpp     the context of all requests, and no more
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from trueflops.catalog.visible import visible_bytes
from trueflops.plan import Plan
from trueflops.predict.costs import Costs
from trueflops.predict.serving.cache import Cache
from trueflops.predict.serving.padding import padding_bytes
from trueflops.predict.serving.passes import Passes
from trueflops.predict.serving.speculator import Speculator
from trueflops.predict.serving.trial import trial_bytes
from trueflops.profile import Engine
from trueflops.runtime import Estimate, Term, exact, leaf, total
from trueflops.units import GIBI
from trueflops.workload import Serving

PEERS: Final = 5.0
"""Ranks of one node that NCCL connects a rank with at most: two on its ring, and in its tree a
parent and two children (nccl/src/graph/trees.cc). Without NVLink buffers lie in host memory
(transport/shm.cc)."""
LIBRARIES: Final = 0.1 * GIBI
"""What cuBLAS, attention and the like load during vLLM's trial pass; its baseline is taken with the
context already there. 0.06 to 0.14 GiB on one rank in the logs of llm-d-benchmark
(config_explorer/empirical-vllm-memory-results.md) and of vLLM's issues."""


WHOLE: Final = "total"
RELEASES: Final = 0.04  # of a pool: other processes, and what releases differ by
SPREADS: Final = {
    WHOLE: 0.006,
    "weights": 0.02,
    "working tensors": 0.3,
    "communication buffers": 0.6,
    "libraries": 0.8,
    "context": 0.4,
    "captured graphs": 0.4,
}
"""Relative standard deviations of what a pool is the rest of (assumed): what the driver leaves of
the memory, padding of weights, which temporaries a pass holds, and what libraries take."""


@dataclass(frozen=True)
class KvCache:
    """The pool of one replica, in the words of engines."""

    bytes: Estimate  # on one rank
    blocks: int
    block: int  # tokens of one
    tokens: Estimate
    length: int  # of the longest request
    concurrency: Estimate  # requests of that length


class ServerMemory:
    """What one accelerator of a replica holds, and how many requests there is room for."""

    def __init__(
        self,
        passes: Passes,
        engine: Engine,
        workload: Serving,
        *,
        length: int | None = None,
        visible: float | None = None,
        free: float | None = None,
        towers: float = 0.0,
        encoding: float = 0.0,
        speculator: Speculator | None = None,
    ) -> None:
        self.passes, self.engine, self.workload = passes, engine, workload
        self.length = length or workload.context
        self.visible = visible or visible_bytes(passes.clock.chip)
        self.free = free  # at start, where it was seen
        self.towers = towers  # parameters of encoders beside the model
        self.encoding = encoding  # bytes that their pass holds
        self.speculator = speculator

    @property
    def cards(self) -> Sequence[ServerMemory]:
        """Of each card where stages have cards of their own; else this."""
        return (self,)

    def capacity(self, plan: Plan) -> float:
        """Bytes of one accelerator that the parts below may fill."""
        if self.engine.pool == "profiled":
            return self.engine.share(self._ranks(plan)) * self.visible
        return self.visible

    def of(self, plan: Plan, reading: Costs, batch: int) -> tuple[Term, float, int, int]:
        """Weights, the cache of all requests that the engine lets in, and what one prefill needs.

        Beside it the cache of one request, how many of them can end together, and how many can
        run: those under way have on average written half of their output.
        """
        fixed = self.fixed(plan, reading)
        left = self._left(plan, fixed)
        cache = self.cache(plan)
        context = self.workload.context
        per_request = cache.request_bytes(context) + self._drafted(plan, context)
        most = self._held(left, per_request)
        half = context - self.workload.output / 2.0
        room = max(self._held(left, cache.request_bytes(half) + self._drafted(plan, half)), 1)
        held = exact("KV cache", per_request * self._let_in(batch), "bytes")
        law = self.passes.profile.curve("allocator")
        parts = (fixed[0], held, *fixed[1:])
        whole = total("memory", *parts, unit="bytes", cause="allocator", spread=law["whole"])
        return whole, per_request, most, room

    def kv_cache(self, plan: Plan, reading: Costs) -> KvCache:
        """The pool that the engine makes at start."""
        fixed = self.fixed(plan, reading)
        left = max(self._left(plan, fixed), 0.0)
        doubts = {part.name: self.spread(part.name) * float(part.value) for part in fixed}
        doubts[WHOLE] = self.spread(WHOLE) * self.visible
        spreads = {name: doubt / max(left, doubt, 1.0) for name, doubt in doubts.items()}
        spreads["releases"] = RELEASES
        cache = self.cache(plan)
        pool = Estimate(left, spreads, "assumed", most=self.visible)

        def worth(value: float) -> Estimate:
            return Estimate(value, spreads, "assumed")

        if not cache.longest_bytes(self.length):  # the host holds every layer, and their keys
            runs = worth(float(self.engine.most_sequences))
            return KvCache(pool, 0, self.engine.block, worth(0.0), self.length, runs)
        # Layers of a drafter have their share of every block.
        whole = cache.longest_bytes(self.length)
        own = whole / (whole + self._drafted(plan, self.length)) * left
        return KvCache(
            pool,
            int(own // cache.block_bytes),
            cache.block or self.length,
            worth(float(cache.tokens(own, self.length))),
            self.length,
            worth(cache.concurrency(own, self.length)),
        )

    @staticmethod
    def spread(part: str) -> float:
        """How far a part may be off, relative."""
        return SPREADS.get(part, 0.0)

    def fixed(self, plan: Plan, reading: Costs) -> list[Term]:
        """What is not the cache; weights come first."""
        law = self.passes.profile.curve("allocator")
        peers = min(float(plan.tp) - 1.0, PEERS) + 2.0 * float(plan.pp > 1)
        linked = bool(self.passes.clock.chip.text("links.scale_up"))
        joins = peers > 0.0 and self.engine.nccl
        joined = law["collectives"] + peers * linked * law["connection"] if joins else 0.0
        buffers = leaf("communication buffers", joined, law, "allocator", "bytes")
        parts = [exact("weights", self.weights(plan, reading), "bytes")]
        if self.speculator and self.speculator.drafting:
            parts.append(exact("drafter", self.speculator.drafter_bytes(plan), "bytes"))
        taken = 0.0 if self.passes.clock.chip.is_cpu else law["context"]
        context = leaf("context", taken, law, "allocator", "bytes")
        match self.engine.pool:
            case "profiled":
                parts.append(self._trial(plan))
                libraries = leaf("libraries", LIBRARIES, law, "allocator", "bytes")
                beside = {"allocated": [], "process": [buffers, libraries]}
                parts += beside.get(self.engine.counted, [buffers, context])
                if self.engine.graph_bytes:
                    graphs = self.engine.graph_bytes
                    parts.append(leaf("captured graphs", graphs, law, "allocator", "bytes"))
            case "static":
                usual = self.visible - float(context.value) - float(buffers.value)
                free = self.free or usual
                kept = (1.0 - self.engine.share(self._ranks(plan))) * free + usual - free
                parts += [exact("kept for passes", kept, "bytes"), buffers, context]
            case "free":
                parts += [self._trial(plan), buffers, context]
                free = self.visible - sum(float(part.value) for part in parts)
                kept = (1.0 - self.engine.share(self._ranks(plan))) * max(free, 0.0)
                parts.append(exact("kept free", kept, "bytes"))
            case "asked":
                parts += [self._trial(plan), buffers, context]
        return parts

    def weights(self, plan: Plan, reading: Costs) -> float:
        """Of the fullest stage: its layers and the larger of embedding and head."""
        stages = float(self.passes.dealt(plan).pp)
        layers = sum(n * float(p.weight_bytes) for p, n in reading.pieces(self.passes.model))
        ends = [float(reading.embedding.weight_bytes), float(reading.head.weight_bytes)]
        layers -= sum(ends)
        over = self._dense_ranks(plan)
        layers -= self._dense(plan) * (1.0 - 1.0 / over)
        tied = float(reading.head.tied_parameters) * self.engine.ties * self.passes.bits / 8.0
        if not tied:
            ends[1] /= over
        held = sum(ends) - tied if stages == 1.0 else max(ends)
        if self.engine.table_on_host and not self.passes.clock.chip.is_cpu:
            held = ends[1]
        towers = self.towers * self.passes.bits / 8.0 / float(plan.tp)
        by, chip = self.passes, self.passes.clock.chip
        layers += padding_bytes(by.model, plan, by.weights, self.engine, chip)
        return layers / stages + held + towers + self._absorbed(plan) / stages

    def _dense_ranks(self, plan: Plan) -> float:
        """Replicas of attention over which dense layers, shared experts and the head are split."""
        over = float(plan.ep * plan.etp) / float(plan.tp)
        return max(over, 1.0) if self.engine.dense_over_all else 1.0

    def _dense(self, plan: Plan) -> float:
        """Bytes of dense layers and shared experts, on a rank of a replica."""
        model, width = self.passes.model, 0.0
        for block in (model.blocks[index] for index in model.pattern):
            if block.ffn:
                width += block.ffn.width * (3.0 if block.ffn.gated else 2.0)
            if block.experts:
                width += block.experts.shared_width * (3.0 if block.experts.gated else 2.0)
        return width * model.hidden / float(plan.tp) * self.passes.weights.weight_bits / 8.0

    def _absorbed(self, plan: Plan) -> float:
        """Products of MLA's projections that some releases keep beside them.

        Of queries and keys, q_rank × heads · kv_rank, and of values and output, heads · kv_rank ×
        hidden (vLLM 0.7, attention/backends/mla/utils.py).
        """
        if not self.engine.absorbs:
            return 0.0
        held = 0.0
        for index in self.passes.model.pattern:
            attention = self.passes.model.blocks[index].attention
            if attention and attention.latent:
                into = attention.latent.q_rank or self.passes.model.hidden
                rows = attention.heads * attention.latent.kv_rank / float(plan.tp)
                held += rows * (into + self.passes.model.hidden)
        return held * min(self.passes.weights.weight_bits, 16.0) / 8.0

    def cache(self, plan: Plan) -> Cache:
        """How the cache is laid out on one rank."""
        held = self.passes.held_model
        return Cache.of(held, self.passes.dealt(plan), self.engine, self.passes.cache_bits)

    def cache_per_request(self, plan: Plan) -> float:
        """Bytes of one request's keys and values in all layers, windows taken into account."""
        whole = Cache.of(self.passes.model, plan, self.engine, self.passes.cache_bits)
        return whole.request_bytes(self.workload.context)

    def layers_that_fit(self, plan: Plan, reading: Costs, batch: int) -> int:
        """Of the model's, those that accelerators can hold where the head and others are left
        to the host.
        """
        return sum(self.rooms(plan, reading, batch)) * int(plan.pp)

    def rooms(self, plan: Plan, reading: Costs, batch: int) -> list[int]:
        """How many layers each card could hold."""
        each = self.layer_bytes(plan, reading, batch)
        return [memory.fitting(plan, reading, each) for memory in self.cards]

    def layer_bytes(self, plan: Plan, reading: Costs, batch: int) -> float:
        """Weights and cache of one layer, on average."""
        model, ends = self.passes.model, (reading.embedding, reading.head)
        weights = sum(n * float(p.weight_bytes) for p, n in reading.pieces(model))
        weights -= sum(float(end.weight_bytes) for end in ends)
        cache = self.cache_per_request(replace(plan, pp=1)) * self._let_in(batch)
        return (weights + cache) / model.layers

    def fitting(self, plan: Plan, reading: Costs, each: float) -> int:
        """Layers of so many bytes that one accelerator can hold."""
        others = sum(float(part.value) for part in self.fixed(plan, reading)[1:])
        return max(int((self.capacity(plan) - others) // each), 0)

    def _let_in(self, batch: int) -> int:
        """Of so many requests, those that the engine runs at once where there is room."""
        return min(batch, self.engine.most_sequences)

    def _held(self, left: float, each: float) -> int:
        """Requests of so many bytes that there is room for; of none all that the engine runs."""
        return max(int(left // each), 0) if each else self.engine.most_sequences

    def _left(self, plan: Plan, fixed: list[Term]) -> float:
        """What is left for the cache."""
        return self.capacity(plan) - sum(float(part.value) for part in fixed)

    def _trial(self, plan: Plan) -> Term:
        needed = max(trial_bytes(self.passes.model, plan, self.engine), self.encoding)
        law = self.passes.profile.curve("activations")
        return leaf("working tensors", needed, law, "activations", "bytes")

    @staticmethod
    def _ranks(plan: Plan) -> int:
        return int(plan.tp * plan.pp)

    def _drafted(self, plan: Plan, tokens: float) -> float:
        """Bytes of so many tokens' keys and values in a drafter's own layers; heads have none."""
        by = self.speculator
        if by is None or by.drafting is None or by.speculation.method.drafter == "heads":
            return 0.0
        alone = by.draft_plan(plan)
        cache = Cache.of(by.drafting.model, alone, self.engine, by.drafting.cache_bits)
        return cache.request_bytes(tokens)
