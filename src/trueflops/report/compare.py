"""Chips side by side: dense peaks only, per device as software sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from trueflops import units
from trueflops.catalog import Accelerator, price
from trueflops.catalog.facts import sources
from trueflops.errors import UnknownName
from trueflops.language import say, word
from trueflops.report.grid import grid
from trueflops.report.tables import FOOTNOTE, MARK, NO_PRICE

Value = Callable[[Accelerator], Any]
COLUMNS: dict[str, Value] = {
    "name": lambda c: c.name,
    "year": lambda c: c.year,
    "memory": lambda c: c.get("memory.capacity"),
    "bandwidth": lambda c: c.get("memory.bandwidth"),
    "fp64": lambda c: c.get("peak.fp64"),
    "fp32": lambda c: c.get("peak.fp32"),
    "tf32": lambda c: c.get("peak.tf32"),
    "fp16": lambda c: c.get("peak.fp16"),
    "bf16": lambda c: c.get("peak.bf16"),
    "fp8": lambda c: c.get("peak.fp8"),
    "int8": lambda c: c.get("peak.int8"),
    "fp6": lambda c: c.get("peak.fp6"),
    "fp4": lambda c: c.get("peak.fp4"),
    "int4": lambda c: c.get("peak.int4"),
    "power": lambda c: c.get("power.tdp"),
    "link": lambda c: c.get("links.scale_up_bandwidth"),
    "price": lambda c: p.usd_per_hour if (p := price(c)) else None,
}
SHOWN = ("tf32", "fp16", "bf16", "fp8", "int8", "fp4")
SHOWN_FACTS = (
    "memory.capacity", "memory.bandwidth", *(f"peak.{dtype}" for dtype in SHOWN), "power.tdp"
)  # fmt: skip

COMPARED = (
    "memory.capacity", "memory.bandwidth", "power.tdp", "links.scale_up_bandwidth",
    *(f"peak.{column}" for column in COLUMNS),
)  # fmt: skip


def sort_chips(chips: list[Accelerator], column: str) -> list[Accelerator]:
    """Best first; the unknown last. Names, years and prices from small to large."""
    if column not in COLUMNS:
        raise UnknownName("column", column, COLUMNS, f"(columns: {', '.join(COLUMNS)})")
    value = COLUMNS[column]
    upwards = column in ("name", "year", "price", "power")
    known = [c for c in chips if value(c) is not None]
    unknown = [c for c in chips if value(c) is None]
    return sorted(known, key=value, reverse=not upwards) + unknown


def chips_table(chips: Sequence[Accelerator]) -> RenderableType:
    """Rates in TFLOP/s (TOP/s for integers); X: no such path; ·: not known."""
    table = grid(
        "chip",
        ("year", "right"),
        ("GiB", "right"),
        ("TB/s", "right"),
        *((dtype, "right") for dtype in SHOWN),
        ("W", "right"),
        ("$/h", "right"),
        gives_way=0,
        gap=1,
    )
    for chip in chips:
        rent = price(chip)
        table.add_row(
            chip.name,
            str(chip.year),
            _number(chip, "memory.capacity", units.GIBI, 0),
            _bandwidth(chip),
            *(_number(chip, f"peak.{dtype}", units.TERA, 0) for dtype in SHOWN),
            _number(chip, "power.tdp", 1.0, 0),
            f"{rent.usd_per_hour:.2f}" if rent else "·",
        )
    return table


def _bandwidth(chip: Accelerator) -> Text:
    value = chip.get("memory.bandwidth")
    if not value:
        return Text("·")
    return Text(units.digits(value / units.TERA) + _mark(chip, "memory.bandwidth"))


def footnotes(chips: Sequence[Accelerator]) -> str:
    """What the marks of `chips_table` mean: of those that it shows."""
    marked = any(path in SHOWN_FACTS for chip in chips for path in chip.unconfirmed)
    said = say(
        "dense TFLOP/s (TOP/s for int8) per device as software sees it; X no such path, · not known"
    )
    notes = [said, *([word(FOOTNOTE)] if marked else [])]
    unpriced = sum(price(chip) is None for chip in chips)
    if unpriced:
        of = (
            say("of {unpriced} of these {number} chips", unpriced=unpriced, number=len(chips))
            if len(chips) > 1
            else say("of this chip")
        )
        notes.append(f"{word(NO_PRICE)} {of}")
    return say("; ").join(notes)


def _number(chip: Accelerator, path: str, unit: float, digits: int) -> Text:
    value = chip.get(path)
    if value is None:
        return Text(f"X{_mark(chip, path)}" if path in chip.values else "·", style="dim")
    small = digits == 0 and value / unit < 10
    return Text(f"{value / unit:.{1 if small else digits}f}{_mark(chip, path)}")


def _mark(chip: Accelerator, path: str) -> str:
    return MARK if chip.facts[path].unconfirmed else ""


def chip_record(chip: Accelerator) -> dict[str, Any]:
    """One chip for JSON."""
    rent = price(chip)
    return {
        "name": chip.name,
        "vendor": chip.vendor,
        "year": chip.year,
        "status": chip.status,
        "memory_bytes": chip.get("memory.capacity"),
        "memory_bytes_per_second": chip.get("memory.bandwidth"),
        "dense_flop_per_second": {
            dtype.removeprefix("peak."): value
            for dtype, value in chip.values.items()
            if dtype.startswith("peak.")
        },
        "sparse_factor": chip.sparse_factor,
        "power_watts": chip.get("power.tdp"),
        "link_bytes_per_second": chip.get("links.scale_up_bandwidth"),
        "unconfirmed": list(chip.unconfirmed),
        "price_usd_per_hour": rent.usd_per_hour if rent else None,
        "sources": {
            **{path: _said(chip, path) for path in COMPARED if path in chip.facts},
            **({"price": f"{rent.kind}, {rent.date}: {_cited(rent.source)}"} if rent else {}),
        },
    }


def _said(chip: Accelerator, path: str) -> str:
    """A figure as it was published, and by whom: '3.35 TB/s: NVIDIA H100 data sheet …'."""
    fact = chip.facts[path]
    note = f" ({fact.note})" if fact.note else ""
    return f"{fact.text}: {_cited(fact.source)}{note}"


def _cited(source: str) -> str:
    return sources().get(source, {}).get("citation", source)
