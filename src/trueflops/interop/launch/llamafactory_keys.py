"""The keys of LLaMA-Factory's config by what they do to a step: refused, told, or nothing.

As of hiyouga/LLaMA-Factory ff6d4d1 (August 2026): src/llamafactory/hparams/*_args.py; the Trainer's
own are of transformers' training_args.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from trueflops.language import mark

KINDS: Final = {"full": "full", "lora": "lora", "freeze": "freeze"}
EIGHT_BITS: Final = mark("leave it out for 16-bit weights, or write 4")
CHECKPOINT: Final = mark(
    "name the model itself, with quantization_bit: 4; of GPTQ's 4 bits also the flags --qlora "
    "--base-format gptq-int4"
)
LAST: Final = mark("a number of last layers, from 1 on")
_WHICH: Final = mark("leave it out: all of LoRA's layers are, or all weights")
_OPTIMIZER: Final = mark("leave it out, and name an optim")
_ELSEWHERE: Final = mark("its own files say the plan: Megatron's flags or configs")
_LEAVE: Final = mark("leave it out")
REFUSED: Final[Mapping[str, str]] = {
    "use_galore": _OPTIMIZER,
    "use_apollo": _OPTIMIZER,
    "use_badam": _OPTIMIZER,
    "use_adam_mini": _OPTIMIZER,
    "use_llama_pro": _WHICH,
    "additional_target": _WHICH,
    "freeze_extra_modules": _WHICH,
    "freeze_language_model": _WHICH,
    "use_dora": _LEAVE,
    "mixture_of_depths": _LEAVE,
    "shift_attn": _LEAVE,
    "use_asft_loss": _LEAVE,
    "use_kt": _LEAVE,
    "kt_config": _LEAVE,
    "use_mca": _ELSEWHERE,
    "use_megatron_bridge": _ELSEWHERE,
    "use_hyper_parallel": _ELSEWHERE,
    "tensor_model_parallel_size": _ELSEWHERE,
    "pipeline_model_parallel_size": _ELSEWHERE,
    "expert_model_parallel_size": _ELSEWHERE,
    "auto_find_batch_size": mark("write the per_device_train_batch_size that it finds"),
}
VALUES: Final[Mapping[str, str]] = {"infer_backend": "huggingface"}
TOLD: Final = (
    "upcast_layernorm", "upcast_lmhead_output", "use_v1_kernels", "resize_vocab", "rope_scaling",
    "group_by_length", "neftune_noise_alpha", "use_dft_loss", "use_eaft_loss", "fp8_backend",
    "fp8_enable_fsdp_float8_all_gather", "torch_compile_mode", "ddp_find_unused_parameters",
    "new_special_tokens_config", "add_tokens", "add_special_tokens", "tp_size",
    "parallelism_config",
)  # fmt: skip
"""What changes time or memory a little, or only of some models."""
_HARMLESS: Final = frozenset(
    [
        "trust_remote_code", "lora_alpha", "use_rslora", "pissa_init", "pissa_iter",
        "pissa_convert", "create_new_adapter", "adapter_name_or_path", "double_quantization",
        "quantization_type", "quantization_device_map", "use_reentrant_gc", "low_cpu_mem_usage",
        "use_fast_tokenizer", "gradient_checkpointing_kwargs", "torch_compile_backend", "tf32",
        "freeze_vision_tower", "freeze_multi_modal_projector", "overwrite_cache", "train_on_prompt",
        "mask_history", "bf16_full_eval", "fp16_full_eval", "half_precision_backend", "do_eval",
        "per_device_eval_batch_size", "moe_aux_loss_coef", "ddp_timeout", "ddp_backend",
        "fsdp_transformer_layer_cls_to_wrap", "train_from_scratch", "fp16_opt_level",
        "overwrite_output_dir", "kt_cpu_activation", "include_num_input_tokens_seen",
        "num_train_epochs", "max_samples", "offload_folder", "adapter_folder", "infer_dtype",
        "hyper_parallel_cp_size", "hyper_parallel_args",
    ]
)  # fmt: skip
_SECTIONS: Final = (
    "dataset", "eval", "lr_", "save_", "report", "hub_", "push_", "dataloader_", "adam_",
    "preprocessing", "video_", "image_", "audio_", "ray_", "swanlab", "loraplus", "galore_",
    "apollo_", "badam_", "oft_", "optim_", "export_", "vllm_", "sglang_", "logging", "warmup",
    "accelerator_config", "profiler", "pref_", "kto_", "ppo_", "simpo_", "dpo_", "generation_",
)  # fmt: skip
"""How keys begin that are of data, learning rates, checkpoints, reports or other trainings."""


def known(keys: Iterable[str]) -> frozenset[str]:
    """Of some keys, those that change nothing that is priced."""
    return _HARMLESS | {key for key in keys if key.startswith(_SECTIONS)}
