"""Units proven once, with pint as the judge."""

from __future__ import annotations

from typing import Any

import pint
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueflops import units
from trueflops.errors import BadQuantity

REGISTRY: Any = pint.UnitRegistry()
REGISTRY.define("FLOP = []")
REGISTRY.define("OP = 1 FLOP")
REGISTRY.define("USD = []")
SPELLED = {
    "bps": "bit/s",
    "Bps": "byte/s",
    "FLOPS": "FLOP/s",
    "FLOPs/s": "FLOP/s",
    "OPS": "FLOP/s",
    "OP/s": "OP/s",
    "FLOPs": "FLOP",
    "Wh": "W*h",
}
BASE = {
    "bytes": "byte",
    "bytes_per_second": "byte/s",
    "flop": "FLOP",
    "flop_per_second": "FLOP/s",
    "seconds": "s",
    "hertz": "Hz",
    "watts": "W",
    "joules": "J",
    "usd": "USD",
}


def as_pint(symbol: str) -> str:
    """The same unit in pint's spelling: K is not kelvin, b is a bit, B a byte."""
    head, slash, per = symbol.partition("/s")
    for ending, spelled in SPELLED.items():
        if symbol.endswith(ending):
            prefix = symbol.removesuffix(ending).replace("K", "k")
            return prefix + spelled
    if head.endswith("B"):
        prefix = head[:-1]
        head = (prefix if prefix.endswith("i") else prefix.replace("K", "k")) + "byte"
    elif head.endswith("b"):
        head = head[:-1].replace("K", "k") + "bit"
    else:
        head = head.replace("K", "k") if len(head) > 1 and head[0] == "K" else head
    return head + ("/s" if slash else "") + per


EVERY_UNIT = [
    (dimension, symbol)
    for dimension in BASE
    for symbol in units.UNITS[dimension]
    if symbol not in ("m", "d", "year", "years")  # minutes, days and 365 days in our short hand
]


@pytest.mark.parametrize(("dimension", "symbol"), EVERY_UNIT)
def test_every_unit_agrees_with_pint(dimension: str, symbol: str) -> None:
    ours = units.parse(f"1 {symbol}", dimension)
    theirs = REGISTRY.Quantity(1.0, as_pint(symbol)).to(BASE[dimension]).magnitude
    assert ours == pytest.approx(theirs, rel=1e-12)


def test_a_byte_is_eight_bits_and_gib_is_not_gb() -> None:
    assert units.parse("400 Gb/s", "bytes_per_second") == 50e9
    assert units.parse("80 GiB", "bytes") == 80 * 2**30
    assert units.parse("80 GB", "bytes") == 80e9


@pytest.mark.parametrize(
    "text",
    ["", "fast", "3.35", "3.35 TB", "-1 TB/s", "nan TB/s", "inf TB/s", "1 TB/h", "1e999 B/s"],
)
def test_what_is_no_bandwidth_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadQuantity, match=r"TB/s"):
        units.parse(text, "bytes_per_second", what="link")


@pytest.mark.parametrize(
    ("text", "count"), [("15T", 15 * 10**12), ("4k", 4000), ("1024", 1024), ("1.5B", 1.5e9)]
)
def test_counts_know_their_suffixes(text: str, count: float) -> None:
    assert units.parse_count(text, what="tokens") == count


@pytest.mark.parametrize("text", ["0", "1.5", "0.3", "-4", "many"])
def test_counts_are_whole_and_at_least_one(text: str) -> None:
    with pytest.raises(BadQuantity):
        units.parse_count(text, what="tokens")


@given(st.floats(1e-9, 1e18), st.sampled_from(["bytes", "bytes_per_second", "seconds", "watts"]))
def test_what_is_shown_can_be_read_back(value: float, dimension: str) -> None:
    shown = units.show(value, dimension).replace(",", "")
    assert units.parse(shown, dimension) == pytest.approx(value, rel=0.006, abs=1e-9)
