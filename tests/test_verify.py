"""The judge: rows read as runs, predicted, scored; none lost, none crashing."""

from __future__ import annotations

import csv
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trueflops.catalog import accelerator
from trueflops.cli import main
from trueflops.errors import BadInput
from trueflops.profile import CurveKey, Profile, profile_of, write_profile
from trueflops.records.chips import chip_of
from trueflops.records.split import held_out
from trueflops.records.tables import read_table
from trueflops.verify.findings import Finding, Findings, TrainingRow
from trueflops.verify.profiles import best_known, profiles_from
from trueflops.verify.recognise import READERS, verify_tables
from trueflops.verify.score import overall, summary
from trueflops.verify.training.frameworks import framework_key
from trueflops.verify.training.measured import counted_flop
from trueflops.verify.training.model import read_run_model
from trueflops.verify.training.runs import Predictor, read_case
from trueflops.workload import Training

Row = dict[str, str]

COLUMNS = [
    "id",
    "source",
    "source_key",
    "year",
    "model",
    "params_b",
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "ffn",
    "vocab",
    "moe_experts",
    "moe_topk",
    "active_params_b",
    "head_dim",
    "seq_len",
    "accelerator",
    "memory_gb",
    "n_devices",
    "dtype",
    "tp",
    "pp",
    "vpp",
    "cp",
    "ep",
    "dp",
    "zero_or_fsdp",
    "micro_batch",
    "global_batch",
    "recompute",
    "flash_attention",
    "attention",
    "attention_kernel",
    "framework",
    "step_time_s",
    "step_time_derived_s",
    "tokens_per_s_per_gpu",
    "tok_s_gpu_derived",
    "tflops_per_gpu",
    "tflops_kind",
    "attn_flops_convention",
    "peak_mem_gb_measured",
    "task",
    "trust",
    "chk_flag",
    "complete_for_sim",
    "notes",
]

# Korthikanti et al. 2022 (arXiv 2205.05198), table 5: seconds of an iteration.
KORTHIKANTI = [
    ("22", 48, 6144, 64, 8, 1, 1, 4, 4, 1.42, 1.10),
    ("175", 96, 12288, 96, 8, 8, 3, 1, 64, 18.13, 13.75),
    ("530", 105, 20480, 128, 8, 35, 3, 1, 280, 49.05, 37.83),
    ("1000", 128, 25600, 160, 8, 64, 1, 1, 512, 94.42, 71.49),
]


def korthikanti() -> list[Row]:
    rows = []
    for size, layers, hidden, heads, tp, pp, vpp, micro, batch, full, selective in KORTHIKANTI:
        for kind, seconds in (("full", full), ("selective", selective)):
            plain = kind == "full"
            rows.append(
                blank(
                    id=f"gpt-{size}-{kind}",
                    source_key="korthikanti",
                    year="2022",
                    model=f"GPT-{size}B",
                    params_b=size,
                    layers=str(layers),
                    hidden=str(hidden),
                    heads=str(heads),
                    ffn=str(4 * hidden),
                    vocab="51200",
                    seq_len="2048",
                    accelerator="A100-80GB",
                    n_devices=str(tp * pp),
                    dtype="fp16",
                    tp=str(tp),
                    pp=str(pp),
                    vpp=str(vpp),
                    micro_batch=str(micro),
                    global_batch=str(batch),
                    recompute=kind,
                    flash_attention="n",
                    framework="Megatron-LM",
                    step_time_s=str(seconds),
                    notes="no sequence parallel" if plain else "sequence parallel",
                )
            )
    return rows


def blank(**cells: str) -> Row:
    return {column: cells.get(column, "") for column in COLUMNS}


def run_of(**cells: str) -> Row:
    """A small run with everything that is needed, and these cells instead."""
    usual = {
        "id": "a",
        "source_key": "somewhere",
        "model": "Llama-3.1-8B",
        "seq_len": "8192",
        "accelerator": "H100",
        "n_devices": "8",
        "global_batch": "8",
        "framework": "torchtitan",
        "tokens_per_s_per_gpu": "6000",
    }
    return blank(**{**usual, **cells})


