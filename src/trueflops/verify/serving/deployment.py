"""A model laid on a cluster by a server, as a row of results describes it; each asked once."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from trueflops.catalog import Accelerator, Cluster, accelerator, cluster
from trueflops.catalog.networks import with_bus
from trueflops.catalog.nodes import default_node
from trueflops.model import Model
from trueflops.plan import Plan, serving_plan
from trueflops.plan.spread import ways_to_spread
from trueflops.predict import Pool, PooledPoint, Pools, Server, ServingPoint
from trueflops.predict.serving import Offload, Stage
from trueflops.predict.serving.speculation import Speculation
from trueflops.predict.serving.splitting import asked_split, evenly, usual_split
from trueflops.profile import Engine, Profile, engine_on
from trueflops.records.chips import cluster_of_cut
from trueflops.runtime.terms import Estimate
from trueflops.serve.load import Requests
from trueflops.serve.outcome import Outcome, outcome
from trueflops.serve.simulated import Deployed
from trueflops.verify.cells import Missing
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
    dcp: int = 1

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
            dcp=self.dcp,
        )


_SPREAD: Final = re.compile(
    r"(?:\bdecode[-_ ]context[-_ ]parallel(?:ism)?|\bdcp)(?:[-_]size)?\s*[=:]?\s*(\d{1,3})?\b",
    re.IGNORECASE,
)


def spread_over(said: str, model: Model, tp: int) -> int:
    """Over how many of tp's ranks cached keys are spread, as a launch command or notes say it."""
    found = _SPREAD.search(said)
    if found is None:
        return 1
    dcp, ways = int(found[1] or 0), ways_to_spread(model, tp)
    if dcp not in ways:
        raise Missing(
            f"decode context parallelism over {dcp or 'some'} ranks of tp {tp}: {model.name} can "
            f"have {', '.join(map(str, ways))}"
        )
    return dcp


@dataclass(frozen=True)
class Workers:
    """So many engines of one layout: a pool that only reads, or only writes."""

    layout: Layout
    count: int = 1

    @property
    def devices(self) -> int:
        """Accelerators of all of them."""
        return self.layout.devices * self.count

    def pool(self, model: Model, compute: str) -> Pool:
        """The same as a Pool."""
        return Pool(self.layout.plan(model, compute), self.count)


@dataclass(frozen=True)
class Deployment:
    """Everything about a server that is not its load."""

    model: Model
    chip: Accelerator
    layout: Layout
    weights: str
    cache_bits: float
    framework: str
    speculation: Speculation | None = None
    power_watts: float | None = None  # to which an operator limited each accelerator
    link: str = ""  # between the accelerators of a node, where not the usual one
    engine: Engine | None = None  # as it was set; None: the newest release, as it comes
    offload: Offload | None = None  # what lies in host memory
    cards: tuple[Accelerator, ...] = ()  # of a pipeline, where they differ or are told their share
    shares: tuple[float, ...] = ()  # of the layers that each takes; empty: as the engine deals them

    @property
    def key(self) -> tuple[object, ...]:
        """What tells deployments apart, cheap to compare: models and chips have unique names."""
        own = (self.layout, self.weights, self.cache_bits, self.framework)
        drafts = self.speculation and self.speculation.key
        host = self.offload and (self.offload.layers, self.offload.cpu and self.offload.cpu.name)
        cards = (tuple(card.name for card in self.cards), self.shares)
        machine = (self.chip.name, self.power_watts, self.link, self.engine, host, cards)
        return (self.model.name, self.model.parameter_count, *machine, *own, drafts)


