"""The catalog for programs: SI numbers with the unit in the key, each with origin and source."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trueflops.catalog import accelerators
from trueflops.catalog.errata import errata
from trueflops.catalog.facts import ORIGINS
from trueflops.catalog.links import links
from trueflops.catalog.nodes import nodes
from trueflops.cli import main
from trueflops.report.catalog_json import encode_record

Capture = pytest.CaptureFixture[str]
TEXTS = ("memory.generation", "links.scale_up", "links.host", ".link", ".topology", ".cpus",
         "in_switch")  # fmt: skip


@pytest.mark.parametrize("record", [*accelerators(), *nodes(), *links()], ids=lambda r: r.name)
def test_every_fact_is_typed_and_has_a_source(record: Any) -> None:
    answer = encode_record(record)
    for key, fact in answer["facts"].items():
        assert fact["origin"] in ORIGINS
        assert answer["sources"][fact["source"]]
        if key.endswith(TEXTS):
            assert fact["value"] is None or isinstance(fact["value"], str)
        else:
            assert fact["value"] is None or isinstance(fact["value"], int | float), key


def test_values_are_si_and_named_by_their_unit(capsys: Capture) -> None:
    assert main(["catalog", "H100", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    facts = {key: fact["value"] for key, fact in answer["facts"].items()}
    assert facts["peak.bf16_flop_per_second"] == 989.4e12
    assert facts["memory.capacity_bytes"] == 80 * 2**30
    assert facts["memory.bandwidth_bytes_per_second"] == 3.35e12
    assert facts["compute.clock_hertz"] == 1.83e9
    assert facts["power.tdp_watts"] == 700
    assert facts["compute.units"] == 132
    assert facts["memory.generation"] == "HBM3"
    assert facts["peak.int4_flop_per_second"] is None  # no such path
    assert answer["alternatives"][0]["value_hertz"] == 1.98e9
    assert answer["rent"]["usd_per_hour"] > 0


def test_per_device_where_a_package_is_published() -> None:
    chip = next(c for c in accelerators() if c.devices_per_package == 2)
    fact = encode_record(chip)["facts"]["memory.capacity_bytes"]
    assert fact["value"] == chip.get("memory.capacity")


def test_a_stranger_is_told_what_document_errs(capsys: Capture) -> None:
    for erratum in errata():
        assert "document 00" not in erratum.title
        assert len(erratum.title) > 30
    assert main(["catalog", "V100-PCIe-16GB"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "document 003" not in said
    assert "hand-out of a technical meeting on graphics cards" in said
