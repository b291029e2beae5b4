"""Answers that are kept: an equal question is free, and asked once by however many at a time.

In: Asked. Out: Answered. Kept packed (their JSON shrinks to a third in 0.2 ms), bounded
by bytes, the least recently asked forgotten first.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from sys import getsizeof
from typing import Final

from trueflops.web.asked import Asked
from trueflops.web.pool import Listener, Pool
from trueflops.web.worker import BUG, Answered, Told

MOST_KEPT_BYTES: Final = 16 * 1024**2
FASTEST: Final = 1  # of zlib's levels
HELD_BYTES: Final = 1024  # of the two objects, their tuples and their place among the kept


@dataclass(eq=False)
class Flight:
    """A question under way, how many wait for it, and who hears how far it is."""

    task: asyncio.Task[Answered]
    waiters: int = 0
    listeners: list[Listener] = field(default_factory=list)

    def tell(self, told: Told) -> None:
        """Pass on how far it is."""
        for listener in self.listeners:
            listener(told)


class Answers:
    """`await answers.ask(asked, seconds)`."""

    def __init__(self, pool: Pool, most_bytes: int = MOST_KEPT_BYTES) -> None:
        self.pool, self.most_bytes = pool, most_bytes
        self.bytes = 0
        self._kept: OrderedDict[Asked, Answered] = OrderedDict()
        self._flights: dict[tuple[Asked, float], Flight] = {}

    def recall(self, asked: Asked) -> Answered | None:
        """What is known already."""
        packed = self._kept.get(asked)
        if packed is None:
            return None
        self._kept.move_to_end(asked)
        return replace(packed, answer=zlib.decompress(packed.answer))

    async def ask(self, asked: Asked, seconds: float, listener: Listener | None = None) -> Answered:
        """Kept, under way, or asked now; what nobody waits for any more is cancelled."""
        if found := self.recall(asked):
            return found
        key = asked, seconds
        if key not in self._flights:
            self._flights[key] = Flight(asyncio.ensure_future(self._fly(key)))
        flight = self._flights[key]
        flight.waiters += 1
        flight.listeners += [listener] if listener else []
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiters -= 1
            if listener:
                flight.listeners.remove(listener)
            if not flight.waiters and not flight.task.done():
                if self._flights.get(key) is flight:
                    del self._flights[key]
                flight.task.cancel()

    async def _fly(self, key: tuple[Asked, float]) -> Answered:
        asked, seconds = key
        flight = self._flights[key]
        try:
            found = await self.pool.ask(asked, seconds, flight.tell)
        finally:
            if self._flights.get(key) is flight:
                del self._flights[key]
        if found.exit_code != BUG:
            self._keep(asked, found)
        return found

    def _keep(self, asked: Asked, found: Answered) -> None:
        packed = replace(found, answer=zlib.compress(found.answer, FASTEST))
        size = _bytes(asked, packed)
        if size > self.most_bytes or asked in self._kept:
            return
        self._kept[asked] = packed
        self.bytes += size
        while self.bytes > self.most_bytes:
            self.bytes -= _bytes(*self._kept.popitem(last=False))


def _bytes(asked: Asked, found: Answered) -> int:
    """What both take in memory: of a short answer, a sentence, its objects are most of it."""
    files = [piece for file in (*asked.files, *found.made) for piece in file]
    texts = (*asked.words, asked.wanted, found.answer, found.error, found.code, *files)
    return HELD_BYTES + sum(map(getsizeof, texts))
