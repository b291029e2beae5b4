"""Serving: prefill and decode step, KV cache, tokens per second at a batch.

A replica works on as many requests n as its cache holds; others wait. While each writes its
output, n others are read in, several short prompts at a time, by stages of a pipeline at once:
    TPOT     = decode + (n − 1) · prefill / (pp · output) · (1 − 1/waves)
    TTFT     = overhead + prefill + 2 decode + prefill · n / (2 · waves) + wait for room
    tokens/s = n · output / (output · decode + n · prefill / pp)
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np

from trueflops.catalog import Cluster, Price
from trueflops.clock import CLOCKED_CAUSES, Clock, Placement
from trueflops.graph import Pass, Program, compile_program
from trueflops.graph.kinds import CollectiveKind
from trueflops.graph.passes import Format, format_named
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.predict.bill import cluster_watts, going_price, rent_estimate
from trueflops.predict.costs import Costs, program_costs
from trueflops.profile import Profile
from trueflops.runtime import (
    COMMUNICATION,
    COMPUTE,
    Estimate,
    Stretch,
    Term,
    exact,
    leaf,
    run_closed,
    total,
)
from trueflops.sizes import Size, summed
from trueflops.units import MILLION, SECONDS_PER_HOUR
from trueflops.workload import Serving

BATCHING_ERROR: Final = 0.25  # of a rate: how full a scheduler keeps its batch, and with what
CHUNKS_AT_ONCE: Final = 4.0  # of a prompt in a pipeline: llama.cpp hands over 2048 tokens by 512
MEMORY_SHARE: Final = 0.9  # of the accelerator's memory a server may use (vLLM, SGLang default)


@dataclass(frozen=True, kw_only=True)
class ServingPoint:
    """One plan at one concurrency."""

    model: Model
    plan: Plan
    workload: Serving
    cluster: Cluster
    profile: Profile
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
        pue: float = 1.0,
        rent: Price | None = None,
    ) -> None:
        self.model, self.workload = model, workload
        self.cluster, self.profile = cluster, profile
        self.cache_bits, self.pue = cache_bits, pue
        self.clock = Clock(cluster, profile)
        self.rent = rent or going_price(cluster)
        self.chunk = profile.curve("framework")["chunk"]  # tokens of prompts in one pass
        wide = wide_dtype(cluster)
        if model.is_moe and weights == "fp8":
            weights = "fp8_block"  # as DeepSeek-V3, Qwen3 and MiniMax-M2 are released and served
        # 16 bits are bf16 where the chip has it and fp16 where it has not.
        self.weights = format_named(wide if weights in ("bf16", "fp16") else weights)
        self.dtype = self.weights.compute if self.weights.compute == "fp32" else wide
        self.bits = 32.0 if self.dtype == "fp32" else 16.0
        self._remembered: dict[tuple[object, ...], Costs] = {}

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
        memory, per_request, most, room = self._memory(plan, one, batch)
        running = min(batch, room) if most else batch
        together = max(1, min(running, int(self.chunk // asked.input)))  # prompts read in one pass
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
            _summed(writing, self.model, "joules") * asked.output * plan.pp
            + _summed(reading, self.model, "joules") * running / together
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
            weights=self.weights,
            cache_bits=self.cache_bits,
            replicas=replicas,
            batch=batch,
            running=running,
            prefill=prefill,
            decode=decode,
            memory=memory,
            capacity_bytes=self._capacity,
            cache_bytes_per_request=self._cache_per_request(Plan()),
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
        return self._memory(plan, self._read(plan, 1)[0], 1)[2]

    def prefill_program(self, plan: Plan) -> Program:
        """What runs when one prompt is read."""
        return self._program(plan, *self._prompts(1))

    def decode_program(self, plan: Plan, running: int) -> Program:
        """What runs when each of so many requests writes a token."""
        return self._program(plan, *self._tokens(plan, running))

    def _prompts(self, together: int) -> tuple[float, float, float]:
        """Batch, length and past of a pass that reads so many prompts."""
        return float(together), float(self.workload.input), 0.0

    def _tokens(self, plan: Plan, running: int) -> tuple[float, float, float]:
        """Of a decode step, in the middle of the outputs."""
        middle = float(self.workload.input + self.workload.output / 2.0)
        return max(running / float(plan.pp), 1.0), 1.0, middle

    def _read(self, plan: Plan, together: int) -> tuple[Costs, Term]:
        costs = self._costs(plan, *self._prompts(together))
        return costs, self._time("prefill", costs, plan, graphs=False)

    def _alone(self, read: Term, plan: Plan) -> Term:
        """One prompt: stages of a pipeline read different chunks of it at once."""
        return read.scaled(self.share_alone(plan))

    def share_alone(self, plan: Plan) -> float:
        """Of the time that all stages take for a prompt, what passes until the last has read it."""
        chunks = np.clip(self.workload.input / self.chunk, 1.0, CHUNKS_AT_ONCE)
        return float((chunks + plan.pp - 1.0) / (chunks * plan.pp))

    def _write(self, plan: Plan, running: int) -> tuple[Costs, Term]:
        costs = self._costs(plan, *self._tokens(plan, running))
        return costs, self._time("decode step", costs, plan, graphs=True, tokens=running)

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

    @property
    def _capacity(self) -> float:
        return MEMORY_SHARE * self.clock.chip.need("memory.capacity")

    def _costs(self, plan: Plan, batch: float, seq: float, past: float) -> Costs:
        key = (plan, batch, seq, past)
        if key not in self._remembered:
            program = self._program(plan, batch, seq, past)
            self._remembered[key] = program_costs(program, self.clock, Placement.of(plan))
        return self._remembered[key]

    def _program(self, plan: Plan, batch: float, seq: float, past: float) -> Program:
        run = Pass(
            batch=batch,
            seq=seq,
            past=past,
            training=False,
            decoding=seq == 1.0 and past > 0,
            dtype=self.dtype,
            bits=self.bits,
            cache_bits=self.cache_bits,
        )
        return compile_program(self.model, plan, run, self.weights)

    def _time(self, name: str, costs: Costs, plan: Plan, *, graphs: bool, tokens: int = 0) -> Term:
        """All layers, one after another; stages of a pipeline add their hand-overs."""
        seconds: dict[str, Size] = {}
        for piece, times in costs.pieces(self.model):
            for (_, cause), value in piece.seconds.items():
                seconds[cause] = seconds.get(cause, 0.0) + times * value
        parts = [
            leaf(label, seconds[cause], self.profile.curve(cause), cause)
            for cause, label in COMPUTE.items()
            if cause in seconds
        ]
        law, host = self.profile.curve("collective"), self.profile.curve("framework")
        parts += [
            leaf(label, seconds[axis], law, "collective")
            for axis, label in COMMUNICATION.items()
            if axis in seconds
        ]
        work = Stretch(
            seconds={"forward": summed(part.value for part in parts)},
            clocked={"forward": summed(seconds.get(cause, 0.0) for cause in CLOCKED_CAUSES)},
            kernels={"forward": _summed(costs, self.model, "kernels")},
            # A captured graph is launched at once: no kernel of it waits for the host.
            host={"forward": 0.0 if graphs else _summed(costs, self.model, "host")},
            joules=_summed(costs, self.model, "joules"),
        )
        gap = host["graph"] if graphs else self.clock.host.gap
        parts += run_closed(work, self.clock.power, gap=gap).added(self.profile)[1:]
        around = host["step"] + tokens * host["token"]
        parts.append(leaf("engine", around, host, "framework"))
        if plan.pp > 1:
            stride = plan.tp * self.cluster.count / (plan.tp * plan.pp)
            hop = self.clock.collective(
                CollectiveKind.SEND_RECV, 2.0, costs.boundary_bytes, stride
            ).seconds
            parts.append(leaf("pipeline sends", (plan.pp - 1.0) * hop, law, "collective"))
        # Physics: every flop at the chip's peak; a decode step reads its weights and cache once.
        least = _summed(costs, self.model, "peak_seconds")
        if graphs:
            streamed = _summed(costs, self.model, "streamed_bytes")
            if streamed > self.clock.silicon.l2_bytes * plan.pp:  # a tiny model stays on the chips
                least = max(least, streamed / self.clock.silicon.bandwidth)
        return total(name, *parts, cause="framework", spread=host.error, least=least)

    def _memory(self, plan: Plan, reading: Costs, batch: int) -> tuple[Term, float, int, int]:
        """Weights, the cache of all requests, and what one prefill needs while it runs.

        Beside it the cache of one request, how many of them can end together, and how many can
        run: those under way have on average written half of their output.
        """
        stages = float(plan.pp)
        working: Size = 0.0
        layers: Size = 0.0
        for piece, times in reading.pieces(self.model):
            layers = layers + times * piece.weight_bytes
            working = np.maximum(working, piece.working_bytes)
        ends = [reading.embedding.weight_bytes, reading.head.weight_bytes]
        layers = layers - sum(ends)
        tied = reading.head.tied_parameters * self.bits / 8.0
        # The fullest stage has its share of the layers and the larger of embedding and head.
        weights = layers / stages + (sum(ends) - tied if stages == 1.0 else max(ends))
        chunk = min(1.0, self.chunk / self.workload.input)
        per_request = self._cache_per_request(plan)
        law = self.profile.curve("allocator")
        groups = float(plan.tp > 1) + float(plan.pp > 1)
        fixed = [
            exact("weights", weights, "bytes"),
            leaf(
                "working tensors",
                working * chunk,
                self.profile.curve("activations"),
                "activations",
                "bytes",
            ),
            leaf("communication buffers", groups * law["communicator"], law, "allocator", "bytes"),
            leaf("context", law["context"], law, "allocator", "bytes"),
        ]
        left = self._capacity - sum(float(part.value) for part in fixed)
        most = max(int(left // per_request), 0) if per_request else batch
        half = self.workload.context - self.workload.output / 2.0
        room = max(int(most * self.workload.context / half), 1)
        cache = exact("KV cache", per_request * batch, "bytes")
        whole = total("memory", fixed[0], cache, *fixed[1:], unit="bytes")
        return whole, per_request, most, room

    def _cache_per_request(self, plan: Plan) -> float:
        """Bytes of one request's keys and values on one accelerator, windows taken into account."""
        held = 0.0
        for kind, block in enumerate(self.model.blocks):
            a = block.attention
            length = min(self.workload.context, a.window or self.workload.context)
            heads = 1.0 if a.latent else max(a.kv_heads / plan.tp, 1.0) / a.kv_heads
            held += self.model.pattern.count(kind) * length * a.cache_width * float(heads)
        return float(held * self.cache_bits / 8.0 / plan.pp)


def wide_dtype(cluster: Cluster) -> str:
    """bf16 where the chip has it, else fp16, else fp32."""
    chip = cluster.accelerator
    return next((d for d in ("bf16", "fp16", "fp32") if chip.computes(d)), "bf16")


def _summed(costs: Costs, model: Model, what: str) -> float:
    """Joules, streamed bytes or seconds at the peak of a forward pass through all layers."""
    return float(sum(n * getattr(p, what).get("forward", 0.0) for p, n in costs.pieces(model)))
