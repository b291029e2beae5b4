"""The answer: one plan of a model on a cluster at one load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trueflops.catalog import Accelerator, Cluster, Price
from trueflops.graph.passes import Format
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.plan.spread import ways_to_spread
from trueflops.predict.serving.memory import KvCache
from trueflops.predict.serving.offloading import Offload
from trueflops.predict.serving.sparse import spreads
from trueflops.predict.serving.speculation import Speculation
from trueflops.profile import Engine, Profile
from trueflops.runtime import Estimate, Term
from trueflops.sizes import divisors
from trueflops.workload import Serving

Limited = Literal["load", "prefill", "decode", "links"]
"""What a pair of pools is limited by: no more requests being sent, the prefill pool, room in the
decode pool's caches, or the links between both."""


@dataclass(frozen=True)
class UsdApart:
    """Dollars for a million tokens, those read and those written each for their own."""

    read: Estimate
    written: Estimate

    @classmethod
    def of(cls, usd: Estimate, asked: Serving, writing: float) -> UsdApart:
        """Split what all costs, per token written, by the share that writing has in it."""
        reading = (1.0 - writing) * asked.output / asked.input
        return cls(usd.times(reading), usd.times(writing))


@dataclass(frozen=True, kw_only=True)
class SpeculativeGain:
    """A step with drafts beside one without, of the requests that run at once."""

    speculation: Speculation
    step: Term
    plain: Term
    tokens: float  # that a step with drafts gives a request
    speedup: Estimate  # of tokens per second, prompts aside
    drafter_bytes: float  # weights on one accelerator, beside the model's


@dataclass(frozen=True)
class StagePoint:
    """One card of a pipeline of unlike ones, with all requests of the load."""

    chip: Accelerator
    layers: int
    memory: Term
    capacity_bytes: float
    decode_seconds: float  # of its own layers in a decode step
    prefill_seconds: float  # and while one prompt is read

    @property
    def fits(self) -> bool:
        """Whether its layers and their part of the cache fit."""
        return float(self.memory.value) <= self.capacity_bytes


@dataclass(frozen=True, kw_only=True)
class ServingAnswer:
    """What every way of serving a load has."""

    model: Model
    workload: Serving
    cluster: Cluster
    profile: Profile
    engine: Engine
    weights: Format
    cache_bits: float
    prefill: Term  # of one prompt
    decode: Term
    memory: Term  # of the fullest accelerator that writes
    capacity_bytes: float
    cache_bytes_per_request: float  # of the whole request, wherever it lies
    cache_bytes_per_accelerator: float  # of one request, on one accelerator that writes
    most_requests: int  # that the cache of one replica that writes can hold
    ttft: Estimate
    tpot: Estimate
    tokens_per_second: Estimate  # written, by the whole cluster
    usd_per_million_tokens: Estimate | None
    watts: Estimate | None
    joules_per_token: Estimate | None
    price: Price | None


