"""A Llama by megatron-core's own layers, pipeline and optimizer, kernels as it fuses them.

    trueflops capture --on 8xH100 benchmarks/framework_programs/megatron_llama.py -- '{"tp": 2, …}'
The one argument is a case of benchmarks/framework_memory.py as JSON. Where megatron takes kernels
of Transformer Engine or apex, which want a GPU to be built, others that keep the same stand in:
torch's RMSNorm (the input and a number a row), fused attention (queries, keys, values, the result)
and fused Adam; a rotation that keeps its angles alone; weight gradients that are added into the
buffer by the product that makes them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from megatron.core import optimizer as optimizers
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.common.embeddings import rope_utils
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel import layers as parallel_layers
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.transformer_block import (
    TransformerBlockSubmodules,
    get_num_layers_to_build,
)

STEPS = 4
Case = dict[str, Any]
# megatron-core 0.16 asks for it, and defines it only where Transformer Engine is installed.
vars(moe_utils).setdefault("te_general_gemm", None)


def add_into(inputs: torch.Tensor, gradients: torch.Tensor, total: torch.Tensor) -> None:
    """What apex's wgrad_gemm_accum does to memory: the sum is changed, and nothing is made."""
    total.add_(0.0)


def fused_adam(adam_w_mode: bool, **settings: Any) -> torch.optim.Optimizer:
    """In the words of Transformer Engine and apex."""
    kind = torch.optim.AdamW if adam_w_mode else torch.optim.Adam
    return kind(**settings, fused=True)


class Rotation(torch.autograd.Function):
    """One kernel, as fused_apply_rotary_pos_emb: a new tensor, and the angles for the backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        """Laid out anew."""
        ctx.save_for_backward(angles)
        return x.clone(memory_format=torch.contiguous_format)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Turned back."""
        return gradient.clone(memory_format=torch.contiguous_format), None


def rotated(x: torch.Tensor, angles: torch.Tensor, interleaved: bool = False) -> torch.Tensor:
    """In the words of Transformer Engine."""
    turned: torch.Tensor = Rotation.apply(x, angles)
    return turned


class Norm(torch.nn.RMSNorm):
    """One kernel, as Transformer Engine's."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5) -> None:
        super().__init__(hidden_size, eps)
        vars(self.weight)["sequence_parallel"] = config.sequence_parallel


class FusedAttention(torch.nn.Module):
    """One kernel over [sequence, batch, heads, width], as Transformer Engine's."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: object, **__: object
    ) -> torch.Tensor:
        """Values that lie within the projection are copied out of it, as its get_qkv_layout does;
        heads are moved before the sequence only as views.
        """
        q, k, v = (x.permute(1, 2, 0, 3) for x in (query, key, value.contiguous()))
        mixed = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=True
        )
        return mixed.permute(2, 0, 1, 3).flatten(2)


def configured(case: Case) -> TransformerConfig:
    """Megatron's own description of the model and of how it is split."""
    experts = {
        "num_moe_experts": case["experts"],
        "moe_router_topk": case["per_token"],
        "moe_ffn_hidden_size": case["expert_ffn"],
        "moe_token_dispatcher_type": "alltoall",
        "moe_router_load_balancing_type": "aux_loss",
        "moe_aux_loss_coeff": 0.01,
    }
    recomputed = {
        "recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1,
    }  # fmt: skip
    return TransformerConfig(
        num_layers=case["layers"],
        hidden_size=case["hidden"],
        num_attention_heads=case["heads"],
        num_query_groups=case["kv_heads"],
        ffn_hidden_size=case["ffn"],
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        bias_activation_fusion=True,
        add_bias_linear=False,
        normalization="RMSNorm",
        tensor_model_parallel_size=case["tp"],
        pipeline_model_parallel_size=case["pp"],
        virtual_pipeline_model_parallel_size=case["vpp"] if case["vpp"] > 1 else None,
        expert_model_parallel_size=case["ep"],
        sequence_parallel=bool(case["sp"]),
        bf16=True,
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        bias_dropout_fusion=True,
        apply_rope_fusion=True,
        cross_entropy_loss_fusion=True,
        gradient_accumulation_fusion=True,
        persist_layer_norm=False,
        batch_p2p_comm=True,
        deallocate_pipeline_outputs=True,
        **(experts if case["experts"] else {}),
        **(recomputed if case["recompute"] == "full" else {}),
    )


