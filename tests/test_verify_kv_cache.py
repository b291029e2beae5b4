"""What engines print at start, read from a table and predicted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trueflops.records.tables import read_table
from trueflops.units import GIBI
from trueflops.verify.findings import Finding, Findings
from trueflops.verify.profiles import best_known
from trueflops.verify.recognise import reader_of, verify_tables
from trueflops.verify.serving.towers import tower_of

HEADER = (
    "id,source,engine,engine_version,model,weights_dtype,kv_dtype,accelerator,memory_gb,tp,pp,dp,"
    "ep,gpu_memory_utilization,max_model_len,max_num_batched_tokens,max_num_seqs,"
    "weights_gib_printed,non_torch_gib_printed,peak_activation_gib_printed,"
    "available_kv_gib_printed,kv_blocks_printed,block_size,kv_tokens_printed,"
    "max_concurrency_printed,notes\n"
)


Judge = Callable[..., Findings]


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    """Rows of such a table, predicted."""

    def judged(*rows: str) -> Findings:
        path = tmp_path / "starts.csv"
        path.write_text(HEADER + "\n".join(rows) + "\n")
        return verify_tables([read_table(path)], best_known)

    return judged


def _of(found: Findings, quantity: str) -> Finding:
    (row,) = [row for row in found.rows if row.quantity == quantity]
    return row


def test_a_table_is_known_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "starts.csv"
    path.write_text(HEADER + "a" + "," * HEADER.count(",") + "\n")
    reader = reader_of(read_table(path))
    assert reader is not None
    assert reader.what == "memory of engines at start"


def test_everything_that_is_printed_is_judged(judge: Judge) -> None:
    found = judge(
        "a,log,vllm,0.11.0,meta-llama/Llama-3.1-8B-Instruct,bf16,auto,H100-80GB,80,1,1,,,0.9,8192,"
        "8192,256,14.99,0.1,1.3,54.8,,,448000,54.7,"
    )
    assert not found.refused
    assert _of(found, "weight_bytes").error == pytest.approx(0.0, abs=0.01)
    assert _of(found, "kv_tokens").error == pytest.approx(0.0, abs=0.03)
    assert _of(found, "kv_bytes").measured == pytest.approx(54.8 * GIBI)
    assert _of(found, "working_bytes").error == pytest.approx(0.0, abs=0.1)
    assert all(row.covered and row.group == "vllm" for row in found.rows)


def test_blocks_are_tokens_and_a_total_in_the_notes_counts(judge: Judge) -> None:
    row = (
        "{0},log,vllm,0.7.3,meta-llama/Llama-3.1-8B,bf16,auto,24GB GPU,24,1,1,,,0.9,8192,,,,,,,"
        "1000,16,,,{1}"
    )
    small, large = judge(row.format("a", "total 21.95GiB"), row.format("b", "")).rows
    assert small.measured == 16000.0
    assert small.predicted < large.predicted


def test_what_the_row_sets_is_used(judge: Judge) -> None:
    row = "a,log,vllm,0.11.0,Llama-3.1-8B,bf16,{0},H100-80GB,80,1,1,,,{1},8192,,{2},,,,,,,400000,,"
    wide, narrow, less, fewer = (
        _of(judge(row.format(*each)), "kv_tokens").predicted
        for each in (("auto", 0.9, ""), ("fp8", 0.9, ""), ("auto", 0.5, ""), ("auto", 0.9, 8))
    )
    assert narrow == pytest.approx(2 * wide, rel=1e-3)
    assert less < wide < fewer  # fewer rows of logits leave more for the cache


def test_a_checkpoint_is_in_its_own_format_where_none_is_given(judge: Judge) -> None:
    found = judge(
        "a,log,sglang,0.5.3,deepseek-ai/DeepSeek-R1,,auto,H200,141,8,1,,,0.9,,,,80.0,,,,,,,,"
    )
    assert _of(found, "weight_bytes").error == pytest.approx(0.0, abs=0.02)


def test_encoders_are_weights_too(judge: Judge) -> None:
    tower = tower_of("Qwen/Qwen2.5-VL-7B-Instruct")
    assert tower is not None
    assert tower.language_model == "Qwen2.5-7B"
    assert tower_of("Qwen/Qwen2.5-7B-Instruct") is None
    row = "a,log,vllm,0.9.0,{0},bf16,auto,H100,80,1,1,,,0.9,4096,,,15.0,,,,,,,,"
    seeing, blind = (
        _of(judge(row.format(name)), "weight_bytes").predicted
        for name in ("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct")
    )
    assert seeing - blind == pytest.approx(2 * tower.parameters)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("a,log,vllm,,Somebody/Secret-7B,bf16,auto,H100,80,1,1,,,0.9,,,,,,,,,,1000,,", "KV heads"),
        ("a,log,vllm,,,bf16,auto,H100,80,1,1,,,0.9,,,,,,,,,,1000,,", "model is empty"),
        ("a,log,vllm,,Llama-3.1-8B,bf16,auto,unknown,,1,1,,,0.9,,,,,,,,,,1000,,", "accelerator"),
        ("a,log,vllm,,Llama-3.1-8B,bf16,auto,H100,80,1,1,,,0.9,,,,,,,,,,,,", "nothing that"),
        ("a,log,vllm,,Llama-3.1-8B,bf16,auto,H100,80,1,1,,,0.9,,,,,,,-1.44,,,,,", "nothing that"),
        ("a,log,vllm,,Llama-3.1-8B,bf16,auto,H100,80,x,1,,,0.9,,,,,,,,,,1000,,", "tp"),
    ],
)
def test_a_row_that_lacks_something_says_what(judge: Judge, row: str, reason: str) -> None:
    found = judge(row)
    assert not found.rows
    assert reason in found.refused[0].reason


def test_a_capped_pool_stands_apart(judge: Judge) -> None:
    found = judge(
        "a,log,sglang,0.4.3,Llama-3.1-8B,bf16,auto,H100,80,1,1,,,0.87,,,,,,,,,,10240,,"
        "pool capped by --max-total-tokens"
    )
    assert not found.rows[0].scored


@pytest.mark.parametrize(("share", "apart"), [("", True), ("0.88", False)])
def test_a_cache_that_the_default_share_cannot_hold_stands_apart(
    share: str, apart: bool, judge: Judge
) -> None:
    """51 GiB of weights and 18 of cache; SGLang's share of 16 ranks was 0.79 until 0.4.8: 63."""
    found = judge(
        f"a,log,sglang,0.4.6,deepseek-ai/DeepSeek-V3,fp8,auto,H100-80GB,80,16,1,16,,{share},,,,"
        ",,,17.99,,,274934,,dp attention"
    )
    assert bool(_of(found, "kv_bytes").about.apart) == apart
    assert apart or abs(_of(found, "kv_bytes").error) < 0.1


