"""Which passes a load is made of: so many prompts, chunks of them, steps that write a token each.

In: a Serving and an Engine. Out: shapes of passes, each sequences, tokens of each, tokens before.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np

from trueflops.plan import Plan
from trueflops.predict.serving.passes import Shape
from trueflops.predict.serving.ranks import fullest_rank
from trueflops.profile import Engine
from trueflops.workload import Serving

CHUNKS_AT_ONCE: Final = 4.0  # of a prompt in a pipeline: llama.cpp hands over 2048 tokens by 512
Sized = tuple[float, float, float]
"""Sequences of a pass, tokens of each, tokens before them."""


@dataclass(frozen=True)
class Mix:
    """Passes of one engine under one load."""

    workload: Serving
    engine: Engine

    def shapes(self, plan: Plan, running: int) -> list[Shape]:
        """All that a point with so many running requests is made of, to be priced beforehand."""
        read = 1, self.together(running), self.read_with(running)
        passes = [self.tokens(plan, running), *map(self.prompts, read)]
        passes += [self.chunk] * (self.chunks > 1)
        passes += [self.empty(plan, running)] * (self.engine.policy == "mixed")
        return [(plan, *each) for each in passes]

    def prompts(self, together: float) -> Sized:
        """A pass that reads so many prompts."""
        return float(together), float(self.workload.input), 0.0

    def tokens(self, plan: Plan, running: int) -> Sized:
        """A decode step, in the middle of the outputs; ranks in step wait for the fullest."""
        middle = float(self.workload.input + self.workload.output / 2.0)
        middle *= fullest_rank(plan, running, self.workload)
        return max(running / self.at_once(plan), 1.0), 1.0, middle

    def empty(self, plan: Plan, running: int) -> Sized:
        """A decode step with nothing in the cache."""
        return max(running / self.at_once(plan), 1.0), 1.0, 1.0

    def at_once(self, plan: Plan) -> float:
        """Parts of the batch that stages of a pipeline work on at once."""
        return float(plan.pp) if self.engine.staggered else 1.0

    @property
    def chunks(self) -> int:
        """Parts in which a prompt is read."""
        whole = not self.engine.chunked
        return 1 if whole else ceil(self.workload.input / self.engine.step_tokens)

    @property
    def chunk(self) -> Sized:
        """The middle one of them.

        The cache before a chunk grows evenly, and attention with it: the middle one is the mean.
        """
        length = self.workload.input / self.chunks
        return 1.0, length, (self.workload.input - length) / 2.0

    @property
    def chunks_at_once(self) -> float:
        """Chunks of one prompt that stages of a pipeline read at once."""
        most = self.workload.input / self.engine.step_tokens
        return float(np.clip(most, 1.0, CHUNKS_AT_ONCE))

    def together(self, running: int) -> int:
        """Prompts of the first wave that one pass reads."""
        return max(1, min(running, int(self.engine.step_tokens // self.workload.input)))

    def coming(self, running: int) -> float:
        """Prompts that one pass reads while others write: as many as end in a step."""
        asked = self.workload
        return max(1.0, min(running / asked.output, self.engine.step_tokens / asked.input))

    def read_with(self, running: int) -> float:
        """The same, in a mixed step with the tokens that are written counted as prompts' tokens."""
        if self.engine.policy == "prefill-first":
            return self.coming(running)
        return self.coming(running) + running / self.workload.input
