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

EACH: Final = 0.0015
"""Seconds that the one process of a server's front takes for a request: HTTP, JSON, tokenising. Of
a thousand sent at once to vLLM 0.11 the first answers come after 1.5 s (gpt-oss-20b on an H100,
gpustack's performance lab), of a model whose messages no template lays out."""
TEMPLATE: Final = 0.012
"""Seconds that Jinja 3.1 takes to parse a chat template and to find its variables: of 37 templates
of models that were out in October 2025 (llama.cpp's models/templates) the middle one takes 19.3 ms
on a Neoverse N1, one in ten less than 0.45 of that and one in ten more than 1.7 times; the host of
an H200 parses a made-up one in 0.61 of the Neoverse's time."""
NO_TEMPLATE: Final = ("gpt_oss",)
"""Whose messages are laid out without Jinja: vLLM's serving_chat.py, _make_request_with_harmony."""


class Deployed:
    """One plan of a server; what its steps take is priced once for all loads of like lengths."""

    def __init__(self, server: Server, plan: Plan, engine: Engine | None = None) -> None:
        self.server, self.plan = server.on(plan), plan
        own = engine or self.server.engine
        self.engine = own.drafting() if server.speculator else own
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

    def serve(self, requests: Requests, pace: float = 1.0) -> list[Served]:
        """What happens to every request, replica by replica, if steps take `pace` times as long."""
        shares = [
            requests.share(replica, self.replicas)
            for replica in range(min(self.replicas, requests.count))
        ]
        at_once = max(own.most_at_once for own in shares)
        clock = self.clock(requests, min(self.engine.most_sequences, at_once)).paced(pace)
        room = self.cache_tokens(requests)
        return [serve(own, clock, self.engine, room, self.front(own)) for own in shares]

    def serve_share(self, own: Requests, room: float, pace: float = 1.0) -> Served:
        """What happens to the requests of one replica whose cache holds so many tokens."""
        most = min(self.engine.most_sequences, own.most_at_once)
        clock = self.clock(own, most).paced(pace)
        return serve(own, clock, self.engine, room, self.front(own))

    def front(self, requests: Requests) -> Front:
        """What the engine's server adds around its scheduler."""
        jinja = requests.chat and self.server.model.family not in NO_TEMPLATE
        each = EACH + TEMPLATE * (jinja and self.engine.parses_template)
        return Front(each, self.server.profile.curve("framework")["request"])

    def outcome(self, requests: Requests) -> Outcome:
        """What users see."""
        return outcome(self.serve(requests))
