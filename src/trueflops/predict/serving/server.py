"""Serving: prefill and decode step, KV cache, tokens per second at a batch.

A replica works on as many requests n as its cache holds and its engine runs; others wait. While
each writes its output, n others are read in as they come, by stages of a pipeline at once:
    TPOT     = decode + (n − 1) · read / (pp · output) · (1 − 1/waves)
    TTFT     = overhead + prefill + 2 decode + prefill · n / (2 · waves) + wait for room
    tokens/s = n · output / (output · decode + n · read / pp)
What reading a prompt adds depends on the policy: where prompts come first, the prefill; in a mixed
step, what its tokens add to the products of a decode step. `serve/` simulates the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from math import ceil
from typing import Final

from trueflops.catalog import Cluster, Price
from trueflops.clock import Clock
from trueflops.errors import ImpossiblePlan
from trueflops.graph import Program
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.predict.costs import Costs
from trueflops.predict.money.bill import going_price, rent_estimate
from trueflops.predict.serving.cards import serving_watts, stage_points
from trueflops.predict.serving.memory import ServerMemory
from trueflops.predict.serving.mix import Mix
from trueflops.predict.serving.offloading import Offload, OffloadedPasses
from trueflops.predict.serving.passes import Passes, Stage
from trueflops.predict.serving.point import ServingPoint, SpeculativeGain
from trueflops.predict.serving.speculation import Speculation
from trueflops.predict.serving.speculator import Outlook, Speculator
from trueflops.predict.serving.stage_memory import memory_of
from trueflops.predict.serving.stages import StagedPasses
from trueflops.profile import Engine, Profile
from trueflops.profile.engines import USUAL, engine_of, sharing_experts
from trueflops.profile.runnable import Deployment, why_not_run
from trueflops.runtime import Estimate, Term, leaf, reaching, total
from trueflops.sizes import Size
from trueflops.units import MILLION, SECONDS_PER_HOUR
from trueflops.workload import Serving

BATCHING_ERROR: Final = 0.25  # of a rate: how full a scheduler keeps its batch, and with what
LEAST_ADDED: Final = 0.02  # of a mixed step: a few tokens hardly lengthen it, but they do


class Server:
    """Answers for one model on one cluster, in one number format.

    >>> import trueflops as tf
    >>> where = tf.cluster("8xH100")
    >>> model, asked = tf.read_model("Llama-3.1-70B"), tf.Serving(1024, 256, concurrency=64)
    >>> server = tf.Server(model, asked, where, tf.profile_of(where.accelerator, "vllm"))
    >>> point = server.predict(tf.Plan(tp=8))
    >>> point.fits, point.running, bool(point.tpot.value < point.ttft.value)
    (True, 64, True)
    """

    def __init__(
        self,
        model: Model,
        workload: Serving,
        cluster: Cluster,
        profile: Profile,
        *,
        weights: str = "bf16",
        cache_bits: float = 16.0,
        engine: Engine | None = None,
        length: int | None = None,
        speculation: Speculation | None = None,
        offload: Offload | None = None,
        stages: Sequence[Stage] = (),
        pue: float = 1.0,
        rent: Price | None = None,
    ) -> None:
        self.model, self.workload, self.pue = model, workload, pue
        self.cluster, self.profile = cluster, profile
        self._asked = engine or engine_of(USUAL)  # from which `on` makes a plan's
        self.engine = self._asked.drafting() if speculation else self._asked
        self.offload, self.length = offload, length  # longest request; None: as the load has it
        self._stored = weights  # by name: fp8 of a mixture is priced as blocks, and need have none
        self.passes = self._passes(weights, cache_bits, stages)
        self.speculator = (
            Speculator(self.passes, self.engine.name, speculation) if speculation else None
        )
        self.rent = rent or going_price(cluster)

    def _passes(self, weights: str, cache_bits: float, stages: Sequence[Stage]) -> Passes:
        """On cards of their own, with layers on the host, or all on equal accelerators."""
        given, engine = (self.model, self.cluster), self.engine
        if stages:
            return StagedPasses(*given, weights, cache_bits, stages=stages, engine=engine)
        one = (*given, self.profile, weights, cache_bits)
        if self.offload:
            return OffloadedPasses(*one, offload=self.offload, engine=engine)
        return Passes(*one, engine=engine)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Of a pipeline on cards of their own; empty: plans deal layers out to equal ones."""
        return self.passes.stages

    @property
    def has_pools(self) -> bool:
        """Whether it can be cut into workers that read and workers that write: by an engine that
        hands caches over, of accelerators that are alike and hold all of their layers.
        """
        alike = not self.stages and self.offload is None
        return self.cluster.count > 1 and alike and self.engine.hands_over

    def split(self, layers: Sequence[int]) -> Server:
        """The same server with so many layers on each of its cards."""
        assert isinstance(self.passes, StagedPasses)
        other = copy(self)
        other.passes = self.passes.split(layers)
        return other

    @property
    def mix(self) -> Mix:
        """The passes that this load is made of."""
        return Mix(self.workload, self.engine)

    @property
    def clock(self) -> Clock:
        """What prices the passes."""
        return self.passes.clock

    @property
    def dtype(self) -> str:
        """In which activations are."""
        return self.passes.dtype

    @property
    def memory(self) -> ServerMemory:
        """Of this engine under this load."""
        return memory_of(
            self.passes, self.engine, self.workload, length=self.length, speculator=self.speculator
        )

    def on(self, plan: Plan) -> Server:
        """The same server, its engine as it sets itself up for a plan."""
        engine = sharing_experts(self._asked, self.cluster.accelerator, plan)
        if engine is self._asked:
            return self
        other = copy(self)
        other.engine = engine.drafting() if self.speculator else engine
        other.passes = copy(self.passes)  # which cost what they cost
        other.passes.engine = other.engine
        if self.speculator:
            other.speculator = copy(self.speculator)
            other.speculator.passes = other.passes
        return other

    def why_not_run(self, plan: Plan) -> ImpossiblePlan | None:
        """What keeps the engine from running a plan that breaks no rule of plans."""
        per_node = self.cluster.per_node
        return why_not_run(Deployment(plan, self._asked, per_node, self._stored, self.model))

    def asked(self, workload: Serving) -> Server:
        """The same server under another load; passes of the same shape are priced once."""
        other = copy(self)
        other.workload = workload
        return other

    def predict(self, plan: Plan) -> ServingPoint:
        """Prefill, decode, memory and what follows from them."""
        return self.on(plan)._point(plan)

    def _point(self, plan: Plan) -> ServingPoint:
        asked = self.workload
        replicas = max(int(self.cluster.count // (plan.tp * plan.pp)), 1)
        batch = ceil(asked.concurrency / replicas)
        held = self.passes.unpriced(plan, *self.mix.prompts(1.0))
        memory, per_request, most, room = self.memory.of(plan, held, batch)
        running = min(batch, room, self.engine.most_sequences) if most else batch
        self.passes.prepare(self.mix.shapes(plan, running))
        one, alone = self._read(plan, 1)
        prefill = self._alone(alone, plan)
        together = self.mix.together(running)
        packed = self._read(plan, together)[1] if together > 1 else alone
        writing, decode = self._write(plan, running)
        each, read = self._beside(plan, running, alone)
        # Passes over prompts that one batch of outputs waits for; stages read as many at once.
        passes = max(running / each * self.slowest_share(plan), 1.0)
        whole = total(
            "all",
            decode.scaled(asked.output),
            read.scaled(passes),
            cause="batching",
            spread=BATCHING_ERROR if running > 1 else 0.0,
            # A pass may read weights for prompts and for decoding at once: limits do not add up.
            least=max(decode.least * asked.output, read.least * passes),
        )
        # Prefills of other requests a token waits for; the last wave has none behind it.
        others = passes * (running - 1) / running / asked.output * (1.0 - 1.0 / asked.waves)
        tpot = total("tpot", decode, read.scaled(others), least=decode.least).estimate
        served = asked.concurrency * running / batch
        rate = whole.estimate.under(served * asked.output)
        costs, busy = (one, writing), served / (running * replicas)  # other replicas idle
        often = busy * running, busy * min(running, self.mix.at_once(plan)) * asked.output
        batched, _, past = self.mix.tokens(plan, running)
        drafting = self.speculator.joules(plan, batched, past) if self.speculator else None
        watts = serving_watts(
            self.passes, plan, costs, often, whole.estimate, pue=self.pue, drafting=drafting
        )
        usd = None
        if self.rent:
            per_hour = rent_estimate(self.rent).times(self.cluster.count * MILLION)
            usd = per_hour.over(rate).times(1.0 / SECONDS_PER_HOUR)
        return ServingPoint(
            model=self.model,
            plan=plan,
            workload=asked,
            cluster=self.cluster,
            profile=self.profile,
            engine=self.engine,
            weights=self.passes.weights,
            cache_bits=self.passes.cache_bits,
            replicas=replicas,
            batch=batch,
            running=running,
            prefill=prefill,
            decode=decode,
            memory=memory,
            capacity_bytes=self.memory.capacity(plan),
            cache_bytes_per_request=self.memory.cache_per_request(Plan()),
            cache_bytes_per_accelerator=per_request,
            most_requests=most,
            kv_cache=self.memory.kv_cache(plan, one),
            ttft=self._first_token(
                prefill, packed, self._step(decode), whole, together, batch, running
            ),
            tpot=tpot,
            tokens_per_second=rate,
            usd_per_million_tokens=usd,
            watts=watts,
            joules_per_token=watts.over(rate) if watts else None,
            price=self.rent,
            gain=self._gain(plan, running),
            stages=stage_points(self.passes, self.memory, plan, costs, batch),
            offload=self.offload,
            layers_that_fit=self.memory.layers_that_fit(plan, self._whole(plan), batch),
        )

    def _whole(self, plan: Plan) -> Costs:
        """What a prompt costs where accelerators hold every layer."""
        return Passes.costs(self.passes, plan, *self.mix.prompts(1.0))

    def prefill(self, plan: Plan) -> Term:
        """The prefill of one request alone, without the rest of a point."""
        own = self.on(plan)
        return own._alone(own._read(plan, 1)[1], plan)

    def decode(self, plan: Plan) -> Term:
        """A decode step of all requests, without the rest of a point."""
        replicas = max(int(self.cluster.count // (plan.tp * plan.pp)), 1)
        return self._write(plan, ceil(self.workload.concurrency / replicas))[1]

    def most_requests(self, plan: Plan) -> int:
        """How many requests the cache of one replica can hold."""
        own = self.on(plan)
        return own.memory.of(plan, own.passes.unpriced(plan, *own.mix.prompts(1.0)), 1)[2]

    def prefill_program(self, plan: Plan) -> Program:
        """What runs when one prompt is read, or each chunk of it."""
        return self.passes.program(plan, *self.mix.chunk)

    def decode_program(self, plan: Plan, running: int) -> Program:
        """What runs when each of so many requests writes a token."""
        return self.passes.program(plan, *self.mix.tokens(plan, running))

    def _read(self, plan: Plan, together: float) -> tuple[Costs, Term]:
        """What prompts cost in all, and the time in which they are read, chunk after chunk."""
        costs = self.passes.costs(plan, *self.mix.prompts(together))
        if self.mix.chunks == 1:
            return costs, self.passes.time("prefill", costs, plan, graphs=False)
        chunk = self.passes.costs(plan, *self.mix.chunk)
        time = self.passes.time("prefill", chunk, plan, graphs=False)
        return costs, time.scaled(self.mix.chunks * together)

    def _alone(self, read: Term, plan: Plan) -> Term:
        """One prompt: stages of a pipeline read different chunks of it at once."""
        return read.scaled(self.share_alone(plan))

    def share_alone(self, plan: Plan) -> float:
        """Of the time that all stages take for a prompt, what passes until the last has read it."""
        chunks = self.mix.chunks_at_once
        return (1.0 + (chunks - 1.0) * self.slowest_share(plan)) / chunks

    def slowest_share(self, plan: Plan) -> float:
        """Of the time that all stages take for prompts, the slowest one's part."""
        return float(self.passes.slowest_share(plan, *self.mix.chunk))

    def _beside(self, plan: Plan, running: int, alone: Term) -> tuple[float, Term]:
        """Prompts that one pass reads while others write, and what that adds to a decode step.

        They come as others end: one, or as many as end in a step.
        """
        each = self.mix.coming(running)
        if running == 1:
            return each, alone
        together = self._read(plan, self.mix.read_with(running))[1]
        if self.engine.policy == "prefill-first":
            return each, together
        # A mixed step reads its weights once, for prompts and for the tokens that are written.
        bare = self._chip_alone(plan, running, *self.mix.empty(plan, running))
        if (
            not self.passes.captures
        ):  # of a step that waits for its host reading the cache is hidden
            written = self.mix.tokens(plan, running)
            waits = self._write(plan, running)[1]
            bare += float(waits.value) - self._chip_alone(plan, running, *written)
        added = 1.0 - bare / float(together.value)
        return each, together.scaled(max(added, LEAST_ADDED))

    def _chip_alone(self, plan: Plan, running: int, batch: Size, seq: Size, past: Size) -> float:
        """Seconds of a decode step that no host holds up."""
        costs = self.passes.costs(plan, batch, seq, past)
        timed = self.passes.time(
            "decode step", costs, plan, graphs=True, tokens=running, issued=0.0
        )
        return float(timed.value)

    def _write(self, plan: Plan, running: int) -> tuple[Costs, Term]:
        """A token of every request: a decode step, or the share of one that verifies drafts."""
        batch, one, past = self.mix.tokens(plan, running)
        costs = self.passes.costs(plan, batch, one, past)
        if self.speculator:
            return costs, self.speculator.token(plan, batch, past)
        # A stage that waits for the others draws less.
        busy = min(running, self.mix.at_once(plan)) / float(plan.pp)
        return costs, self.passes.time(
            "decode step", costs, plan, graphs=True, tokens=running, busy=busy
        )

    def _step(self, decode: Term) -> Term:
        """The whole step of which `decode` is the share of a token."""
        if not self.speculator:
            return decode
        past = self.workload.input + self.workload.output / 2.0
        return decode.scaled(self.speculator.speculation.tokens(past))

    def _gain(self, plan: Plan, running: int) -> SpeculativeGain | None:
        """What drafts bring at this load, with other lengths, and up to which batch."""
        if not self.speculator:
            return None
        batch, _, past = self.mix.tokens(plan, running)
        by = self.speculator
        return SpeculativeGain(
            speculation=by.speculation,
            step=by.step(plan, batch, past),
            plain=by.plain(plan, batch, past),
            tokens=by.speculation.tokens(past),
            speedup=by.speedup(plan, batch, past),
            drafter_bytes=by.drafter_bytes(plan),
        )

    def outlook(self, point: ServingPoint) -> Outlook | None:
        """What other lengths of drafts would give, and from which batch on none pays."""
        if not self.speculator:
            return None
        batch, _, past = self.mix.tokens(point.plan, point.running)
        return self.speculator.outlook(point.plan, batch, past, point.most_requests)

    def _first_token(
        self, prefill: Term, packed: Term, decode: Term, whole: Term, together: int, batch: int,
        running: int,
    ) -> Estimate:  # fmt: skip
        """From a request's arrival to its first token.

        It waits for the step that it arrives in, and its own prefill runs beside another one.
        """
        host = self.profile.curve("framework")
        first_wave = running / together / (2.0 * self.workload.waves) if running > 1 else 0.0
        first = total(
            "ttft",
            leaf("request", host["request"], host, "framework"),
            prefill,
            decode.scaled(2.0 if running > 1 else 0.0),
            packed.scaled(first_wave),
            whole.scaled((batch - running) / running),  # Little: one leaves, one comes in
            cause="request",
            spread=host["request_error"],
            least=prefill.least,
        )
        return reaching(first, host["request_later"]).estimate
