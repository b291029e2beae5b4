"""What a server is asked: when requests come, and how long each is.

In: how they arrive (a closed loop of users, all at once, Poisson, bursts, a trace file) and their
lengths. Out: Requests, as arrays. The same seed gives the same requests.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from trueflops.errors import BadInput
from trueflops.language import say
from trueflops.sizes import Array

SEED: Final = 0
JITTER: Final = 0.2  # to either side of a length, where nothing is said: no real load marches


@dataclass(frozen=True)
class Requests:
    """Requests in the order they are sent. With `users`, at most so many are under way.

    Then each is sent when an earlier one has ended, and `think` seconds later; not before its
    arrival.
    """

    arrival: Array  # seconds
    input: Array  # tokens
    output: Array
    cached: Array  # of the input: tokens of a prefix that the server has seen
    users: int | None = None
    think: float = 0.0
    chat: bool = False  # sent as messages, which the server lays out by the model's chat template

    def __post_init__(self) -> None:
        """Refuse what cannot be served."""
        if not len(self.input):
            raise BadInput(say("there is no request: give at least one"))
        if self.input.min() < 1 or self.output.min() < 1:
            raise BadInput(say("every request needs at least one token of input and one of output"))

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.input)

    @property
    def most_at_once(self) -> int:
        """How many can be under way."""
        return min(self.users or self.count, self.count)

    def share(self, replica: int, replicas: int) -> Requests:
        """Those of one replica, where requests are dealt out in turn."""
        own = slice(replica, None, replicas)
        users = self.users and max(-(-self.users // replicas), 1)
        return replace(
            self,
            arrival=self.arrival[own],
            input=self.input[own],
            output=self.output[own],
            cached=self.cached[own],
            users=users,
        )


@dataclass(frozen=True)
class Lengths:
    """Tokens of prompts or outputs: uniform from `low` to `high` of the mean, or lognormal."""

    mean: float
    low: float = 1.0 - JITTER
    high: float = 1.0 + JITTER
    sigma: float = 0.0  # of the logarithm: above zero, lengths are lognormal with that mean

    def draw(self, count: int, random: np.random.Generator) -> Array:
        """So many of them, each at least 1."""
        if self.sigma:
            middle = np.log(self.mean) - self.sigma**2 / 2.0
            drawn = np.exp(random.normal(middle, self.sigma, count))
        else:
            drawn = random.uniform(self.low * self.mean, self.high * self.mean, count)
        return np.maximum(np.rint(drawn), 1.0)


def arrivals(count: int, rate: float, burstiness: float, random: np.random.Generator) -> Array:
    """Times of requests at a mean rate; all at 0 where it is infinite.

    Gaps are gamma with that shape, as vLLM's benchmark draws them (`--burstiness`): 1 is Poisson,
    less comes in bursts, more is steadier (vllm/benchmarks/serve.py, get_request).
    """
    if not np.isfinite(rate):
        return np.zeros(count)
    gaps = random.gamma(burstiness, 1.0 / (rate * burstiness), count)
    return np.cumsum(gaps) - gaps[0]


def draw_requests(
    count: int,
    read: Lengths,
    written: Lengths,
    *,
    rate: float = np.inf,
    burstiness: float = 1.0,
    users: int | None = None,
    think: float = 0.0,
    prefix_hits: float = 0.0,
    seed: int = SEED,
) -> Requests:
    """Requests of these lengths. `prefix_hits` is the share of each prompt that is in the cache."""
    random = np.random.default_rng(seed)
    prompts, outputs = read.draw(count, random), written.draw(count, random)
    return Requests(
        arrival=arrivals(count, rate, burstiness, random),
        input=prompts,
        output=outputs,
        cached=np.floor(prompts * prefix_hits),
        users=users,
        think=think,
    )