def test_a_checkpoint_may_ask_for_its_cache(judge: Judge) -> None:
    row = (
        "a,log,vllm,{0},nvidia/Llama-3.1-8B-Instruct-FP8,fp8,auto,H100,80,1,1,,,0.9,8192,,8,,,,,,,"
        "1,,"
    )
    before, after = (
        _of(judge(row.format(release)), "kv_tokens").predicted for release in ("0.13.0", "0.14.0")
    )
    assert after == pytest.approx(2 * before, rel=1e-3)


def test_dense_layers_of_sglang_stay_split_where_attention_is_not(judge: Judge) -> None:
    """Of DeepSeek-V3 on 16 ranks: three dense layers, 58 shared experts, and the head."""
    row = "a,log,{0},0.4.6,DeepSeek-V3,fp8,auto,H100,80,16,1,{1},,0.8,,,,50.0,,,,,,,,"
    whole, spread = (
        _of(judge(row.format("sglang", dp)), "weight_bytes").predicted for dp in ("", "16")
    )
    queries, values, output = 1536 * 128 * 192, 512 * 128 * 256, 128 * 128 * 7168
    attention = 61 * (queries + values + output)  # latents are on every rank in either case
    embedding = 2 * 129280 * 7168
    assert spread - whole == pytest.approx((attention + embedding) * 15 / 16, rel=0.01)


