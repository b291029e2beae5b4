"""Quantities as text <-> SI floats; the only file that holds 1e12 or 2**30, but for measure/.

In: "3.35 TB/s", "80 GiB", "1.5 us", "15T". Out: floats in bytes, seconds, FLOP/s, watts … and back.
A dimension is named as its suffix in the code: `bytes`, `bytes_per_second`, `flop_per_second` …
GB is 10⁹ and GiB is 2³⁰, always; b is a bit and B a byte, always (a test proves it with pint).
"""

from __future__ import annotations

import math
import re
from types import MappingProxyType
from typing import Final

from trueflops.errors import BadQuantity, nearest, shorten
from trueflops.language import say, word

_SI: Final = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_IEC: Final = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_SMALL: Final = {"": 1.0, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9, "p": 1e-12}

SECONDS_PER_HOUR: Final = 3600.0
SECONDS_PER_DAY: Final = 86400.0
JOULES_PER_KWH: Final = 3.6e6
MOST_COUNTED: Final = 1e15  # tokens, requests, sizes of kernels: more is a slip of the keyboard
BITS_PER_BYTE: Final = 8.0
MILLION: Final = 1e6
GIGA: Final = 1e9
TERA: Final = 1e12
MEBI: Final = 2.0**20
GIBI: Final = 2.0**30
MICRO: Final = 1e-6


def _prefixed(prefixes: dict[str, float], units: dict[str, float]) -> dict[str, float]:
    return {p + u: scale * size for p, scale in prefixes.items() for u, size in units.items()}


_BYTES = _prefixed(_SI | _IEC, {"B": 1.0}) | _prefixed(_SI, {"b": 1 / BITS_PER_BYTE})
_SECONDS = _prefixed(_SMALL, {"s": 1.0}) | {
    "min": 60.0,
    "m": 60.0,
    "h": SECONDS_PER_HOUR,
    "d": SECONDS_PER_DAY,
    "day": SECONDS_PER_DAY,
    "days": SECONDS_PER_DAY,
    "year": 365 * SECONDS_PER_DAY,
    "years": 365 * SECONDS_PER_DAY,
}
_RATE_OF_WORK = {"FLOP/s": 1.0, "FLOPS": 1.0, "OP/s": 1.0, "OPS": 1.0, "FLOPs/s": 1.0}

UNITS: Final = MappingProxyType(
    {
        "bytes": _BYTES,
        "bytes_per_second": {f"{u}/s": v for u, v in _BYTES.items()}
        | _prefixed(_SI, {"bps": 1 / BITS_PER_BYTE, "Bps": 1.0}),
        "flop": _prefixed(_SI, {"FLOP": 1.0, "FLOPs": 1.0}),
        "flop_per_second": _prefixed(_SI, _RATE_OF_WORK),
        "seconds": _SECONDS,
        "hertz": _prefixed(_SI, {"Hz": 1.0}),
        "watts": _prefixed(_SI, {"W": 1.0}),
        "joules": _prefixed(_SI | _SMALL, {"J": 1.0}) | _prefixed(_SI, {"Wh": SECONDS_PER_HOUR}),
        "usd": _prefixed(_SI, {"USD": 1.0}),
        "usd_per_hour": {"USD/h": 1.0},
        "usd_per_kwh": {"USD/kWh": 1.0},
        "count": {p: v for p, v in _SI.items() if p != "E"} | {"B": 1e9},
    }
)
"""Dimension -> unit symbol -> how many SI base units one of it is. `count` knows 15T and 8B."""

# Python's own readers also take 1_000, ١٢ and nan; nobody who writes those means a number here.
_DIGITS: Final = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NUMBER: Final = re.compile(rf"\s*({_DIGITS})\s*")
_QUANTITY: Final = re.compile(rf"\s*({_DIGITS})\s*(.*?)\s*")


def read_number(text: str, *, what: str = "value") -> float:
    """The one reader of plain numbers in text: finite, of ASCII digits, without underscores."""
    match = _NUMBER.fullmatch(text)
    value = float(match[1]) if match else math.nan
    if not math.isfinite(value):
        raise BadQuantity(
            say(
                "{what}: {text!r} is not a number; write for example 1.5",
                what=what,
                text=shorten(text),
            )
        )
    return value


def read_whole(text: str, *, what: str = "value") -> int:
    """The same for whole numbers, which 1e3 and 3.0 are too."""
    value = read_number(text, what=what)
    if value != int(value):
        raise BadQuantity(
            say("{what}: {text!r} is not a whole number", what=what, text=shorten(text))
        )
    return int(value)


def parse(text: str, dimension: str, *, what: str = "value", example: str = "") -> float:
    """Read '3.35 TB/s' as SI. The unit is obligatory, but for counts; signs and NaN are refused."""
    units = UNITS[dimension]
    match = _QUANTITY.fullmatch(text)
    example = say("write for example {example!r}", example=example or EXAMPLES[dimension])
    if match is None:
        raise BadQuantity(
            say(
                "{what}: {text!r} is not a number with a unit; {example}",
                what=what,
                text=shorten(text),
                example=example,
            )
        )
    digits, unit = match.groups()
    if unit not in units:
        near = nearest(unit, units) if unit else []
        said = say("has no unit")
        if unit:
            said = say("has the unknown unit {unit!r}", unit=shorten(unit))
        hint = say("did you mean {near!r}? ", near=near[0]) if near else ""
        raise BadQuantity(
            say(
                "{what}: {text!r} {said}; {hint}{example}",
                what=what,
                text=shorten(text),
                said=said,
                hint=hint,
                example=example,
            )
        )
    value = float(digits) * units[unit]
    if not math.isfinite(value) or value < 0:
        raise BadQuantity(
            say(
                "{what}: {text!r} must be a finite number ≥ 0; {example}",
                what=what,
                text=shorten(text),
                example=example,
            )
        )
    return value


