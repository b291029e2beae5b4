"""A trace as a file: perhaps compressed, perhaps cut short, perhaps no trace at all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trueflops.errors import BadInput, printable
from trueflops.files import open_file
from trueflops.interop.kineto.stream import JsonStream
from trueflops.language import say
from trueflops.units import GIBI, MICRO

LARGEST_TRACE: Final = int(GIBI)  # bytes, unpacked: some five million events
MOST_EVENTS: Final = 1_500_000  # that are kept, at about a kilobyte each
DEVICE_WORK: Final = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")
OPS: Final = ("cpu_op", "operator")  # today's name, and that of old profilers
ANNOTATIONS: Final = ("user_annotation",)
CALLS: Final = ("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "xpu_runtime",
                "runtime", "driver", "privateuse1_runtime", "privateuse1_driver")  # fmt: skip
_READ: Final = {*DEVICE_WORK, *OPS, *ANNOTATIONS, *CALLS, "overhead"}
HOW: Final = (
    "with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], "
    "record_shapes=True) as p, then p.export_chrome_trace(FILE)"
)


@dataclass(slots=True, eq=False)
class Event:
    """One thing that took time; seconds since the first of the file."""

    name: str
    category: str
    start: float
    end: float
    process: object
    thread: object
    args: dict[str, Any]
    parent: Event | None = None


@dataclass(frozen=True)
class Document:
    """What a file holds: its events in order, and the names of its devices."""

    where: str
    events: list[Event]
    devices: dict[int, str]


def read_document(path: Path) -> Document:
    """Read a trace; everything that can be wrong with the file is one clear error."""
    where = printable(str(path))
    events: list[Event] = []
    about: Any = None
    with open_file(path, LARGEST_TRACE) as stream:
        source = JsonStream(stream, where, LARGEST_TRACE)
        for name, value in source.members("traceEvents"):
            if name == "deviceProperties":
                about = value
            elif name == "traceEvents" and (event := _event(value)) is not None:
                events.append(event)
                if len(events) > MOST_EVENTS:
                    raise BadInput(
                        say(
                            "{where}: more than {most:,} events; profile fewer steps",
                            where=where,
                            most=MOST_EVENTS,
                        )
                    )
    if not source.listed:
        raise BadInput(
            say(
                "{where}: not a trace of PyTorch's profiler (no traceEvents); make one {how}",
                where=where,
                how=HOW,
            )
        )
    if not events:
        raise BadInput(
            say(
                "{where}: the trace holds no events that take time; make one {how}",
                where=where,
                how=HOW,
            )
        )
    first = min(event.start for event in events)
    for event in events:
        event.start, event.end = event.start - first, event.end - first
    return Document(where, events, _devices(about))


def _event(raw: Any) -> Event | None:
    """A complete event with a sane time; anything else is passed over."""
    if not isinstance(raw, dict) or raw.get("ph") != "X":
        return None
    start, long = _seconds(raw.get("ts")), _seconds(raw.get("dur", 0.0))
    name, category, args = raw.get("name"), raw.get("cat"), raw.get("args")
    if start is None or long is None or long < 0.0 or not isinstance(name, str):
        return None
    if not isinstance(category, str) or category.lower() not in _READ:
        return None
    return Event(
        name if name.isprintable() else printable(name, 4000), category.lower(), start,
        start + long, plain_key(raw.get("pid")), plain_key(raw.get("tid")),
        args if isinstance(args, dict) else {},
    )  # fmt: skip


def _seconds(value: Any) -> float | None:
    """From microseconds, before or after the clock's zero."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) * MICRO if -_ENDLESS < value < _ENDLESS else None


_ENDLESS: Final = 2**62  # microseconds


def plain_key(value: Any) -> object:
    """A key of a table, whatever the file holds."""
    return value if isinstance(value, int | str) else None


def _devices(about: Any) -> dict[int, str]:
    """Names by number, where the file tells them."""
    found = {}
    for device in about if isinstance(about, list) else ():
        if not isinstance(device, dict):
            continue
        number, name = device.get("id"), device.get("name")
        if isinstance(number, int) and isinstance(name, str):
            found[number] = printable(name, 60)
    return found