@dataclass(frozen=True, kw_only=True)
class ServingPoint(ServingAnswer):
    """One plan at one concurrency."""

    plan: Plan
    replicas: int
    batch: int  # requests that one replica is asked for at once
    running: int  # of those, the ones that its engine lets in and has room for; the others wait
    kv_cache: KvCache  # of one replica, as its engine prints it at start
    layers_that_fit: int  # on the accelerators of a replica, the head and others left to the host
    gain: SpeculativeGain | None = None  # of speculative decoding, where it was asked for
    offload: Offload | None = None  # what the host holds
    stages: tuple[StagePoint, ...] = ()  # where cards differ: what each of them does

    @property
    def usd_apart(self) -> UsdApart | None:
        """Dollars of tokens read and written apart: by the time that each keeps the chips."""
        if self.usd_per_million_tokens is None:
            return None
        served = self.workload.concurrency * self.running / self.batch
        writing = float(self.tokens_per_second.value) * float(self.decode.value) / served
        return UsdApart.of(self.usd_per_million_tokens, self.workload, min(writing, 1.0))

    @property
    def waiting(self) -> int:
        """Requests of one replica that wait until others end; times are of those that run."""
        return self.batch - self.running

    @property
    def crowding(self) -> float:
        """Requests for each one that runs."""
        return self.batch / self.running

    @property
    def cache_filled(self) -> float | None:
        """The share of the cache that the running requests fill when longest; None: no cache."""
        pool = float(self.kv_cache.bytes.value)
        return self.running * self.cache_bytes_per_accelerator / pool if pool else None

    @property
    def fits(self) -> bool:
        """Whether weights and the cache of all requests that the engine lets in fit."""
        return float(self.memory.value) <= self.capacity_bytes

    def room_at(self, dcp: int) -> int:
        """Requests of a replica that there would be room for, were keys spread over so many ranks;
        0 where the engine cannot, or what is no cache leaves nothing for one.
        """
        chip, tp = self.cluster.accelerator, int(self.plan.tp)
        if not spreads(self.engine, self.model, chip, self.cache_bits):
            return 0
        if dcp not in ways_to_spread(self.model, tp):
            return 0
        each = self.cache_bytes_per_accelerator * self.plan.dcp / dcp
        return int(float(self.kv_cache.bytes.value) // each)

    def spread_for(self, requests: int) -> int:
        """Over how many ranks that hold the same keys these would have to be spread for so many
        requests of a replica to have room, as far as the engine lets them in, or for as many as
        can be; what the plan has where nothing comes of it.
        """
        now, let_in = self.plan.dcp, min(requests, self.engine.most_sequences)
        room = {n: self.room_at(n) for n in divisors(int(self.plan.tp)) if n > now}
        ways = [n for n, most in room.items() if most]
        return next((n for n in ways if room[n] >= let_in), ways[-1] if ways else now)


@dataclass(frozen=True)
class Pool:
    """Workers that read, or workers that write: engines of one plan each.

    >>> import trueflops as tf
    >>> pool = tf.Pool(tf.Plan(dp_replicate=8, ep=8), workers=2)  # dp-attention and experts over 8
    >>> pool.accelerators, pool.replicas
    (16, 16)
    """

    plan: Plan  # of one worker; its dp_replicate is the attention replicas that share its experts
    workers: int

    @property
    def accelerators(self) -> int:
        """Of all workers."""
        return int(self.plan.world) * self.workers

    @property
    def replicas(self) -> int:
        """Attention replicas of all workers."""
        return int(self.plan.dp) * self.workers


@dataclass(frozen=True, kw_only=True)
class PooledPoint(ServingAnswer):
    """A pair of pools at one concurrency."""

    prefill_pool: Pool
    decode_pool: Pool
    running: int  # requests that one decode replica holds, on average
    transfer: Term  # of a prompt's cache to the decode pool
    prefill_memory: Term
    prefill_busy: float  # share of the time for which the prefill pool works
    links_busy: float  # and the links between both
    queue_seconds: float  # that a request waits, after the first wave
    limited_by: Limited

    @property
    def fits(self) -> bool:
        """Whether weights fit in both pools, and no request waits for room in the decode pool's
        cache; it may wait for a turn in its engine.
        """
        both = (self.memory, self.prefill_memory)
        return (
            (self.limited_by != "decode" or self.running >= self.engine.most_sequences)
            and self.most_requests > 0
            and all(float(each.value) <= self.capacity_bytes for each in both)
        )

    @property
    def crowding(self) -> float:
        """Requests for each one that runs, where the pool that writes has no room for all."""
        if self.limited_by != "decode":
            return 1.0
        return self.workload.concurrency / (self.running * self.decode_pool.replicas)

    @property
    def usd_apart(self) -> UsdApart | None:
        """Dollars of tokens read and written apart: each pool pays for its own."""
        if self.usd_per_million_tokens is None:
            return None
        reading, writing = self.prefill_pool.accelerators, self.decode_pool.accelerators
        share = writing / (reading + writing)
        return UsdApart.of(self.usd_per_million_tokens, self.workload, share)


Point = ServingPoint | PooledPoint