def write(path: Path, rows: list[Row], columns: list[str] = COLUMNS) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def judge(path: Path, rows: list[Row], columns: list[str] = COLUMNS) -> Findings:
    return verify_tables([read_table(write(path / "runs.csv", rows, columns))], best_known)


class TestTraining:
    def test_published_runs_are_predicted_within_reason(self, tmp_path: Path) -> None:
        findings = judge(tmp_path, korthikanti())
        assert not findings.refused
        assert len(findings.rows) == 8
        assert all(abs(row.error) < 0.25 for row in findings.rows)

    def test_the_order_of_columns_changes_nothing(self, tmp_path: Path) -> None:
        mixed = random.Random(1).sample(COLUMNS, len(COLUMNS))
        assert judge(tmp_path, korthikanti()) == judge(tmp_path, korthikanti(), mixed)

    @pytest.mark.parametrize(
        ("cells", "reason"),
        [
            ({"accelerator": ""}, "accelerator is empty"),
            ({"accelerator": "Zorkmid 9000"}, "unknown accelerator"),
            ({"n_devices": ""}, "n_devices is empty"),
            ({"n_devices": "eight"}, "n_devices is not a number"),
            ({"n_devices": "8.5"}, "not a whole number"),
            ({"seq_len": ""}, "seq_len is empty"),
            ({"seq_len": "nan"}, "seq_len is empty"),
            ({"global_batch": ""}, "global_batch and micro_batch are empty"),
            ({"global_batch": "-8"}, "global_batch is not a number"),
            ({"tp": "3"}, "does not divide n_devices"),
            ({"pp": "8", "vpp": "1000000000"}, "more pieces than 32 layers"),
            ({"model": "unheard of"}, "layers is empty"),
            ({"layers": "999999999", "hidden": "64", "heads": "1"}, "layers"),
            ({"tokens_per_s_per_gpu": ""}, "nothing measured"),
        ],
    )
    def test_a_row_is_refused_with_its_reason(
        self, tmp_path: Path, cells: dict[str, str], reason: str
    ) -> None:
        findings = judge(tmp_path, [run_of(**cells), run_of(id="b")])
        assert [row.id for row in findings.rows] == ["b"]
        assert reason in findings.refused[0].reason

    def test_no_row_is_lost_and_none_crashes(self, tmp_path: Path) -> None:
        chance = random.Random(7)
        junk = ["", "", "0", "1", "7", "1e9", "-3", "x", "nan", "8", "4096", "FSDP 3", "ZeRO-9"]
        rows = []
        for i in range(150):
            row = run_of() if i % 2 else dict(chance.choice(korthikanti()))
            for column in chance.sample(COLUMNS[4:], 4):
                row[column] = chance.choice(junk)
            rows.append({**row, "id": str(i)})
        findings = judge(tmp_path, rows)
        seen = {row.id for row in findings.rows} | {row.id for row in findings.refused}
        assert seen == {row["id"] for row in rows}

    @pytest.mark.parametrize(
        ("cells", "group"),
        [
            ({}, "somewhere"),
            ({"source_key": "", "source": "a paper"}, "a paper"),
            ({"chk_flag": "odd"}, "somewhere (flagged)"),
            ({"trust": "C"}, "somewhere (trust C)"),
            ({"task": "LoRA"}, "somewhere (LoRA)"),
            ({"task": "pretrain (TTT)"}, "somewhere"),
            ({"complete_for_sim": "n"}, "somewhere (incomplete)"),
        ],
    )
    def test_doubtful_rows_are_shown_apart(self, cells: dict[str, str], group: str) -> None:
        case = read_case(run_of(**cells), "a")
        assert case.about.group == group
        assert bool(case.about.apart) == ("(" in group)

    def test_memory_is_judged_beside_time(self, tmp_path: Path) -> None:
        found = judge(tmp_path, [run_of(peak_mem_gb_measured="47.65")]).rows
        assert [row.quantity for row in found] == ["step_seconds", "peak_bytes"]
        assert found[1].measured == 47.65 * 2**30

    def test_memory_alone_needs_no_name_of_a_chip(self) -> None:
        memory = {"tokens_per_s_per_gpu": "", "peak_mem_gb_measured": "30"}
        unnamed, named = (
            read_case(run_of(**memory, accelerator=chip), "a") for chip in ("", "A100-80GB")
        )
        assert unnamed.cluster.accelerator == named.cluster.accelerator
        assert (unnamed.plan, unnamed.cluster.count) == (named.plan, named.cluster.count)


