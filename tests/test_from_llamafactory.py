"""train --from: configs and flags of LLaMA-Factory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import trueflops as tf
from trueflops.cli import main
from trueflops.errors import BadInput
from trueflops.interop.launch import Found, read_launch

LORA = """\
### model
model_name_or_path: meta-llama/Llama-3.1-8B-Instruct
trust_remote_code: true

### method
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 16
lora_target: all

### dataset
dataset: identity,alpaca_en_demo
template: llama3
cutoff_len: 4096
max_samples: 1000
overwrite_cache: true

### train
per_device_train_batch_size: 2
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
num_train_epochs: 3.0
lr_scheduler_type: cosine
bf16: true
ddp_timeout: 180000000
resume_from_checkpoint: null
"""
FULL = LORA.replace(
    "finetuning_type: lora\nlora_rank: 16\nlora_target: all", "finetuning_type: full"
)
ZERO3 = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto"},
    "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"},
}
FSDP = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_offload_params: false
  fsdp_sharding_strategy: FULL_SHARD
mixed_precision: bf16
num_processes: 8
"""


def read(folder: Path, text: str, model: str = "Llama-3.1-8B", count: int = 8) -> Found:
    (folder / "a.yaml").write_text(text)
    return read_launch(folder / "a.yaml", tf.read_model(model), count)


def said(plan: Any, *names: str) -> tuple[Any, ...]:
    return tuple(plan[name] for name in names)


class TestPlans:
    def test_lora(self, tmp_path: Path) -> None:
        found = read(tmp_path, LORA)
        assert (found.tool, found.framework) == ("LLaMA-Factory", "trainer")
        assert said(found.plan, "adapters", "lora_rank", "lora_targets") == (
            "lora", 16, "all-linear",
        )  # fmt: skip
        # Frozen weights as narrow as products, adapters fp32; every layer is recomputed by default.
        assert said(found.plan, "parameter_dtype", "adapter_dtype", "optimizer", "recompute") == (
            "bf16", "fp32", "adamw", "full",
        )  # fmt: skip
        assert dict(found.workload) == {"seq": 4096, "global_batch": 128}
        assert found.notes == (
            "a.yaml: neither deepspeed nor fsdp: DDP is priced; where accelerate's config shares "
            "states, give the script that starts it",
            "a.yaml: no packing: every sequence is priced as long as cutoff_len, and shorter ones "
            "take less",
        )

    def test_all_weights_are_trained_in_fp32(self, tmp_path: Path) -> None:
        names = "adapters", "parameter_dtype", "gradient_dtype", "compute", "optimizer"
        assert said(read(tmp_path, FULL).plan, *names) == ("", "fp32", "fp32", "bf16", "adamw")
        pure = read(tmp_path, FULL.replace("bf16: true", "pure_bf16: true"))
        assert said(pure.plan, *names) == ("", "bf16", "bf16", "bf16", "adamw-bf16")
        wide = read(tmp_path, FULL.replace("bf16: true", "tf32: true"))
        assert said(wide.plan, *names) == ("", "fp32", "fp32", "tf32", "adamw")

    def test_qlora_lifts_nothing(self, tmp_path: Path) -> None:
        text = LORA + "quantization_bit: 4\nquantization_method: bnb\nlora_dropout: 0.1\n"
        found = read(tmp_path, text.replace("target: all", "target: q_proj,v_proj"), count=1)
        assert said(found.plan, "adapters", "residual_dtype", "lora_targets", "lora_dropout") == (
            "qlora", "bf16", "q,v", 0.1,
        )  # fmt: skip
        named = LORA.replace("meta-llama/Llama-3.1-8B-Instruct", "unsloth/llama-3-8b-bnb-4bit")
        assert read(tmp_path, named, count=1).plan["adapters"] == "qlora"

    def test_last_layers(self, tmp_path: Path) -> None:
        text = FULL.replace("type: full", "type: freeze\nfreeze_trainable_layers: 8")
        found = read(tmp_path, text)
        assert said(found.plan, "freeze_layers", "parameter_dtype") == (24, "bf16")
        assert any("line 9: the head (525 M parameters) is frozen" in n for n in found.notes)

    def test_kernels(self, tmp_path: Path) -> None:
        plan = read(tmp_path, LORA + "enable_liger_kernel: true\nflash_attn: fa2\n").plan
        assert said(plan, "implementation", "fused", "loss", "flash") == (
            "library", False, "chunked", True,
        )  # fmt: skip
        plan = read(tmp_path, LORA + "use_unsloth: true\n", count=1).plan
        assert said(plan, "lora_fused", "loss", "recompute", "offload_activations") == (
            True, "fused", "full", 1.0,
        )  # fmt: skip
        off = (
            "disable_gradient_checkpointing: true\nflash_attn: disabled\noptim: paged_adamw_8bit\n"
        )
        plan = read(tmp_path, LORA + off).plan
        assert said(plan, "recompute", "flash", "optimizer", "paged_states") == (
            "none", False, "adamw-8bit", True,
        )  # fmt: skip

    def test_defaults_are_named(self, tmp_path: Path) -> None:
        text = "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\ndo_train: true\ndataset: a\n"
        found = read(tmp_path, text, "Qwen3-8B", count=1)
        assert (found.workload["seq"], found.workload["global_batch"]) == (2048, 8)
        assert said(found.plan, "adapters", "lora_rank", "compute") == ("lora", 8, "bf16")
        assert found.notes[0] == (
            "a.yaml: finetuning_type lora, cutoff_len 2048, per_device_train_batch_size 8, "
            "gradient_accumulation_steps 1, bf16 False by LLaMA-Factory's own default"
        )

    def test_pretraining_packs(self, tmp_path: Path) -> None:
        notes = read(tmp_path, LORA.replace("stage: sft", "stage: pt"), count=1).notes
        assert any("packing: attention is priced over cutoff_len tokens" in note for note in notes)

    def test_steps(self, tmp_path: Path) -> None:
        assert read(tmp_path, FULL + "max_steps: 10\n").workload["tokens"] == 10 * 128 * 4096
        assert "tokens" not in read(tmp_path, FULL + "max_steps: -1\n").workload


