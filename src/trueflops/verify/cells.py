"""Cells of a table of runs: empty ones are None, texts that should be numbers a clear reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from trueflops.errors import BadInput, shorten
from trueflops.records.tables import Row
from trueflops.units import GIGA, read_number, read_whole

LARGEST_COUNT: Final = int(GIGA)
LARGEST: Final = 10**13  # no length, time or rate in a table of results is larger
EMPTY: Final = frozenset(("nan", "n/a", "na", "null", "unknown", "?", "-", "–", "—"))
"""What tables write into a cell of which nothing is known."""
NO: Final = frozenset(("no", "n", "none", "false", "off", "0", "disabled", "not used"))
YES: Final = frozenset(("yes", "y", "true", "on", "1", "enabled"))
NOTHING: Final = frozenset(("none", "no", "off"))
DEGREES: Final = frozenset(("tp", "pp", "vpp", "cp", "ep", "dp"))
_DEGREE: Final = re.compile(r"^(?:tp|pp|vpp|cp|ep|dp)[ =:_-]*(?=\d)|[ -]?way$", re.IGNORECASE)
ABOUT: Final = re.compile(r"^[~≈]\s*")
_A_TIME: Final = r"(?:/(?:step|it|iter|iteration))?"
_SIZES: Final = MappingProxyType({"GB|GiB|G": 1.0, "MB|MiB|M": 1 / 1024, "TB|TiB": 1024.0})
_TIMES: Final = MappingProxyType(
    {rf"s(?:ec(?:ond)?s?)?{_A_TIME}": 1.0, rf"m(?:illi)?s(?:ec)?{_A_TIME}": 1e-3, "min": 60.0}
)
_BILLIONS: Final = MappingProxyType({"B": 1.0, "M": 1e-3, "T": 1e3})
_RATES: Final = MappingProxyType({r"tok(?:en)?s?/s(?:/GPU)?": 1.0, "k": 1e3})
_SEQUENCES: Final = MappingProxyType({r"seq(?:uence)?s?|samples?": 1.0})
UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    **dict.fromkeys(("memory_gb", "peak_mem_gb_measured"), _SIZES),
    **dict.fromkeys(("step_time_s", "step_time_derived_s"), _TIMES),
    **dict.fromkeys(("params_b", "active_params_b"), _BILLIONS),
    **dict.fromkeys(("tokens_per_s_per_gpu", "tok_s_gpu_derived"), _RATES),
    **dict.fromkeys(("global_batch", "micro_batch"), _SEQUENCES),
    "tflops_per_gpu": {r"TFLOPS?|TFLOPS?/s(?:/GPU)?": 1.0},
    "n_devices": {"x|GPUs?|devices?|chips?|cards?|NPUs?|TPUs?|cores?|GCDs?": 1.0},
    "seq_len": {"tokens?": 1.0, "k": 1024.0},
}
"""Units that a cell may have after its number, and how much one is of what its column is in. Of
memory MB stands for MiB, as tools print it; a sequence of 4k is one of 4,096."""
_PRODUCT: Final = re.compile(r"(\d{1,6}) ?(?:nodes?)? ?[x×*] ?(\d{1,6})(?: ?GPUs?)?", re.IGNORECASE)
_ASIDE: Final = re.compile(r"\s*\([^)]*\)$")


class Missing(BadInput):
    """A row lacks an input that no prediction can do without; the message names the column."""


def text(row: Row, column: str) -> str:
    """A cell without the spaces around it; empty where the column does not exist, or says so."""
    cell = str(row.get(column, "")).strip()
    return "" if cell.casefold() in EMPTY else cell


def number(row: Row, column: str) -> float | None:
    """A finite number above zero; None where the cell is empty or a zero."""
    cell = text(row, column)
    if not cell or cell.casefold() in NOTHING:
        return None
    bare = ABOUT.sub("", _ASIDE.sub("", cell).replace(",", ""))
    if column in DEGREES:
        bare = _DEGREE.sub("", bare)
    if column == "n_devices" and (nodes := _PRODUCT.fullmatch(bare)):
        return float(int(nodes[1]) * int(nodes[2])) or None
    scale = 1.0
    for unit, size in UNITS.get(column, {}).items():
        if said := re.fullmatch(rf"([\d.]+)\s*(?:{unit})", bare, flags=re.IGNORECASE):
            bare, scale = said[1], size
    try:
        value = read_number(bare) * scale
    except BadInput:
        raise Missing(f"{column} is not a number: {shorten(cell, 30)!r}") from None
    if value > LARGEST:
        raise Missing(f"{column} is larger than anything: {shorten(cell, 30)!r}")
    if value < 0:
        raise Missing(f"{column} is not a number of at least 0: {shorten(cell, 30)!r}")
    return value or None


def whole(row: Row, column: str) -> int | None:
    """A count; None where the cell is empty."""
    value = number(row, column)
    if value is None:
        return None
    if value != int(value) or value > LARGEST_COUNT:
        raise Missing(f"{column} is not a whole number up to {LARGEST_COUNT:,}: {value:g}")
    return int(value)


def share(row: Row, column: str) -> float | None:
    """A part of a whole; None where the cell is empty."""
    value = number(row, column)
    if value is not None and value > 1.0:
        raise Missing(f"{column} is not a share of at most 1: {value:g}")
    return value


def degree(row: Row, column: str) -> int:
    """A parallel degree: 1 where nothing is said."""
    return whole(row, column) or 1


def needed(row: Row, column: str) -> int:
    """A count that no prediction can do without."""
    value = whole(row, column)
    if value is None:
        raise Missing(f"{column} is empty")
    return value


def noted(row: Row, pattern: str) -> int | None:
    """A whole number that the free text of `notes` gives, found by a pattern with one group."""
    match = re.search(pattern, text(row, "notes"), re.IGNORECASE)
    return read_whole(match[1], what="notes") if match else None


def count(row: Row, column: str, usual: int) -> int:
    """A count of at least one; `usual` where the cell is empty or zero."""
    value = number(row, column)
    return max(round(value), 1) if value else usual


def require(row: Row, column: str) -> float:
    """A number without which nothing can be predicted."""
    value = number(row, column)
    if value is None and text(row, column):
        return 0.0
    if value is None:
        raise Missing(f"{column} is empty")
    return value


def measured(row: Row, column: str) -> float | None:
    """A measured value: above zero, or None where nothing was measured."""
    value = number(row, column)
    if value is None and text(row, column):
        raise Missing(f"{column} is 0, which nothing can take or give")
    return value
