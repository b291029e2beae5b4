"""Which curve prices an op: typed keys, the chain of choice, and where each curve comes from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from trueflops.catalog import accelerator
from trueflops.profile import Choice, Curve, CurveKey, Profile, frameworks, profile_of, read_profile
from trueflops.profile.library import SHIPPED
from trueflops.profile.stored import DATA

PROFILES = sorted([*DATA.glob("*.json"), *SHIPPED.glob("*.json")])


def chain(choice: Choice) -> list[str]:
    return [f"{each.key} {each.outcome}" for each in choice.tried]


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_dotted_name_is_read_and_written_back(path: Path) -> None:
    names = re.findall(r'^ "([^"]+)": \{', path.read_text(), re.MULTILINE)
    assert names
    assert [str(CurveKey.parse(name)) for name in names] == names
    assert {str(key) for key in read_profile(path).curves} == set(names)


def test_every_part_of_a_key_has_its_place() -> None:
    keys = [
        CurveKey("matmul", dtype="fp8", format="stored", grouped=True),
        CurveKey("matmul", dtype="fp32", kernel="convolution"),
        CurveKey("experts", format="int4"),
        CurveKey("attention_decode", cache8=True, kernel="triton"),
        CurveKey("attention", cache8=True, odd_heads=True),
        CurveKey("collective", operation="all_reduce", kernel="vllm_custom_ar"),
        CurveKey("cast", format="fp8"),
        CurveKey("power"),
    ]
    assert [CurveKey.parse(str(key)) for key in keys] == keys
    assert CurveKey.parse("matmul.int8").dtype == "int8"
    assert CurveKey.parse("matmul.int4").format == "int4"  # multiplied in 16 bits


@pytest.mark.parametrize(
    "name", ["power.fast", "matmul.grouped.fp8", "cast.fp8.int8", "matmul.a.b"]
)
def test_a_name_that_is_no_key_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="curve"):
        CurveKey.parse(name)


# ── the chain of choice ──────────────────────────────────────────────────────────────────────────


def curve(**more: Any) -> Curve:
    return Curve({"efficiency": 0.5}, 0.1, "measured", "a test", **more)


def test_the_chain_says_what_was_absent_and_what_is_not_used() -> None:
    plain, failed = curve(), curve(at_bounds=("efficiency",), used=False)
    matmul, fp8 = CurveKey("matmul"), CurveKey("matmul", dtype="fp8")
    profile = Profile("a test", "H100-SXM5-80GB", {matmul: plain, fp8: failed})
    choice = profile.choose(CurveKey("matmul", dtype="fp8", grouped=True))
    assert chain(choice) == ["matmul.fp8.grouped absent", "matmul.fp8 not used", "matmul found"]
    assert choice.curve is plain
    assert choice.tried[1].at_bounds == ("efficiency",)
    # The same, once it is a part of what is known of the chip.
    merged = profile_of(accelerator("H100"), given=profile).choose(fp8)
    assert chain(merged) == ["matmul.fp8 not used", "matmul found"]
    assert merged.curve.values["efficiency"] == 0.5


def test_a_framework_puts_its_own_kernels_in_the_place_of_the_best() -> None:
    choice = profile_of(accelerator("H100"), "composer").choose(CurveKey("attention"))
    assert chain(choice) == ["attention replaced", "attention.fa2 found"]
    assert choice.curve.lineage is not None
    assert choice.curve.lineage.changes[-2] == "composer runs fa2"


@pytest.mark.parametrize("framework", frameworks())
@pytest.mark.parametrize("chip", ["H200", "H20", "B200", "A100", "MI300X", "TPU v5p", "RTX4090"])
def test_every_choice_is_the_curve_that_prices(chip: str, framework: str) -> None:
    profile = profile_of(accelerator(chip), framework)
    for key, own in profile.curves.items():
        choice = profile.choose(key)
        assert choice.curve is profile.curve(key) is own
        assert choice.tried[-1].outcome == "found"
        assert own.lineage is not None, key
        assert own.lineage.key == choice.found


@pytest.mark.parametrize(
    ("chip", "holder"),
    [("H100", "own"), ("H20", "sibling"), ("RTX4090", "transfer"), ("MI300X", "transfer")],
)
def test_whose_a_curve_is(chip: str, holder: str) -> None:
    lineage = profile_of(accelerator(chip)).curve("matmul").lineage
    assert lineage is not None
    assert lineage.holder == holder
    host = profile_of(accelerator(chip)).curve("host").lineage
    assert host is not None
    assert host.holder == "assumed"


# ── where its rows come from ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_shipped_curve_says_of_every_row_where_it_is_from(path: Path) -> None:
    for key, own in read_profile(path).curves.items():
        assert sum(rows.count for rows in own.rows) == own.fitted_rows, key
        assert all(rows.table and rows.chip and rows.software for rows in own.rows), key
