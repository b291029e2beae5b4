"""A trace as a file: perhaps compressed, perhaps cut short, perhaps no trace at all."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from trueflops.errors import BadInput, printable, shorten
from trueflops.files import read_file
from trueflops.units import MICRO

LARGEST_TRACE: Final = 1024 * 1024 * 1024  # bytes, unpacked: some ten million events
DEVICE_WORK: Final = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")
OPS: Final = ("cpu_op", "operator")  # today's name, and that of old profilers
ANNOTATIONS: Final = ("user_annotation",)
CALLS: Final = ("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "xpu_runtime",
                "runtime", "driver", "privateuse1_runtime", "privateuse1_driver")  # fmt: skip
_READ: Final = {*DEVICE_WORK, *OPS, *ANNOTATIONS, *CALLS, "overhead"}
_ZIPPED: Final = b"\x1f\x8b"
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
    raw = _unpacked(read_file(path, LARGEST_TRACE), where)
    try:
        whole = json.loads(raw.decode("utf-8", errors="replace"), strict=False)
    except RecursionError:
        raise BadInput(f"{where}: not a trace (JSON nested too deeply)") from None
    except json.JSONDecodeError as error:
        if error.pos >= len(error.doc.rstrip()) - 1 or "Unterminated" in error.msg:
            raise BadInput(
                f"{where}: ends in the middle; was the profiler still writing? Export it again"
            ) from None
        said = f"{shorten(error.msg)}, line {error.lineno}"
        raise BadInput(f"{where}: not a trace: not valid JSON ({said})") from None
    except ValueError as error:  # a number of too many digits
        raise BadInput(f"{where}: not a trace ({shorten(str(error))})") from None
    listed = whole.get("traceEvents") if isinstance(whole, dict) else whole
    if not isinstance(listed, list):
        raise BadInput(
            f"{where}: not a trace of PyTorch's profiler (no traceEvents); make one {HOW}"
        )
    events = _events(listed)
    if not events:
        raise BadInput(f"{where}: the trace holds no events that take time; make one {HOW}")
    about = whole.get("deviceProperties") if isinstance(whole, dict) else None
    return Document(where, events, _devices(about))


def _unpacked(raw: bytes, where: str) -> bytes:
    if not raw.startswith(_ZIPPED):
        return raw
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as stream:
            unpacked = stream.read(LARGEST_TRACE + 1)
    except EOFError:
        raise BadInput(f"{where}: ends in the middle; copy or export it again") from None
    except (OSError, zlib.error) as error:
        raise BadInput(f"{where}: cannot be unpacked ({shorten(str(error))})") from None
    if len(unpacked) > LARGEST_TRACE:
        most = LARGEST_TRACE // 1024 // 1024
        raise BadInput(f"{where}: unpacks to more than {most} MiB; profile fewer steps")
    return unpacked


def _events(listed: list[Any]) -> list[Event]:
    """Complete events with a sane time, the earliest at 0; anything else is passed over."""
    found = []
    for raw in listed:
        if not isinstance(raw, dict) or raw.get("ph") != "X":
            continue
        start, long = _seconds(raw.get("ts")), _seconds(raw.get("dur", 0.0))
        name, category, args = raw.get("name"), raw.get("cat"), raw.get("args")
        if start is None or long is None or long < 0.0 or not isinstance(name, str):
            continue
        if not isinstance(category, str) or category.lower() not in _READ:
            continue
        found.append(
            Event(
                name if name.isprintable() else printable(name, 4000), category.lower(), start,
                start + long, _key(raw.get("pid")),
                _key(raw.get("tid")), args if isinstance(args, dict) else {},
            )
        )  # fmt: skip
    first = min((e.start for e in found), default=0.0)
    for event in found:
        event.start, event.end = event.start - first, event.end - first
    return found


def _seconds(value: Any) -> float | None:
    """From microseconds, before or after the clock's zero."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) * MICRO if -_ENDLESS < value < _ENDLESS else None


_ENDLESS: Final = 2**62  # microseconds


def _key(value: Any) -> object:
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
