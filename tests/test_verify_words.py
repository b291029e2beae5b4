"""Rows as strangers write them: the same run in other words is the same case."""

from __future__ import annotations

from typing import Any

import pytest

from trueflops.catalog.networks import noted_network
from trueflops.predict.peaks import PeakKind
from trueflops.records.chips import chip_of
from trueflops.verify.cells import Missing, number
from trueflops.verify.frameworks import framework_key, knows_framework
from trueflops.verify.profiles import best_known
from trueflops.verify.run_words import recomputation, sharing_stage
from trueflops.verify.training import Case, Predictor, read_case

GIBI = 2**30


def case(**cells: str) -> Case:
    row = {
        "model": "Llama-3.1-8B", "seq_len": "4096", "accelerator": "A100-80GB", "n_devices": "8",
        "dtype": "bf16", "micro_batch": "1", "global_batch": "8", "recompute": "full",
        "framework": "torchtune", "zero_or_fsdp": "FSDP2", "step_time_s": "1", "year": "2025",
    }  # fmt: skip
    return read_case({**row, **cells}, "a")


def fields(found: Case, *names: str) -> tuple[Any, ...]:
    return tuple(getattr(found.plan, name) for name in names)


class TestChips:
    @pytest.mark.parametrize(
        ("said", "name"),
        [
            ("A100 (40GB)", "A100-SXM4-40GB"),  # what stands in brackets was lost once
            ("8x A100-80GB", "A100-SXM4-80GB"),
            ("A100-SXM4-80GB x8", "A100-SXM4-80GB"),
            ("2x RTX 4090", "RTX 4090"),
            ("RTX 4090 (24GB)", "RTX 4090"),
            ("NVIDIA H100 Tensor Core GPUs", "H100-SXM5-80GB"),
            ("H100s", "H100-SXM5-80GB"),
            ("V100-16GB NVLink", "V100-SXM2-16GB"),
            ("V100S", "V100S-PCIe-32GB"),
            ("DGX-2 (V100 32GB)", "V100-SXM2-32GB"),
            ("TPU v5p-128", "TPU v5p"),
        ],
    )
    def test_free_texts(self, said: str, name: str) -> None:
        assert chip_of(said).name == name

    def test_the_card_that_the_notes_name(self) -> None:
        for notes, name in (
            ("mean per GPU; card is A800-SXM4-80GB (NVLink 400 GB/s)", "A800-SXM4-80GB"),
            ("card is new", "A100-SXM4-80GB"),
            ("cards are 2 slots wide", "A100-SXM4-80GB"),
        ):
            assert case(notes=notes).cluster.accelerator.name == name, notes