def test_engines_that_tensorrt_built_hold_tables_twice_and_a_decoders_buffers(judge: Judge) -> None:
    row = "a,log,trtllm,{0},Qwen2.5-0.5B,bf16,auto,RTX A4000,16,1,1,,,0.9,,,{1},0.9,,,,,,100000,,"
    old, new = (judge(row.format(release, 2048)) for release in ("0.15", "1.0"))
    table = 151936 * 896 * 2.0
    weights = [_of(found, "weight_bytes").predicted for found in (old, new)]
    assert weights[0] - weights[1] == pytest.approx(table, rel=0.01)
    less = _of(judge(row.format("0.15", 1024)), "kv_tokens").predicted
    held = (less - _of(old, "kv_tokens").predicted) * 24 * 2 * 128 * 2.0
    assert held == pytest.approx(0.9 * 1024 * 151936 * 27.0, rel=0.02)


def test_the_first_engine_tried_as_many_requests_as_images_fit(judge: Judge) -> None:
    """VLLM's trial pass of a model that sees: its encoder's pass, and few rows of logits."""
    row = "{0},log,vllm,0.7.3,{1},bf16,auto,A100-80GB,80,4,1,,,0.9,16384,16384,,,,1.6,,{2},,{3},,"
    seen = judge(row.format("a", "google/gemma-3-27b-it", "9000", ""))
    newer = judge(row.format("b", "google/gemma-3-27b-it", "", "144000"))
    picture = tower_of("google/gemma-3-27b-it")
    assert picture is not None
    assert picture.picture is not None
    images = 16384 // picture.picture.tokens
    assert images == 63
    working = float(_of(seen, "working_bytes").predicted)
    assert working == pytest.approx(picture.picture.bytes(63, 4))
    assert working < float(_of(newer, "working_bytes").predicted)  # 256 rows of logits


def test_an_encoder_holds_its_residual_and_the_wider_of_its_products() -> None:
    tower = tower_of("Qwen/Qwen2-VL-7B-Instruct")
    assert tower is not None
    assert tower.picture is not None
    assert tower.picture.patches == 4 * tower.picture.tokens
    assert tower.picture.bytes(2, 4) == 2 * 65536 * (2 * 1280 + 5120 / 4) * 2


def test_qwens_hybrids_see_and_hold_their_encoder(judge: Judge) -> None:
    row = "a,log,vllm,0.20,Qwen/{0},bf16,auto,H200,141,1,1,,,0.9,,,,50.0,,,,,,,,"
    held = _of(judge(row.format("Qwen3.6-27B")), "weight_bytes").predicted
    assert held == pytest.approx(2.0 * (26_895_998_464 + 0.58e9), rel=0.01)


def test_keys_that_ranks_share_are_counted_once(judge: Judge) -> None:
    row = "a,log,vllm,0.18,Qwen3-235B-A22B,bf16,auto,H200,141,8,1,,,0.9,,,,,,,,,,1000000,,{0}"
    alone = _of(judge(row.format("")), "kv_tokens").predicted
    spread = _of(judge(row.format("decode-context-parallel 2")), "kv_tokens").predicted
    assert spread == pytest.approx(2.0 * alone, rel=1e-4)  # 4 heads of keys on 8 ranks
    sglang = row.replace("vllm,0.18", "sglang,0.5.16").replace(",8,1,,,0.9,", ",8,1,2,,0.9,")
    assert judge(sglang.format("")).rows
    assert "of tp 4" in judge(sglang.format("dcp 2")).refused[0].reason
    for said, ways in (("-dcp 4", "1, 2"), ("DCP on", "1, 2")):
        found = judge(row.format(said))
        assert f"Qwen3-235B-A22B can have {ways}" in found.refused[0].reason


def test_what_cannot_be_told_is_refused(judge: Judge) -> None:
    row = "a,log,vllm,0.18,Qwen3-8B,bf16,auto,H200,141,8,1,,,0.9,,,,,,,,,,1000000,,{0}"
    narrow = row.replace("Qwen3-8B,bf16", "Qwen3.5-27B,{1}")
    assert judge(narrow.format("", "bf16")).rows
    assert "leaves wide" in judge(narrow.format("", "gptq")).refused[0].reason


