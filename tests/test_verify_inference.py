"""Measured inference results beside their predictions: rows as people publish them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from trueflops.catalog import Accelerator, accelerator
from trueflops.errors import TrueflopsError
from trueflops.graph.passes import format_named
from trueflops.model import read_model
from trueflops.profile import Profile, from_datasheet
from trueflops.records.chips import chip_of, cluster_of_cut
from trueflops.records.tables import read_table
from trueflops.verify.findings import Finding, Findings
from trueflops.verify.serving.format import cache_bits, framework_of, weight_format
from trueflops.verify.serving.inference import inference_findings
from trueflops.verify.serving.points import serving_findings
from trueflops.verify.serving.served_model import model_of
from trueflops.verify.serving.stand_in import is_stand_in, stand_in


def by_datasheet(chip: Accelerator, framework: str, source: str = "") -> Profile:
    return from_datasheet(chip)


# One real result of each kind (sources in the column).
DECODE = {
    "id": "a",
    "source": "XiongjieDai/GPU-Benchmarks-on-LLM-Inference",
    "source_group": "XiongjieDai",
    "model": "Llama-3-8B",
    "params_b": "8.03",
    "weight_dtype": "GGUF Q4_K_M",
    "kv_dtype": "fp16",
    "activation_dtype": "fp16",
    "accelerator": "RTX 3090 24GB",
    "memory_gb": "24",
    "n_devices": "1",
    "tp": "1",
    "pp": "1",
    "ep": "",
    "engine": "llama.cpp llama-bench",
    "phase": "decode",
    "batch_or_concurrency": "1",
    "input_len": "0",
    "output_len": "512",
    "context_depth": "",
    "ttft_ms": "",
    "tpot_ms": "",
    "tokens_per_s": "109.57",
    "tokens_kind": "decode per user (avg over generating output_len from empty context)",
    "speculative": "",
    "mem_used_gb": "",
    "notes": "",
}
PREFILL = DECODE | {
    "id": "b",
    "phase": "prefill",
    "input_len": "1024",
    "output_len": "0",
    "tokens_kind": "prefill",
    "tokens_per_s": "3865.39",
}
LOADED = DECODE | {
    "id": "c",
    "source_group": "TensorRT-LLM",
    "model": "Llama-3.1-70B",
    "weight_dtype": "fp8",
    "kv_dtype": "fp8",
    "activation_dtype": "fp8",
    "accelerator": "H100 SXM 80GB",
    "memory_gb": "80",
    "n_devices": "2",
    "tp": "2",
    "engine": "TensorRT-LLM trtllm-bench",
    "phase": "e2e",
    "batch_or_concurrency": "",
    "input_len": "128",
    "output_len": "2048",
    "tokens_kind": "output total at max load (infinite request rate)",
    "tokens_per_s": "6593.63",
}
POINT = {
    "backend": "vllm",
    "backend_version": "0.12.0",
    "model_path": "nvidia/Llama-3.1-8B-Instruct-FP8",
    "system": "h200_sxm",
    "precision": "fp8",
    "mode": "agg",
    "isl": "1000",
    "osl": "100",
    "gemm_quant_mode": "fp8",
    "moe_quant_mode": "fp8",
    "batch_size": "32",
    "tp_size": "1",
    "pp_size": "1",
    "attention_dp_size": "",
    "moe_tp_size": "1",
    "moe_ep_size": "1",
    "id": "p",
    "silicon_ttft_ms": "120",
    "silicon_tpot_ms": "9",
}


def write(path: Path, rows: list[dict[str, str]], columns: list[str] | None = None) -> Path:
    with path.open("w", newline="") as out:
        writer = csv.DictWriter(out, columns or list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def judge(folder: Path, *rows: dict[str, str]) -> Findings:
    return inference_findings(read_table(write(folder / "runs.csv", list(rows))), by_datasheet)


def judge_points(folder: Path, *rows: dict[str, str]) -> Findings:
    return serving_findings(read_table(write(folder / "points.csv", list(rows))), by_datasheet)


def only(found: Findings) -> Finding:
    assert not found.refused
    (row,) = found.rows
    return row


def test_each_kind_of_result_is_predicted_within_a_factor_of_two(tmp_path: Path) -> None:
    found = judge(tmp_path, DECODE, PREFILL, LOADED)
    assert not found.refused
    assert [row.id for row in found.rows] == ["a", "b", "c"]
    for row in found.rows:
        assert 0.5 < row.predicted / row.measured < 2.0, row
        assert row.low < row.predicted < row.high
        assert row.scored
    assert {row.group for row in found.rows} == {"XiongjieDai", "TensorRT-LLM"}


def test_the_order_of_columns_does_not_matter(tmp_path: Path) -> None:
    plain = judge(tmp_path, DECODE, LOADED)
    turned = write(tmp_path / "turned.csv", [DECODE, LOADED], sorted(DECODE, reverse=True))
    again = inference_findings(read_table(turned), by_datasheet)
    assert [r.predicted for r in again.rows] == [r.predicted for r in plain.rows]


def test_columns_that_are_not_there_are_empty(tmp_path: Path) -> None:
    needed = ("id", "model", "weight_dtype", "accelerator", "engine", "phase", "tokens_per_s")
    few = {k: v for k, v in DECODE.items() if k in needed}
    row = only(judge(tmp_path, few))
    assert row.group == "no source"
    assert row.predicted == pytest.approx(only(judge(tmp_path, DECODE)).predicted, rel=0.05)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"accelerator": "RTX 9999 24GB"}, "unknown accelerator 'RTX 9999'"),
        ({"accelerator": ""}, "accelerator is empty"),
        ({"model": "Enigma", "params_b": ""}, "params_b"),
        ({"model": "Enigma", "params_b": "eight"}, "params_b is not a number: 'eight'"),
        ({"weight_dtype": "octonion"}, "weight_dtype 'octonion'"),
        ({"phase": "e2e", "input_len": "", "tokens_kind": "input + output"}, "input_len is empty"),
        ({"phase": "e2e", "output_len": ""}, "output_len is empty"),
        ({"phase": "prefill", "input_len": ""}, "input_len is empty"),
        (
            {"phase": "e2e", "batch_or_concurrency": "", "tokens_kind": "output total"},
            "batch_or_concurrency is empty",
        ),
        ({"tokens_per_s": "fast"}, "tokens_per_s is not a number: 'fast'"),
        ({"tokens_per_s": "nan"}, "tokens_per_s, ttft_ms, tpot_ms and mem_used_gb are all empty"),
        ({"tokens_per_s": "-3"}, "tokens_per_s is not a number of at least 0: '-3'"),
        ({"tokens_per_s": "0"}, "tokens_per_s is 0"),
        ({"tokens_per_s": ""}, "all empty"),
        ({"input_len": "1k2"}, "input_len is not a number: '1k2'"),
    ],
)
def test_a_row_that_lacks_an_input_is_refused_and_says_which(
    tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    found = judge(tmp_path, DECODE | change, PREFILL)
    assert [row.id for row in found.rows] == ["b"]
    (refusal,) = found.refused
    assert refusal.id == "a"
    assert reason in refusal.reason
    assert "\n" not in refusal.reason


def test_a_row_without_an_id_is_named_by_its_line(tmp_path: Path) -> None:
    assert only(judge(tmp_path, DECODE | {"id": ""})).id == "line 2"


def test_every_row_is_found_or_refused(tmp_path: Path) -> None:
    rows = [
        row | {"id": f"{i}{change}", column: change}
        for i, row in enumerate((DECODE, PREFILL, LOADED))
        for column in row
        if column not in ("id", "source", "source_group")
        for change in ("", "0", "-1", "junk", "1e400")
    ]
    found = judge(tmp_path, *rows)
    seen = {row.id for row in found.rows} | {row.id for row in found.refused}
    assert seen == {row["id"] for row in rows}


def test_what_was_counted_is_what_is_predicted(tmp_path: Path) -> None:
    def of(kind: str, **change: str) -> float:
        return only(judge(tmp_path, LOADED | {"tokens_kind": kind} | change)).predicted

    load = {"batch_or_concurrency": "16"}
    total = of("output total", **load)
    assert of("output per user (wall, incl. prefill)", **load) == pytest.approx(total / 16)
    assert of("output per GPU", **load) == pytest.approx(total / 2)
    assert of("input + output total", **load) == pytest.approx(total * (128 + 2048) / 2048)
    assert of("prompt tokens", **load) == pytest.approx(total * 128 / 2048)
    decode = of("decode per user", phase="decode", **load)
    assert of("output total (decode only)", phase="decode", **load) == pytest.approx(16 * decode)


def test_a_filled_cache_slows_prefill_and_decode(tmp_path: Path) -> None:
    for row in (PREFILL, DECODE):
        deep = only(judge(tmp_path, row | {"context_depth": "8192"}))
        assert deep.predicted < only(judge(tmp_path, row)).predicted


def test_cards_of_llama_cpp_hold_layers_and_take_turns(tmp_path: Path) -> None:
    """Four cards write as fast as one, whatever the table calls the split."""
    one, four = (only(judge(tmp_path, DECODE | {"n_devices": n, "tp": n})) for n in ("1", "4"))
    assert four.predicted == pytest.approx(one.predicted, rel=0.05)


def test_how_many_there_are_may_stand_beside_the_name(tmp_path: Path) -> None:
    """Like cards are no pipeline of unlike ones: they are cut as the engine cuts them."""
    plain = {**DECODE, "engine": "vLLM", "weight_dtype": "fp16", "n_devices": "4", "tp": "4"}
    for said in ("4x {}", "{} x 4", "4 {} GPUs"):
        row = {**plain, "accelerator": said.format(plain["accelerator"])}
        assert only(judge(tmp_path, row)).predicted == only(judge(tmp_path, plain)).predicted, said
        assert only(judge(tmp_path, {**row, "n_devices": ""})).predicted == pytest.approx(
            only(judge(tmp_path, plain)).predicted
        )


def test_a_median_gap_holds_no_prefill(tmp_path: Path) -> None:
    load = {"phase": "e2e", "input_len": "2048", "output_len": "64", "batch_or_concurrency": "32"}
    row = DECODE | load | {"engine": "vllm", "tokens_per_s": "", "tpot_ms": "20"}
    mean, median = (only(judge(tmp_path, row | {"notes": n})) for n in ("", "p50 TTFT/ITL"))
    assert median.predicted < mean.predicted


def test_times_are_read_in_milliseconds(tmp_path: Path) -> None:
    timed = LOADED | {"batch_or_concurrency": "8", "ttft_ms": "100", "tpot_ms": "20"}
    found = {row.quantity: row for row in judge(tmp_path, timed).rows}
    assert set(found) == {"tokens_per_second", "ttft_seconds", "tpot_seconds"}
    assert found["ttft_seconds"].measured == pytest.approx(0.1)
    assert found["tpot_seconds"].measured == pytest.approx(0.02)


def test_a_rate_derived_from_the_first_token_counts_once(tmp_path: Path) -> None:
    kind = "prefill (derived B*input_len/TTFT)"
    row = only(judge(tmp_path, PREFILL | {"tokens_kind": kind, "ttft_ms": "265"}))
    assert row.quantity == "ttft_seconds"


def test_memory_is_judged_only_where_it_is_a_need(tmp_path: Path) -> None:
    def quantities(**change: str) -> list[str]:
        return [row.quantity for row in judge(tmp_path, DECODE | change).rows]

    assert "peak_bytes" in quantities(mem_used_gb="6.5")
    assert "peak_bytes" not in quantities(mem_used_gb="21.6", engine="vLLM 0.12")
    assert "peak_bytes" not in quantities(mem_used_gb="21.6", notes="includes preallocated cache")
    assert "peak_bytes" not in quantities(mem_used_gb="65")  # more than the card has
    assert "peak_bytes" not in quantities(mem_used_gb="6.5", model="Unknown-8B")


def test_anomalies_and_speculation_are_shown_but_not_scored(tmp_path: Path) -> None:
    odd = only(judge(tmp_path, DECODE | {"notes": "ANOMALY in source: prefill rises"}))
    assert (odd.group, odd.scored) == ("XiongjieDai (anomaly)", False)
    plain = only(judge(tmp_path, DECODE)).predicted
    for said, least, tokens in (
        ("ngram; draft=None; k=4; acceptance=0.45", 1.0, 2.8),
        ("EAGLE-3; acceptance length 3.1", 1.0, 3.1),
        # Four passes of 1B in 16 bits are as long as one of 8B in 4: they may not pay.
        ("draft model; draft=Llama-3.2-1B; k=4; acceptance=0.6", 0.8, 3.4),
        ("mtp; draft=None; k=None; acceptance=None", 1.0, 1.87),
    ):
        row = only(judge(tmp_path, DECODE | {"speculative": said}))
        assert (row.group, row.scored) == ("XiongjieDai (speculative)", False)
        # Drafts and their verification take time.
        assert least * plain < row.predicted < tokens * plain


def test_the_profile_is_asked_for_by_engine(tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []

    def profiles(chip: Accelerator, framework: str, source: str = "") -> Profile:
        asked.append((chip.name, framework))
        return from_datasheet(chip)

    table = read_table(write(tmp_path / "runs.csv", [DECODE, PREFILL, LOADED]))
    inference_findings(table, profiles)
    assert asked == [("RTX 3090", "llama.cpp"), ("H100-SXM5-80GB", "trt-llm")]
    assert framework_of("SGLang 0.5") == "sglang"
    assert framework_of("MLX") == "mlx"
    assert framework_of("gpt-fast (torch.compile)") == "gpt-fast"


@pytest.mark.parametrize(
    ("said", "memory", "name"),
    [
        ("H100 SXM 80GB", 80.0, "H100-SXM5-80GB"),
        ("h200_sxm", None, "H200-SXM-141GB"),
        ("NVIDIA A100 PCIe 40GB", None, "A100-PCIe-40GB"),
        ("A100", 40.0, "A100-SXM4-40GB"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", None, "RTX 4070 Ti SUPER"),
        ("RTX PRO 6000 Blackwell SE 96GB", 96.0, "RTX PRO 6000 Server"),
        ("MI250X (1 GCD) 64GB", 64.0, "MI250X"),
        ("Apple M2 Ultra 76-core 192GB", 192.0, "M2 Ultra"),
        ("DGX Spark GB10 128GB", 128.0, "GB10"),
        ("Tesla P40 24GB", 24.0, "P40"),
        ("Radeon RX 7900 XTX", None, "RX 7900 XTX"),
    ],
)
def test_chips_are_found_by_what_people_call_them(
    said: str, memory: float | None, name: str
) -> None:
    assert chip_of(said, memory).name == name


def test_cores_memory_and_form_come_from_the_row() -> None:
    whole, cut = chip_of("Apple M1 Max 32-core 64GB"), chip_of("Apple M1 Max 24-core 32GB")
    assert cut.need("peak.fp16") == pytest.approx(0.75 * whole.need("peak.fp16"))
    assert cut.need("memory.bandwidth") == whole.need("memory.bandwidth")
    assert cut.need("memory.capacity") == 32e9
    assert cluster_of_cut(cut, 1).accelerator is cut
    assert chip_of("A100 80GB", 80.0, "PCIe, no NVLink").name == "A100-PCIe-80GB"
    assert chip_of("A100 80GB", 80.0, "").name == "A100-SXM4-80GB"


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "Llama-3.1-8B"),
        ("Qwen/Qwen3-235B-A22B-FP8", "Qwen3-235B-A22B"),
        ("gemma-3-4b-it-qat", "Gemma-3-4B"),
        ("TheBloke/Llama-2-13B-chat-AWQ", "Llama-2-13B"),
        ("bartowski/Meta-Llama-3.1-70B-Instruct-GGUF", "Llama-3.1-70B"),
        ("MiniMaxAI/MiniMax-M2.5", "MiniMax-M2"),
        ("Qwen3-Coder-30B-A3B-Instruct", "Qwen3-30B-A3B"),
    ],
)
def test_models_are_found_by_what_people_call_them(said: str, name: str) -> None:
    assert model_of(said).name == name


@pytest.mark.parametrize(
    ("parameters", "active"),
    [(0.5, 0.5), (1, 1), (8, 8), (27, 27), (70, 70), (405, 405), (30.5, 3.3), (235, 22), (671, 37)],
)
def test_a_stand_in_has_the_size_that_was_asked(parameters: float, active: float) -> None:
    model = stand_in(f"{parameters}-{active}", parameters * 1e9, active * 1e9)
    assert is_stand_in(model)
    assert model.parameter_count == pytest.approx(parameters * 1e9, rel=0.02)
    assert model.active_parameter_count == pytest.approx(active * 1e9, rel=0.02)


def test_a_stand_in_takes_its_size_from_row_or_name() -> None:
    assert model_of("Qwen3.5-397B-A17B").active_parameter_count == pytest.approx(17e9, rel=0.03)
    assert model_of("Gemma-4-12B-it", 12.0, 12.0).parameter_count == pytest.approx(12e9, rel=0.02)
    with pytest.raises(TrueflopsError, match="params_b"):
        model_of("zhipuai/GLM-9")


def test_weight_formats_are_found_by_what_people_call_them() -> None:
    dense, moe = read_model("Llama-3-8B"), read_model("GPT-OSS-20B")
    old, new = accelerator("A100"), accelerator("B200")

    def of(said: str, activations: str = "") -> list[str]:
        return [weight_format(said, activations, dense, chip) for chip in (old, new)]

    assert of("awq-int4") == of("GPTQ") == of("int4 g32") == ["int4", "int4"]
    assert of("GGUF Q4_K_M") == of("gguf-q4_k_m") == ["q4_k_m", "q4_k_m"]
    assert of("Q5_K") == ["q5_k_m", "q5_k_m"]
    assert of("exl3-6.0bpw-mcg") == ["6.00bpw", "6.00bpw"]
    assert of("fp8-static") == ["w8a16", "fp8"]
    assert of("nvfp4", "fp4") == ["nvfp4-weights", "nvfp4"]
    assert of("int8", "bf16") == ["w8a16", "w8a16"]
    assert of("int8-w8a8")[0] == "int8"
    assert of("GGUF F16") == of("") == ["bf16", "bf16"]
    assert weight_format("GGUF MXFP4", "", moe, new) == "gguf-mxfp4"
    assert weight_format("mxfp4", "", moe, new) == "mxfp4-experts"
    assert [cache_bits(said) for said in ("fp8", "q8_0/q8_0", "auto (BF16)", "")] == [
        8,
        8.5,
        16,
        16,
    ]


def test_formats_weigh_what_their_files_do() -> None:
    """GGUF files of Llama-3-8B: Q4_K_M 4.92 GB, Q8_0 8.54 GB; GPT-OSS-20B in MXFP4 12.1 GB."""
    for name, model, file_bytes in (
        ("q4_k_m", "Llama-3-8B", 4.92e9),
        ("q8_0", "Llama-3-8B", 8.54e9),
        ("gguf-mxfp4", "GPT-OSS-20B", 12.1e9),
    ):
        read = read_model(model)
        to, table = format_named(name), read.vocab * read.hidden
        dense = to.dense_bits or to.weight_bits
        routed = read.parameter_count - read.active_parameter_count
        experts = next((b.experts for b in read.blocks if b.experts), None)
        share = routed / (1 - experts.per_token / experts.count) if experts else 0.0
        rest = read.parameter_count - share - 2 * table
        bits = share * to.weight_bits + rest * dense + table * (to.head_bits + dense)
        assert bits / 8 == pytest.approx(file_bytes, rel=0.03)


def test_a_serving_point_gives_both_times(tmp_path: Path) -> None:
    found = judge_points(tmp_path, POINT)
    assert {row.quantity for row in found.rows} == {"ttft_seconds", "tpot_seconds"}
    assert {row.group for row in found.rows} == {"Llama-3.1-8B-Instruct-FP8 vllm"}
    tpot = next(row for row in found.rows if row.quantity == "tpot_seconds")
    assert 0.5 < tpot.predicted / tpot.measured < 2.0


def test_a_point_of_two_pools_is_read_in_any_spelling(tmp_path: Path) -> None:
    """Aiconfigurator's flags, its results' columns, and both pools alike by the usual ones."""
    pooled = POINT | {"mode": "disagg", "tp_size": "2"}
    alike = {"prefill_tp_size": "2", "decode_tp_size": "2", "prefill_num_workers": "1"}
    short = {"(p)tp": "2", "(d)tp": "2", "(p)workers": "1", "(d)workers": "1", "tp_size": "8"}
    more = {"decode_num_workers": "4"}
    rows = [pooled, pooled | alike, pooled | short, pooled | more]
    found = judge_points(tmp_path, *({k: r.get(k, "") for k in (pooled | alike | short | more)}
                                     | {"id": str(i)} for i, r in enumerate(rows)))  # fmt: skip
    assert not found.refused
    times = [row.predicted for row in found.rows if row.quantity == "tpot_seconds"]
    assert times[0] == times[1] == times[2] > times[3]  # more workers, smaller batches


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"mode": "disagg", "decode_tp_size": "0"}, "decode_tp_size is 0"),
        ({"isl": ""}, "isl is empty"),
        ({"batch_size": ""}, "batch_size is empty"),
        ({"batch_size": "many"}, "batch_size is not a number: 'many'"),
        ({"system": "z9000"}, "unknown accelerator"),
        ({"silicon_ttft_ms": "", "silicon_tpot_ms": ""}, "both empty"),
    ],
)
def test_a_serving_point_that_lacks_an_input_is_refused(
    tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    found = judge_points(tmp_path, POINT | change)
    assert not found.rows
    assert reason in found.refused[0].reason


def test_ranks_that_were_counted_twice_are_counted_once(tmp_path: Path) -> None:
    """A tp of 8 and an ep of 8 are eight ranks: one server, whichever way a table writes it."""
    moe = POINT | {"model_path": "deepseek-ai/DeepSeek-R1", "moe_ep_size": "8"}
    right = judge_points(tmp_path, moe | {"tp_size": "8", "moe_tp_size": "1"})
    twice = judge_points(tmp_path, moe | {"tp_size": "64", "moe_tp_size": "8"})
    assert [r.predicted for r in twice.rows] == [r.predicted for r in right.rows]
    assert [r.scored for r in (*right.rows, *twice.rows)] == [True, True, False, False]


def test_attention_data_parallelism_multiplies_the_batch(tmp_path: Path) -> None:
    moe = POINT | {"model_path": "deepseek-ai/DeepSeek-R1", "moe_ep_size": "8", "tp_size": "1"}
    spread = judge_points(tmp_path, moe | {"attention_dp_size": "8", "batch_size": "16"})
    assert not spread.refused
    fewer = judge_points(tmp_path, moe | {"attention_dp_size": "8", "batch_size": "2"})
    assert spread.rows[1].predicted > fewer.rows[1].predicted


def test_a_full_cache_makes_requests_wait(tmp_path: Path) -> None:
    """What runs is bounded by the cache; the others queue for whole requests."""
    few, many = (judge_points(tmp_path, POINT | {"batch_size": n}) for n in ("16", "20000"))
    (ttft, tpot), (late, slow) = few.rows, many.rows
    assert late.predicted > 100 * ttft.predicted
    assert slow.predicted < 100 * tpot.predicted


def test_scales_of_blocks_and_native_int4_are_told_apart() -> None:
    h200 = accelerator("H200")
    dense, kimi = read_model("Llama-3.1-8B"), read_model("Kimi-K2")
    assert weight_format("fp8_block", "", dense, h200) == "fp8_block"
    assert weight_format("fp8", "", dense, h200) == "fp8"
    assert weight_format("int4_wo", "", dense, h200) == "int4"
    assert weight_format("int4_wo", "", kimi, h200) == "int4-experts"


@pytest.mark.parametrize(
    ("name", "layers", "full", "billions"),
    [("Qwen3.6-27B", 64, 16, 27), ("Qwen3.5-9B", 32, 8, 9), ("Qwen3-Next-80B-A3B-FP8", 48, 12, 80)],
)
def test_a_hybrid_has_the_layers_that_are_published(
    name: str, layers: int, full: int, billions: float
) -> None:
    model = model_of(name)
    growing = [i for i in model.pattern if model.blocks[i].attention]
    assert (model.layers, len(growing)) == (layers, full)
    assert {attention.head_dim for attention in model.attentions} == {256}
    assert model.parameter_count == pytest.approx(billions * 1e9, rel=0.03)
