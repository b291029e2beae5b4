"""train --from: configs of axolotl."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import trueflops as tf
from trueflops.cli import main
from trueflops.errors import BadInput
from trueflops.interop.launch import Found, read_launch

FULL = """\
base_model: meta-llama/Llama-3.1-8B
plugins:
  - axolotl.integrations.liger.LigerPlugin
  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin
liger_rope: true
liger_rms_norm: true
liger_glu_activation: true
strict: false
datasets:
  - path: mlabonne/FineTome-100k
    type: chat_template
    split: train[:20%]
    message_property_mappings:
      role: from
  - path: another/one
dataset_prepared_path: last_run_prepared
sequence_len: 4096
sample_packing: true
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 1
optimizer: adamw_torch_fused
lr_scheduler: cosine
learning_rate: 2e-5
bf16: true
tf32: false
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: false
attn_implementation: flash_attention_2
chat_template_jinja: |
  {% for message in messages %}{{ message }}
  {% endfor %}
special_tokens:
  pad_token: <|finetune_right_pad_id|>
wandb_project:
"""
LORA = """\
base_model: NousResearch/Meta-Llama-3.1-8B
adapter: lora
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_modules: [q_proj, v_proj, down_proj]
sequence_len: 2048
sample_packing: true
micro_batch_size: 1
gradient_accumulation_steps: 8
optimizer: adamw_bnb_8bit
bf16: auto
gradient_checkpointing: true
"""
FSDP2 = """\
fsdp_version: 2
fsdp_config:
  offload_params: false
  auto_wrap_policy: TRANSFORMER_BASED_WRAP
  transformer_layer_cls_to_wrap: LlamaDecoderLayer
  state_dict_type: FULL_STATE_DICT
  reshard_after_forward: true
