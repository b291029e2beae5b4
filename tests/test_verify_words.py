"""Rows as strangers write them: the same run in other words is the same case."""

from __future__ import annotations

from typing import Any

import pytest

from trueflops.catalog.networks import noted_network
from trueflops.errors import UnknownName
from trueflops.predict.training.peaks import PeakKind
from trueflops.records.chips import chip_of
from trueflops.verify.cells import Missing, number
from trueflops.verify.profiles import best_known
from trueflops.verify.training.frameworks import framework_key, knows_framework
from trueflops.verify.training.model import read_run_model
from trueflops.verify.training.runs import Case, Predictor, read_case
from trueflops.verify.training.words import recomputation, recomputed_layers, sharing_stage

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
            ("TPU v5p-128", "TPU v5p"),
            ("Cloud TPU v5e-256", "TPU v5e"),
            ("v5litepod-256", "TPU v5e"),
            ("H100 80GB (PCIe)", "H100-PCIe-80GB"),
            ("MI250X GCD", "MI250X"),
            ("NVIDIA DGX Spark", "GB10"),
            ("NVIDIA_L40S", "L40S"),
            ("4xNVIDIA_L40S", "L40S"),
            ("A100×2 (a2-ultragpu-2g)", "A100-SXM4-80GB"),
            ("H200*8", "H200-SXM-141GB"),
            ("gpu A40, 46Gi, single gpu", "A40"),
            ("single H100 NVL node with 95GB VRAM", "H100-NVL-94GB"),
            ("NVIDIA H200-SXM5-141GB", "H200-SXM-141GB"),
            ("NVIDIA Blackwell GPU (B200-SXM-180GB)", "B200-SXM-180GB"),  # as MLPerf has it
            ("NVIDIA Blackwell GPU (GB200)", "GB200"),
            ("NVIDIA GeForce RTX 5090, 32607 MiB", "RTX 5090"),  # as nvidia-smi has it
            ("DGX Spark NVIDIA GB10 unified", "GB10"),
            ("A800x80G", "A800-SXM4-80GB"),
            ("L4 GPU with 24GB VRAM", "L4"),
        ],
    )
    def test_free_texts(self, said: str, name: str) -> None:
        assert chip_of(said).name == name

    @pytest.mark.parametrize(
        "said",
        ["RTX 4090 Laptop", "Jetson Xavier", "H100 and A100", "H100 or H200", "T4 v2", "L4 Ti"],
    )
    def test_words_that_make_it_another_chip_are_refused(self, said: str) -> None:
        with pytest.raises(UnknownName, match="column accelerator"):
            chip_of(said)

    def test_the_card_that_the_notes_name(self) -> None:
        for notes, name in (
            ("mean per GPU; card is A800-SXM4-80GB (NVLink 400 GB/s)", "A800-SXM4-80GB"),
            ("card is new", "A100-SXM4-80GB"),
            ("cards are 2 slots wide", "A100-SXM4-80GB"),
        ):
            assert case(notes=notes).cluster.accelerator.name == name, notes

    @pytest.mark.parametrize(
        ("cells", "name", "node"),
        [
            ({"accelerator": "p4d.24xlarge"}, "A100-SXM4-40GB", "p4d.24xlarge"),
            ({"accelerator": "g5.48xlarge (A10G)"}, "A10G", "g5.48xlarge"),
            ({"accelerator": "Atlas 800T A2 (910B)"}, "Ascend 910B", "Atlas-800T-A2"),
            ({"notes": "on p4de.24xlarge"}, "A100-SXM4-80GB", "p4de.24xlarge"),
            ({"notes": "as fast as on p5.48xlarge"}, "A100-SXM4-80GB", "DGX-A100-80GB"),
            (
                {"accelerator": "V100-32GB", "n_devices": "16", "notes": "1 DGX-2 node"}
                | {"dtype": "fp16", "global_batch": "16"},
                "V100-SXM2-32GB",
                "DGX-2",
            ),
            (
                {"accelerator": "DGX-2 (V100 32GB)", "n_devices": "16", "global_batch": "16"},
                "V100-SXM2-32GB",
                "DGX-2",
            ),
            ({"accelerator": "GH200-96GB", "notes": "Alps"}, "GH200-96GB", "Alps-GH200"),
            ({"accelerator": "GH200-96GB", "notes": "not an alp"}, "GH200-96GB", "GH200-x1"),
        ],
    )
    def test_the_machine_that_a_row_names(
        self, cells: dict[str, str], name: str, node: str
    ) -> None:
        where = case(**cells).cluster
        assert (where.accelerator.name, where.node_name) == (name, node)

    def test_modules_of_four_a_node_have_less_power(self) -> None:
        watts = [
            case(accelerator="GH200-96GB", notes=notes).cluster.accelerator.get("power.tdp")
            for notes in ("Alps", "")
        ]
        assert watts == [680.0, 1000.0]

    def test_nothing_of_something(self) -> None:
        with pytest.raises(Missing, match="n_devices is empty"):
            case(n_devices="1x0")
        some, none = (case(n_devices="16", global_batch="16", network=n) for n in ("", "8x0Gb"))
        assert some.cluster == none.cluster

    def test_a_network_stated_of_each_card(self) -> None:
        both = {"n_devices": "16", "global_batch": "16"}
        each, all_of_them = (
            case(network=said, **both).cluster.tiers[-1].bandwidth
            for said in ("400 Gbps per GPU", "8x400Gb")
        )
        assert each == all_of_them