class TestSharing:
    def test_deepspeed_from_the_root_of_a_repository(self, tmp_path: Path) -> None:
        folder = tmp_path / "examples/train_full"
        folder.mkdir(parents=True)
        (tmp_path / "examples/z3.json").write_text(json.dumps(ZERO3))
        found = read(folder, FULL + "deepspeed: examples/z3.json\n")
        assert (found.tool, found.framework) == ("LLaMA-Factory", "deepspeed")
        assert said(found.plan, "zero", "compute", "parameter_dtype", "micro_batch") == (
            3, "bf16", "bf16", 2,
        )  # fmt: skip
        assert found.workload["global_batch"] == 128
        assert not any("DDP" in note for note in found.notes)
        found = read(folder, LORA + "deepspeed: examples/z3.json\n")
        assert said(found.plan, "adapters", "adapter_dtype") == ("lora", "bf16")

    def test_batches_that_contradict_each_other(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "z3.json").write_text(json.dumps(ZERO3 | {"train_batch_size": 60}))
        with pytest.raises(BadInput, match="train_batch_size 60 is not micro-batch 2"):
            read(tmp_path, LORA + "deepspeed: z3.json\n")
        words = ["--on", "8xH100", "--from", str(tmp_path / "a.yaml"), "--global-batch", "64"]
        assert main(["train", "Llama-3.1-8B", *words]) == 0
        assert "LoRA rank 16" in capsys.readouterr().out

    def test_a_script_with_accelerates_config(self, tmp_path: Path) -> None:
        (tmp_path / "fsdp.yaml").write_text(FSDP)
        (tmp_path / "a.yaml").write_text(FULL)
        script = "accelerate launch --config_file fsdp.yaml \\\n  src/train.py a.yaml\n"
        (tmp_path / "run.sh").write_text(script)
        found = read_launch(tmp_path / "run.sh", tf.read_model("Llama-3.1-8B"), 8)
        assert (found.tool, found.framework) == ("LLaMA-Factory", "fsdp")
        assert said(found.plan, "zero", "dp_shard", "micro_batch") == (3, 8, 2)

    @pytest.mark.parametrize(
        "script",
        [
            "FORCE_TORCHRUN=1 llamafactory-cli train a.yaml\n",
            "llamafactory-cli train a.yaml per_device_train_batch_size=2 2>&1 | tee log\n",
            "torchrun --nproc_per_node 8 --nnodes 1 src/train.py --stage sft --do_train "
            "--model_name_or_path Llama-3.1-8B --finetuning_type lora --lora_rank 16 --bf16 "
            "--cutoff_len 4096 --per_device_train_batch_size 2 --gradient_accumulation_steps 8\n",
        ],
    )
    def test_scripts(self, tmp_path: Path, script: str) -> None:
        (tmp_path / "a.yaml").write_text(LORA)
        (tmp_path / "run.sh").write_text(script)
        found = read_launch(tmp_path / "run.sh", tf.read_model("Llama-3.1-8B"), 8)
        assert (found.tool, found.framework) == ("LLaMA-Factory", "trainer")
        assert said(found.plan, "adapters", "lora_rank", "micro_batch", "recompute") == (
            "lora", 16, 2, "full",
        )  # fmt: skip
        assert dict(found.workload) == {"seq": 4096, "global_batch": 128}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("stage: dpo", "line 28: stage is dpo; it may be pt or sft"),
        ("finetuning_type: oft", "finetuning_type is oft; it may be full, lora or freeze"),
        ("do_train: false", "line 28: it trains nothing where do_train is not true"),
        ("quantization_bit: 8", "line 28: quantization_bit changes what a step does"),
        ("quantization_bit: 3", "quantization_bit is 3; it may be 4"),
        ("quantization_bit: 4\nquantization_method: hqq", "quantization_method is hqq; it may be"),
        (
            "use_galore: true",
            "use_galore changes what a step does, and is not priced; leave it out",
        ),
        ("use_badam: true", "use_badam changes"),
        ("use_dora: true", "use_dora changes"),
        ("additional_target: embed_tokens", "additional_target changes"),
        ("pure_bf16: true", "line 25: pure_bf16 and bf16 are both true; leave one out"),
        ("lora_target: q_proj,my_proj", "line 28: lora_target is .* q_proj, k_proj"),
        ("flash_attn: fast", "flash_attn is fast; it may be auto, disabled, sdpa, fa2 or fa3"),
        ("optim: galore_adamw", "optim is galore_adamw; it may be"),
        ("finetuning_type: full\nquantization_bit: 4", "may be lora beside quantization_bit"),
        ("finetuning_type: freeze\nfreeze_trainable_layers: -2", "a number of last layers, from 1"),
        ("finetuning_type: freeze\nfreeze_trainable_modules: mlp", "it may be all"),
        (
            "model_name_or_path: x/Llama-3-8B-AQLM-2Bit",
            "line 28: model_name_or_path changes .* nam",
        ),
        ("per_device_train_batch_sise: 4", "did you mean per_device_train_batch_size"),
        ("deepspeed: z9.json", "line 28: no file z9.json"),
    ],
)
def test_refusals(tmp_path: Path, more: str, words: str) -> None:
    base = LORA
    if more.startswith("per_device"):
        base = base.replace("per_device_train_batch_size: 2\n", "")
    with pytest.raises(BadInput, match=words):
        read(tmp_path, f"{base}{more}\n")


def test_what_is_not_read_and_another_model(tmp_path: Path) -> None:
    notes = read(tmp_path, FULL + "upcast_layernorm: true\n", "Qwen3-8B").notes
    assert "a.yaml starts Llama-3.1-8B: the answer is of Qwen3-8B, as you asked for" in notes
    assert "a.yaml, line 26: upcast_layernorm is not read" in notes
