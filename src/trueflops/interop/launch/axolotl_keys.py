"""The keys of axolotl's config by what they do to a step: refused, told, or nothing.

As of axolotl-ai-cloud/axolotl 067b021 (July 2026): utils/schemas/*.py, integrations/*/args.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from trueflops.language import mark

LIGER: Final = "LigerPlugin"
CUT: Final = "CutCrossEntropyPlugin"
OTHER_TRAINING: Final = frozenset(
    [
        "DiffusionPlugin",
        "KDPlugin",
        "LLMCompressorPlugin",
        "SpectrumPlugin",
        "ExpertParallelPlugin",
        "NemoGymPlugin",
    ]
)
"""Plugins that train another loss, other weights, or experts over ranks."""
SWITCHES: Final = {
    "xformers_attention": "xformers",
    "flex_attention": "flex_attention",
    "flash_attention": "flash_attention_2",
    "sdp_attention": "sdpa",
    "eager_attention": "eager",
}
"""Of releases before attn_implementation, in the order in which they count (enums.py)."""
ATTENTION: Final = {
    "eager": "eager",
    "sdpa": "sdpa",
    "flash_attention_2": "flash_attention_2",
    "flash_attention_3": "flash_attention_3",
    "flex_attention": "flex_attention",
    "xformers": "flash_attention_2",
    "kernels-community/flash-attn2": "flash_attention_2",
    "kernels-community/flash-attn3": "flash_attention_3",
    "kernels-community/vllm-flash-attn3": "flash_attention_3",
}
"""Implementations that lay out no scores, or do; SageAttention and fp8's are not priced."""
EIGHT_BITS: Final = mark(
    "bitsandbytes multiplies in 8 bits there: write false for 16-bit weights, or adapter: qlora "
    "with load_in_4bit: true"
)
CHECKPOINT: Final = mark("name the model itself, with adapter: qlora and load_in_4bit: true")
WHOLE: Final = mark("false where there is no adapter, which it asserts")
_PREFERENCE: Final = mark("only fine-tuning on texts is (SFT, pre-training)")
_ALL_WEIGHTS: Final = mark("leave it out: all of LoRA's layers are, or all weights")
_PACKED: Final = mark("packed weights are adapter: qlora with load_in_4bit: true")
_LEAVE: Final = mark("leave it out")
REFUSED: Final[Mapping[str, str]] = {
    "rl": _PREFERENCE,
    "reward_model": _PREFERENCE,
    "process_reward_model": _PREFERENCE,
    "ebft": _PREFERENCE,
    "qat": _LEAVE,
    "sage_attention": _LEAVE,
    "peft_use_dora": _LEAVE,
    "lora_modules_to_save": _ALL_WEIGHTS,
    "peft_layers_to_transform": _ALL_WEIGHTS,
    "peft_layer_replication": _ALL_WEIGHTS,
    "peft_trainable_token_indices": _ALL_WEIGHTS,
    "lora_rank_pattern": _ALL_WEIGHTS,
    "relora": _LEAVE,
    "lisa_n_layers": _LEAVE,
    "selective_checkpointing": mark("write gradient_checkpointing alone"),
    "layer_offloading": _LEAVE,
    "expert_parallel_size": _LEAVE,
    "gptq": _PACKED,
    "use_onebitllms": _LEAVE,
    "auto_find_batch_size": mark("write the micro_batch_size that it finds"),
    "deepcompile": mark("write torch_compile"),
    "optim_target_modules": mark("of GaLore no plan is; leave it out"),
}
TOLD: Final = (
    "tiled_mlp", "use_kernels", "use_scattermoe", "use_sonicmoe", "experts_implementation",
    "fp32_norms", "group_by_length", "torch_compile_mode", "torch_compile_options",
    "model_quantization_config", "model_quantization_config_kwargs", "flash_attn_fuse_mlp",
    "flash_attn_rms_norm", "flash_optimum", "bnb_config_kwargs", "lora_on_cpu", "max_memory",
    "gpu_memory_limit", "device_map", "chunked_cross_entropy", "fp8_enable_fsdp_float8_all_gather",
    "batch_flattening", "gemma4_hybrid_attn_impl", "large_head_attention", "fused_attn_kernel",
    "sdpa_varlen", "resize_token_embeddings_to_32x", "shrink_embeddings", "use_eaft",
    "neftune_noise_alpha", "nvfp4_merge_aware", "llama4_linearized_experts", "s2_attention",
    "overrides_of_model_config", "model_config", "rope_scaling", "max_packed_sequence_len",
    "embeddings_skip_upcast", "peft_autocast_adapter_dtype", "use_dsv4_kernels",
    "use_glm_dsa_kernels", "dsv4_fp4_grouped_mode", "liger_use_token_scaling",
    "liger_rms_norm_gated", "image_size", "reinit_weights",
)  # fmt: skip
"""What changes time or memory a little, or only of some models."""
_HARMLESS: Final = frozenset(
    [
        "base_model_config", "cls_model_config", "tokenizer_config", "trust_remote_code",
        "gradient_checkpointing_kwargs.use_reentrant", "eval_sample_packing",
        "pad_to_sequence_len", "pad_to_multiple_of", "sample_packing_sequentially",
        "sample_packing_bin_size", "sample_packing_group_size", "sample_packing_eff_est",
        "eval_sequence_len", "min_sample_len", "excess_length_strategy", "eval_batch_size",
        "curriculum_sampling", "multipack_real_batches", "pretrain_multipack_attn",
        "pretraining_sample_concatenation", "flex_attn_compile_kwargs", "train_on_inputs",
        "low_cpu_mem_usage", "experimental_skip_move_to_device", "qlora_sharded_model_loading",
        "fsdp_final_state_dict_type", "fsdp_transformer_layer_cls_to_wrap", "heads_k_stride",
        "ring_attn_func", "lora_alpha", "lora_fan_in_fan_out", "lora_model_dir",
        "lora_embedding_kernel", "liger_fused_linear_cross_entropy", "liger_cross_entropy",
        "liger_rope", "liger_rms_norm", "liger_layer_norm", "liger_glu_activation",
        "liger_swiglu", "cut_cross_entropy", "freeze_mm_modules", "torch_compile_backend",
        "dataset_prepared_path", "num_epochs", "save_safetensors", "float32", "float16",
        "bfloat16", "torch_dtype", "sequence_parallel_degree", "dataloader_prefetch_factor",
    ]
)  # fmt: skip
_SECTIONS: Final = (
    "datasets", "test_datasets", "pretraining_dataset", "special_tokens", "tokens", "added_tokens",
    "wandb", "mlflow", "comet", "swanlab", "trackio", "trl", "vllm", "gradio", "ray", "peft",
    "lr_", "save_", "saves_", "eval", "dataset_", "dataloader_", "accelerator_config",
    "gradient_checkpointing_kwargs", "flex_attn_compile_kwargs", "chat_template", "hub_",
    "tokenizer", "processor", "adam_", "loraplus", "jagged_", "early_stopping", "optim_args",
    "dynamic_checkpoint", "role_boundaries", "otel", "diffusion",
)  # fmt: skip
"""How keys begin that are of data, tokens, learning rates, checkpoints or reports."""


def known(keys: Iterable[str]) -> frozenset[str]:
    """Of some keys, those that change nothing that is priced."""
    return _HARMLESS | {key for key in keys if key.startswith(_SECTIONS)}
