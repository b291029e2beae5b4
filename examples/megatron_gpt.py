"""Training a GPT with megatron-core: its local layers, its distributed optimizer, random tokens.

    torchrun --nproc-per-node 8 examples/megatron_gpt.py --tp 2 --pp 2 --sp         on real GPUs
    trueflops capture --on 8xH100 examples/megatron_gpt.py -- --tp 2 --pp 2 --sp    without any
Needs torch and megatron-core 0.16 alone. With --experts the feed-forward is a mixture of experts,
spread over --ep ranks; --dispatcher says how tokens travel there.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from functools import partial

import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.transformer_block import (
    TransformerBlockSubmodules,
    get_num_layers_to_build,
)

VOCABULARY = 50304
# megatron-core 0.16 asks for it, and defines it only where Transformer Engine is installed.
vars(moe_utils).setdefault("te_general_gemm", None)


class Norm(torch.nn.RMSNorm):
    """The norm of a layer; megatron's own ones need apex or Transformer Engine with --sp."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5) -> None:
        super().__init__(hidden_size, eps)
        # Under sequence parallelism every rank sees some tokens: megatron then sums its gradient.
        self.weight.sequence_parallel = config.sequence_parallel


def asked() -> argparse.Namespace:
    """Size and split of the model."""
    parser = argparse.ArgumentParser()
    for name, value in (
        ("tp", 1), ("pp", 1), ("vpp", 0), ("ep", 1), ("experts", 0), ("topk", 2), ("layers", 8),
        ("hidden", 2048), ("heads", 16), ("seq", 2048), ("batch", 1), ("microbatches", 8),
        ("steps", 10),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--sp", action="store_true", help="sequence parallelism")
    parser.add_argument("--recompute", action="store_true", help="of whole layers")
    parser.add_argument("--overlap", action="store_true", help="gradients reduced in the backward")
    parser.add_argument("--dispatcher", choices=("alltoall", "allgather"), default="alltoall")
    return parser.parse_args()


def configured(options: argparse.Namespace) -> TransformerConfig:
    """Megatron's own description of the model and of how it is split."""
    experts = {
        "num_moe_experts": options.experts,
        "moe_router_topk": options.topk,
        "moe_token_dispatcher_type": options.dispatcher,
        "moe_router_load_balancing_type": "aux_loss",
        "moe_aux_loss_coeff": 0.01,
        "add_bias_linear": False,
    }
    recomputed = {
        "recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1,
    }  # fmt: skip
    return TransformerConfig(
        num_layers=options.layers,
        hidden_size=options.hidden,
        num_attention_heads=options.heads,
        tensor_model_parallel_size=options.tp,
        pipeline_model_parallel_size=options.pp,
        virtual_pipeline_model_parallel_size=options.vpp or None,
        expert_model_parallel_size=options.ep,
        sequence_parallel=options.sp,
        bf16=True,
        params_dtype=torch.bfloat16,
        pipeline_dtype=torch.bfloat16,
        attention_dropout=0.0,
        hidden_dropout=0.0,
        attention_softmax_in_fp32=False,
        masked_softmax_fusion=False,  # the local layers have no fused kernels without apex
        gradient_accumulation_fusion=False,
        persist_layer_norm=False,
        batch_p2p_comm=True,
        **(experts if options.experts else {}),
        **(recomputed if options.recompute else {}),
    )


def chunks_of(
    config: TransformerConfig, options: argparse.Namespace
) -> list[DistributedDataParallel]:
    """This rank's part of the model: one chunk, or several where stages are interleaved."""
    layer = get_gpt_layer_local_spec(num_experts=options.experts or None)
    layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = Norm
    data_parallel = DistributedDataParallelConfig(
        grad_reduce_in_fp32=True,
        overlap_grad_reduce=options.overlap,
        use_distributed_optimizer=True,
    )
    found = []
    for number in range(options.vpp or 1):
        place = number if options.vpp else None
        first = parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=place)
        last = parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=place)
        model = GPTModel(
            config,
            TransformerBlockSubmodules(
                [layer] * get_num_layers_to_build(config, vp_stage=place), layer_norm=Norm
            ),
            vocab_size=VOCABULARY,
            max_sequence_length=options.seq,
            pre_process=first,
            post_process=last,
            share_embeddings_and_output_weights=False,
            position_embedding_type="rope",
            vp_stage=place,
        )
        found.append(
            DistributedDataParallel(
                config, data_parallel, model.cuda().bfloat16(), disable_bucketing=number > 0
            )
        )
    return found


def batches(options: argparse.Namespace) -> Iterator[torch.Tensor]:
    """Random tokens, one more than the model reads: the last is only predicted."""
    shape = (options.batch, options.seq + 1)
    while True:
        yield torch.randint(0, VOCABULARY, shape, device="cuda")


def forward_step(
    data: Iterator[torch.Tensor], model: DistributedDataParallel
) -> tuple[torch.Tensor, Callable[[torch.Tensor], tuple[torch.Tensor, dict[str, torch.Tensor]]]]:
    """One micro-batch through this stage, and how its loss is made of what comes out."""
    tokens = next(data)
    batch, length = tokens.shape[0], tokens.shape[1] - 1
    positions = torch.arange(length, device=tokens.device).expand(batch, length)
    future = torch.ones(length, length, dtype=torch.bool, device=tokens.device).triu(1)
    losses = model(tokens[:, :-1], positions, future[None, None], labels=tokens[:, 1:].contiguous())
    return losses, partial(mean_loss)


def mean_loss(losses: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The loss of a micro-batch, and what is logged of it."""
    loss = losses.float().mean()
    return loss, {"loss": loss.detach()}


def main() -> None:
    """Open the groups, build this rank's stage, train."""
    options = asked()
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    torch.distributed.init_process_group("nccl")
    parallel_state.initialize_model_parallel(
        options.tp,
        options.pp,
        options.vpp or None,
        expert_model_parallel_size=options.ep,
        expert_tensor_parallel_size=1 if options.experts else None,
    )
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    config = configured(options)
    chunks = chunks_of(config, options)
    config.finalize_model_grads_func = finalize_model_grads
    if options.overlap:
        config.no_sync_func = [chunk.no_sync for chunk in chunks]
        config.no_sync_func = config.no_sync_func if options.vpp else config.no_sync_func[0]
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            lr=1e-4, bf16=True, params_dtype=torch.bfloat16, use_distributed_optimizer=True
        ),
        chunks,
    )
    run = get_forward_backward_func()
    data = [batches(options) for _ in chunks]
    for number in range(options.steps):
        for chunk in chunks:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        losses = run(
            forward_step_func=forward_step,
            data_iterator=data if options.vpp else data[0],
            model=chunks if options.vpp else chunks[0],
            num_microbatches=options.microbatches,
            seq_length=options.seq,
            micro_batch_size=options.batch,
            forward_only=False,
        )
        optimizer.step()
        if losses:
            mean = torch.stack([each["loss"] for each in losses]).mean()
            print(f"step {number}: loss {mean.item():.3f}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