"""


def read(folder: Path, text: str, model: str = "Llama-3.1-8B", count: int = 8) -> Found:
    (folder / "a.yaml").write_text(text)
    return read_launch(folder / "a.yaml", tf.read_model(model), count)


def said(plan: Any, *names: str) -> tuple[Any, ...]:
    return tuple(plan[name] for name in names)


class TestPlans:
    def test_full_fine_tuning(self, tmp_path: Path) -> None:
        found = read(tmp_path, FULL)
        assert (found.tool, found.framework) == ("axolotl", "trainer")
        assert said(found.plan, "micro_batch", "recompute", "dp_replicate", "zero") == (
            2, "full", 8, 0,
        )  # fmt: skip
        assert said(found.plan, "loss", "implementation", "fused") == ("chunked", "library", False)
        # Loaded as narrow as products are, and torch.optim's moments with it.
        assert said(found.plan, "parameter_dtype", "gradient_dtype", "optimizer") == (
            "bf16", "bf16", "adamw-bf16",
        )  # fmt: skip
        assert dict(found.workload) == {"seq": 4096, "global_batch": 64}
        (note,) = found.notes
        assert "sample_packing: attention is priced over sequence_len tokens" in note

    def test_lora(self, tmp_path: Path) -> None:
        found = read(tmp_path, LORA, count=1)
        assert said(found.plan, "adapters", "lora_rank", "lora_targets", "lora_dropout") == (
            "lora", 32, "q,v,down", 0.05,
        )  # fmt: skip
        # axolotl turns its kernels on, PEFT keeps adapters in fp32.
        assert said(found.plan, "lora_fused", "adapter_dtype", "parameter_dtype", "optimizer") == (
            True, "fp32", "bf16", "adamw-8bit",
        )  # fmt: skip
        assert any("line 12: bf16 is auto, taken as true" in note for note in found.notes)

    def test_qlora_is_not_lifted(self, tmp_path: Path) -> None:
        text = LORA.replace("adapter: lora", "adapter: qlora\nload_in_4bit: true")
        text = text.replace("[q_proj, v_proj, down_proj]", "\nlora_target_linear: true")
        found = read(tmp_path, text + "lora_mlp_kernel: false\n", count=1)
        assert said(found.plan, "adapters", "residual_dtype", "lora_targets", "base_format") == (
            "qlora", "bf16", "all-linear", "nf4",
        )  # fmt: skip
        assert not found.plan.get("lora_fused")

    def test_defaults_are_named(self, tmp_path: Path) -> None:
        found = read(tmp_path, "base_model: meta-llama/Llama-3.1-8B\nsample_packing: true\n")
        assert dict(found.workload) == {"seq": 512, "global_batch": 8}
        assert found.plan["recompute"] == "none"
        assert found.notes[0] == (
            "a.yaml: sequence_len 512, micro_batch_size 1, gradient_accumulation_steps 1, "
            "optimizer adamw_torch_fused, gradient_checkpointing False by axolotl's own default"
        )

    @pytest.mark.parametrize(
        ("more", "fields"),
        [
            ("", ("fp32", "tf32", "fp32", "adamw")),  # tf32 is auto
            ("tf32: false\n", ("fp32", "fp32", "fp32", "adamw")),
            ("fp16: true\n", ("fp16", "fp16", "fp16", "adamw")),
        ],
    )
    def test_without_bf16(self, tmp_path: Path, more: str, fields: tuple[str, ...]) -> None:
        text = FULL.replace("bf16: true\ntf32: false", f"bf16: false\n{more}")
        text = text.replace(
            "  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n", ""
        )
        names = "parameter_dtype", "compute", "gradient_dtype", "optimizer"
        assert said(read(tmp_path, text).plan, *names) == fields

    @pytest.mark.parametrize(
        ("more", "recompute", "offload"),
        [
            ("gradient_checkpointing: unsloth", "full", 1.0),
            ("gradient_checkpointing: true\nactivation_offloading: true", "full", 1.0),
            ("gradient_checkpointing: true\nactivation_offloading: false", "full", None),
        ],
    )
    def test_activations_on_the_host(
        self, tmp_path: Path, more: str, recompute: str, offload: float | None
    ) -> None:
        found = read(tmp_path, FULL.replace("gradient_checkpointing: true", more))
        assert found.plan["recompute"] == recompute
        assert found.plan.get("offload_activations") in (offload, offload or 0.0)

    def test_offloaded_activations_of_adapters_are_not_made_again(self, tmp_path: Path) -> None:
        found = read(tmp_path, LORA + "activation_offloading: true\n")
        assert said(found.plan, "recompute", "offload_activations") == ("none", 1.0)

    def test_last_layers(self, tmp_path: Path) -> None:
        patterns = "unfrozen_parameters:\n  - model.layers.2[4-9]\n  - model.layers.3[01]\n"
        found = read(tmp_path, FULL + patterns)
        assert found.plan["freeze_layers"] == 24
        assert any("the head (525 M parameters) is frozen" in note for note in found.notes)
        found = read(tmp_path, FULL + patterns + "  - ^lm_head.weight$\n")
        assert not any("head" in note for note in found.notes)

    def test_a_pattern_of_modules(self, tmp_path: Path) -> None:
        pattern = r"'model.language_model.layers.[\d]+.(mlp|cross_attn|self_attn).(up|down|q)_proj'"
        found = read(tmp_path, LORA.replace("[q_proj, v_proj, down_proj]", pattern))
        assert found.plan["lora_targets"] == "q,up,down"


class TestSharing:
    def test_fsdp_2_with_degrees(self, tmp_path: Path) -> None:
        degrees = "tensor_parallel_size: 2\ncontext_parallel_size: 2\n"
        found = read(tmp_path, FULL + FSDP2 + degrees, count=16)
        assert found.framework == "fsdp2"
        assert said(found.plan, "tp", "cp", "dp_replicate", "dp_shard", "zero") == (2, 2, 1, 4, 3)
        assert said(found.plan, "parameter_dtype", "optimizer") == ("bf16", "adamw-bf16")
        assert found.workload["global_batch"] == 32

    def test_hybrid_shards(self, tmp_path: Path) -> None:
        found = read(tmp_path, FULL + FSDP2 + "dp_shard_size: 4\n", count=16)
        assert said(found.plan, "dp_replicate", "dp_shard") == (4, 4)

    def test_fsdp_1_widens_what_is_trained(self, tmp_path: Path) -> None:
        text = """\
