"""A deployment under a load, simulated: a Server and a Plan in, what its users see out.

Requests are dealt out to replicas in turn, and each replica schedules its own.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from trueflops.plan import Plan
from trueflops.predict import Server
from trueflops.profile import Engine
from trueflops.serve.front import Front
from trueflops.serve.load import Requests
from trueflops.serve.outcome import Outcome, outcome
from trueflops.serve.scheduler import Served, serve
from trueflops.serve.step_clock import StepClock, step_clock
from trueflops.workload import Serving

EACH: Final = 0.003
"""Seconds that the one process of a server's front takes for a request: HTTP, JSON, tokenising. Of
a thousand sent at once to vLLM 0.11 the first answers come after 1.5 s (gpt-oss-20b) and 4.5 s
(Qwen3-235B), both on an H100 (gpustack's performance lab); other models were not looked at."""


class Deployed:
    """One plan of a server; what its steps take is priced once for all loads of like lengths."""

    def __init__(self, server: Server, plan: Plan, engine: Engine | None = None) -> None:
        self.server, self.plan = server, plan
        self.engine = engine or server.engine
        if (drafts := server.speculator) is not None:
            most = drafts.at_once(self.engine.most_sequences)
            self.engine = self.engine.but(most_sequences=most)
        self._clocks: dict[tuple[float, ...], StepClock] = {}
        self._cache_tokens: dict[tuple[float, ...], float] = {}

    @property
    def replicas(self) -> int:
        """Copies of the model that serve requests of their own."""
        return max(int(self.server.cluster.count // (self.plan.tp * self.plan.pp)), 1)

    def cache_tokens(self, requests: Requests) -> float:
        """What the KV cache of one replica holds, in tokens of requests of these lengths."""
        read, written = (max(round(float(x.mean())), 1) for x in (requests.input, requests.output))
        if (read, written) not in self._cache_tokens:
            asked = Serving(read, written, 1)
            most = self.server.asked(asked).most_requests(self.plan)
            self._cache_tokens[read, written] = float(most * asked.context)
        return self._cache_tokens[read, written]

    def clock(self, requests: Requests, most: int) -> StepClock:
        """What steps take with up to `most` requests at once."""
        read, written = (max(round(float(x.mean())), 1) for x in (requests.input, requests.output))
        longest = float(np.max(requests.input + requests.output))
        key = (read, written, longest, most, self.engine.step_tokens)
        if key not in self._clocks:
            server = self.server.asked(Serving(read, written, 1))
            self._clocks[key] = step_clock(
                server, self.plan, most, longest, self.engine.step_tokens
            )
        return self._clocks[key]

    def serve(self, requests: Requests) -> list[Served]:
        """What happens to every request, replica by replica."""
        shares = [
            requests.share(replica, self.replicas)
            for replica in range(min(self.replicas, requests.count))
        ]
        at_once = max(own.most_at_once for own in shares)
        clock = self.clock(requests, min(self.engine.most_sequences, at_once))
        room = self.cache_tokens(requests)
        return [serve(own, clock, self.engine, room, self.front) for own in shares]

    def serve_share(self, own: Requests, room: float) -> Served:
        """What happens to the requests of one replica whose cache holds so many tokens."""
        most = min(self.engine.most_sequences, own.most_at_once)
        return serve(own, self.clock(own, most), self.engine, room, self.front)

    @property
    def front(self) -> Front:
        """What the engine's server adds around its scheduler."""
        return Front(EACH, self.server.profile.curve("framework")["request"])

    def outcome(self, requests: Requests) -> Outcome:
        """What users see."""
        return outcome(self.serve(requests))
