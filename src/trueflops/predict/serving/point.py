"""The answer: one plan of a model on a cluster at one load."""

from __future__ import annotations

from dataclasses import dataclass

from trueflops.catalog import Cluster, Price
from trueflops.graph.passes import Format
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.profile import Engine, Profile
from trueflops.runtime import Estimate, Term
from trueflops.workload import Serving


@dataclass(frozen=True, kw_only=True)
class ServingPoint:
    """One plan at one concurrency."""

    model: Model
    plan: Plan
    workload: Serving
    cluster: Cluster
    profile: Profile
    engine: Engine
    weights: Format
    cache_bits: float
    replicas: int
    batch: int  # requests that one replica is asked to hold at once
    running: int  # of those, the ones whose cache there is room for; the others wait
    prefill: Term
    decode: Term
    memory: Term
    capacity_bytes: float
    cache_bytes_per_request: float  # of the whole request, wherever it lies
    cache_bytes_per_accelerator: float  # of one request, on one accelerator
    most_requests: int  # that the cache of one replica can hold
    ttft: Estimate
    tpot: Estimate
    tokens_per_second: Estimate  # written, by the whole cluster
    usd_per_million_tokens: Estimate | None
    watts: Estimate | None
    joules_per_token: Estimate | None
    price: Price | None

    @property
    def waiting(self) -> int:
        """Requests of one replica that wait for room in its cache; times are of those that run."""
        return self.batch - self.running

    @property
    def fits(self) -> bool:
        """Whether weights and the cache of all requests fit."""
        return float(self.memory.value) <= self.capacity_bytes
