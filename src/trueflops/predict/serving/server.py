"""Serving: prefill and decode step, KV cache, tokens per second at a batch.

A replica works on as many requests n as its cache holds; others wait. While each writes its
output, n others are read in, several short prompts at a time, by stages of a pipeline at once:
    TPOT     = decode + (n − 1) · prefill / (pp · output) · (1 − 1/waves)
    TTFT     = overhead + prefill + 2 decode + prefill · n / (2 · waves) + wait for room
    tokens/s = n · output / (output · decode + n · prefill / pp)
"""

from __future__ import annotations

from copy import copy
from math import ceil
from typing import Final

import numpy as np

from trueflops.catalog import Cluster, Price
from trueflops.clock import Clock
from trueflops.graph import Program
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.predict.bill import cluster_watts, going_price, rent_estimate
from trueflops.predict.costs import Costs
from trueflops.predict.serving.memory import ServerMemory
from trueflops.predict.serving.passes import Passes, summed_over
from trueflops.predict.serving.point import ServingPoint
from trueflops.profile import Engine, Profile
from trueflops.profile.engines import USUAL, engine_of
from trueflops.runtime import Estimate, Term, leaf, total
from trueflops.units import MILLION, SECONDS_PER_HOUR
from trueflops.workload import Serving

BATCHING_ERROR: Final = 0.25  # of a rate: how full a scheduler keeps its batch, and with what
CHUNKS_AT_ONCE: Final = 4.0  # of a prompt in a pipeline: llama.cpp hands over 2048 tokens by 512


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
        pue: float = 1.0,
        rent: Price | None = None,
    ) -> None:
        self.model, self.workload = model, workload
        self.cluster, self.profile = cluster, profile
        self.pue = pue
        self.engine = engine or engine_of(USUAL)
        self.passes = Passes(model, cluster, profile, weights, cache_bits)
        self.rent = rent or going_price(cluster)

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
        return ServerMemory(self.passes, self.engine, self.workload)

    def asked(self, workload: Serving) -> Server:
        """The same server under another load; passes of the same shape are priced once."""
        other = copy(self)
        other.workload = workload
        return other

    def predict(self, plan: Plan) -> ServingPoint:
        """Prefill, decode, memory and what follows from them."""
        asked = self.workload
        replicas = max(int(self.cluster.count // (plan.tp * plan.pp)), 1)
        batch = ceil(asked.concurrency / replicas)
        one, alone = self._read(plan, 1)
        prefill = self._alone(alone, plan)
        memory, per_request, most, room = self.memory.of(plan, one, batch)
        running = min(batch, room) if most else batch
        together = max(
            1, min(running, int(self.engine.step_tokens // asked.input))
        )  # prompts read in one pass
        reading, packed = one, alone
        if together > 1:
            reading, packed = self._read(plan, together)
        writing, decode = self._write(plan, running)
        # Prefills that one batch of outputs waits for; stages read as many prompts as there are.
        passes = max(running / together / float(plan.pp), 1.0)
        whole = total(
            "all",
            decode.scaled(asked.output),
            packed.scaled(passes),
            cause="batching",
            spread=BATCHING_ERROR if running > 1 else 0.0,
            # A pass may read weights for prompts and for decoding at once: limits do not add up.
            least=max(decode.least * asked.output, packed.least * passes),
        )
        # Prefills of other requests a token waits for; the last wave has none behind it.
        others = passes * (running - 1) / running / asked.output * (1.0 - 1.0 / asked.waves)
        tpot = total("tpot", decode, packed.scaled(others), least=decode.least).estimate
        served = asked.concurrency * running / batch
        rate = whole.estimate.under(served * asked.output)
        # Work of one accelerator while a batch is written; replicas without requests idle.
        used = served / (running * replicas) / float(plan.pp)
        joules = used * (
            summed_over(writing, self.model, "joules") * asked.output * plan.pp
            + summed_over(reading, self.model, "joules") * running / together
        )
        taken = whole.estimate
        watts = cluster_watts(self.cluster, self.profile, joules, 1.0, taken, self.pue)
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
            capacity_bytes=self.memory.capacity,
            cache_bytes_per_request=self.memory.cache_per_request(Plan()),
            cache_bytes_per_accelerator=per_request,
            most_requests=most,
            ttft=self._first_token(prefill, packed, decode, whole, together, batch, running),
            tpot=tpot,
            tokens_per_second=rate,
            usd_per_million_tokens=usd,
            watts=watts,
            joules_per_token=watts.over(rate) if watts else None,
            price=self.rent,
        )

    def prefill(self, plan: Plan) -> Term:
        """The prefill of one request alone, without the rest of a point."""
        return self._alone(self._read(plan, 1)[1], plan)

    def decode(self, plan: Plan) -> Term:
        """A decode step of all requests, without the rest of a point."""
        replicas = max(int(self.cluster.count // (plan.tp * plan.pp)), 1)
        return self._write(plan, ceil(self.workload.concurrency / replicas))[1]

    def most_requests(self, plan: Plan) -> int:
        """How many requests the cache of one replica can hold."""
        return self.memory.of(plan, self._read(plan, 1)[0], 1)[2]

    def prefill_program(self, plan: Plan) -> Program:
        """What runs when one prompt is read."""
        return self.passes.program(plan, *self._prompts(1))

    def decode_program(self, plan: Plan, running: int) -> Program:
        """What runs when each of so many requests writes a token."""
        return self.passes.program(plan, *self._tokens(plan, running))

    def _prompts(self, together: int) -> tuple[float, float, float]:
        """Batch, length and past of a pass that reads so many prompts."""
        return float(together), float(self.workload.input), 0.0

    def _tokens(self, plan: Plan, running: int) -> tuple[float, float, float]:
        """Of a decode step, in the middle of the outputs."""
        middle = float(self.workload.input + self.workload.output / 2.0)
        return max(running / float(plan.pp), 1.0), 1.0, middle

    def _read(self, plan: Plan, together: int) -> tuple[Costs, Term]:
        costs = self.passes.costs(plan, *self._prompts(together))
        return costs, self.passes.time("prefill", costs, plan, graphs=False)

    def _alone(self, read: Term, plan: Plan) -> Term:
        """One prompt: stages of a pipeline read different chunks of it at once."""
        return read.scaled(self.share_alone(plan))

    def share_alone(self, plan: Plan) -> float:
        """Of the time that all stages take for a prompt, what passes until the last has read it."""
        chunks = np.clip(self.workload.input / self.engine.step_tokens, 1.0, CHUNKS_AT_ONCE)
        return float((chunks + plan.pp - 1.0) / (chunks * plan.pp))

    def _write(self, plan: Plan, running: int) -> tuple[Costs, Term]:
        costs = self.passes.costs(plan, *self._tokens(plan, running))
        return costs, self.passes.time("decode step", costs, plan, graphs=True, tokens=running)

    def _first_token(
        self, prefill: Term, packed: Term, decode: Term, whole: Term, together: int, batch: int,
        running: int,
    ) -> Estimate:  # fmt: skip
        """From a request's arrival to its first token.

        It waits for the step that it arrives in, and its own prefill runs beside another one.
        """
        host = self.profile.curve("framework")
        first_wave = running / together / (2.0 * self.workload.waves) if running > 1 else 0.0
        return total(
            "ttft",
            leaf("request", host["request"], host, "framework"),
            prefill,
            decode.scaled(2.0 if running > 1 else 0.0),
            packed.scaled(first_wave),
            whole.scaled((batch - running) / running),  # Little: one leaves, one comes in
            cause="request",
            spread=host["request_error"],
            least=prefill.least,
        ).estimate
