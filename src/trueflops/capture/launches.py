"""What CUDA graphs launch, and the memory that they keep: the recorder's part of it."""

from __future__ import annotations

from trueflops.records.recording import Call, Event, Pool, Recording, StepPhase, Waited


class Launches:
    """The graph that is being captured, the pools of all graphs, and how often one was launched."""

    def __init__(self, recording: Recording) -> None:
        self.captured: list[Event] | None = None  # by the capture that is under way
        self._pools = recording.pools
        self._pool = 0  # of that capture
        self._pooled: dict[int, tuple[int, int]] = {}  # storage -> its pool, its size
        self._count = 0
        self._regions: dict[tuple[int, bool], int] = {}

    def begin(self, pool: int) -> list[Event]:
        """Capture into a graph what is called from here on; its memory is of this pool."""
        if self.captured is not None:
            raise RuntimeError("a CUDA graph is being captured already")
        self.captured, self._pool = [], pool
        return self.captured

    def end(self) -> None:
        """What is called from here on runs at once."""
        self.captured, self._pool = None, 0

    def new_pool(self) -> int:
        """A pool of memory for graphs, by its number."""
        number = len(self._pools) + 1
        self._pools[number] = Pool()
        return number

    def allocated(self, storage: int, size: int) -> None:
        """A storage came, in the pool of the graph that is captured."""
        if self._pool:
            self._pooled[storage] = self._pool, size
            self._pools[self._pool].take(size)

    def freed(self, storage: int) -> None:
        """A storage went."""
        pool, size = self._pooled.pop(storage, (0, 0))
        if pool:
            self._pools[pool].give(size)

    def launched(self, events: list[Event], since: int) -> list[Event]:
        """The events of a graph as one launch of it, in a step that has had `since` so far."""
        self._count += 1
        found: list[Event] = []
        for event in events:
            if isinstance(event, Call):
                event = event._replace(graph=self._count)
            elif isinstance(event, Waited):
                event = event._replace(at=event.at + since)
            found.append(event)
        return found

    def of_region(self, region: int, phase: StepPhase) -> int:
        """A compiled region launches one graph forward and another one backward."""
        key = region, phase == "forward"
        if key not in self._regions:
            self._count += 1
            self._regions[key] = self._count
        return self._regions[key]
