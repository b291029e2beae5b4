"""Steps that tune a Llama beside frozen weights of 16, 8 and 4 bits, as PEFT does, on one GPU.

    PYTHONPATH=build:src python benchmarks/tuned_steps.py FILE.csv

`build` holds the unpacked wheels of bitsandbytes, peft and accelerate. Weights and tokens are
random: neither time nor memory depends on them, but for outliers, which random inputs do not have.
The loop is the Trainer's: autocast to bf16, adapters on all linear layers, a fused AdamW over them.
"""

from __future__ import annotations

import csv
import gc
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import bitsandbytes as bnb
import peft
import torch
import transformers
from torch import nn

from steps import measure_step

COLUMNS: Final = (
    "model", "base", "checkpointed", "seq", "micro_batch", "rank", "trained", "step_seconds",
    "host_seconds", "python_loop_seconds", "peak_allocated_bytes", "peak_reserved_bytes", "device",
    "torch", "software",
)  # fmt: skip
# hidden, intermediate, layers, heads, heads of keys, vocabulary, tied (config.json of each)
LLAMAS: Final = {
    "Llama-3.2-1B": (2048, 8192, 16, 32, 8, 128256, True),
    "Llama-3.2-3B": (3072, 8192, 28, 24, 8, 128256, True),
    "Llama-3.1-8B": (4096, 14336, 32, 32, 8, 128256, False),
}


class Case(NamedTuple):
    """One way to tune."""

    model: str
    base: str  # bf16, int8, nf4
    checkpointed: bool
    seq: int
    micro_batch: int


CASES: Final = tuple(
    Case(model, base, checkpointed, seq, micro_batch)
    for model, base in (
        ("Llama-3.2-1B", "int8"), ("Llama-3.2-1B", "bf16"), ("Llama-3.2-1B", "nf4"),
        ("Llama-3.2-3B", "int8"), ("Llama-3.1-8B", "int8"), ("Llama-3.1-8B", "bf16"),
        ("Llama-3.1-8B", "nf4"),
    )
    for checkpointed, seq, micro_batch in (
        (False, 512, 1), (True, 2048, 2), (False, 2048, 2), (True, 4096, 4),
    )
)  # fmt: skip


def _packed(linear: nn.Linear, base: str) -> nn.Module:
    shape = linear.in_features, linear.out_features
    weight = linear.weight.data.cpu()
    if base == "int8":
        made = bnb.nn.Linear8bitLt(*shape, bias=False, has_fp16_weights=False, threshold=6.0)
        made.weight = bnb.nn.Int8Params(weight, requires_grad=False, has_fp16_weights=False)
        return made.cuda()
    made = bnb.nn.Linear4bit(*shape, bias=False, compute_dtype=torch.bfloat16,
                             compress_statistics=True, quant_type="nf4")  # fmt: skip
    made.weight = bnb.nn.Params4bit(weight, requires_grad=False, quant_type="nf4",
                                    compress_statistics=True)  # fmt: skip
    return made.cuda()


def model_of(name: str, base: str) -> Any:
    """In bf16; with packed linear layers prepared as PEFT does: the rest in fp32."""
    hidden, inner, layers, heads, keys, vocabulary, tied = LLAMAS[name]
    config = transformers.LlamaConfig(
        hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=keys, vocab_size=vocabulary,
        tie_word_embeddings=tied, max_position_embeddings=8192, rope_theta=500000.0,
        head_dim=128 if name != "Llama-3.2-1B" else 64,
    )  # fmt: skip
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="sdpa")
    torch.set_default_dtype(torch.float32)
    if base == "bf16":
        return model
    for parent in list(model.model.layers.modules()):
        for each, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, each, _packed(child, base))
    model.is_loaded_in_8bit, model.is_loaded_in_4bit = base == "int8", base == "nf4"
    model.is_quantized = True
    return peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)


def measured(case: Case) -> dict[str, Any]:
    """The median step, its host's part, and the peaks."""
    model = model_of(case.model, case.base)
    if case.checkpointed:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    model = peft.get_peft_model(
        model, peft.LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    vocabulary = LLAMAS[case.model][5]
    tokens = torch.randint(vocabulary, (case.micro_batch, case.seq), device="cuda")

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    seen = measure_step(step, settle_seconds=0.3, timed_seconds=1.0, least=6)
    return seen | {"trained": sum(p.numel() for p in trained)}


def main(path: Path) -> None:
    """Write every row as it is done; what does not fit is left out."""
    torch.manual_seed(0)
    used = {"transformers": transformers, "peft": peft, "bitsandbytes": bnb}
    software = ", ".join(f"{name} {module.__version__}" for name, module in used.items())
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for case in CASES:
            try:
                row = measured(case)
            except torch.OutOfMemoryError:
                print(case, "does not fit", file=sys.stderr)
                continue
            finally:
                gc.collect()  # a model holds itself in circles
                torch.cuda.empty_cache()
            about = case._asdict() | {"checkpointed": int(case.checkpointed), "rank": 16}
            writer.writerow(about | row | {"software": software})
            file.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
