"""The scheduler of one replica, simulated: requests in, when each was sent, read and written out.

Steps are run one by one where prompts are read; between two events (a request comes, ends, or the
cache is full) a run of decode steps is one sum:
    Σ_{j<k} a + b (C + j n) = k a + b (k C + n k (k−1)/2)
Mixed: a step takes a token of every request that writes, and prompts as far as its budget goes
(vLLM V1, TensorRT-LLM). Prefill-first: while a waiting prompt has room it is read, and those that
write wait (SGLang, vLLM V0, TGI). A cache that is full sends the newest request back to the queue,
to be read again with what it had written (vLLM: preemption by recomputation; SGLang: retraction).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil, inf, sqrt
from typing import Final

import numpy as np

from trueflops.errors import BadInput
from trueflops.language import say
from trueflops.profile import Engine
from trueflops.serve.front import NO_FRONT, Front
from trueflops.serve.load import Requests
from trueflops.serve.step_clock import StepClock
from trueflops.sizes import Array


@dataclass(frozen=True)
class Steps:
    """Runs of steps: when each began and ended, how many steps it has, who wrote and waited."""

    start: Array
    end: Array
    count: Array
    writing: Array
    waiting: Array
    cached: Array  # tokens


LOOKS: Final = 10  # decode steps after which room that grows step by step is looked at again


@dataclass(frozen=True)
class Served:
    """What happened to each request, and step by step."""

    requests: Requests
    sent: Array
    started: Array  # when its prompt was first worked on
    first: Array  # token
    ended: Array
    gaps: Array  # seconds between two tokens …
    gap_weights: Array  # … and how many such there were
    steps: Steps
    preempted: int


def serve(
    requests: Requests,
    clock: StepClock,
    engine: Engine,
    cache_tokens: float,
    front: Front = NO_FRONT,
) -> Served:
    """Serve every request on one replica whose cache holds so many tokens."""
    longest = float(np.max(requests.input + requests.output))
    if longest > cache_tokens:
        raise BadInput(
            say(
                "a request of {longest:,.0f} tokens does not fit into a KV cache of "
                "{cache_tokens:,.0f}: send shorter ones, or use more accelerators or a "
                "narrower cache",
                longest=longest,
                cache_tokens=cache_tokens,
            )
        )
    return _Replica(requests, clock, engine, cache_tokens, front).run()


@dataclass
class _Replica:
    requests: Requests
    clock: StepClock
    engine: Engine
    room: float
    front: Front
    now: float = 0.0
    front_free: float = 0.0
    ticks: int = 0  # decode steps so far
    last_read: int = 0  # the tick at which prompts were read last
    cached: float = 0.0  # tokens in the cache of those that write
    held: float = 0.0  # tokens of all that were admitted, blocks filled up
    prompts: float = 0.0  # tokens of all that were admitted, as they were then, blocks filled up
    outputs: float = 0.0  # tokens that they were to write: a share of it is set aside
    idle_until: int = 0  # the tick before which nothing was under way
    preempted: int = 0
    stalled: float = 0.0  # since the last decode step, while prompts were read
    queue: deque[int] = field(default_factory=deque)
    reading: deque[int] = field(default_factory=deque)
    ends: list[tuple[int, int, int]] = field(default_factory=list)  # (tick, request, attempt)
    newest: list[int] = field(default_factory=list)
    runs: list[tuple[float, float, int, int, int, float]] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        asked = self.requests
        many = len(asked.input)
        self.input = asked.input.tolist()
        self.output = asked.output.tolist()
        self.left = list(self.output)  # tokens to write
        self.known = asked.cached.tolist()  # of its prompt, tokens that are in the cache already
        self.done = [0.0] * many  # of what it must read
        self.need = list(self.input)  # to read: its prompt, and after a preemption its output
        self.finish = [0] * many  # tick
        self.attempt = [0] * many
        self.alive = [False] * many
        self.sent, self.started, self.first, self.ended = ([inf] * many for _ in range(4))
        self.writing = 0
        self.slack = (self.engine.block - 1) / 2.0  # of a last block, on average
        arrivals = asked.arrival.tolist()
        users = asked.users or many
        self.coming: list[tuple[float, int]] = []
        first = sorted((arrivals[i], i) for i in range(min(users, many)))
        taken = self.front.taken_in([when for when, _ in first])
        for (when, request), at in zip(first, taken, strict=True):
            self.sent[request] = when
            heappush(self.coming, (at, request))
        self.front_free = taken[-1]
        self.behind = deque((arrivals[i], i) for i in range(users, many))

    def run(self) -> Served:
        """Until every request has ended."""
        engine, mixed = self.engine, self.engine.policy == "mixed"
        seen_until = 0.0  # requests that came later are not known yet to the next step
        polled = 0
        while self.coming or self.queue or self.reading or self.writing:
            if not (self.queue or self.reading or self.writing):
                self.now = max(self.now, self.coming[0][0])
                seen_until, polled = self.now, 0
            if self.ticks >= polled:
                self._receive(seen_until)
                polled = self.ticks + engine.poll
            before = self.now
            held_back = self._held_back(mixed)
            if not held_back and (chunks := self._admit(mixed)):
                self._read(chunks, mixed)
                last, polled = before, self.ticks  # after a prompt it looks for others at once
            elif self.writing:
                last = self._write(engine.ahead, polled, held_back)
            else:  # nobody writes and none that is known has room: only those to come are left
                seen_until = self.now = max(self.now, self.coming[0][0])
                polled = self.ticks
                continue
            seen_until = last if engine.ahead else self.now
        return self._served()

    def _send(self, when: float, request: int) -> None:
        self.sent[request] = when
        self.front_free = max(self.front_free, when) + self.front.each
        heappush(self.coming, (self.front_free, request))

    def _receive(self, until: float) -> None:
        coming = self.coming
        while coming and coming[0][0] <= until:
            self.queue.append(heappop(coming)[1])

    def _admit(self, mixed: bool) -> list[tuple[int, float]]:
        """Prompts of the next step, or parts of them: those begun first, then as they came."""
        engine = self.engine
        if not (self.queue or self.reading):
            return []
        budget = float(engine.step_tokens - (self.writing if mixed else 0))
        chunks: list[tuple[int, float]] = []
        for request in self.reading:
            take = min(self.need[request] - self.done[request], budget)
            if take <= 0:
                return chunks
            chunks.append((request, take))
            budget -= take
        queue, room, reserve = self.queue, self.room, self._reserve()
        while queue and budget > 0 and self.writing + len(self.reading) < engine.most_sequences:
            request = queue[0]
            known = min(self.known[request], self.need[request] - 1.0)
            take = self.need[request] - known
            if take > budget and (not engine.chunked or budget < 1.0) and chunks:
                break
            blocks = self.need[request] + self.slack
            claimed = self.prompts + blocks + reserve * (self.outputs + self.left[request])
            if max(self.held + blocks, claimed) > room and (self.writing or self.reading):
                break
            queue.popleft()
            self.held += blocks
            self.prompts += blocks
            self.outputs += self.left[request]
            self.done[request] = known
            self.started[request] = min(self.started[request], self.now)
            self.reading.append(request)
            chunks.append((request, min(take, budget) if engine.chunked else take))
            budget -= take
        return chunks

    def _reserve(self) -> float:
        """The share of what is still to be written that the engine sets aside by now."""
        engine, steps = self.engine, self.engine.reserve_steps
        if not steps:
            return engine.reserve
        left = max(1.0 - (self.ticks - self.idle_until) / steps, 0.0)
        return engine.reserve + left * (engine.reserve_at_first - engine.reserve)

    def _read(self, chunks: list[tuple[int, float]], mixed: bool) -> None:
        tokens = pairs = 0.0
        self.last_read = self.ticks
        for request, take in chunks:
            tokens += take
            pairs += take * (self.done[request] + take / 2.0)
            self.done[request] += take
        running = self.writing if mixed else 0
        seconds = self.clock.mixed(tokens, pairs, running, self.cached)
        began = self.now
        self.now += seconds
        self.runs.append((began, self.now, 1, self.writing, len(self.queue), self.cached))
        if running:
            self._advance(1)
            self.gaps.append(seconds + self.stalled)
            self.weights.append(running)
            self.stalled = 0.0
        elif self.writing:
            self.stalled += seconds
        # Stages of a pipeline read other prompts meanwhile; this one comes out of the last.
        later = seconds * (self.clock.stages - 1.0)
        while self.reading and self.done[self.reading[0]] >= self.need[self.reading[0]]:
            self._begin(self.reading.popleft(), self.now + later)
        if running:
            self._end()

    def _begin(self, request: int, when: float) -> None:
        """Its prompt is read: the pass gave its next token."""
        if self.first[request] == inf:
            self.first[request] = when
        self.left[request] -= 1
        self.held += 1.0
        self.alive[request] = True
        self.attempt[request] += 1
        self.finish[request] = self.ticks + self.left[request]
        self.writing += 1
        self.cached += self.need[request] + 1.0
        self.newest.append(request)
        if self.left[request] == 0:
            self._leave(request)
        else:
            heappush(self.ends, (self.finish[request], request, self.attempt[request]))

    def _held_back(self, mixed: bool) -> bool:
        """Whether those that wait are too few to stop those that write, as TGI has it."""
        few = len(self.queue) < self.engine.waiting_ratio * self.writing
        soon = self.ticks - self.last_read < self.engine.waiting_steps
        return not mixed and few and soon

    def _write(self, ahead: int, polled: int, held_back: bool) -> float:
        """A run of decode steps up to the next event; when the last of them began."""
        while self.room - self.held < self.writing > 1:
            self._preempt()
        n = self.writing
        a, b = self.clock.writing[n], self.clock.per_cached[n]
        while self.ends[0][2] != self.attempt[self.ends[0][1]] or not self.alive[self.ends[0][1]]:
            heappop(self.ends)
        most = self.ends[0][0] - self.ticks
        if self.queue and self._reserve() > self.engine.reserve:  # room grows as less is set aside
            most = min(most, LOOKS)
        if held_back:
            most = min(most, self.last_read + self.engine.waiting_steps - self.ticks)
        if (
            held_back or not self.queue
        ) and self.coming:  # one that waits for room is helped by an end alone
            base, growth = a + b * self.cached, b * n
            wait = self.coming[0][0] - self.now
            steps = 1 if wait <= 0 else _steps_within(wait, base, growth) + ahead
            most = min(most, max(steps, polled - self.ticks))
        fits = int((self.room - self.held) // n)
        k = max(min(most, fits), 1)
        seconds = k * a + b * (k * self.cached + n * k * (k - 1) / 2.0)
        began = self.now
        self.now += seconds
        self.runs.append((began, self.now, k, n, len(self.queue), self.cached))
        last = a + b * (self.cached + n * (k - 1))
        if self.stalled:
            self.gaps.append(a + b * self.cached + self.stalled)
            self.weights.append(n)
            self.stalled = 0.0
            k_left = k - 1
        else:
            k_left = k
        if k_left:
            self.gaps.append(seconds / k)
            self.weights.append(n * k_left)
        self._advance(k)
        self._end()
        return self.now - last

    def _advance(self, steps: int) -> None:
        self.ticks += steps
        self.cached += steps * self.writing
        self.held += steps * self.writing

    def _end(self) -> None:
        """Take out those that have written their last token."""
        ends = self.ends
        while ends and ends[0][0] <= self.ticks:
            _, request, attempt = heappop(ends)
            if self.alive[request] and attempt == self.attempt[request]:
                self.left[request] = 0
                self._leave(request)

    def _leave(self, request: int) -> None:
        whole = self.input[request] + self.output[request]
        self._free(request, whole)
        self.ended[request] = max(self.now, self.first[request])
        if self.behind:  # the next of a closed loop is sent
            arrival, following = self.behind.popleft()
            self._send(max(self.now + self.requests.think, arrival), following)

    def _free(self, request: int, tokens: float) -> None:
        self.alive[request] = False
        self.writing -= 1
        self.cached -= tokens
        self.held -= tokens + self.slack
        self.prompts -= self.need[request] + self.slack
        self.outputs -= self.output[request] - (self.need[request] - self.input[request])
        if not self.writing and not self.reading:
            self.cached = self.held = self.prompts = self.outputs = 0.0  # of rounding
            self.idle_until = self.ticks

    def _preempt(self) -> None:
        """Send the newest request back to the head of the queue, to be read again."""
        while not self.alive[self.newest[-1]]:
            self.newest.pop()
        request = self.newest.pop()
        left = self.finish[request] - self.ticks
        tokens = self.input[request] + self.output[request] - left
        self._free(request, tokens)
        self.left[request] = left
        self.need[request] = tokens
        self.known[request] = 0.0
        self.preempted += 1
        self.queue.appendleft(request)

    def _served(self) -> Served:
        columns = np.array(self.runs, np.float64).reshape(-1, 6).T
        return Served(
            requests=self.requests,
            sent=np.array(self.sent),
            started=np.array(self.started),
            first=np.array(self.first) + self.front.lag,
            ended=np.array(self.ended) + self.front.lag,
            gaps=np.array(self.gaps),
            gap_weights=np.array(self.weights),
            steps=Steps(*columns),
            preempted=self.preempted,
        )


def _steps_within(seconds: float, first: float, growth: float) -> int:
    """How many steps it takes until so much time is over, each longer than the one before."""
    if growth * seconds < first * first * 1e-6:
        return ceil(seconds / first)
    half = first - growth / 2.0
    return ceil((sqrt(half * half + 2.0 * growth * seconds) - half) / growth)