class TestFrameworks:
    @pytest.mark.parametrize(
        ("said", "key"),
        [
            ("torchtune", "torchtune"),
            ("torchtune + torch.compile", "torchtune-compiled"),
            ("torchtune (no compile)", "torchtune"),
            ("NeMo AutoModel", "automodel"),
            ("Colossal-AI", "colossal-ai"),
            ("PaddleNLP", "paddle"),
            ("GPT-NeoX", "megatron-deepspeed"),
            ("MindSpeed-LLM", "megatron"),
            ("FSDP-QLoRA", "transformers"),
            ("OneFlow", "usual"),
            ("Lightning Fabric", "plain"),
        ],
    )
    def test_free_texts(self, said: str, key: str) -> None:
        assert framework_key(said) == key
        assert knows_framework(said)

    def test_torchtune_trains_in_one_dtype(self) -> None:
        names = ("parameter_dtype", "gradient_dtype", "optimizer", "zero")
        assert fields(case(), *names) == ("bf16", "bf16", "adamw-bf16", 3)
        # Accelerate, which Hugging Face's Trainer runs under, lifts what FSDP shards to fp32.
        lifted = fields(case(framework="HF Trainer", zero_or_fsdp="FSDP"), *names)
        assert lifted == ("fp32", "fp32", "adamw", 3)

    def test_torchtunes_loss_came_in_2025(self) -> None:
        assert [case(year=year).plan.loss for year in ("2024", "2025")] == ["plain", "chunked"]
        assert case(loss_kernel="plain").plan.loss == "plain"

    def test_adapters_of_torchtune_and_automodel_are_as_wide_as_the_weights(self) -> None:
        names = ("adapter_dtype", "optimizer", "residual_dtype", "lora_rank")
        for framework in ("torchtune", "NeMo AutoModel"):
            for peft in ("lora", "qlora"):
                found = fields(case(framework=framework, peft=peft), *names)
                assert found == ("bf16", "adamw-bf16", "bf16", 8), (framework, peft)
        assert case(framework="NeMo AutoModel", peft="lora").plan.lora_targets == "all-linear"
        assert case(framework="NeMo 25.02", peft="lora").plan.lora_targets == "qkv"

    def test_deepspeed_overlaps_from_stage_3_on(self) -> None:
        for sharing, notes, overlaps in (
            ("ZeRO-2", "", False),
            ("ZeRO-3", "", True),
            ("ZeRO-2", "overlap_comm true", True),
            ("ZeRO-2", "overlap_comm: false", False),
        ):
            found = case(framework="DeepSpeed", zero_or_fsdp=sharing, notes=notes)
            assert found.plan.overlap is overlaps, (sharing, notes)

    @pytest.mark.parametrize(
        ("framework", "notes", "optimizer", "bytes_each"),
        [
            ("torchtune", "PagedAdamW8bit", "adamw-8bit-bf16", 2.0),
            ("DeepSpeed", "optim adamw_8bit", "adamw-8bit", 6.0),
            ("torchtune", "8-bit weights", "adamw-bf16", 4.0),
        ],
    )
    def test_moments_of_eight_bits(
        self, framework: str, notes: str, optimizer: str, bytes_each: float
    ) -> None:
        plan = case(framework=framework, notes=notes).plan
        assert (plan.optimizer, plan.state_bytes) == (optimizer, bytes_each)

    def test_nemos_recipes_interleave_from_four_stages_on(self) -> None:
        cells = {
            "n_devices": "16",
            "global_batch": "32",
            "zero_or_fsdp": "",
            "model": "Llama-2-13B",
        }
        for framework, pp, vpp, taken in (
            ("NeMo 24.12", "4", "", 10),
            ("NeMo 24.12", "4", "1", 1),
            ("NeMo 24.12", "2", "", 1),
            ("Megatron-Bridge / NeMo Container", "4", "", 1),
            ("Megatron-LM", "4", "", 1),
        ):
            found = case(framework=framework, pp=pp, vpp=vpp, **cells)
            assert found.plan.vpp == taken, (framework, pp, vpp)
            guesses = [g.taken for g in Predictor(best_known).guesses(found, found.plan)]
            assert ("vpp 10" in guesses) == (taken == 10)

    def test_automodel_sums_in_fp32_and_keeps_bf16(self) -> None:
        names = ("parameter_dtype", "gradient_dtype", "optimizer", "implementation")
        found = fields(case(framework="NeMo AutoModel"), *names)
        assert found == ("bf16", "fp32", "adamw-bf16", "library")

    def test_colossal_ai_and_paddle_keep_wide_copies(self) -> None:
        for framework in ("Colossal-AI", "PaddleNLP"):
            assert case(framework=framework, zero_or_fsdp="ZeRO-1").plan.has_master, framework

    def test_every_one_of_them_is_predicted(self) -> None:
        predictor = Predictor(best_known)
        for framework in ("torchtune", "torchtune compiled", "AutoModel", "Colossal-AI", "Paddle"):
            assert predictor.predict(case(framework=framework)).step.value > 0.0, framework


