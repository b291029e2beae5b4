"""The catalog: complete, sourced, and its peaks recomputed from first principles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trueflops.catalog import DTYPES, accelerator, accelerators, cluster, errata_about, price
from trueflops.catalog.accelerators import decode
from trueflops.catalog.facts import DATA, ORIGINS, UNCONFIRMED, Fact, read_toml, sources
from trueflops.catalog.links import links
from trueflops.catalog.lookup import known_names, look_up
from trueflops.catalog.models import model_names
from trueflops.catalog.names import fold, index
from trueflops.catalog.nodes import default_node, nodes
from trueflops.catalog.peaks import DEPARTURES, computed_peak
from trueflops.cli import main
from trueflops.errors import BadCatalog, BadInput, MissingFact, UnknownName
from trueflops.report.catalog_json import encode_record

CHIPS = accelerators()
FACT = {"value": "1 TFLOP/s", "origin": "datasheet", "source": "stas-accelerators"}


def test_everything_is_there() -> None:
    assert len(CHIPS) == 181
    assert len(links()) >= 56
    assert len(nodes()) >= 60
    assert len(index("clusters")) >= 12
    assert len(model_names()) >= 45
    assert len(read_toml(DATA / "prices.toml")["rent"]) == 269
    assert len(read_toml(DATA / "errata.toml")["erratum"]) >= 16


def test_every_default_node_is_of_a_chip_of_that_very_name() -> None:
    """A default under an alias is never found: look-ups are by a chip's own name."""
    for name in read_toml(DATA / "nodes" / "defaults.toml"):
        assert accelerator(name).name == name
        host = default_node(accelerator(name))
        assert host
        assert host.accelerator.name == name


def test_every_name_can_be_looked_up() -> None:
    for name in known_names():
        look_up(name)


def test_every_alias_leads_somewhere() -> None:
    for kind, table in read_toml(DATA / "aliases.toml").items():
        for short, full in table.items():
            assert fold(full) in index(kind), f"{short} -> {full}"


def test_every_fact_has_an_origin_and_a_source_that_exists() -> None:
    records: list[Any] = [*CHIPS, *nodes(), *links()]
    for record in records:
        for path, fact in record.facts.items():
            assert fact.origin in ORIGINS, f"{record.name}.{path}"
            assert fact.source in sources(), f"{record.name}.{path}"


def test_every_figure_has_a_source_or_is_marked_unconfirmed() -> None:
    recalled = [key for key, said in sources().items() if said["kind"] == "recall"]
    assert recalled == [UNCONFIRMED]
    lines = [(path, value) for path in DATA.rglob("*.toml") for value in _facts_in(read_toml(path))]
    for path, value in lines:
        assert value["source"] in sources(), f"{path.name}: {value}"
        if value["source"] == UNCONFIRMED and "origin" in value:
            assert value["origin"] == "assumed", f"{path.name}: {value}"
    unconfirmed = sum(value["source"] == UNCONFIRMED for _, value in lines)
    assert 0 < unconfirmed <= 218, "more figures without a source than there were"


def _facts_in(raw: Any) -> Iterator[dict[str, Any]]:
    """Every table that cites a source by its key; configs of models cite theirs in words."""
    if isinstance(raw, dict) and "source" in raw and "config" not in raw:
        yield raw
    elif isinstance(raw, dict | list) and "config" not in raw:
        for each in raw.values() if isinstance(raw, dict) else raw:
            yield from _facts_in(each)


def test_a_node_that_cites_its_chip_cites_a_fact_with_a_source() -> None:
    of_chip = {
        "host.link": "links.host",
        "host.memory": "memory.capacity",
        "scale_up.link": "links.scale_up",
        "scale_up.domain": "links.scale_up_domain",
        "scale_up.bandwidth": "links.scale_up_bandwidth",
    }
    for node in nodes():
        for path, fact in node.facts.items():
            if fact.source == "trueflops-accelerators" and path != "accelerators.count":
                assert not node.accelerator.facts[of_chip[path]].unconfirmed, f"{node.name}.{path}"


