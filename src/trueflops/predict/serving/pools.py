"""Two pools: some workers read prompts, others write, and the cache goes from one to the other.

Splitwise (arXiv 2311.18677), DistServe (arXiv 2401.09670). Prefill never delays a decode step, and
each pool is cut as suits it:
    TTFT     = overhead + queue + prefill + transfer of the prompt's cache + 1½ decode steps
    TPOT     = decode step
    tokens/s = output · min(prefill's rate, decode's rate, what the load asks for)   (flow.py)
In: a Server of the whole cluster and two Pools. Out: a PooledPoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from trueflops.graph.kinds import CollectiveKind
from trueflops.plan import Plan
from trueflops.predict.money.bill import cluster_watts, rent_estimate
from trueflops.predict.serving.flow import JOINING, Flow, Stations, steady_flow
from trueflops.predict.serving.passes import summed_over
from trueflops.predict.serving.point import Limited, Pool, PooledPoint
from trueflops.predict.serving.server import BATCHING_ERROR, Server
from trueflops.runtime import Estimate, Term, leaf, reaching, total
from trueflops.sizes import Array
from trueflops.units import MILLION, SECONDS_PER_HOUR
from trueflops.workload import Serving


@dataclass(frozen=True)
class Reading:
    """How one worker of a plan reads prompts."""

    alone: Term  # one prompt
    packed: Term  # as many as a pass takes together
    together: int
    layers: int

    def busy(self, plan: Plan) -> float:
        """Seconds for which a prompt keeps a replica busy; stages read different ones at once.

        The stage with the most layers sets the pace.
        """
        share = ceil(self.layers / float(plan.pp)) / self.layers
        return float(self.packed.value) / self.together * share


class Pools:
    """Answers for pairs of pools on one server's cluster.

    >>> import trueflops as tf
    >>> where = tf.cluster("16xH100")
    >>> model, asked = tf.read_model("Llama-3.1-70B"), tf.Serving(4096, 256, concurrency=64)
    >>> server = tf.Server(model, asked, where, tf.profile_of(where.accelerator, "vllm"))
    >>> halves = tf.Pool(tf.Plan(tp=4), workers=2), tf.Pool(tf.Plan(tp=8), workers=1)
    >>> point = tf.Pools(server).predict(*halves)
    >>> point.fits, bool(point.tpot.value < server.predict(tf.Plan(tp=8)).tpot.value)
    (True, True)
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self._steps: dict[tuple[Plan, int], Term] = {}
        self._transfers: dict[float, tuple[Term, float]] = {}  # by bytes

    def predict(self, prefill: Pool, decode: Pool) -> PooledPoint:
        """Both pools under the server's load."""
        asked, profile = self.server.workload, self.server.profile
        read = self.reading(prefill.plan, most_together=ceil(asked.concurrency / prefill.replicas))
        transfer, links = self.transfer(prefill.plan, decode.plan)
        _, per_request, most, _ = self._memory(decode.plan, 1)
        room = self.room(decode.plan)[1]
        host = profile.curve("framework")
        overhead = leaf("request", host["request"], host, "framework")
        at = Stations(
            concurrency=float(asked.concurrency),
            output=float(asked.output),
            apart=sum(float(part.value) for part in (overhead, read.alone, transfer)),
            prefill=read.busy(prefill.plan),
            readers=float(prefill.replicas),
            link=links / min(prefill.replicas, decode.replicas),
            writers=float(decode.replicas),
            room=float(room),
        )
        flow = steady_flow(at, self.step_curve(decode.plan, min(room, asked.concurrency)))
        running = min(max(round(float(flow.batch)), 1), room)
        step = self.step(decode.plan, running)
        waits = float(flow.wait + flow.full)
        first = [read.alone, transfer, step.scaled(1.0 + JOINING)]
        queued = float(flow.queue(at, asked.waves))
        ttft = total(
            "ttft",
            overhead,
            _lasting(read.packed, queued),
            *first,
            cause="request",
            spread=host["request_error"],
            least=read.alone.least,
        )
        ttft = reaching(ttft, host["request_later"])
        whole = total(
            "request",
            overhead,
            _lasting(read.packed, waits),
            *first,
            step.scaled(asked.output - 1.0),
            cause="batching",
            spread=BATCHING_ERROR if asked.concurrency > 1 else 0.0,
            least=step.least * asked.output,
        )
        rate = whole.estimate.under(float(asked.concurrency * asked.output))
        memory = self._memory(decode.plan, running)[0]
        watts = self._watts(prefill, decode, read, running, rate)
        return PooledPoint(
            model=self.server.model,
            workload=asked,
            cluster=self.server.cluster,
            profile=profile,
            engine=self.server.engine,
            weights=self.server.passes.weights,
            cache_bits=self.server.passes.cache_bits,
            prefill_pool=prefill,
            decode_pool=decode,
            running=running,
            prefill=read.alone,
            transfer=transfer,
            decode=step,
            memory=memory,
            prefill_memory=self._memory(prefill.plan, read.together)[0],
            capacity_bytes=self.server.on(decode.plan).memory.capacity(decode.plan),
            cache_bytes_per_request=self.server.memory.cache_per_request(Plan()),
            cache_bytes_per_accelerator=per_request,
            most_requests=most,
            prefill_busy=float(flow.busy),
            links_busy=float(flow.sending),
            queue_seconds=waits,
            limited_by=_limit(flow, room),
            ttft=ttft.estimate,
            tpot=total("tpot", step, least=step.least).estimate,
            tokens_per_second=rate,
            usd_per_million_tokens=self._usd(rate),
            watts=watts,
            joules_per_token=watts.over(rate) if watts else None,
            price=self.server.rent,
        )

    def reading(self, plan: Plan, most_together: int) -> Reading:
        """A worker's prefill: of one prompt, and of as many as fill a pass."""
        server, asked = self.server.on(plan), self.server.workload
        passes = server.passes

        def read(together: int) -> Term:
            costs = passes.costs(plan, float(together), float(asked.input), 0.0)
            return passes.time("prefill", costs, plan, graphs=False)

        together = max(1, min(most_together, int(server.engine.step_tokens // asked.input)))
        alone = read(1)
        packed = read(together) if together > 1 else alone
        return Reading(
            alone.scaled(server.share_alone(plan)), packed, together, server.model.layers
        )

    def step(self, plan: Plan, batch: int) -> Term:
        """A decode step of so many requests in every replica of a plan."""
        key = (plan, batch)
        if key not in self._steps:
            server, asked = self.server, self.server.workload
            replicas = max(int(server.cluster.count // (plan.tp * plan.pp)), 1)
            load = Serving(asked.input, asked.output, batch * replicas)
            self._steps[key] = server.asked(load).decode(plan)
        return self._steps[key]

    def step_curve(self, plan: Plan, most: int) -> Callable[[Array], Array]:
        """Seconds of a decode step at any batch up to so many, straight between priced ones."""
        batches = batches_up_to(most)
        self.prepare([plan], batches)
        seconds = [float(self.step(plan, batch).value) for batch in batches]
        return lambda batch: np.interp(batch, batches, seconds)

    def prepare(self, plans: list[Plan], batches: list[int]) -> None:
        """Price the decode steps of many plans and batches at once."""
        shape = self.server.mix.tokens
        self.server.passes.prepare((p, *shape(p, n)) for p in plans for n in batches)

    def transfer(self, prefill: Plan, decode: Plan) -> tuple[Term, float]:
        """Seconds in which the cache of a prompt is handed over, and those of its slowest link.

        Every rank of a replica sends or fetches its own part; the side with fewer ranks has the
        larger ones, but no rank sends what others of its side hold, too, and send. Unless one
        scale-up domain holds the whole cluster, it goes over the network.
        """
        server, asked = self.server, self.server.workload
        prompt = server.asked(Serving(asked.input, 1, 1)).memory
        has, fetched = (prompt.cache_per_request(plan) for plan in (prefill, decode))
        senders, fetchers = (float(plan.tp * plan.pp) for plan in (prefill, decode))
        sent = max(fetched, min(has, fetched * fetchers / senders))
        if sent not in self._transfers:
            apart = max(server.cluster.count / 2.0, 1.0)
            moved = server.clock.collective(CollectiveKind.SEND_RECV, 2.0, sent, apart)
            law = server.profile.curve("collective")
            link = max((float(np.max(each)) for each in moved.links), default=0.0)
            term = leaf("transfer of the cache", float(moved.seconds), law, "collective")
            self._transfers[sent] = term, link
        return self._transfers[sent]

    def room(self, plan: Plan) -> tuple[int, int]:
        """Requests that can end together in a decode replica, and that can run there: as many as
        its cache has room for and its engine lets in.
        """
        most, room = self._memory(plan, 1)[2:]
        let_in = self.server.on(plan).engine.most_sequences
        return min(most, let_in), min(room, let_in)

    def _memory(self, plan: Plan, batch: int) -> tuple[Term, float, int, int]:
        server = self.server.on(plan)
        costs = server.passes.costs(plan, 1.0, float(server.workload.input), 0.0)
        return server.memory.of(plan, costs, batch)

    def _usd(self, rate: Estimate) -> Estimate | None:
        if not self.server.rent:
            return None
        per_hour = rent_estimate(self.server.rent).times(self.server.cluster.count * MILLION)
        return per_hour.over(rate).times(1.0 / SECONDS_PER_HOUR)

    def _watts(
        self, prefill: Pool, decode: Pool, read: Reading, running: int, rate: Estimate
    ) -> Estimate | None:
        """Power of the whole cluster: what its accelerators burn for all requests of a second."""
        server, asked = self.server, self.server.workload
        passes, model = server.passes, server.model
        costs = passes.costs(prefill.plan, float(read.together), float(asked.input), 0.0)
        reading = summed_over(costs, model, "joules") * prefill.plan.tp / read.together
        batch, *length = server.mix.tokens(decode.plan, running)
        costs = passes.costs(decode.plan, batch, *length)
        writing = summed_over(costs, model, "joules") * decode.plan.tp / batch
        per_second = float(rate.value) / asked.output * (reading + writing * asked.output)
        second = Estimate(1.0, {}, "derived")
        joules = per_second / server.cluster.count
        return cluster_watts(server.cluster, server.profile, joules, 1.0, second, server.pue)


def batches_up_to(most: int) -> list[int]:
    """1, 2, 4 … and the last."""
    return [*(2**i for i in range(int(np.log2(max(most, 1))) + 1) if 2**i < most), max(most, 1)]


def _lasting(term: Term, seconds: float) -> Term:
    """A queue for such passes that lasts so long."""
    return replace(term.scaled(seconds / float(term.value)), name="queue")


def _limit(flow: Flow, room: int) -> Limited:
    """What keeps more requests from being answered in a second."""
    if max(float(flow.busy), float(flow.sending)) < 0.99 and float(flow.batch) < 0.99 * room:
        return "load"
    if float(flow.batch) >= 0.99 * room:
        return "decode"
    return "links" if float(flow.sending) > float(flow.busy) else "prefill"