class TestReading:
    def test_times_come_from_the_best_cell(self) -> None:
        assert read_case(run_of(), "a").step_seconds == 8 * 8192 / (8 * 6000)
        assert read_case(run_of(step_time_derived_s="1.5"), "a").step_seconds == 1.5
        given = run_of(step_time_derived_s="1.5", step_time_s="2.5")
        assert read_case(given, "a").step_seconds == 2.5

    def test_a_rate_becomes_a_time_by_the_formula_of_its_source(self) -> None:
        """Narayanan et al. 2021: 96·B·s·l·h²·(1 + s/6h + V/16lh) flop, recomputation included."""
        row = korthikanti()[2]
        model, workload = read_run_model(row), Training(2048, 64, 1.0)
        batch, s, l_, h, v = 64, 2048, 96, 12288, 51200
        paper = 96 * batch * s * l_ * h**2 * (1 + s / (6 * h) + v / (16 * l_ * h))
        counted = counted_flop(model, workload, causal=False, recomputed=True)
        assert counted == pytest.approx(paper, rel=1e-3)

    @pytest.mark.parametrize(
        ("said", "zero", "shard"),
        [
            ("FSDP FULL_SHARD", 3, 64),
            ("FSDP SHARD_GRAD_OP", 2, 64),
            ("HSDP", 3, 8),
            ("FSDP 16", 3, 16),
            ("FSDP2 degree 8", 3, 8),
            ("FSDP 8 intra-node + DP", 3, 8),
            ("ZeRO-1 group 4", 1, 4),
            ("ZeRO-1 group all DP", 1, 64),
            ("DDP/dist-opt (FSDP=0)", 1, 64),
            ("DP", 0, 1),
            ("No", 0, 1),
            ("", 3, 64),
        ],
    )
    def test_sharding_texts(self, said: str, zero: int, shard: int) -> None:
        row = run_of(n_devices="64", global_batch="64", zero_or_fsdp=said)
        plan = read_case(row, "a").plan
        assert (plan.zero, plan.dp_shard, plan.dp) == (zero, shard, 64)

    @pytest.mark.parametrize(
        ("said", "compute"),
        [
            ("", "bf16"),
            ("amp_bf16", "bf16"),
            ("bf16 autocast+fp32 optimizer", "bf16"),
            ("fp16", "fp16"),
            ("FP8-CS", "fp8"),
            ("mxfp8_cublas", "fp8"),
            ("NVFP4", "fp8"),
            ("float8 rowwise", "fp8"),
            ("fp32", "fp32"),
        ],
    )
    def test_dtype_texts(self, said: str, compute: str) -> None:
        assert read_case(run_of(dtype=said), "a").plan.compute == compute

    @pytest.mark.parametrize(
        ("said", "gigabytes", "chip"),
        [
            ("A100-80GB", 0, "A100-SXM4-80GB"),
            ("A100", 40, "A100-SXM4-40GB"),
            ("NVIDIA H100 PCIe", 80, "H100-PCIe-80GB"),
            ("H100-80GB-SXM", 80, "H100-SXM5-80GB"),
            ("TPU v6e (Trillium)", 32, "TPU v6e"),
            ("B200 (power limited)", 0, "B200-SXM-180GB"),
            ("AMD Instinct MI300X", 192, "MI300X"),
            ("Trainium1 NeuronCore-v2 (2 cores/chip)", 0, "Trainium1"),
        ],
    )
    def test_chip_texts(self, said: str, gigabytes: float, chip: str) -> None:
        assert chip_of(said, gigabytes or None).name == chip

    def test_cores_are_counted_as_chips(self) -> None:
        core = "Trainium1 NeuronCore-v2 (2 cores/chip)"
        case = read_case(run_of(accelerator=core, n_devices="64", tp="8", framework="Neuron"), "a")
        assert case.cluster.count == 32
        assert (case.plan.tp, case.plan.dp) == (4, 8)
        assert case.step_seconds == 8 * 8192 / (64 * 6000)

    def test_autocast_over_wide_weights(self) -> None:
        cells = {"framework": "PyTorch DDP + torch.compile", "dtype": "bf16"}
        plain = read_case(run_of(**cells), "a").plan
        said = read_case(run_of(**cells, notes="autocast bf16 over fp32 weights; AdamW"), "a").plan
        assert (plain.parameter_dtype, plain.optimizer) == ("bf16", "adamw-bf16")
        assert (said.parameter_dtype, said.optimizer) == ("fp32", "adamw")
        assert said.autocasts
        assert said.gradient_dtype == "fp32"

    def test_the_notes_may_name_the_kernel_and_the_year_tells_what_torch_chose(self) -> None:
        cells = {"framework": "transformers", "accelerator": "H100", "dtype": "bf16"}
        for said, kernel in (
            ({"year": "2025"}, "fa2"),
            ({"year": "2026"}, ""),
            ({"year": "2025", "framework": "NeMo"}, ""),  # which has kernels of its own
            ({"year": "2026", "notes": "SFT; attention FA2; random data"}, "fa2"),
            ({"year": "2025", "notes": "attention FA3"}, ""),
            ({"year": "2025", "notes": "attention FA3", "attention": "fa2"}, "fa2"),
        ):
            assert read_case(run_of(**{**cells, **said}), "a").attention == kernel

    def test_attention_texts(self) -> None:
        for said, flash, kernel in (
            ("", True, ""),
            ("GQA", True, ""),
            ("flash", True, "fa2"),
            ("Flash_Attention_2", True, "fa2"),
            ("cuDNN", True, "cudnn"),
            ("sdpa", True, ""),
            ("eager", False, ""),
        ):
            case = read_case(run_of(attention=said, flash_attention="y"), "a")
            assert (case.plan.flash, case.attention) == (flash, kernel), said
        assert read_case(run_of(attention_kernel="fa2", flash_attention="n"), "a").plan.flash

    def test_a_named_release_of_torch_says_which_attention_it_takes(self) -> None:
        for framework, kernel in (
            ("PyTorch 2.4.1 DDP + torch.compile", "fa2"),
            ("PyTorch 2.5.0 DDP", "cudnn"),
            ("torch 2.5.1", "fa2"),
            ("PyTorch 2.11 DDP", "cudnn"),
            ("PyTorch DDP", ""),
        ):
            row = run_of(framework=framework, flash_attention="y")
            assert read_case(row, "a").attention == kernel, framework
            assert read_case({**row, "attention": "sdpa"}, "a").attention == "", framework

    def test_a_named_release_of_transformers_says_whether_it_writes_scores_out(self) -> None:
        for framework, flash in (
            ("HF Trainer, transformers 4.31.0", False),
            ("HF Trainer, transformers==4.36", True),
            ("HF Trainer", True),
        ):
            assert read_case(run_of(framework=framework, year="2024"), "a").plan.flash is flash
        asked = run_of(framework="HF Trainer, transformers 4.34", flash_attention="y")
        assert read_case(asked, "a").plan.flash

    def test_a_loss_inside_of_a_compiled_model_is_fused(self) -> None:
        row = run_of(framework="PyTorch DDP + torch.compile", loss_kernel="plain")
        assert read_case(row, "a").plan.loss == "plain"
        row |= {"source": "KellerJordan/modded-nanogpt records/x", "notes": "autocast bf16"}
        assert read_case(row, "a").plan.loss == "fused"

    def test_nanogpt_trains_without_dropout_and_compiles_its_loss(self) -> None:
        row = run_of(
            model="GPT-2", layers="", hidden="", heads="", kv_heads="", ffn="", vocab="",
            params_b="", framework="nanoGPT (torch.compile)", source="karpathy/nanoGPT README.md",
        )  # fmt: skip
        case = read_case(row, "a")
        assert case.plan.loss == "fused"
        assert case.model.blocks[0].dropout == case.model.blocks[0].attention_dropout == 0.0
        eager = read_case({**row, "framework": "nanoGPT", "compiled": "n"}, "a")
        assert (eager.framework, eager.plan.loss) == ("plain", "plain")
        other = read_case({**row, "source": "", "framework": "PyTorch DDP"}, "a")
        assert other.model.blocks[0].dropout

    def test_torchtitan_compiles_its_loss_in_some_releases(self) -> None:
        page = "torchao docs/source/workflows/training.md @36027d82d1"
        for chip, loss in (("H100", "plain"), ("B200 (power limited)", "fused")):
            row = run_of(framework="torchtitan + torchao", accelerator=chip, source=page)
            assert read_case(row, "a").plan.loss == loss, chip

    def test_a_script_that_names_the_stage_alone_does_not_overlap(self) -> None:
        page = "deepspeedai/DeepSpeedExamples training/autotuning/hf/README.md @45b4b7156c"
        for framework, sharing, overlaps in (
            ("HF Trainer + DeepSpeed", "ZeRO-1", False),
            ("HF Trainer DDP", "DDP", True),
        ):
            row = run_of(framework=framework, source=page, zero_or_fsdp=sharing)
            assert read_case(row, "a").plan.overlap is overlaps, framework

    def test_a_script_whose_model_packs_its_projections(self) -> None:
        page = 'QwenLM/Qwen README.md "Profiling of Memory and Speed" @2df8e8ac45'
        plain, packed = (read_case(run_of(source=said), "a").model for said in ("", page))
        assert [m.attentions[0].packed for m in (plain, packed)] == [False, True]
        assert packed.attentions[0].qkv_bias

    def test_compiled_litgpt_reads_no_mask(self) -> None:
        assert framework_key("LitGPT + Lightning Thunder (sdpa)", compiled="y") == "compiled"
        assert framework_key("LitGPT / Fabric, eager", compiled="n") == "transformers"
        assert framework_key("HF Trainer", compiled="y") == "transformers-compiled"

    def test_a_stated_kernel_is_the_one_that_runs(self) -> None:
        cells = {"framework": "Megatron-LM", "seq_len": "32768", "global_batch": "8"}
        predictor = Predictor(best_known)
        best, flash = (
            predictor.predict(read_case(run_of(attention=said, **cells), "a"))
            for said in ("sdpa", "flash")
        )
        assert flash.step.value > best.step.value  # a Hopper runs faster ones than that

    def test_how_context_is_split(self) -> None:
        for notes, kind in (
            ("", "ring"),
            ("context parallel mode p2p", "ring"),
            ("context parallel mode a2a", "all-to-all"),
            ("DeepSpeed Ulysses", "all-to-all"),
        ):
            assert read_case(run_of(notes=notes), "a").plan.cp_kind == kind, notes

    def test_the_network_of_the_notes_is_used(self) -> None:
        row = run_of(accelerator="A100", n_devices="16", global_batch="16", notes="4x100Gb RoCE")
        assert read_case(row, "a").cluster.tiers[-1].bandwidth == pytest.approx(50e9 / 8)

    def test_torchtitan_runs_on_its_own_h100(self) -> None:
        assert read_case(run_of(), "a").cluster.accelerator.name == "H100-SXM5-96GB-HBM2e"
        other = read_case(run_of(framework="Megatron-LM"), "a")
        assert other.cluster.accelerator.name == "H100-SXM5-80GB"
        rented = read_case(run_of(notes="4 x p5.48xlarge"), "a")
        assert rented.cluster.accelerator.name == "H100-SXM5-80GB"

    def test_maxtext_trains_without_dropout(self) -> None:
        """A GPT's config.json leaves it to a library's default, which MaxText does not have."""
        gpt = {"model": "GPT-3-175B"}
        assert read_run_model(gpt, "megatron").blocks[0].attention_dropout
        kept = read_run_model(gpt, "maxtext").blocks[0]
        assert kept.dropout == kept.attention_dropout == 0.0

    def test_structure_follows_from_the_parameter_count(self) -> None:
        shape = {"model": "x", "layers": "32", "hidden": "4096", "heads": "32", "vocab": "32000"}
        gated = read_run_model(blank(**shape, ffn="11008", params_b="6.74"))
        plain = read_run_model(blank(**shape, ffn="16384", params_b="6.57"))
        assert [b.ffn.gated for b in (*gated.blocks, *plain.blocks) if b.ffn] == [True, False]
        assert (gated.tied, plain.tied) == (False, True)
        experts = read_run_model(
            blank(
                **shape, kv_heads="8", ffn="14336", moe_experts="8", moe_topk="2", params_b="46.7"
            )
        )
        assert experts.parameter_count == pytest.approx(46.7e9, rel=0.01)

    @pytest.mark.parametrize(
        ("said", "key"),
        [
            ("Megatron-Bridge / Megatron-Core 26.04 NeMo Container", "nemo"),
            ("Primus/Megatron-LM", "megatron"),
            ("Megatron-DeepSpeed", "megatron-deepspeed"),
            ("LLM Foundry/Composer FSDP", "composer"),
            ("torchtitan + torchao", "torchtitan"),
            ("Paxml (JAX)", "maxtext"),
            ("NeMo Megatron Neuron 2.18.0", "neuron"),
            ("something new", "plain"),
        ],
    )
    def test_framework_texts(self, said: str, key: str) -> None:
        assert framework_key(said) == key