def test_unconfirmed_figures_are_marked_wherever_they_are_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    chip = accelerator("H20")
    assert "power.tdp" in chip.unconfirmed
    claims = encode_record(chip)["facts"]
    assert claims["power.tdp_watts"]["unconfirmed"]
    assert not claims["memory.bandwidth_bytes_per_second"]["unconfirmed"]
    assert encode_record(cluster("Frontier"))["tiers"][0]["unconfirmed"]
    for words, figure in (
        (["catalog", "H20"], "400 W †"),
        (["catalog", "H20-x8"], "switch †"),
        (["catalog", "Frontier"], "datasheet †"),
        (["compare", "H20", "H100"], "400†"),
    ):
        assert main(words) == 0
        said = capsys.readouterr().out
        assert figure in said
        assert "† unconfirmed: no source at hand" in said
    assert main(["compare", "H100", "A100"]) == 0
    assert "†" not in capsys.readouterr().out


def test_no_source_is_unused() -> None:
    text = "\n".join(p.read_text() for p in DATA.rglob("*.toml") if p.name != "sources.toml")
    cited = [key for key in sources() if not key.startswith("document-")]  # errata cite those
    assert [key for key in cited if f'"{key}"' not in text] == []


@pytest.mark.parametrize(
    "fact",
    [
        "989 TFLOP/s",
        {"value": "989 TFLOP/s"},
        {"value": "989 TFLOP/s", "origin": "datasheet"},
        {"value": "989 TFLOP/s", "origin": "hearsay", "source": "stas-accelerators"},
        {"value": "989 TFLOP/s", "origin": "datasheet", "source": "nobody"},
        {**FACT, "certainty": 1},
    ],
)
def test_a_value_without_a_source_cannot_be_loaded(fact: object) -> None:
    with pytest.raises(BadCatalog):
        Fact.decode(fact, "test")


def test_an_unknown_key_in_a_chip_file_is_an_error() -> None:
    raw = read_toml(index("accelerators")[fold("H100-SXM5-80GB")])
    with pytest.raises(BadCatalog, match="unknown key: peek"):
        decode({**raw, "peek": {}}, "test")


def test_every_peak_is_units_times_fma_times_two_times_clock() -> None:
    """The printed peak follows from the chip, or the departure has a stated reason."""
    agreeing = 0
    for chip in CHIPS:
        known_departures, _ = DEPARTURES.get(chip.name, ((), ""))
        for dtype in DTYPES:
            computed, printed = computed_peak(chip, dtype), chip.get(f"peak.{dtype}")
            if not (computed and printed):
                continue
            agrees = abs(computed / printed - 1) <= 0.015
            assert agrees != (dtype in known_departures), (chip.name, dtype, computed, printed)
            agreeing += agrees
    assert agreeing >= 270


@pytest.mark.parametrize(
    ("name", "dtype"), [("A100", "fp8"), ("V100", "bf16"), ("V100", "int8"), ("H100", "fp4")]
)
def test_a_missing_path_is_an_error_that_names_what_there_is(name: str, dtype: str) -> None:
    with pytest.raises(MissingFact, match=r"no .* path"):
        accelerator(name).peak_flop_per_second(dtype)


def test_two_devices_in_a_package_are_seen_as_two() -> None:
    package, device = accelerator("MI250X").facts["peak.bf16"].text, accelerator("MI250X")
    assert package == "383 TFLOP/s"
    assert device.peak_flop_per_second("bf16") == pytest.approx(191.5e12)
    assert cluster("8xMI250X").nodes == 1


def test_bandwidth_is_one_direction() -> None:
    assert accelerator("H100").need("links.scale_up_bandwidth") == 450e9
    assert accelerator("A800").need("links.scale_up_bandwidth") == 200e9


def test_errata_are_shown_where_a_document_errs() -> None:
    for name in (
        "A100-SXM4-80GB",
        "TPU v5e",
        "TPU v5p",
        "Gaudi3",
        "RTX 4090",
        "H800-SXM5-80GB",
        "V100-PCIe-32GB",
        "H100-PCIe-80GB",
        "GPT-3-175B",
    ):
        assert errata_about(name), name