def chunks_of(config: TransformerConfig, case: Case) -> list[DistributedDataParallel]:
    """This rank's part of the model: one chunk, or several where stages are interleaved."""
    layer = get_gpt_layer_local_spec(num_experts=case["experts"] or None, normalization="RMSNorm")
    layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = Norm
    layer.submodules.self_attention.submodules.core_attention = FusedAttention
    data_parallel = DistributedDataParallelConfig(
        grad_reduce_in_fp32=case["gradient_dtype"] == "fp32",
        overlap_grad_reduce=True,
        overlap_param_gather=case["zero"] == 1,
        use_distributed_optimizer=case["zero"] == 1,
    )
    found = []
    for number in range(case["vpp"]):
        place = number if case["vpp"] > 1 else None
        model = GPTModel(
            config,
            TransformerBlockSubmodules(
                [layer] * get_num_layers_to_build(config, vp_stage=place), layer_norm=Norm
            ),
            vocab_size=case["vocab"],
            max_sequence_length=case["seq"],
            pre_process=parallel_state.is_pipeline_first_stage(
                ignore_virtual=False, vp_stage=place
            ),
            post_process=parallel_state.is_pipeline_last_stage(
                ignore_virtual=False, vp_stage=place
            ),
            share_embeddings_and_output_weights=bool(case["tied"]),
            position_embedding_type="rope",
            vp_stage=place,
        )
        found.append(
            DistributedDataParallel(
                config, data_parallel, model.cuda().bfloat16(), disable_bucketing=number > 0
            )
        )
    return found


def forward_step(
    case: Case, data: Iterator[torch.Tensor], model: DistributedDataParallel
) -> tuple[torch.Tensor, Any]:
    """One micro-batch through this stage, and how its loss is made of what comes out."""
    ids = next(data)
    positions = torch.arange(case["seq"], device=ids.device).expand(case["micro_batch"], -1)
    losses = model(ids[:, :-1], positions, None, labels=ids[:, 1:].contiguous())
    return losses, lambda found: (found.float().mean(), {"loss": found.detach().float().mean()})


def batches(case: Case) -> Iterator[torch.Tensor]:
    """Random tokens, one more than the model reads: the last is only predicted."""
    while True:
        yield torch.randint(0, case["vocab"], (case["micro_batch"], case["seq"] + 1), device="cuda")


def main() -> None:
    """Open the groups, build this rank's stage, train."""
    case = json.loads(sys.argv[1])
    parallel_layers.fused_weight_gradient_mlp_cuda = SimpleNamespace(
        wgrad_gemm_accum_fp32=add_into, wgrad_gemm_accum_fp16=add_into
    )
    parallel_layers._grad_accum_fusion_available = True
    rope_utils.fused_apply_rotary_pos_emb = rotated
    optimizers.USING_PYTORCH_OPTIMIZER = False
    optimizers.Adam = fused_adam
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    torch.distributed.init_process_group("nccl")
    parallel_state.initialize_model_parallel(
        case["tp"],
        case["pp"],
        case["vpp"] if case["vpp"] > 1 else None,
        expert_model_parallel_size=case["ep"],
        expert_tensor_parallel_size=1 if case["experts"] else None,
    )
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    config = configured(case)
    chunks = chunks_of(config, case)
    config.finalize_model_grads_func = finalize_model_grads
    config.no_sync_func = [chunk.no_sync for chunk in chunks]
    if case["vpp"] == 1:
        config.no_sync_func = config.no_sync_func[0]
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            lr=1e-4, bf16=True, params_dtype=torch.bfloat16,
            use_distributed_optimizer=case["zero"] == 1,
        ),
        chunks,
    )  # fmt: skip
    run = get_forward_backward_func()
    data = [batches(case) for _ in chunks]
    for _ in range(STEPS):
        for chunk in chunks:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        run(
            forward_step_func=lambda given, model: forward_step(case, given, model),
            data_iterator=data if case["vpp"] > 1 else data[0],
            model=chunks if case["vpp"] > 1 else chunks[0],
            num_microbatches=case["accumulation"],
            seq_length=case["seq"],
            micro_batch_size=case["micro_batch"],
            forward_only=False,
        )
        optimizer.step()


if __name__ == "__main__":
    main()