class TestModels:
    @pytest.mark.parametrize(
        ("said", "name"),
        [
            ("LLaMA V2 7B", "Llama-2-7B"),
            ("GPT-J", "GPT-J-6B"),
            ("Nemotron-340B", "Nemotron-4-340B"),
            ("llama-30b", "LLaMA-33B"),
            ("BLOOM-7b1", "BLOOM-7.1B"),
            ("GPT-2 small", "GPT-2"),
            ("DeepSeek-V2-Lite 16B", "DeepSeek-V2-Lite"),
        ],
    )
    def test_free_texts(self, said: str, name: str) -> None:
        assert read_run_model({"model": said, "seq_len": "1024"}).name == name

    def test_a_number_more_is_another_model(self) -> None:
        """These were taken for Qwen2-7B, Qwen2-57B-A14B, Gemma-2-2B and StarCoder2-15B."""
        for said in ("Qwen-7B", "Qwen-14B"):
            with pytest.raises(Missing, match="layers is empty"):
                read_run_model({"model": said, "seq_len": "1024"})
        for said, own in (("gemma-2b", "Gemma-2B"), ("StarCoder", "StarCoder-15B")):
            assert read_run_model({"model": said, "seq_len": "1024"}).name == own


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
            ("OLMo-core", "olmo-core"),
            ("nanotron", "nanotron"),
            ("OpenRLHF", "deepspeed"),
            ("PyTorch FSDP2", "fsdp2"),
            ("PyTorch 2.6 FSDP2 + torch.compile", "fsdp2-compiled"),
            ("AXLearn", "maxtext"),
            ("fairseq", "fsdp"),
            ("LMFlow", "transformers"),
            ("Lightning Fabric", "plain"),
        ],
    )
    def test_free_texts(self, said: str, key: str) -> None:
        assert framework_key(said) == key
        assert knows_framework(said)

    def test_torchtitan_that_is_said_not_to_compile_runs_function_by_function(self) -> None:
        for compiled, key, written in (
            ("n", "torchtitan-eager", ("eager", "plain")),
            ("y", "torchtitan", ("library", "fused")),
            ("", "torchtitan", ("library", "fused")),
        ):
            found = case(framework="torchtitan", compiled=compiled)
            assert found.framework == key
            assert fields(found, "implementation", "loss") == written

    def test_prime_rl_keeps_all_weights_in_fp32_and_its_trainers_have_losses_of_their_own(
        self,
    ) -> None:
        said = {"framework": "prime-rl trainer (torchtitan-like, FSDP2)", "zero_or_fsdp": "FSDP2"}
        for notes, peft, loss in (
            ("SFT Full", "", "plain"),
            ("RL Full; RL loss without its rollout", "", "chunked"),
            ("RL LoRA(r=16); RL loss without its rollout", "lora", "chunked"),
        ):
            found = case(**said, notes=notes, peft=peft, dtype="bf16")
            assert found.framework == "prime-rl"
            assert fields(found, "parameter_dtype", "mixed", "loss") == ("fp32", "engine", loss)
            assert not peft or found.plan.lora_targets == "q,k,v,o,gate,up,down"
        assert case(framework="torchtitan", peft="lora").plan.parameter_dtype == "bf16"

    def test_nanogpt_keeps_wide_weights(self) -> None:
        for framework, weights in (("nanoGPT", "fp32"), ("PyTorch DDP", "bf16")):
            assert case(framework=framework, zero_or_fsdp="DDP").plan.parameter_dtype == weights

    def test_torchtune_trains_in_one_dtype(self) -> None:
        names = ("parameter_dtype", "gradient_dtype", "optimizer", "zero")
        assert fields(case(), *names) == ("bf16", "bf16", "adamw-bf16", 3)
        # Accelerate, which Hugging Face's Trainer runs under, lifts what FSDP shards to fp32.
        lifted = fields(case(framework="HF Trainer", zero_or_fsdp="FSDP"), *names)
        assert lifted == ("fp32", "fp32", "adamw", 3)

    def test_kernels_by_triton_replace_hugging_faces(self) -> None:
        for framework, model, implementation in (
            ("HF Trainer + Liger", "Llama-3.1-8B", "library"),
            ("Unsloth", "Llama-3.1-8B", "library"),
            ("TRL + FOAK kernels", "Llama-3.1-8B", "library"),
            ("HF Trainer", "Llama-3.1-8B", "eager"),
            ("HF Trainer + Liger", "GPT-2", "eager"),  # its norms are a kernel of PyTorch's
        ):
            found = case(framework=framework, model=model).plan.implementation
            assert found == implementation, (framework, model)

    def test_norms_of_flash_attn_are_a_librarys(self) -> None:
        notes = "FlashAttention 2, fused RMSNorm and rotary of flash-attn"
        for cells, written in (
            ({"framework": "HF Trainer", "notes": notes}, ("library", False)),
            ({"framework": "HF Trainer", "notes": "fused AdamW"}, ("eager", True)),
            ({"framework": "Megatron-Core", "notes": ""}, ("library", True)),
            ({"framework": "Megatron-Core", "notes": "no bias fusion"}, ("library", False)),
        ):
            found = fields(case(zero_or_fsdp="", **cells), "implementation", "fused")
            assert found == written, cells

    def test_scores_laid_out_by_plain_pytorch_are_functions(self) -> None:
        for framework, flash, written in (
            ("PyTorch (own code)", "y", "eager"),
            ("PyTorch", "n", "eager"),
            ("PyTorch", "y", "library"),
            ("PyTorch, torch.compile", "n", "library"),  # a compiler fuses what was written
        ):
            cells = {"framework": framework, "flash_attention": flash, "zero_or_fsdp": "DDP"}
            assert case(**cells).plan.implementation == written, cells

    def test_stages_of_zero_under_hugging_face_are_deepspeeds(self) -> None:
        for sharing, key in (
            ("ZeRO-2", "deepspeed"),
            ("ZeRO-3", "deepspeed"),
            ("ZeRO-3 (FSDP)", "transformers"),
            ("FSDP", "transformers"),
            ("", "transformers"),
        ):
            assert framework_key("HF Trainer", sharing=sharing) == key, sharing
        assert framework_key("Megatron-LM", sharing="ZeRO-1") == "megatron"

    def test_fsdp2_and_olmo_core_shard_wide_weights(self) -> None:
        for framework in ("PyTorch FSDP2", "PyTorch FSDP2 compiled"):
            wide = fields(case(framework=framework), "parameter_dtype", "mixed", "optimizer")
            assert wide == ("fp32", "engine", "adamw"), framework
        found = case(framework="OLMo-core").plan
        assert (found.gradient_dtype, found.implementation) == ("fp32", "compiled")
        assert found.has_master

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
            ("torchtune", "PagedAdamW8bit", "adamw-8bit-bf16", 2 * (1.0 + 4.0 / 256)),
            ("DeepSpeed", "optim adamw_8bit", "adamw-8bit", 4.0 + 2 * (1.0 + 4.0 / 256)),
            ("DeepSpeed", "optimizer adamw_torch_8bit", "adamw-8bit", 4.0 + 2 * (1.0 + 4.0 / 256)),
            ("torchtune", "8-bit weights", "adamw-bf16", 4.0),
            ("DeepSpeed", "optim paged_lion_8bit", "lion-8bit", 4.0 + (1.0 + 4.0 / 256)),
            ("DeepSpeed", "Lion, 2 million steps", "lion", 8.0),
            ("torchtune", "optimizer Adafactor", "adafactor-bf16", 0.0),
            ("DeepSpeed", "galore_adafactor, a million steps", "adamw", 12.0),
        ],
    )
    def test_moments_by_the_name_of_their_optimizer(
        self, framework: str, notes: str, optimizer: str, bytes_each: float
    ) -> None:
        plan = case(framework=framework, notes=notes).plan
        assert (plan.optimizer, plan.state_bytes) == (optimizer, bytes_each)

    @pytest.mark.parametrize(
        ("cells", "in_backward", "paged"),
        [
            ({"n_devices": "1", "global_batch": "1"}, True, True),
            ({"n_devices": "1", "global_batch": "4"}, False, True),  # gradients are added up
            ({"n_devices": "1", "global_batch": "1", "notes": "fused AdamW"}, False, False),
            ({"n_devices": "1", "global_batch": "1", "peft": "lora"}, False, False),
            ({}, False, False),
            ({"notes": "optimizer_in_bwd, paged_adamw_8bit"}, True, True),
            ({"framework": "HF Trainer", "notes": "LOMO"}, True, False),
        ],
    )
    def test_updates_in_the_backward(
        self, cells: dict[str, str], in_backward: bool, paged: bool
    ) -> None:
        found = fields(case(**cells), "update_in_backward", "paged_states")
        assert found == (in_backward, paged)

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

    def test_nemo_keeps_weights_of_per_tensor_fp8_in_fp8(self) -> None:
        for framework, dtype, model, peft, kept in (
            ("NeMo 24.12", "FP8", "Llama-3.1-8B", "", "fp8"),
            ("Megatron-Bridge", "FP8-CS", "Llama-3.1-8B", "", "fp8"),
            ("Megatron-Bridge", "MXFP8", "Llama-3.1-8B", "", "bf16"),
            ("Megatron-Bridge", "FP8 blockwise", "Llama-3.1-8B", "", "bf16"),
            ("Megatron-Bridge", "FP8", "Mixtral-8x7B", "", "bf16"),
            ("Megatron-Bridge", "FP8", "Llama-3.1-8B", "lora", "bf16"),
            ("Megatron-LM", "FP8", "Llama-3.1-8B", "", "bf16"),
        ):
            cells = {"framework": framework, "dtype": dtype, "model": model, "peft": peft}
            plan = case(accelerator="H100", zero_or_fsdp="", **cells).plan
            assert (plan.compute, plan.parameter_dtype) == ("fp8", kept), (framework, dtype, model)

    def test_automodel_sums_in_fp32_and_keeps_bf16(self) -> None:
        names = ("parameter_dtype", "gradient_dtype", "optimizer", "implementation")
        found = fields(case(framework="NeMo AutoModel"), *names)
        assert found == ("bf16", "fp32", "adamw-bf16", "library")

    def test_colossal_ai_and_paddle_keep_wide_copies(self) -> None:
        for framework in ("Colossal-AI", "PaddleNLP"):
            assert case(framework=framework, zero_or_fsdp="ZeRO-1").plan.has_master, framework

    def test_every_one_of_them_is_predicted(self) -> None:
        predictor = Predictor(best_known)
        for framework in (
            "torchtune", "torchtune compiled", "AutoModel", "Colossal-AI", "Paddle", "OLMo-core",
            "nanotron", "FSDP2 compiled",
        ):  # fmt: skip
            assert predictor.predict(case(framework=framework)).step.value > 0.0, framework


