"""train --from: configs of torchtune's recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trueflops as tf
from trueflops.errors import BadInput
from trueflops.interop.launch import Found, read_launch

FULL = """\
output_dir: /tmp/full
model:
  _component_: torchtune.models.llama3_1.llama3_1_8b
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  max_seq_len: 4096
dataset:
  _component_: torchtune.datasets.alpaca_cleaned_dataset
  packed: True  # increases speed
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
  checkpoint_files: [
    model-00001-of-00002.safetensors,
    model-00002-of-00002.safetensors
  ]
  output_dir: ${output_dir}
batch_size: 2
epochs: 1
optimizer:
  _component_: torch.optim.AdamW
  fused: True
  lr: 2e-5
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
max_steps_per_epoch: 100
clip_grad_norm: null
compile: False
optimizer_in_bwd: False
gradient_accumulation_steps: 4
device: cuda
enable_activation_checkpointing: True
enable_activation_offloading: False
dtype: bf16
profiler:
  _component_: torchtune.training.setup_torch_profiler
  enabled: False
"""
LORA = FULL.replace(
    "llama3_1.llama3_1_8b\n",
    """llama3_1.lora_llama3_1_8b
  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']
  apply_lora_to_mlp: True
  apply_lora_to_output: False
  lora_rank: 8
""",
)


def read(folder: Path, text: str, model: str = "Llama-3.1-8B", count: int = 8) -> Found:
    (folder / "a.yaml").write_text(text)
    return read_launch(folder / "a.yaml", tf.read_model(model), count)


def said(plan: Any, *names: str) -> tuple[Any, ...]:
    return tuple(plan[name] for name in names)


def test_full_fine_tuning(tmp_path: Path) -> None:
    found = read(tmp_path, FULL)
    assert (found.tool, found.framework, found.notes) == ("torchtune", "torchtune", ())
    assert said(found.plan, "micro_batch", "recompute", "zero", "dp_shard") == (2, "full", 3, 8)
    assert said(found.plan, "loss", "parameter_dtype", "optimizer", "compute") == (
        "chunked", "bf16", "adamw-bf16", "bf16",
    )  # fmt: skip
    assert dict(found.workload) == {"seq": 4096, "global_batch": 64, "tokens": 100 * 64 * 4096}
    assert read(tmp_path, FULL, count=1).plan["zero"] == 0


def test_one_device_with_little_memory(tmp_path: Path) -> None:
    text = FULL.replace("torch.optim.AdamW", "bitsandbytes.optim.PagedAdamW8bit")
    text = text.replace("in_bwd: False", "in_bwd: True").replace("steps: 4", "steps: 1")
    found = read(tmp_path, text.replace("offloading: False", "offloading: True"), count=1)
    assert said(found.plan, "update_in_backward", "paged_states", "optimizer") == (
        True, True, "adamw-8bit-bf16",
    )  # fmt: skip
    assert found.plan["offload_activations"] == 1.0


def test_compiled(tmp_path: Path) -> None:
    found = read(tmp_path, FULL.replace("compile: False", "compile: True"))
    assert (found.framework, found.plan["implementation"]) == ("torchtune-compiled", "compiled")


def test_adapters(tmp_path: Path) -> None:
    found = read(tmp_path, LORA, count=1)
    assert said(found.plan, "adapters", "lora_rank", "lora_targets", "adapter_dtype") == (
        "lora", 8, "q,v,o,gate,up,down", "bf16",
    )  # fmt: skip
    found = read(tmp_path, LORA.replace(".lora_", ".qlora_"), count=1)
    assert said(found.plan, "adapters", "residual_dtype") == ("qlora", "bf16")


def test_lengths_that_nobody_says(tmp_path: Path) -> None:
    found = read(tmp_path, FULL.replace("max_seq_len: 4096", "max_seq_len: null"))
    assert dict(found.workload) == {"global_batch": 64}
    assert found.notes == (
        "a.yaml: tokenizer.max_seq_len is not said, so that sequences are as long as samples: say "
        "how long with --seq",
    )


def test_another_model(tmp_path: Path) -> None:
    (note,) = read(tmp_path, FULL, "Qwen3-8B").notes
    assert note == "a.yaml starts Llama-3.1-8B: the answer is of Qwen3-8B, as you asked for"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("dtype: bf16", "dtype: fp16", "line 33: dtype is fp16; it may be bf16 or fp32"),
        ("loss.Linear", "loss.Other", "loss._component_ is torchtune.modules.loss.Other"),
        ("torch.optim.AdamW", "torch.optim.Rprop", "optimizer._component_ is torch.optim.Rprop"),
        ("optimizer:", "other:", "a.yaml: it trains nothing, as it has no optimizer._component_"),
        ("in_bwd: False", "in_bwd: True", "may be 1 beside optimizer_in_bwd"),
        ("offloading: False", "offloading: True\nac_mode: selective", "ac_mode is selective"),
        ("dtype: bf16", "quantizer:\n  groupsize: 256", "quantizer.groupsize changes what a step"),
        ("dtype: bf16", "context_parallel_dim: 2", "context_parallel_dim changes .* 1 is"),
        ("accumulation_steps", "acumulation_steps", "did you mean gradient_accumulation_steps"),
        ("['q_proj', ", "['my_proj', ", "line 4: no layer my_proj for adapters; there are q_proj"),
        ("to_output: False", "to_output: True", "model.apply_lora_to_output changes"),
        ("checkpointing: True", "checkpointing: False\nenable_activation_offloading: true",
         "offloading asks for enable_activation_checkpointing"),
    ],
)  # fmt: skip
def test_refusals(tmp_path: Path, old: str, new: str, words: str) -> None:
    base = LORA if old in LORA and old not in FULL else FULL
    text = base.replace(old, new)
    if "enable_activation_offloading: true" in new:
        text = text.replace("enable_activation_offloading: False\n", "")
    with pytest.raises(BadInput, match=words):
        read(tmp_path, text)
