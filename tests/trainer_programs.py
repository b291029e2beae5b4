"""Training steps by frameworks' own code, unmodified: what a user writes, on a small Llama.

Captured by test_capture_trainers.py, where the frameworks are installed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any, Final

import torch

Step = Callable[[], Any]
VOCABULARY: Final = 1024
LENGTH: Final = 64
BUCKET: Final = 2**20  # elements


def small_llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=VOCABULARY,
        )
    )  # fmt: skip


def parameter_shapes() -> list[torch.Size]:
    """Of every parameter of the small Llama."""
    with torch.device("meta"):
        return [parameter.shape for parameter in small_llama().parameters()]


def zero_config(stage: int, *, offload: bool, half: str = "bf16") -> dict[str, Any]:
    """A configuration of DeepSpeed, with buckets that fit a small model."""
    zero: dict[str, Any] = {"stage": stage, "reduce_bucket_size": BUCKET}
    if stage == 3:
        zero |= {"stage3_prefetch_bucket_size": BUCKET, "stage3_param_persistence_threshold": 0}
    if offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    if offload and stage == 3:
        zero["offload_param"] = {"device": "cpu"}
    return {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 5e-5}},
        "zero_optimization": zero,
        half: {"enabled": True},
    }


def deepspeed_step(stage: int, *, offload: bool = False, half: str = "bf16") -> Step:
    """`deepspeed.initialize`, and the three lines of its documentation."""
    import deepspeed

    config = zero_config(stage, offload=offload, half=half)
    model = small_llama()
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config
    )
    ids = torch.randint(0, VOCABULARY, (2, LENGTH), device="cuda")

    def step() -> None:
        loss = engine(input_ids=ids, labels=ids).loss
        engine.backward(loss)
        engine.step()

    return step


def dataset() -> Any:
    from datasets import Dataset

    rows = torch.randint(0, VOCABULARY, (32, LENGTH)).tolist()
    return Dataset.from_dict({"input_ids": rows, "labels": rows})


def _usual() -> dict[str, Any]:
    return {
        "output_dir": tempfile.mkdtemp(), "per_device_train_batch_size": 2, "max_steps": 1,
        "bf16": True, "report_to": [], "save_strategy": "no", "logging_steps": 1,
        "disable_tqdm": True,
    }  # fmt: skip


def trainer_step(**more: Any) -> Step:
    """`Trainer.train` of transformers, for one step."""
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(**_usual(), **more)
    train: Step = Trainer(model=small_llama(), args=arguments, train_dataset=dataset()).train
    return train


def trainer_anew(**more: Any) -> Step:
    """A step that builds its trainer each time."""
    return lambda: trainer_step(**more)()


def sharded_trainer_step() -> Step:
    """Trainer with FSDP2, by way of Accelerate."""
    wrapped = {"version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]}
    return trainer_step(fsdp="full_shard auto_wrap", fsdp_config=wrapped)


def lora_step(rank: int = 16) -> Step:
    """TRL's SFTTrainer with an adapter of PEFT on queries and values."""
    from peft import LoraConfig
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    words = {"[UNK]": 0, "[PAD]": 1, "[EOS]": 2}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="[UNK]")),
        pad_token="[PAD]", eos_token="[EOS]", unk_token="[UNK]",
    )  # fmt: skip
    arguments = SFTConfig(
        **_usual(), max_length=LENGTH, dataset_kwargs={"skip_prepare_dataset": True}
    )
    train: Step = SFTTrainer(
        model=small_llama(),
        args=arguments,
        train_dataset=dataset(),
        processing_class=tokenizer,
        peft_config=LoraConfig(r=rank, target_modules=["q_proj", "v_proj"]),
    ).train
    return train


def accelerate_step() -> Step:
    """Accelerate's FSDP2 around a loop of one's own."""
    from accelerate import Accelerator, FullyShardedDataParallelPlugin

    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2,
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["LlamaDecoderLayer"],
    )
    accelerator = Accelerator(mixed_precision="bf16", fsdp_plugin=plugin)
    model = small_llama()
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    ids = torch.randint(0, VOCABULARY, (2, LENGTH), device="cuda")

    def step() -> None:
        accelerator.backward(model(input_ids=ids, labels=ids).loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step
