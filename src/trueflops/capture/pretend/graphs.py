"""CUDA graphs: what is called while one is captured is launched whenever it is replayed.

Nothing runs while a graph is captured, but what is allocated then lies in the graph's own pool,
which keeps the blocks that are freed again, for its replays alone.
"""

from __future__ import annotations

from typing import Any

from trueflops.capture.recorder import Recorder
from trueflops.capture.trouble import left_out
from trueflops.records.recording import Call, Event, Waited


def graph_classes(recorder: Recorder, stream_of: Any) -> dict[str, Any]:
    """What `torch.cuda` has of graphs: the graph, the context that captures one, pools."""
    launches = recorder.launches

    class CUDAGraph:
        """Calls to be launched together."""

        def __init__(self, keep_graph: bool = False) -> None:
            self._events: list[Event] = []
            self._stream, self._pool = 0, 0

        def capture_begin(self, pool: Any = None, *_: Any, **__: Any) -> None:
            self._pool = launches.new_pool() if pool is None else pool[0]
            self._stream, self._events = recorder.stream, launches.begin(self._pool)

        def capture_end(self) -> None:
            launches.end()

        def replay(self) -> None:
            recorder.replay(moved_to(self._events, self._stream, recorder.stream))

        def pool(self) -> tuple[int, int]:
            return self._pool, 0

        def reset(self) -> None:
            self._events = []

        def instantiate(self) -> None:
            """Costs the step nothing."""

        def enable_debug_mode(self) -> None:
            """Nothing is dumped."""

        def debug_dump(self, debug_path: str) -> None:
            recorder.warn(left_out("CUDAGraph.debug_dump"))

    class graph:  # noqa: N801, torch's own name
        """Captures what is called inside, on a stream of its own."""

        def __init__(self, cuda_graph: Any, pool: Any = None, stream: Any = None, **_: Any) -> None:
            self._graph, self._pool = cuda_graph, pool
            self._stream = stream_of() if stream is None else stream
            self._outer = 0

        def __enter__(self) -> None:
            self._outer, recorder.stream = recorder.stream, self._stream.stream_id
            self._graph.capture_begin(self._pool)

        def __exit__(self, *_: Any) -> None:
            self._graph.capture_end()
            recorder.stream = self._outer

    return {
        "CUDAGraph": CUDAGraph,
        "graph": graph,
        "graph_pool_handle": lambda: (launches.new_pool(), 0),
        "is_current_stream_capturing": lambda: launches.captured is not None,
    }


def moved_to(events: list[Event], captured: int, stream: int) -> list[Event]:
    """The events of a graph that was captured on one stream, as launched on another."""

    def there(number: int) -> int:
        return stream if number == captured else number

    found: list[Event] = []
    for event in events:
        if isinstance(event, Call):
            event = event._replace(stream=there(event.stream))
        elif isinstance(event, Waited):
            event = event._replace(waiting=there(event.waiting), awaited=there(event.awaited))
        found.append(event)
    return found