VTRAIN = (
    "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,"
    "tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)\n"
)


def test_vtrain_rows(tmp_path: Path) -> None:
    file = tmp_path / "vtrain.csv"
    file.write_text(
        VTRAIN + "4,32,4,2048,16,24,1024,1,4,1,531.36\n8,8,1,1024,16,24,1024,1,1,2,100\n"
    )
    findings = verify_tables([read_table(file)], best_known)
    assert [(row.id, row.group) for row in findings.rows] == [
        ("vtrain-4-32-4-2048-16-24-1024-1-4-1", "vtrain")
    ]
    assert abs(findings.rows[0].error) < 0.5
    assert "is not # GPUs 8" in findings.refused[0].reason


def finding(source: str, measured: float, predicted: float, *, apart: str = "") -> Finding:
    low, high = predicted * 0.9, predicted * 1.1
    about = TrainingRow(source, 1024, 24, "plain", apart)
    return Finding("f", "i", about, "step_seconds", measured, predicted, low, high)


def test_scores_of_known_numbers() -> None:
    rows = [finding("a", 1.0, 1.05), finding("a", 1.0, 0.75), finding("b", 2.0, 2.0)]
    rows.append(finding("c", 1.0, 9.0, apart="flagged"))
    a, b, apart = summary(Findings(rows))
    assert (a.group, a.rows, b.group, apart.group) == ("a", 2, "b", "c (flagged)")
    assert a.mape == pytest.approx(0.15)
    assert a.median == pytest.approx(0.15)
    assert a.p90 == pytest.approx(0.23)
    assert a.bias == pytest.approx(-0.10)
    assert a.coverage == 0.5
    (whole,) = overall(Findings(rows))
    assert (whole.groups, whole.rows) == (2, 3)
    assert whole.macro_mape == pytest.approx(0.075)
    assert whole.median == pytest.approx(0.05)
    assert whole.coverage == pytest.approx(2 / 3)


