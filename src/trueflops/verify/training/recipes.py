"""What NVIDIA's performance recipes set of a run, where its row leaves it out.

In: a row of NeMo's or Megatron-Bridge's tables. Out: CUDA graphs, how tokens go to experts and what
is recomputed, as the recipe of its model, chip, precision and plan has them. recipes.csv is written
by truth/recipes.py from their code at NeMo v2.3.0 and v2.4.0 and Megatron-Bridge v0.2.0 to v0.6.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from trueflops.catalog import Accelerator, accelerator
from trueflops.errors import UnknownName
from trueflops.plan.captures import LAYERS, captures_text
from trueflops.records.tables import Row, read_table
from trueflops.verify.cells import NO, YES, text

TABLE: Final = Path(__file__).with_name("recipes.csv")
RELEASE: Final = re.compile(r"\b2[4-9]\.\d\d\b")
PRECISIONS: Final = (
    (re.compile("nvfp4"), ("NVFP4",)),
    (re.compile("mxfp8|fp8[ _-]?mx"), ("FP8MX",)),
    (re.compile("fp8[ _-]?sc"), ("FP8SC",)),
    (re.compile("fp8"), ("FP8CS", "FP8", "FP8DS")),
    (re.compile("bf16"), ("BF16",)),
)
"""What rows call a precision, and what recipes do."""
PLAN: Final = ("tp", "pp", "cp", "ep", "micro_batch")
GRAPHS: Final = re.compile(r"cuda[ _-]?graph")
NO_GRAPHS: Final = re.compile(
    r"\b(?:no|without|w/o) cuda[ _-]?graph"
    r"|cuda[ _-]?graphs?(?: are| is|:| ?=)? ?(?:off|disabled|no|false)\b"
)


def read_graphs(row: Row) -> str | None:
    """What was captured, by a row's column or its notes; None where it says nothing."""
    said = text(row, "cuda_graphs").casefold()
    notes = text(row, "notes").casefold()
    if said in NO or NO_GRAPHS.search(notes):
        return ""
    if said in YES or (not said and GRAPHS.search(notes)):
        return LAYERS
    return captures_text(said) if said else None


def read_recipe(row: Row, chip: Accelerator, plan: Mapping[str, int]) -> Mapping[str, Any]:
    """Fields of a plan that the recipe of a row sets: of the same plan, of the nearest release, and
    of as many chips and sequences as there are such; where these set different things, none.
    """
    software = text(row, "framework").casefold()
    if "nemo" not in software and "bridge" not in software:
        return {}
    alike = [
        recipe
        for recipe in _recipes().get(_folded(text(row, "model")), ())
        if chip.name == _chip(text(recipe, "accelerator"))
        and recipe["precision"] in _precisions(text(row, "dtype"))
        and recipe["task"] == _task(row)
        and all(int(recipe[name]) == plan[name] for name in PLAN)
    ]
    if not alike:
        return {}
    found = RELEASE.search(software)
    wanted = _months(found[0]) if found else max(map(_released, alike))
    nearest = min(abs(_released(each) - wanted) for each in alike)
    alike = [each for each in alike if abs(_released(each) - wanted) == nearest]
    for ours, theirs in (("n_devices", "chips"), ("global_batch", "global_batch")):
        same = [each for each in alike if text(row, ours) == text(each, theirs)]
        alike = same or alike
    said = [dict(_fields(each)) for each in alike]
    return {
        name: value
        for name, value in said[0].items()
        if all(other.get(name) == value for other in said)
    }


def _fields(recipe: Row) -> Iterator[tuple[str, Any]]:
    graphs = text(recipe, "cuda_graphs")
    yield "cuda_graphs", "" if graphs == "none" else graphs
    if text(recipe, "dispatch"):
        yield "dispatch", text(recipe, "dispatch")
    yield "overlap_dispatch", text(recipe, "overlap_dispatch") == "y"
    if text(recipe, "recompute") == "none":
        yield "recompute", "none"


@cache
def _recipes() -> Mapping[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for _, row in read_table(TABLE).rows:
        found.setdefault(_folded(text(row, "model")), []).append(row)
    return found


@cache
def _chip(name: str) -> str:
    """What the catalog calls it; of one that it does not have, nothing."""
    try:
        return accelerator(name).name
    except UnknownName:
        return ""


def _folded(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())


def _precisions(dtype: str) -> tuple[str, ...]:
    said = dtype.casefold()
    return next((names for words, names in PRECISIONS if words.search(said)), ())


def _task(row: Row) -> str:
    peft, task = text(row, "peft"), text(row, "task").casefold()
    return "lora" if peft or "lora" in task else "sft" if "sft" in task else "pretrain"


def _released(recipe: Row) -> int:
    return _months(text(recipe, "release"))


def _months(release: str) -> int:
    year, month = map(int, release.split("."))
    return 12 * year + month