fsdp:
  - full_shard
  - auto_wrap
fsdp_config:
  fsdp_offload_params: true
  fsdp_sync_module_states: true
"""
        found = read(tmp_path, FULL + text)
        assert found.framework == "fsdp"
        assert said(found.plan, "zero", "dp_shard", "offload_optimizer", "parameter_dtype") == (
            3, 8, 1.0, "fp32",
        )  # fmt: skip
        found = read(tmp_path, LORA + text)
        assert said(found.plan, "parameter_dtype", "adapter_dtype") == ("bf16", "fp32")
        assert not found.plan.get("lora_fused")  # its kernels know no FSDP 1

    def test_deepspeed_by_name(self, tmp_path: Path) -> None:
        (tmp_path / "deepspeed_configs").mkdir()
        config = {
            "zero_optimization": {"stage": 3, "overlap_comm": True},
            "bf16": {"enabled": True},
            "train_micro_batch_size_per_gpu": "auto",
            "gradient_accumulation_steps": "auto",
            "train_batch_size": "auto",
        }
        (tmp_path / "deepspeed_configs/zero3.json").write_text(json.dumps(config))
        for folder in (tmp_path, tmp_path / "examples"):  # and from the repository's root
            folder.mkdir(exist_ok=True)
            found = read(folder, FULL + "deepspeed: deepspeed_configs/zero3.json\n")
            assert (found.tool, found.framework) == ("axolotl", "deepspeed")
            assert said(found.plan, "zero", "dp_shard", "micro_batch", "loss", "optimizer") == (
                3, 8, 2, "chunked", "adamw",
            )  # fmt: skip
            assert found.workload["global_batch"] == 64
        with pytest.raises(BadInput, match=r"line 37: no file zero9.json beside it"):
            read(tmp_path, FULL + "deepspeed: zero9.json\n")

    def test_in_a_script_whose_flags_win(self, tmp_path: Path) -> None:
        (tmp_path / "a.yaml").write_text(FULL)
        script = "axolotl train a.yaml --micro-batch-size 4 --sequence-len=2048 2>&1 | tee log\n"
        (tmp_path / "run.sh").write_text(script)
        found = read_launch(tmp_path / "run.sh", tf.read_model("Llama-3.1-8B"), 8)
        assert (found.plan["micro_batch"], found.workload["seq"]) == (4, 2048)
        (tmp_path / "run.sh").write_text("accelerate launch -m axolotl.cli.train a.yaml\n")
        found = read_launch(tmp_path / "run.sh", tf.read_model("Llama-3.1-8B"), 8)
        assert (found.tool, found.plan["micro_batch"]) == ("axolotl", 2)


class TestNotes:
    def test_another_model(self, tmp_path: Path) -> None:
        found = read(tmp_path, FULL, "Qwen3-8B")
        assert found.notes[0] == (
            "a.yaml starts Llama-3.1-8B: the answer is of Qwen3-8B, as you asked for"
        )

    def test_what_is_not_read_is_said(self, tmp_path: Path) -> None:
        text = FULL.replace("sample_packing: true", "sample_packing: false") + "tiled_mlp: true\n"
        notes = read(tmp_path, text).notes
        assert "a.yaml, line 37: tiled_mlp is not read" in notes
        assert any("no sample_packing: every sequence is priced as long as" in n for n in notes)

    def test_liger_without_its_plugin(self, tmp_path: Path) -> None:
        found = read(tmp_path, FULL.replace("  - axolotl.integrations.liger.LigerPlugin\n", ""))
        assert found.plan["implementation"] == "eager"
        assert any("liger_rope does nothing without axolotl.integrations" in n for n in found.notes)

    def test_experts(self, tmp_path: Path) -> None:
        text = LORA.replace("adapter: lora", "adapter: qlora\nload_in_4bit: true")
        notes = " ".join(read(tmp_path, text, "Qwen3-30B-A3B").notes)
        assert "adapters of experts are priced" in notes
        assert "experts are priced as packed" in notes
        notes = " ".join(
            read(tmp_path, text + "quantize_moe_experts: true\n", "Qwen3-30B-A3B").notes
        )
        assert "packed in 4 bits" not in notes


@pytest.mark.parametrize(
    ("base", "more", "words"),
    [
        (LORA, "load_in_8bit: true", "line 14: load_in_8bit changes .* or adapter: qlora with"),
        (LORA, "load_in_4bit: true", "line 14: load_in_4bit is True; it may be false beside adap"),
        (LORA.replace("lora_r: 32\n", ""), "", "adapters of which rank. write lora_r: 16"),
        (LORA, "lora_modules_to_save: [embed_tokens]", "lora_modules_to_save changes what a step"),
        (LORA, "peft_use_dora: true", "peft_use_dora changes what a step does"),
        (LORA.replace("down_proj", "my_proj"), "", "line 6: lora_target_modules is .* q_proj, k_"),
        (LORA.replace("[q_proj, v_proj, down_proj]", "'model.layers.(1|2).self_attn.q_proj'"), "",
         "it may be layers by name"),
        (FULL, "load_in_4bit: true", "it may be false where there is no adapter"),
        (FULL, "rl: dpo", r"line 37: rl changes .* fine-tuning on texts is \(SFT, pre-training"),
        (FULL, "attn_implementation: sage", "line 37: attn_implementation is sage; it may be eag"),
        (FULL, "attn_implementation: [sdpa, eager]", "attn_implementation is sdpa eager; it may"),
        (FULL, "sage_attention: true", "sage_attention changes what a step does"),
        (FULL, "sdp_attention: true", "sdp_attention and attn_implementation name an attention"),
        (FULL, "context_parallel_size: 2", "it may be 1, or more beside fsdp_version: 2"),
        (FULL, "tensor_parallel_size: 2", "it may be 1, or more beside fsdp_version: 2"),
        (FULL + FSDP2, "deepspeed: ds.json", "deepspeed and fsdp share states both"),
        (FULL, "optimizer: adamw_torch_4bit", "line 37: optimizer is adamw_torch_4bit; it may be"),
        (FULL, "gradient_acumulation_steps: 2", "did you mean gradient_accumulation_steps"),
        (FULL, "qat:\n  weight_dtype: int8", "line 38: qat.weight_dtype changes what a step does"),
        (FULL, "unfrozen_parameters:\n  - model.layers.[0-9]\\.", "last layers as a whole"),
        (FULL, "unfrozen_parameters:\n  - '('", "last layers as a whole"),
        (FULL, "micro_batch_size: -2", "a whole number from 1 on"),
        (FULL, "expert_parallel_size: 4", "expert_parallel_size changes"),
        (FULL.replace("liger.LigerPlugin", "kd.KDPlugin"), "", "plugin KDPlugin trains otherwise"),
        (FULL.replace("meta-llama/Llama-3.1-8B", "x/Llama-3.1-8B-GPTQ"), "", "name the model itse"),
    ],
)  # fmt: skip
def test_refusals(tmp_path: Path, base: str, more: str, words: str) -> None:
    if more.startswith("gradient_acumulation"):
        base = base.replace("gradient_accumulation_steps: 4\n", "")
    with pytest.raises(BadInput, match=words):
        read(tmp_path, f"{base}{more}\n")


def test_as_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text(LORA + "lora_mlp_kernel: true\n")
    words = ["train", "Llama-3.1-8B", "--on", "1xA100-80GB", "--from", str(tmp_path / "a.yaml")]
    assert main(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "plan of a.yaml, read as axolotl's" in said
    assert "lora-fused" in said
    assert "LoRA rank 32 on q, v, down" in said