def test_one_row_in_five_is_held_out() -> None:
    kept = [held_out(f"row-{i}") for i in range(5000)]
    assert 0.17 < sum(kept) / len(kept) < 0.23
    assert [held_out(f"row-{i}") for i in range(5000)] == kept


def test_an_unknown_header_names_the_known_ones(tmp_path: Path) -> None:
    file = tmp_path / "odd.csv"
    file.write_text("colour,taste\nred,sweet\n")
    with pytest.raises(BadInput) as caught:
        verify_tables([read_table(file)], best_known)
    for reader in READERS:
        assert reader.columns[0] in str(caught.value)


def test_software_of_which_nothing_is_known_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = ["Megatron-LM", "PyTorch DDP", "BMTrain", "BMTrain", ""]
    rows = [run_of(id=f"run-{i}", framework=name) for i, name in enumerate(said)]
    found = judge(tmp_path, rows)
    assert [tuple(unknown) for unknown in found.unknown_software] == [
        ("BMTrain", "plain", 2),
        ("(none named)", "plain", 1),
    ]
    assert main(["verify", str(write(tmp_path / "runs.csv", rows))]) == 0
    assert "no settings are known of" in capsys.readouterr().out


class TestCommand:
    def ask(self, capsys: pytest.CaptureFixture[str], *words: str) -> str:
        assert main(["verify", *words]) == 0
        return capsys.readouterr().out

    def test_json(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        file = write(tmp_path / "runs.csv", [*korthikanti(), run_of(seq_len="")])
        answer: dict[str, Any] = json.loads(self.ask(capsys, str(file), "--json"))
        assert list(answer) == [
            "schema_version", "rows", "refused", "unknown_software", "summary", "overall"
        ]  # fmt: skip
        row = ["file", "id", "group", "quantity", "measured", "predicted", "low", "high", "error"]
        assert list(answer["rows"][0]) == row
        assert list(answer["refused"][0]) == ["file", "id", "reason"]
        score = ["group", "quantity", "rows", "mape", "median", "p90", "bias", "coverage"]
        assert list(answer["summary"][0]) == score
        whole = ["quantity", "groups", "rows", "macro_mape", "median", "p90", "coverage"]
        assert list(answer["overall"][0]) == whole
        assert len(answer["rows"]) + len(answer["refused"]) == 9
        first = answer["rows"][0]
        assert first["error"] == pytest.approx(first["predicted"] / first["measured"] - 1)

    def test_table(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        file = write(tmp_path / "runs.csv", [*korthikanti(), run_of(seq_len="", trust="C")])
        said = self.ask(capsys, str(file))
        for word in ("korthikanti", "MAPE", "bias", "step_seconds", "1 row refused", "seq_len"):
            assert word in said

    def test_held_out(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        rows = [run_of(id=f"row-{i}") for i in range(60)]
        file = write(tmp_path / "runs.csv", rows)
        answer = json.loads(self.ask(capsys, str(file), "--held-out", "--json"))
        assert {row["id"] for row in answer["rows"]} == {
            row["id"] for row in rows if held_out(row["id"])
        }

    def test_a_profile_of_ones_own(self, tmp_path: Path) -> None:
        usual_curve = profile_of(accelerator("A100")).curve("memory")
        slower_memory = {name: 0.5 * value for name, value in usual_curve.values.items()}
        file = tmp_path / "slow.json"
        curves = {CurveKey("memory"): replace(usual_curve, values=slower_memory)}
        write_profile(Profile("slow", accelerator("A100").name, curves), file)
        table = read_table(write(tmp_path / "runs.csv", korthikanti()))
        usual = verify_tables([table], best_known).rows
        slower = verify_tables([table], profiles_from(str(file))).rows
        assert all(b.predicted > a.predicted for a, b in zip(usual, slower, strict=True))


def test_a_table_of_which_no_row_can_be_judged_is_answered_no(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["verify", str(write(tmp_path / "runs.csv", [run_of(seq_len="")]))]) == 1
    assert "1 row refused" in capsys.readouterr().out