class TestWords:
    @pytest.mark.parametrize(
        ("said", "stage"),
        [
            ("zero3", 3), ("deepspeed stage 2", 2), ("sharding stage1", 1), ("hybrid_shard", 3),
            ("use_distributed_optimizer", 1), ("zero-offload", 2), ("ddp", 0), ("none", 0),
            ("ddp/dist-opt ()", 1), ("fsdp shard_grad_op", 2), ("pipeline", None), ("", None),
        ],
    )  # fmt: skip
    def test_sharing(self, said: str, stage: int | None) -> None:
        assert sharing_stage(said) == stage

    @pytest.mark.parametrize(
        ("said", "kind"),
        [
            ("yes", "full"), ("gradient checkpointing", "full"), ("uniform", "full"),
            ("no checkpointing", "none"), ("off", "none"), ("per-op sac", "selective"),
            ("some", None), ("", None),
        ],
    )  # fmt: skip
    def test_recomputation(self, said: str, kind: str | None) -> None:
        assert recomputation(said) == kind

    def test_what_is_not_understood_is_guessed_and_not_stated(self) -> None:
        stated = case(recompute="some", zero_or_fsdp="as usual").stated
        assert not {"recompute", "zero"} & stated
        assert {"recompute", "zero"} <= case(recompute="y", zero_or_fsdp="HYBRID_SHARD").stated

    @pytest.mark.parametrize(
        ("cells", "kind"),
        [
            ({"peak_kind": "max_memory_allocated"}, "allocated"),
            ({"peak_kind": "torch.cuda.max_memory_reserved"}, "reserved"),
            ({"peak_kind": "nvidia-smi"}, "device"),
            (
                {"notes": "mem = torch max_memory_allocated; nvidia-smi shows 3 GiB more"},
                "allocated",
            ),
            ({"notes": "8 active experts on each device"}, "device"),
            ({"framework": "LitGPT"}, "allocated"),
            ({"framework": "torchtitan"}, "reserved"),
            ({"framework": "torchtitan", "peak_kind": "device"}, "device"),
        ],
    )
    def test_which_bytes_a_peak_counts(self, cells: dict[str, str], kind: PeakKind) -> None:
        assert case(peak_mem_gb_measured="40", **cells).peak_kind == kind

    def test_litgpt_prints_decimal_gigabytes(self) -> None:
        cells = {"framework": "LitGPT", "peak_mem_gb_measured": "40"}
        assert case(**cells).peak_bytes == 40e9
        assert case(**cells, notes="42.9 GB printed, GiB here").peak_bytes == 40 * GIBI
        assert case(peak_mem_gb_measured="40").peak_bytes == 40 * GIBI

    @pytest.mark.parametrize(
        ("text", "gigabits"),
        [
            ("8×200Gb", 1600), ("8x HDR InfiniBand", 1600), ("4 x IB EDR", 400), ("25GbE", 25),
            ("100 Gbit Ethernet", 100), ("3.2 Tbps EFA", 3200), ("8x80GB", None),
            ("400Gb (cards a node not printed)", None),
        ],
    )  # fmt: skip
    def test_networks(self, text: str, gigabits: float | None) -> None:
        assert noted_network(text) == (pytest.approx(gigabits * 1e9 / 8) if gigabits else None)

    @pytest.mark.parametrize(
        ("column", "cell", "value"),
        [
            ("memory_gb", "80GB", 80.0), ("params_b", "7B", 7.0), ("step_time_s", "~1.2 s", 1.2),
            ("n_devices", "8 GPUs", 8.0), ("seq_len", "4,096", 4096.0), ("vpp", "none", None),
            ("micro_batch", "n/a", None), ("memory_gb", "nan", None), ("tp", "unknown", None),
        ],
    )  # fmt: skip
    def test_cells(self, column: str, cell: str, value: float | None) -> None:
        assert number({column: cell}, column) == value

    def test_a_unit_of_another_size_is_refused(self) -> None:
        with pytest.raises(Missing, match="peak_mem_gb_measured is not a number"):
            number({"peak_mem_gb_measured": "40960 MiB"}, "peak_mem_gb_measured")

    def test_a_kernel_in_the_column_of_flash_attention(self) -> None:
        assert case(flash_attention="FA2").attention == "fa2"
        assert not case(flash_attention="eager").plan.flash
        assert case(flash_attention="y").plan.flash
