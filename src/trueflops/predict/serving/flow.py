"""The closed loop of two pools: how many requests a second, and where the others wait.

Little's law for C requests that are always in flight, with n of them in each decode replica:
    X = n · writers / ((output + ½) · step(n))            a new one joins in the middle of a step
    C = X · (apart + wait(X)) + n · writers
    wait = busy^(√(2(c+1)) − 1) / (1 − busy·(C − 1)/C) · prefill / (2c)
The last is Sakasegawa's approximation of a queue with c servers (Management Science 23, 1977) for
prompts of one length, with what a closed loop's few customers change of it. Every field broadcasts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from trueflops.sizes import Array, Size

JOINING: Final = 0.5  # of a decode step: what a request that arrives in one waits for the next
_HALVINGS: Final = 60
_FEWEST: Final = 1e-6  # requests of a decode replica, on average


@dataclass(frozen=True)
class Stations:
    """What a request meets on its way through both pools."""

    concurrency: Size
    output: float
    apart: Size  # seconds in which nothing else waits for it: overhead, own prefill, transfer
    prefill: Size  # seconds for which a prompt keeps a prefill replica busy
    readers: Size  # prefill replicas
    link: Size  # seconds for which a request keeps the slowest links busy, over all there are
    writers: Size  # decode replicas
    room: Size  # requests that the cache of one of them holds


@dataclass(frozen=True)
class Flow:
    """The steady state."""

    rate: Array  # requests a second
    batch: Array  # requests in each decode replica
    wait: Array  # seconds in the queue for prefill while neither pool is full
    full: Array  # seconds more, because a pool is
    busy: Array  # share of the time for which prefill replicas work
    sending: Array  # share of the time for which the links between the pools work

    def queue(self, at: Stations, waves: float) -> Array:
        """Seconds that a request waits for its prefill, the first wave among them.

        That one arrives at once: on average it waits for half of its prefills.
        """
        waits = self.wait + self.full
        burst = at.concurrency * at.prefill / (2.0 * at.readers)
        queued = np.maximum(waits + (burst - waits) / waves, 0.0)
        return np.where(np.asarray(at.concurrency) > 1.0, queued, 0.0)


def steady_flow(at: Stations, step: Callable[[Array], Array]) -> Flow:
    """Solve for the batch of the decode replicas by bisection; `step` gives a step's seconds."""
    low, high = np.broadcast_arrays(
        np.log(_FEWEST), np.log(np.maximum(at.room, 1.0) * (1.0 + 0.0 * at.writers * at.prefill))
    )
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        flow, held = flow_at(at, np.exp(middle), step)
        over = (held > at.concurrency) | (flow.busy > 1.0) | (flow.sending > 1.0)
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    flow, held = flow_at(at, np.exp(low), step)
    # What is in flight beyond what the pools hold waits in front of the one that is full.
    return Flow(
        rate=flow.rate,
        batch=flow.batch,
        wait=flow.wait,
        full=np.maximum(at.concurrency - held, 0.0) / flow.rate,
        busy=flow.busy,
        sending=flow.sending,
    )


def flow_at(at: Stations, batch: Array, step: Callable[[Array], Array]) -> tuple[Flow, Array]:
    """What a batch of the decode replicas implies, and how many requests that is in all."""
    stay = (at.output + JOINING) * step(np.maximum(batch, 1.0))
    rate = batch * at.writers / stay
    busy = rate * at.prefill / at.readers
    crowd = np.minimum(busy, 1.0) ** (np.sqrt(2.0 * (at.readers + 1.0)) - 1.0)
    others = (at.concurrency - 1.0) / at.concurrency
    left = np.maximum(1.0 - np.minimum(busy, 1.0) * others, 1.0 / at.concurrency)
    wait = others * crowd / left * at.prefill / (2.0 * at.readers)
    held = rate * (at.apart + wait) + batch * at.writers
    nothing = np.zeros_like(rate)
    return Flow(rate, batch, wait, nothing, busy, rate * at.link), np.asarray(held)