EXAMPLES: Final = MappingProxyType(
    {
        "bytes": "80 GiB",
        "bytes_per_second": "3.35 TB/s",
        "flop": "3 PFLOP",
        "flop_per_second": "989 TFLOP/s",
        "seconds": "50ms",
        "hertz": "1.83 GHz",
        "watts": "700 W",
        "joules": "3 kWh",
        "usd": "30000 USD",
        "usd_per_hour": "2.99 USD/h",
        "usd_per_kwh": "0.09 USD/kWh",
        "count": "15T",
    }
)


# Between what a figure of any machine can lie, built or imagined: beyond it, results overflow.
SANE: Final = MappingProxyType(
    {
        "bytes": (1.0, 1e18),
        "bytes_per_second": (1.0, 1e18),
        "flop_per_second": (1.0, 1e21),
        "seconds": (1e-12, 1e3),
        "hertz": (1.0, 1e12),
        "watts": (1e-3, 1e9),
        "usd_per_hour": (0.0, 1e6),
        "": (1e-6, 1e9),
    }
)


def check_sane(value: float, dimension: str, *, what: str) -> float:
    """The same value; BadQuantity where no machine has that much, or that little, of it."""
    low, high = SANE[dimension]
    if not low <= value <= high:
        usual = f", as {EXAMPLES[dimension]!r} does" if dimension else ""
        raise BadQuantity(
            say(
                "{what}: {value:g} must lie between {low:g} and {high:g} {dimension}{usual}",
                what=what,
                value=value,
                low=low,
                high=high,
                dimension=dimension,
                usual=usual,
            )
        )
    return value


def parse_count(text: str, *, what: str) -> int:
    """Read '15T', '4k' or '1024' as a whole number of at least one."""
    value = parse(text, "count", what=what)
    if not 1 <= value <= MOST_COUNTED or value != int(value):
        raise BadQuantity(
            say(
                "{what}: {text!r} must be a whole number from 1 to 1000T",
                what=what,
                text=shorten(text),
            )
        )
    return int(value)


_SHOWN = {
    "bytes": (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)),
    "memory": (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0)),
    "bytes_per_second": (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3), ("B/s", 1.0)),
    "flop": (("EFLOP", 1e18), ("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6)),
    "flop_per_second": (("TFLOP/s", 1e12), ("GFLOP/s", 1e9), ("MFLOP/s", 1e6)),
    "seconds": (
        ("years", 365 * SECONDS_PER_DAY),
        ("days", SECONDS_PER_DAY),
        ("h", SECONDS_PER_HOUR),
        ("min", 60.0),
        ("s", 1.0),
        ("ms", 1e-3),
        ("µs", 1e-6),
        ("ns", 1e-9),
    ),
    "hertz": (("GHz", 1e9), ("MHz", 1e6), ("Hz", 1.0)),
    "watts": (("MW", 1e6), ("kW", 1e3), ("W", 1.0)),
    "joules": (
        ("GWh", 3.6e12),
        ("MWh", 3.6e9),
        ("kWh", 3.6e6),
        ("kJ", 1e3),
        ("J", 1.0),
        ("mJ", 1e-3),
        ("pJ", 1e-12),
    ),
    "count": (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0)),
}
# Below these a smaller unit reads better: "36 h", not "1.5 days"; "90 s", not "1.5 min".
_SHOW_FROM = {"years": 2.0, "days": 2.0, "h": 2.0, "min": 2.0}


def show(value: float, dimension: str) -> str:
    """Write an SI value for a reader: three significant digits and the unit that suits it."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "?"
    before, size, unit = _scale(value, dimension)
    return f"{before}{_figures(value / size, before)}{unit}"


def show_between(low: float, value: float, high: float, dimension: str) -> str:
    """Write an interval in the unit that suits the value: '43.4 – 63.6 s', '$0.45 – 1.47 M'."""
    before, size, unit = _scale(value, dimension)
    return f"{before}{_figures(low / size, before)} – {_figures(high / size, before)}{unit}"


def _scale(value: float, dimension: str) -> tuple[str, float, str]:
    """What stands before a number, what it is divided by, and what stands after it."""
    if dimension in ("usd", "usd_per_hour"):
        per = "/h" if dimension == "usd_per_hour" else ""
        for size, suffix in ((1e9, " B"), (1e6, " M")):
            if abs(value) >= size:
                return "$", size, suffix + per
        return "$", 1.0, per
    scale = _SHOWN[dimension]
    unit, size = next(
        ((u, s) for u, s in scale if abs(value) >= s * _SHOW_FROM.get(u, 0.9995)), scale[-1]
    )
    return "", size, f" {word(unit)}" if unit else ""


def _figures(value: float, before: str) -> str:
    """Three digits; dollars with cents."""
    if before == "$" and 0.1 <= abs(value) < 1000:
        return f"{value:.2f}"
    return digits(value)


def digits(value: float) -> str:
    """Three significant digits without an exponent: 989, 67.2, 3.35, 1,979."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "∞"
    magnitude = math.floor(math.log10(abs(value)) + 1e-12)
    return f"{value:,.{max(0, 2 - magnitude)}f}" if magnitude >= -3 else f"{value:.2e}"
