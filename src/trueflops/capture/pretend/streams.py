"""Streams and events that are plain objects: they tell the recorder who waits for whom."""

from __future__ import annotations

from typing import Any

from trueflops.capture.pretend.overrides import DEVICE
from trueflops.capture.recorder import Recorder


def stream_class(recorder: Recorder) -> type:
    """What `torch.cuda.Stream` is."""

    class Stream:
        """A queue of work; it orders, and is ordered by, others."""

        count = 0

        def __init__(self, *args: Any, number: int | None = None, **kwargs: Any) -> None:
            if number is None:
                Stream.count += 1
            self.stream_id = Stream.count if number is None else number
            self.cuda_stream, self.device, self.device_index = self.stream_id, DEVICE, 0
            self.device_type, self._outer = 1, 0

        def wait_stream(self, other: Any) -> None:
            recorder.waits(self.stream_id, other.stream_id, recorder.now)

        def wait_event(self, event: Any) -> None:
            recorder.waits(self.stream_id, event.stream, event.at)

        def record_event(self, event: Any = None) -> Any:
            event = event or event_class(recorder)()
            event.record(self)
            return event

        def synchronize(self) -> None:
            recorder.waits(-1, self.stream_id, recorder.now)

        def query(self) -> bool:
            return True

        def is_capturing(self) -> bool:
            return False

        def __enter__(self) -> Any:
            self._outer, recorder.stream = recorder.stream, self.stream_id
            return self

        def __exit__(self, *_: Any) -> None:
            recorder.stream = self._outer

        def __eq__(self, other: object) -> bool:
            return getattr(other, "stream_id", None) == self.stream_id

        def __hash__(self) -> int:
            return hash(("stream", self.stream_id))

    return Stream


def event_class(recorder: Recorder) -> type:
    """What `torch.cuda.Event` is."""

    class Event:
        """A point in the work of a stream, to be waited for."""

        def __init__(self, *_: Any, **__: Any) -> None:
            self.stream, self.at, self.device = recorder.stream, 0, DEVICE

        def record(self, stream: Any = None) -> None:
            self.stream = recorder.stream if stream is None else stream.stream_id
            self.at = recorder.now

        def wait(self, stream: Any = None) -> None:
            waiting = recorder.stream if stream is None else stream.stream_id
            recorder.waits(waiting, self.stream, self.at)

        def synchronize(self) -> None:
            recorder.waits(-1, self.stream, self.at)

        def query(self) -> bool:
            return True

        def elapsed_time(self, other: Any) -> float:
            return 1.0  # a program may divide by it

    return Event
