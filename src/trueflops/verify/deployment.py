"""A model laid on a cluster by a server, as a row of results describes it; each asked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trueflops.catalog import Accelerator
from trueflops.model import Model
from trueflops.plan import Plan, serving_plan
from trueflops.predict import Server, ServingPoint
from trueflops.profile import Profile, engine_of
from trueflops.records.chips import cluster_of_cut
from trueflops.runtime.terms import Estimate
from trueflops.verify.profiles import Profiles
from trueflops.workload import Serving

MOST_TOGETHER: Final = 2048  # requests of a replica at full load: TensorRT-LLM's max_batch_size


@dataclass(frozen=True)
class Layout:
    """How a server splits the model. Replicas each have their own attention and cache."""

    tp: int = 1
    pp: int = 1
    replicas: int = 1
    ep: int = 1
    etp: int = 1

    @property
    def devices(self) -> int:
        """Accelerators in use."""
        return self.tp * self.pp * self.replicas

    def plan(self, model: Model, compute: str) -> Plan:
        """The same as a Plan."""
        return serving_plan(
            model,
            compute,
            tp=self.tp,
            pp=self.pp,
            replicas=self.replicas,
            ep=self.ep,
            etp=self.etp,
        )


@dataclass(frozen=True)
class Deployment:
    """Everything about a server that is not its load."""

    model: Model
    chip: Accelerator
    layout: Layout
    weights: str
    cache_bits: float
    framework: str

    @property
    def key(self) -> tuple[object, ...]:
        """What tells deployments apart, cheap to compare: models and chips have unique names."""
        own = (self.layout, self.weights, self.cache_bits, self.framework)
        return (self.model.name, self.model.parameter_count, self.chip.name, *own)


class Bench:
    """Answers for any deployment and load, each only once: tables repeat themselves."""

    def __init__(self, profiles: Profiles) -> None:
        self._profiles = profiles
        self._known_profiles: dict[tuple[str, str], Profile] = {}
        self._servers: dict[tuple[object, ...], tuple[Server, Plan]] = {}
        self._points: dict[tuple[object, ...], ServingPoint] = {}

    def point(self, run: Deployment, load: Serving) -> ServingPoint:
        """Predict one load."""
        key = (*run.key, load)
        if key not in self._points:
            server, plan = self._server(run)
            self._points[key] = server.asked(load).predict(plan)
        return self._points[key]

    def prefill(self, run: Deployment, tokens: int) -> Estimate:
        """Predict one prompt, alone on the server."""
        server, plan = self._server(run)
        return server.asked(Serving(tokens, 1, 1)).prefill(plan).estimate

    def decode(self, run: Deployment, load: Serving) -> Estimate:
        """Predict one decode step of all requests."""
        server, plan = self._server(run)
        return server.asked(load).decode(plan).estimate

    def full_load(self, run: Deployment, read: int, written: int) -> Serving:
        """As many requests as the cache holds: what an endless queue leads to."""
        server, plan = self._server(run)
        most = server.asked(Serving(read, written, 1)).most_requests(plan)
        together = min(max(most, 1), MOST_TOGETHER)
        return Serving(read, written, together * run.layout.replicas)

    def _server(self, run: Deployment) -> tuple[Server, Plan]:
        if run.key not in self._servers:
            server = Server(
                run.model,
                Serving(1, 1, 1),
                cluster_of_cut(run.chip, run.layout.devices),
                self._profile(run.chip, run.framework),
                weights=run.weights,
                cache_bits=run.cache_bits,
                engine=engine_of(run.framework),
            )
            self._servers[run.key] = server, run.layout.plan(run.model, server.dtype)
        return self._servers[run.key]

    def _profile(self, chip: Accelerator, framework: str) -> Profile:
        key = (chip.name, framework)
        if key not in self._known_profiles:
            self._known_profiles[key] = self._profiles(chip, framework)
        return self._known_profiles[key]