def test_notes_say_which_engine_ran_and_how(judge: Judge) -> None:
    row = "a,log (2026-08-01),vllm,{0},{1},bf16,auto,{2},{3},1,1,,,0.9,{4},,,,,,30.0,{5},,{6},,{7}"

    def bytes_of(*cells: str) -> float:
        return float(_of(judge(row.format(*cells)), "kv_bytes").predicted)

    plain = ("0.27.1", "Llama-3.1-8B", "A100-80GB", "80", "8192", "", "400000")
    graphs = bytes_of(*plain, "--enforce-eager") - bytes_of(*plain, "")
    assert graphs == pytest.approx(0.64e9)  # the sampler decides, not what is uncompiled
    blocks = ("0.7.0", "Llama-3.1-8B", "A100-80GB", "80", "32768", "9000", "")
    assert bytes_of(*blocks, "V1 engine") > bytes_of(*blocks, "")  # no whole prompt is tried
    hybrid = ("0.24.0", "Qwen3.5-27B", "H200", "141", "131072", "", "800000")
    kept = [
        _of(judge(row.format(*hybrid, notes)), "kv_tokens").predicted
        for notes in ("", "--enable-prefix-caching", "--no-enable-prefix-caching")
    ]
    assert kept[0] == kept[2] > kept[1]


def test_vllm_prints_tokens_by_requests_since_0_20_1(judge: Judge) -> None:
    row = "a,log,vllm,{0},gemma-4-12b,bf16,auto,H100,80,1,1,,,0.9,131072,,,,,,,,,400000,,"
    by_block, by_request, later = (
        float(_of(judge(row.format(release)), "kv_tokens").predicted)
        for release in ("0.20.0", "0.20.1", "0.21.0")
    )
    # Layers with windows keep far less of a long request than their share of the blocks.
    assert by_request == later > 4.0 * by_block


def test_a_build_without_a_number_is_told_by_its_day(judge: Judge) -> None:
    row = "a,log ({0}),vllm,{1},Qwen3.5-27B,bf16,auto,H200,141,1,1,,,0.9,131072,,,,,,,,,800000,,"
    built = _of(judge(row.format("2026-08-17", "0.1.dev1+g4d2a68d64")), "kv_tokens")
    assert built.predicted == _of(judge(row.format("2026-08-17", "0.27.1")), "kv_tokens").predicted
    assert built.predicted != _of(judge(row.format("2026-06-01", "")), "kv_tokens").predicted


def test_a_card_without_a_name_is_of_the_vendor_that_is_said(judge: Judge) -> None:
    row = "a,log,vllm,0.11.0,gemma-3-27b,bf16,auto,{0},192,1,1,,,0.9,4096,,,,,,109.86,,,,,"
    amd, other = (
        float(_of(judge(row.format(said)), "kv_bytes").predicted)
        for said in ("AMD GPU (ROCm)", "192GB GPU")
    )
    assert amd > other  # an MI300X shows more of its 192 GB than a B200


def test_a_length_that_nobody_states_is_one_that_fits(judge: Judge) -> None:
    """VLLM's first engine tried whole prompts: the longest that has room, where the own has not."""
    row = "a,log,vllm,0.7.3,Mistral-7B,fp16,auto,A10G,24,1,1,,,0.9,{0},,,,,,,2050,16,,,"
    unstated, own, fits = (
        float(_of(judge(row.format(length)), "kv_tokens").predicted)
        for length in ("", 32768, 16384)
    )
    assert own < 32768
    assert own < unstated < fits


def test_engines_call_a_checkpoint_by_its_config_and_load_experts_as_they_are(judge: Judge) -> None:
    """DeepSeek-V4 says fp8, and its experts have four bits."""
    row = "a,x,sglang,,deepseek-ai/DeepSeek-V4-Pro,{},auto,H200,141,8,1,,,0.9,,,,100,,,,,,,,"
    said, released = judge(row.format("fp8"), row.format("auto")).rows
    assert said.predicted == released.predicted < 0.6 * 1.573e12 / 8


def test_metas_narrow_checkpoints_leave_attention_wide(judge: Judge) -> None:
    row = "a,x,vllm,0.6.0,{}Llama-3.1-405B-Instruct-FP8,fp8,auto,H100,80,8,1,,,,,,,57,,,,,,,,"
    theirs, others = judge(row.format("meta-llama/"), row.format("neuralmagic/")).rows
    attention = 126 * 16384 * (2 * 16384 + 2 * 1024) / 8
    gap = theirs.predicted - others.predicted
    assert gap == pytest.approx(attention, rel=0.01)