class Bench:
    """Answers for any deployment and load, each only once: tables repeat themselves."""

    def __init__(self, profiles: Profiles) -> None:
        self._profiles = profiles
        self._known_profiles: dict[tuple[str, str], Profile] = {}
        self._servers: dict[tuple[object, ...], tuple[Server, Plan]] = {}
        self._points: dict[tuple[object, ...], ServingPoint] = {}
        self._deployed: dict[tuple[object, ...], Deployed] = {}

    def point(self, run: Deployment, load: Serving) -> ServingPoint:
        """Predict one load."""
        key = (*run.key, load)
        if key not in self._points:
            server, plan = self._server(run)
            self._points[key] = server.asked(load).predict(plan)
        return self._points[key]

    def outcome(
        self, run: Deployment, requests: Requests, engine: Engine, room: float, pace: float = 1.0
    ) -> Outcome:
        """Simulate one replica, its engine set so, its cache of so many tokens, its steps `pace`
        times as long.
        """
        key = (*run.key, engine)
        if key not in self._deployed:
            self._deployed[key] = Deployed(*self._server(run), engine)
        return outcome([self._deployed[key].serve_share(requests, room, pace)])

    def pooled(
        self, run: Deployment, prefill: Workers, decode: Workers, load: Serving
    ) -> PooledPoint:
        """Predict two pools; nodes of which only some accelerators are used count as whole."""
        devices = prefill.devices + decode.devices
        host = default_node(accelerator(run.chip.whole))
        size = host.count if host else devices
        whole = devices if devices <= size else ceil(devices / size) * size
        server, _ = self._server(replace(run, layout=Layout(replicas=whole)))
        pools = (workers.pool(run.model, server.dtype) for workers in (prefill, decode))
        return Pools(server.asked(load)).predict(*pools)

    def prefill(self, run: Deployment, tokens: int) -> Estimate:
        """Predict one prompt, alone on the server."""
        server, plan = self._server(run)
        return server.asked(Serving(tokens, 1, 1)).prefill(plan).estimate

    def decode(self, run: Deployment, load: Serving) -> Estimate:
        """Predict one decode step of all requests."""
        server, plan = self._server(run)
        return server.asked(load).decode(plan).estimate

    def speedup(self, run: Deployment, batch: int, past: float) -> Estimate:
        """Predict how much faster drafts make a replica's requests, prompts aside."""
        server, plan = self._server(run)
        assert server.speculator, "only a deployment that speculates has a speed-up"
        return server.speculator.speedup(plan, float(batch), past)

    def speedup_under(self, run: Deployment, load: Serving) -> Estimate:
        """Predict how much drafts add to the tokens per second under a load."""
        plain = self.point(replace(run, speculation=None), load)
        return self.point(run, load).tokens_per_second.over(plain.tokens_per_second)

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
                _cluster(run),
                self._profile_of(run),
                weights=run.weights,
                cache_bits=run.cache_bits,
                engine=run.engine or engine_on(run.framework, run.chip),
                speculation=run.speculation,
                offload=run.offload,
                stages=self._stages(run),
            )
            if run.cards:
                shares = run.shares
                server = server.split(
                    asked_split(server, shares) if shares else usual_split(server)
                )
            self._servers[run.key] = server, run.layout.plan(run.model, server.dtype)
        return self._servers[run.key]

    def _stages(self, run: Deployment) -> list[Stage]:
        """A stage for every card, layers dealt out evenly for now."""
        layers = evenly(run.model.layers, len(run.cards)) if run.cards else []
        return [
            Stage(card, self._profile_of(run, card), count)
            for card, count in zip(run.cards, layers, strict=True)
        ]

    def _profile_of(self, run: Deployment, chip: Accelerator | None = None) -> Profile:
        profile = self._profile(chip or run.chip, run.framework)
        return profile if run.power_watts is None else profile.capped(run.power_watts)

    def _profile(self, chip: Accelerator, framework: str) -> Profile:
        key = (chip.name, framework)
        if key not in self._known_profiles:
            self._known_profiles[key] = self._profiles(chip, framework)
        return self._known_profiles[key]


def _cluster(run: Deployment) -> Cluster:
    if len({card.name for card in run.cards}) > 1:
        where = cluster("+".join(card.name for card in run.cards), unlike=True)
    else:
        where = cluster_of_cut(run.chip, run.layout.devices)
    return with_bus(where, run.link) if run.link else where