def test_prices_have_a_date_and_a_range() -> None:
    rent = price(accelerator("H100"))
    assert rent is not None
    assert rent.low <= rent.usd_per_hour <= rent.high
    assert rent.date >= "2026-05"


@pytest.mark.parametrize(
    ("text", "count", "nodes_", "tiers"),
    [
        ("64xH100", 64, 8, 2),
        ("16x8xH100", 128, 16, 2),
        ("4xH100", 4, 1, 1),
        ("H100", 1, 1, 0),
        ("2048xRTX4090", 2048, 256, 2),
        ("4xDGX-H100", 32, 4, 2),
        ("256xTPUv5e", 256, 32, 1),
        ("72xGB200", 72, 18, 1),
        ("144xGB200", 144, 36, 2),
        ("Selene", 4480, 560, 2),
        ("Meta-24k-RoCE", 24576, 3072, 3),
    ],
)
def test_clusters_are_read_as_written(text: str, count: int, nodes_: int, tiers: int) -> None:
    found = cluster(text)
    assert (found.count, found.nodes, len(found.tiers)) == (count, nodes_, tiers)


def test_geforce_cards_have_no_peer_access() -> None:
    assert cluster("8xRTX4090").tiers[0].topology == "pcie-host"


@pytest.mark.parametrize("text", ["0xH100", "12xH100", "xH100", "8x0xH100", "999999999xH100", ""])
def test_impossible_clusters_are_refused(text: str) -> None:
    with pytest.raises((BadInput, UnknownName)):
        cluster(text)


def test_a_cluster_file_changes_what_differs(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'name = "mine"\nnodes = 4\nper_node = 8\nprice = "1.5 USD/h"\n'
        '[accelerator]\nlike = "H100"\nname = "H100-96GB"\n'
        'memory.capacity = "96 GiB"\nmemory.bandwidth = "2.4 TB/s"\n'
        '[scale_out]\nbandwidth = "100 GB/s"\n'
    )
    mine = cluster(str(file))
    assert mine.count == 32
    assert mine.accelerator.need("memory.capacity") == 96 * 2**30
    assert mine.accelerator.facts["memory.capacity"].origin == "assumed"
    assert mine.tiers[-1].bandwidth == 100e9 / 8
    assert mine.usd_per_hour == 1.5


def test_servers_of_v100s_are_counted_in_servers() -> None:
    for text, chips in (("4xDGX-2", 64), ("DGX-2", 16), ("2xDGX-1", 16)):
        assert cluster(text).count == chips, text


def test_a_node_may_let_its_chips_draw_less() -> None:
    alone, four = cluster("GH200").accelerator, cluster("1xAlps-GH200").accelerator
    assert alone.name == four.name
    assert (alone.get("power.tdp"), four.get("power.tdp")) == (1000.0, 680.0)
    assert four.facts["power.tdp"].source == "fz-juelich-jupiter"


@pytest.mark.parametrize(
    "text",
    [
        "nodes = 0",
        "node = 'DGX-H1OO'",
        "nodez = 3",
        "= broken",
        "nodes = 2\n[scale_out]\nbandwith = '1 GB/s'",
        "accelerator = 'H100'\n[scale_up]\nbandwidth = 'fast'",
        "scale_up = 3\nnode = 'DGX-H100'",
    ],
)
def test_a_broken_cluster_file_is_one_clear_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "broken.toml"
    file.write_text(text)
    with pytest.raises(BadInput, match=r"broken\.toml|did you mean"):
        cluster(str(file))


def test_cards_without_a_known_server_stand_eight_to_a_host() -> None:
    assert cluster("8xRTX5070").per_node == 8
    assert cluster("1x12xRTX5070").per_node == 12  # as it is named
    with pytest.raises(BadInput, match="do not fill nodes of 8"):
        cluster("12xRTX5070")
    with pytest.raises(MissingFact, match="write --network"):
        cluster("16xRTX5070")
    joined = cluster("16xRTX5070", network=12.5e9)
    assert (joined.nodes, joined.tiers[-1].bandwidth) == (2, 12.5e9 / 8)
