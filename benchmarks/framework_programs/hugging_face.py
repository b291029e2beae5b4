"""A Hugging Face Llama under Trainer, DDP, FSDP1, FSDP2 or DeepSpeed: what their manuals show.

    trueflops capture --on 8xH100 benchmarks/framework_programs/hugging_face.py -- CASE
The one argument is a case of benchmarks/framework_memory.py as JSON. Random tokens, no files.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

STEPS = 6  # the capture records one of them; DDP needs three before it
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
Case = dict[str, Any]


def llama(case: Case) -> Any:
    """The model, its weights in the dtype of the case."""
    config = LlamaConfig(
        hidden_size=case["hidden"],
        intermediate_size=case["ffn"],
        num_hidden_layers=case["layers"],
        num_attention_heads=case["heads"],
        num_key_value_heads=case["kv_heads"],
        vocab_size=case["vocab"],
        tie_word_embeddings=bool(case["tied"]),
        use_cache=False,
        dtype=DTYPES[case["parameter_dtype"]],
    )
    model = LlamaForCausalLM._from_config(config, dtype=DTYPES[case["parameter_dtype"]])
    if case["recompute"] == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()


def tokens(case: Case) -> torch.Tensor:
    """One micro-batch."""
    return torch.randint(0, case["vocab"], (case["micro_batch"], case["seq"]), device="cuda")


def loop(
    case: Case, model: Any, clip: Callable[[], object], later: Callable[[], Any] = nullcontext
) -> None:
    """The loop that PyTorch's tutorials write, gradients accumulated where the case asks for it.

    `later` is entered where replicas do not agree yet.
    """
    fused = True if case["optimizer"] == "fused" else None  # None: torch's own choice, lists
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=fused)
    narrow = partial(torch.autocast, "cuda", torch.bfloat16, enabled=bool(case["autocast"]))
    for _ in range(STEPS):
        for number in range(case["accumulation"], 0, -1):
            ids = tokens(case)
            with nullcontext() if number == 1 else later():
                with narrow():
                    loss = model(input_ids=ids, labels=ids).loss
                (loss / case["accumulation"]).backward()
        clip()
        optimizer.step()
        optimizer.zero_grad()


def by_ddp(case: Case) -> None:
    """torch.nn.parallel.DistributedDataParallel, as its page shows it."""
    model = torch.nn.parallel.DistributedDataParallel(
        llama(case).cuda(), gradient_as_bucket_view=bool(case["bucket_view"])
    )
    clip = partial(torch.nn.utils.clip_grad_norm_, model.parameters(), 1.0)
    loop(case, model, clip, model.no_sync)


def alone(case: Case) -> None:
    """One accelerator."""
    model = llama(case).cuda()
    loop(case, model, lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))


def by_fsdp2(case: Case) -> None:
    """fully_shard of each layer and of the root, mixed precision by its policy; as its tutorial
    says, of a model without memory, so that no rank ever holds it whole.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    with torch.device("meta"):
        model = llama(case)
    mesh = init_device_mesh("cuda", (case["world"],))
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=DTYPES[case["gradient_dtype"]]
    )
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    model.to_empty(device="cuda")
    model.tie_weights()
    model.init_weights()
    loop(case, model, lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))


def by_fsdp1(case: Case) -> None:
    """FullyShardedDataParallel with layers as units."""
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    strategies = {3: ShardingStrategy.FULL_SHARD, 2: ShardingStrategy.SHARD_GRAD_OP}
    model = FullyShardedDataParallel(
        llama(case),
        device_id=torch.cuda.current_device(),
        sharding_strategy=strategies[case["zero"]],
        auto_wrap_policy=partial(
            transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer}
        ),
        mixed_precision=MixedPrecision(
            param_dtype=torch.bfloat16, reduce_dtype=DTYPES[case["gradient_dtype"]]
        ),
        use_orig_params=True,
    )
    loop(case, model, lambda: model.clip_grad_norm_(1.0))


def by_deepspeed(case: Case) -> None:
    """`deepspeed.initialize`, and the three lines of its documentation."""
    import deepspeed

    zero: dict[str, Any] = {"stage": case["zero"]}
    if case["bucket"]:  # elements; otherwise DeepSpeed's own 500 million
        zero |= {"reduce_bucket_size": case["bucket"], "allgather_bucket_size": case["bucket"]}
    if case["offload_optimizer"]:
        zero["offload_optimizer"] = {"device": "cpu"}
    if case["offload_parameters"]:
        zero["offload_param"] = {"device": "cpu"}
    config = {
        "train_micro_batch_size_per_gpu": case["micro_batch"],
        "gradient_accumulation_steps": case["accumulation"],
        "gradient_clipping": 1.0,
        "optimizer": {"type": "AdamW", "params": {"lr": 5e-5}},
        "zero_optimization": zero,
        case["parameter_dtype"]: {"enabled": True},
    }
    model = llama({**case, "parameter_dtype": "fp32"})
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config
    )
    for _ in range(STEPS):
        for _ in range(case["accumulation"]):
            ids = tokens(case)
            loss = engine(input_ids=ids, labels=ids).loss
            engine.backward(loss)
            engine.step()


def by_trainer(case: Case) -> None:
    """Trainer of transformers with its defaults; bf16 asks for autocast."""
    from datasets import Dataset
    from transformers import Trainer, TrainingArguments

    count = case["micro_batch"] * case["accumulation"] * case["world"] * STEPS
    rows = [[0] * case["seq"]] * count
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=case["micro_batch"],
        gradient_accumulation_steps=case["accumulation"],
        max_steps=STEPS,
        bf16=True,
        gradient_checkpointing=case["recompute"] == "full",
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    data = Dataset.from_dict({"input_ids": rows, "labels": rows})
    Trainer(model=llama(case), args=arguments, train_dataset=data).train()


ENGINES = {
    "alone": alone,
    "ddp": by_ddp,
    "fsdp1": by_fsdp1,
    "fsdp2": by_fsdp2,
    "deepspeed": by_deepspeed,
    "trainer": by_trainer,
}


def main() -> None:
    """Train by the engine of the case."""
    case = json.loads(sys.argv[1])
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if case["engine"] in ("ddp", "fsdp1", "fsdp2"):
        torch.distributed.init_process_group("nccl")
    ENGINES[case["engine"]](case)


if __name__ == "__main__":
    main()