class TestWords:
    @pytest.mark.parametrize(
        ("said", "stage"),
        [
            ("zero3", 3), ("deepspeed stage 2", 2), ("sharding stage1", 1), ("hybrid_shard", 3),
            ("use_distributed_optimizer", 1), ("zero-offload", 2), ("ddp", 0), ("none", 0),
            ("ddp/dist-opt ()", 1), ("fsdp shard_grad_op", 2), ("pipeline", None), ("", None),
            ("deepspeed z3", 3), ("2", 2), ("no_shard", 0), ("unsharded", 0), ("p_os+g", 2),
            ("no zero", 0), ("without fsdp", 0),
            ("os+g+p", 3), ("fsdp2 (reshard_after_forward=false)", 2), ("mics 8", 3),
            ("zero++", 3), ("sharded ddp", 2), ("optimizer state sharding", 1),
            ("dp_replicate=2 dp_shard=4", 3), ("hybrid_shard_zero2", 2),
        ],
    )  # fmt: skip
    def test_sharing(self, said: str, stage: int | None) -> None:
        assert sharing_stage(said) == stage

    @pytest.mark.parametrize(
        ("said", "dtype"),
        [("FP32", "fp32"), ("bfloat16", "bf16"), ("half", "fp16"), ("fp32 (reduce)", "fp32")],
    )
    def test_gradients(self, said: str, dtype: str) -> None:
        """Capitals in this column ended in a traceback once."""
        found = case(grad_dtype=said)
        assert found.plan.gradient_dtype == dtype
        assert "gradient_dtype" in found.stated
        assert "gradient_dtype" not in case(grad_dtype="as usual").stated

    @pytest.mark.parametrize(
        ("said", "kind"),
        [
            ("DeepEP", "deduplicated"), ("HybridEP", "deduplicated"), ("flex", "deduplicated"),
            ("AllToAll", "all-to-all"), ("a2a", "all-to-all"), ("allgather", "all-to-all"),
        ],
    )  # fmt: skip
    def test_dispatch(self, said: str, kind: str) -> None:
        found = case(model="Mixtral-8x7B", framework="Megatron-LM", ep="8", dispatch=said)
        assert found.plan.dispatch == kind
        assert ("dispatch" in found.stated) == (said != "allgather")

    @pytest.mark.parametrize(
        ("task", "apart"),
        [
            ("pre-training", ""), ("training", ""), ("benchmark", ""), ("SFT", "SFT"),
            ("fine-tuning", "full fine-tune"), ("QLoRA SFT", "qlora"), ("RLHF", "RLHF"),
        ],
    )  # fmt: skip
    def test_tasks(self, task: str, apart: str) -> None:
        assert case(task=task).about.apart == apart

    def test_incomplete_rows(self) -> None:
        for said, apart in (("n", "incomplete"), ("no", "incomplete"), ("yes", ""), ("", "")):
            assert case(complete_for_sim=said).about.apart == apart, said

    @pytest.mark.parametrize(
        ("said", "kind"),
        [
            ("yes", "full"), ("gradient checkpointing", "full"), ("uniform", "full"),
            ("no checkpointing", "none"), ("off", "none"), ("per-op sac", "selective"),
            ("some", None), ("", None), ("ac", "full"), ("remat=full", "full"), ("all", "full"),
            ("minimal", "selective"), ("moe_act, layernorm", "selective"), ("w/o ac", "none"),
            ("nothing_saveable", "full"), ("unsloth", "full"), ("half the layers", "full"),
        ],
    )  # fmt: skip
    def test_recomputation(self, said: str, kind: str | None) -> None:
        assert recomputation(said) == kind

    @pytest.mark.parametrize(
        ("said", "layers"),
        [
            ("full, block 8", 8), ("8/32 layers", 8), ("8 of 32 layers", 8), ("num_layers=10", 10),
            ("every 2 layers", 16), ("selective 4", 8), ("half", 16), ("25%", 8), ("1/2", 16),
            ("full", None), ("full, uniform 4", None), ("recompute for 10 layers", 10),
        ],
    )  # fmt: skip
    def test_how_many_layers_are_recomputed(self, said: str, layers: int | None) -> None:
        assert recomputed_layers(said, 32) == layers
        assert case(recompute=said).plan.recompute == "full"
        assert case(recompute=said).plan.recompute_layers == (layers or float("inf"))

    @pytest.mark.parametrize(
        ("said", "shared"),
        [
            ("HSDP 2x4", 4), ("HSDP (replicate 2, shard 4)", 4), ("dp_replicate=2 dp_shard=4", 4),
            ("FSDP group 2", 2), ("MiCS 2", 2), ("FSDP", 8),
        ],
    )  # fmt: skip
    def test_how_many_share(self, said: str, shared: int) -> None:
        assert case(zero_or_fsdp=said).plan.dp_shard == shared

    @pytest.mark.parametrize(
        ("offload", "sharing", "optimizer", "parameters", "activations"),
        [
            ("cpu", "ZeRO-3", 1, 1, 0), ("cpu", "ZeRO-2", 1, 0, 0), ("y", "FSDP", 1, 1, 0),
            ("optimizer states", "ZeRO-3", 1, 0, 0), ("params", "ZeRO-3", 0, 1, 0),
            ("param+optimizer", "ZeRO-3", 1, 1, 0), ("activation", "FSDP", 0, 0, 1),
            ("", "ZeRO-3 + offload", 1, 1, 0), ("", "zero2_offload", 1, 0, 0),
            ("", "ZeRO-Offload", 1, 0, 0), ("no", "ZeRO-3", 0, 0, 0), ("", "ZeRO-3", 0, 0, 0),
            ("", "ZeRO-3 (no offload)", 0, 0, 0),
        ],
    )  # fmt: skip
    def test_offloading(
        self, offload: str, sharing: str, optimizer: int, parameters: int, activations: int
    ) -> None:
        plan = case(framework="DeepSpeed", offload=offload, zero_or_fsdp=sharing).plan
        found = (plan.offload_optimizer, plan.offload_parameters, plan.offload_activations)
        assert found == (optimizer, parameters, activations)
        assert plan.offload_to == "host"
        assert case(offload="nvme", zero_or_fsdp="ZeRO-3").plan.offload_to == "nvme"

    @pytest.mark.parametrize(
        ("said", "loss"),
        [
            ("Liger FLCE", "chunked"), ("cut cross entropy", "chunked"), ("chunked CE", "chunked"),
            ("TE fused", "fused"), ("flash-attn CE", "fused"), ("torch.compile", "fused"),
            ("torch", "plain"), ("not fused", "plain"), ("LinearCrossEntropy", "chunked"),
        ],
    )  # fmt: skip
    def test_losses(self, said: str, loss: str) -> None:
        assert case(loss_kernel=said).plan.loss == loss

    @pytest.mark.parametrize(
        ("said", "weights", "optimizer", "compute"),
        [
            ("bf16-mixed", "fp32", "adamw", "bf16"), ("bf16", "bf16", "adamw-bf16", "bf16"),
            ("bf16 (fp32 accumulate)", "bf16", "adamw-bf16", "bf16"),
            ("bf16 + fp32 master weights", "fp32", "adamw", "bf16"),
            ("bf16-true", "bf16", "adamw-bf16", "bf16"), ("half", "fp32", "adamw", "fp16"),
            ("16-mixed", "fp32", "adamw", "fp16"), ("32-true", "fp32", "adamw", "fp32"),
        ],
    )  # fmt: skip
    def test_precisions(self, said: str, weights: str, optimizer: str, compute: str) -> None:
        plan = case(framework="PyTorch DDP", zero_or_fsdp="", dtype=said).plan
        assert (plan.parameter_dtype, plan.optimizer, plan.compute) == (weights, optimizer, compute)

    @pytest.mark.parametrize(
        ("notes", "batch"),
        [
            ("grad accum steps = 8", 128), ("GAS=4", 64), ("num_microbatches=8", 128),
            ("gradient accumulation 4", 64), ("accumulated losses", 16),
        ],
    )  # fmt: skip
    def test_accumulation(self, notes: str, batch: int) -> None:
        found = case(global_batch="", micro_batch="2", notes=notes)
        assert found.workload.global_batch == batch

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
            ({"peak_kind": "cached"}, "reserved"),
            ({"peak_kind": "tensors"}, "allocated"),
            ({"framework": "LitGPT"}, "allocated"),
            ({"framework": "torchtitan"}, "reserved"),
            ({"framework": "Unsloth"}, "reserved"),
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
            ("400Gb (cards a node not printed)", None), ("RoCE 8x200", 1600), ("8*200Gb", 1600),
            ("RoCEv2 400Gbps x8", 3200), ("4xHDR200", 800), ("4 HDR NICs", 800),
            ("InfiniBand HDR, 8 NICs", 1600), ("10 Gigabit Ethernet", 10), ("Ethernet 10G", 10),
            ("12.5 GB/s", 100), ("8x40GB A100", None), ("DP 8x100", None), ("PCIe", None),
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
            ("peak_mem_gb_measured", "40960 MiB", 40.0), ("step_time_s", "350 ms", 0.35),
            ("step_time_s", "2.5 s/it", 2.5), ("seq_len", "8k", 8192.0), ("seq_len", "8K", 8192.0),
            ("n_devices", "2x8", 16.0), ("n_devices", "4 nodes x 8 GPUs", 32.0),
            ("n_devices", "16 (2 nodes)", 16.0), ("params_b", "125M", 0.125), ("tp", "TP2", 2.0),
            ("pp", "4-way", 4.0), ("vpp", "off", None), ("tp", "8 (SP)", 8.0),
            ("tokens_per_s_per_gpu", "3.4k", 3400.0), ("global_batch", "512 sequences", 512.0),
        ],
    )  # fmt: skip
    def test_cells(self, column: str, cell: str, value: float | None) -> None:
        assert number({column: cell}, column) == pytest.approx(value)

    def test_a_unit_of_something_else_is_refused(self) -> None:
        with pytest.raises(Missing, match="peak_mem_gb_measured is not a number"):
            number({"peak_mem_gb_measured": "40960 ms"}, "peak_mem_gb_measured")

    @pytest.mark.parametrize(
        ("said", "kernel"),
        [
            ("FlashAttention-2", "fa2"), ("FA-2", "fa2"), ("flash-attn 2.5.6", "fa2"), ("fa3", ""),
            ("FlashAttention v2", "fa2"), ("SDPA (flash)", "fa2"), ("TE fused attention", "cudnn"),
            ("FlexAttention", ""), ("sdpa", ""), ("memory efficient", "efficient"),
        ],
    )  # fmt: skip
    def test_kernels_of_attention(self, said: str, kernel: str) -> None:
        for column in ("attention_kernel", "flash_attention"):
            found = case(**{column: said}, year="2021")
            assert (found.attention, found.plan.flash) == (kernel, True), column

    def test_a_kernel_in_the_column_of_flash_attention(self) -> None:
        assert case(flash_attention="FA2").attention == "fa2"
        assert not case(flash_attention="eager").plan.flash
        assert case(flash_attention="y").plan.flash


@pytest.mark.parametrize(
    ("said", "compiled", "key"),
    [
        ("torchtitan", "", "torchtitan"),
        ("torchtitan", "y", "torchtitan"),
        ("torchtitan", "n", "torchtitan-eager"),
        ("Megatron-Core (GPTModel; own loop, torch AdamW)", "n", "megatron-core"),
        ("Megatron-Core 0.14", "n", "megatron"),
    ],
)
def test_who_did_not_compile_and_who_wrote_the_loop_ran_otherwise(
    said: str, compiled: str, key: str
) -> None:
    assert framework_key(said, "", compiled) == key
