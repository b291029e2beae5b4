"""Cards as people have them: slices, power limits, PCIe slots, engines and their releases."""

from __future__ import annotations

import pytest

import trueflops as tf
from conftest import Ask
from trueflops.catalog.networks import with_bus
from trueflops.catalog.partitions import slices_of
from trueflops.cli import main
from trueflops.clock.matmul import MatmulWork, formula, unpacked
from trueflops.clock.silicon import Silicon
from trueflops.errors import BadInput
from trueflops.plan import Plan
from trueflops.profile import engine_of, profile_of
from trueflops.units import GIBI
from trueflops.verify.serving.format import framework_of, pcie_of
from trueflops.verify.serving.lengths import lengths_of
from trueflops.verify.serving.served_model import model_of
from trueflops.workload import Serving

Capture = pytest.CaptureFixture[str]


# ── slices ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("chip", "names"),
    [
        ("A100-SXM4-40GB", "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb"),
        ("A100-SXM4-80GB", "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"),
        ("H100-SXM5-80GB", "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb"),
        ("H200-SXM-141GB", "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb"),
        ("B200-SXM-180GB", "1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb"),
        ("A30", "1g.6gb 2g.12gb 4g.24gb"),
        ("RTX PRO 6000 Server", "1g.24gb 2g.48gb 4g.96gb"),
    ],
)
def test_slices_have_the_names_of_nvidias_guide(chip: str, names: str) -> None:
    whole = tf.accelerator(chip)
    found = slices_of(whole.name, whole.need("memory.capacity"), whole.need("compute.units"))
    assert " ".join(each.name for each in found) == names


def test_a_slice_has_its_share_and_no_link() -> None:
    whole, part = tf.accelerator("A100"), tf.accelerator("1g.10gb@A100")
    assert part.get("compute.units") == pytest.approx(14)
    assert part.need("memory.capacity") == pytest.approx(10 * GIBI)
    assert part.need("memory.bandwidth") == pytest.approx(whole.need("memory.bandwidth") / 8)
    share = 14 / 108
    assert part.peak_flop_per_second("bf16") == pytest.approx(
        share * whole.peak_flop_per_second("bf16")
    )
    assert part.text("links.scale_up") == ""
    assert tf.cluster("2x3g.40gb@H100").tiers[0].topology == "pcie-host"


def test_a_slice_is_priced_by_its_whole_and_is_slower() -> None:
    asked = Serving(512, 128, 1)
    model = tf.read_model("Llama-3.1-8B")
    times = []
    for name in ("1g.20gb@A100", "3g.40gb@A100", "A100"):
        where = tf.cluster(name)
        profile = profile_of(where.accelerator, "vllm")
        server = tf.Server(model, asked, where, profile, weights="int4")
        times.append(float(server.predict(Plan()).tpot.value))
    assert times[0] > 1.5 * times[1] > 1.5 * times[2]
    rent, part = tf.price(tf.accelerator("A100")), tf.price(tf.accelerator("1g.10gb@A100"))
    assert rent is not None
    assert part is not None
    assert part.usd_per_hour == pytest.approx(rent.usd_per_hour * 14 / 108)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("1g.5gb@H100", "no such slice; write one of 1g.10gb, 1g.20gb"),
        ("1g.10gb@RTX 4090", "it cannot be divided; chips with MIG are"),
        ("1g.10gb@H1000", "did you mean"),
    ],
)
def test_a_slice_that_does_not_exist_is_refused(name: str, says: str) -> None:
    with pytest.raises(tf.TrueflopsError, match=says):
        tf.accelerator(name)


def test_more_slices_than_a_node_has_are_refused() -> None:
    assert tf.cluster("56x1g.10gb@A100").count == 56
    with pytest.raises(BadInput, match="56 at most"):
        tf.cluster("57x1g.10gb@A100")


# ── power and buses ─────────────────────────────────────────────────────────────────────────────


def test_a_power_limit_slows_a_card_that_is_busy_and_not_one_that_waits(ask: Ask) -> None:
    words = ("infer", "Llama-3.1-8B", "--weights", "q8_0", "--engine", "llama.cpp")
    one = (*words, "--concurrency", "1", "--on")
    free = ask(*one, "RTX3090")["tpot_seconds"]["value"]
    capped = ask(*one, "RTX3090", "--power", "220W")
    assert 1.15 < capped["tpot_seconds"]["value"] / free < 2.0
    assert any("power limit 220 W of 350 W" in note for note in capped["notes"])
    # Each of four cards that hold the layers works for a quarter of the time.
    split = (*one, "4xRTX3090", "--tp", "1", "--pp", "4")
    waits = [ask(*split, *more)["tpot_seconds"]["value"] for more in ((), ("--power", "220W"))]
    assert waits[1] == pytest.approx(waits[0], rel=0.02)


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ("20W", "can be limited to between 98 and 350 W; write --power 98W or more"),
        ("400W", "the limit of RTX 3090 is 350 W already"),
        ("much", "is not a number with a unit"),
    ],
)
def test_a_power_limit_that_no_card_takes_is_refused(capsys: Capture, said: str, says: str) -> None:
    assert main(["infer", "Llama-3.1-8B", "--on", "RTX3090", "--power", said]) == 2
    assert says in " ".join(capsys.readouterr().err.split())


def test_a_power_limit_is_of_one_kind_of_chip(capsys: Capture) -> None:
    assert main(["infer", "Llama-3.1-8B", "--on", "any", "--power", "200W"]) == 2
    assert "--power limits one kind of chip" in capsys.readouterr().err


