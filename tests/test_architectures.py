"""Facts of architectures stand in data/architectures.toml; no code reads them from a name."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

import trueflops
from trueflops.catalog import Accelerator, accelerator, accelerators
from trueflops.catalog.architectures import architecture, architectures
from trueflops.catalog.facts import ORIGINS, sources
from trueflops.errors import UnknownName
from trueflops.records.chips import chip_of

SOURCE: Final = Path(trueflops.__file__).parent
SEARCHES: Final = {"startswith", "endswith", "partition", "rpartition", "split", "find"}
CHIPS: Final = {"chip", "accelerator", "like", "architecture"}


def test_every_architecture_is_some_chip_s_and_every_chip_has_one() -> None:
    assert {chip.architecture.name for chip in accelerators()} == set(architectures())


def test_an_architecture_that_is_not_listed_is_an_error() -> None:
    with pytest.raises(UnknownName, match="Hopper GH100"):
        architecture("Hopper GH10")


def test_every_fact_of_an_architecture_has_a_source() -> None:
    for kind in architectures().values():
        assert kind.family
        for name, fact in kind.facts.items():
            assert fact.origin in ORIGINS, f"{kind.name}: {name}"
            assert fact.source in sources(), f"{kind.name}: {name}"


@pytest.mark.parametrize("chip", accelerators(), ids=lambda chip: chip.name)
def test_nvidia_chips_have_a_compute_capability_and_others_have_none(chip: Accelerator) -> None:
    known = chip.architecture.compute_capability
    if chip.vendor != "NVIDIA":
        assert known is None
    elif chip.status == "shipping":
        assert known is not None
        assert (known >= (8, 0)) == (chip.computes("bf16") or chip.computes("tf32"))
        assert chip.architecture.unit == "SM"


@pytest.mark.parametrize(
    ("name", "capability"),
    [("P100", (6, 0)), ("T4", (7, 5)), ("A10", (8, 6)), ("L4", (8, 9)), ("GH200", (9, 0)),
     ("B200", (10, 0)), ("GB300", (10, 3)), ("RTX 5090", (12, 0)), ("GB10", (12, 1))],
)  # fmt: skip
def test_compute_capabilities_are_those_of_nvidia_s_table(
    name: str, capability: tuple[int, int]
) -> None:
    assert accelerator(name).architecture.compute_capability == capability


def test_no_code_looks_for_words_inside_the_name_of_a_chip_or_an_architecture() -> None:
    families = {kind.family for kind in architectures().values()} - {"Apple GPU"}  # MPS names none
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        quoted = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}  # docstrings
        for node in ast.walk(tree):
            where = f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Constant) and id(node) not in quoted:
                if node.value in families:
                    found.append(f"{where}: {node.value!r}")
            elif isinstance(node, ast.Compare) and any(
                isinstance(op, ast.In | ast.NotIn) and _is_name(right)
                for op, right in zip(node.ops, node.comparators, strict=True)
            ):
                found.append(f"{where}: … in a name")
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in SEARCHES
                and _is_name(node.func.value)
            ):
                found.append(f"{where}: name.{node.func.attr}()")
    assert found == []


def _is_name(node: ast.expr) -> bool:
    """Whether it is `chip.name`, `clock.chip.name`, `chip.architecture.name` and their like."""
    if not isinstance(node, ast.Attribute) or node.attr != "name":
        return False
    owner = node.value
    if isinstance(owner, ast.Call):  # chip_of(…).name
        return True
    own = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return own in CHIPS


def test_a_chip_sold_cut_knows_which_one_it_is_a_part_of() -> None:
    whole, smaller, fewer = chip_of("A100"), chip_of("V100 24GB"), chip_of("M1 Max 24-core 64GB")
    assert whole.cut_of == ""
    assert whole.whole == whole.name
    assert smaller.cut_of == smaller.whole
    assert accelerator(smaller.whole).get("memory.capacity") != smaller.get("memory.capacity")
    assert fewer.whole == "M1 Max"
    assert fewer.get("compute.units") == 24.0