def test_an_older_bus_is_slower_and_leaves_nvlink_alone() -> None:
    cards, joined = tf.cluster("4xRTX3090"), tf.cluster("8xH100")
    older = with_bus(cards, "PCIe 3.0 x16")
    assert older.tiers[0].bandwidth == pytest.approx(cards.tiers[0].bandwidth / 2)
    assert with_bus(joined, "PCIe 3.0 x16").tiers == joined.tiers
    assert pcie_of("PCIe3 x16, no NVLink") == "PCIe 3.0 x16"
    assert pcie_of("no word of it") == ""


# ── engines ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("engine", "version", "year", "found"),
    [
        ("vLLM", "Nov 2023", "2023", "vllm-0.2"),
        ("vLLM", "0.2.1", "2024", "vllm-0.2"),
        ("vLLM", "0.23.0", "2026", "vllm"),
        ("llama.cpp llama-bench", "May 2024", "2024", "llama.cpp-2023"),
        ("llama.cpp", "b7941", "2026", "llama.cpp"),
        ("llama.cpp", "8e672ef", "2023", "llama.cpp-2023"),
        ("exllamav3", "1.0.0", "2026", "exllamav3"),
        ("Exllama V2", "Nov 2023", "2023", "exllama"),
    ],
)
def test_a_release_that_ran_otherwise_is_told(
    engine: str, version: str, year: str, found: str
) -> None:
    assert framework_of(engine, version, year) == found


def test_widened_weights_are_read_narrow_and_written_wide() -> None:
    silicon = Silicon.of(tf.accelerator("A100"))
    weights = 4096.0 * 4096.0
    narrow = MatmulWork("bf16", 1.0, 512.0, 4096.0, 4096.0, weights / 2, 2.0 * 512 * 8192, 1.0)
    wide, seconds = unpacked(narrow, silicon, {"unpack": 0.8})
    assert wide.weight_bytes == 2.0 * weights
    assert seconds == pytest.approx(2.5 * weights / (0.8 * silicon.bandwidth))
    curve = profile_of(tf.accelerator("A100"), "llama.cpp-2023").curve("matmul")
    plain = {name: value for name, value in curve.values.items() if name != "unpack"}
    slower = formula(narrow, silicon, curve.values) - formula(narrow, silicon, plain)
    assert float(slower) >= 0.99 * float(seconds)


def test_a_long_prompt_is_read_in_chunks() -> None:
    where, model = tf.cluster("RTX4090"), tf.read_model("Llama-3.1-8B")
    profile = profile_of(where.accelerator, "llama.cpp")
    server = tf.Server(model, Serving(4096, 1, 1), where, profile, engine=engine_of("llama.cpp"))
    assert server.mix.chunks == 8
    first = server.asked(Serving(512, 1, 1)).prefill(Plan())
    whole = server.prefill(Plan())
    assert 8.0 * float(first.value) < float(whole.value) < 12.0 * float(first.value)


def test_llama_cpp_runs_four_requests_one_stage_after_another() -> None:
    where, model = tf.cluster("4xRTX3090"), tf.read_model("Llama-3.1-8B")
    profile = profile_of(where.accelerator, "llama.cpp")
    server = tf.Server(
        model, Serving(512, 128, 16), where, profile, weights="q8_0", engine=engine_of("llama.cpp")
    )
    split = server.predict(Plan(pp=4))
    assert (split.running, split.waiting) == (4, 12)
    one = server.asked(Serving(512, 128, 4)).predict(Plan(pp=4))
    assert float(one.decode.value) == pytest.approx(float(split.decode.value), rel=1e-6)


# ── what a row leaves to its data set ───────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("row", "lengths"),
    [
        ({"input_len": "7", "output_len": "9", "notes": "MLPerf"}, (7.0, 9.0)),
        ({"model": "Llama-2-70B", "source": "MLPerf Inference v4.1"}, (294.45, 294.45)),
        ({"model": "Llama-3.1-405B", "notes": "MLPerf Offline"}, (9400.0, 684.68)),
        ({"model": "X", "notes": "ShareGPT"}, (161.31, 337.99)),
        (
            {"model": "X", "notes": "10 req/s; total tok/s 4000", "tokens_per_s": "1500"},
            (250.0, 150.0),
        ),
        ({"model": "X", "notes": "nothing"}, (None, None)),
    ],
)
def test_lengths_are_those_of_the_row_then_of_its_data_set(
    row: dict[str, str], lengths: tuple[float | None, float | None]
) -> None:
    assert lengths_of(row) == lengths


def test_a_hybrid_of_unknown_layers_keeps_most_of_its_cache_short() -> None:
    hybrid, plain = model_of("Qwen3.9-29B", 27.0, 27.0), model_of("Enigma-29B", 27.0, 27.0)
    assert hybrid.parameter_count == pytest.approx(plain.parameter_count, rel=0.01)
    states = [hybrid.blocks[kind].recurrent for kind in hybrid.pattern]
    assert sum(state is None for state in states) == len(states) // 4


@pytest.mark.parametrize("goal", [[], ["--ttft", "5s"]])
def test_slices_are_searched_as_replicas_alone(ask: Ask, goal: list[str]) -> None:
    """NCCL does not join slices of one GPU: none shares a model with another unless asked."""
    words = ["infer", "Llama-3.2-1B", "--on", "4x1g.10gb@A100"]
    cuts = ask(*words, *goal)["cuts"]
    assert {(cut["plan"]["tp"], cut["plan"]["pp"]) for cut in cuts} == {(1, 1)}
    assert ask(*words, "--tp", "2")["plan"]["tp"] == 2
