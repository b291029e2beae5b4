"""Training a Hugging Face Llama in the shape of Llama-3.1-8B: the whole loop, on random tokens.

    python examples/finetune.py                                    real steps, on a GPU
    trueflops capture examples/finetune.py:build --on H100         the same step, without one
Needs torch and transformers; nothing is downloaded, weights start as random numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from transformers import LlamaConfig, LlamaForCausalLM

BATCH, SEQUENCE, STEPS = 1, 4096, 20

LLAMA_3_1_8B = LlamaConfig(
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    vocab_size=128256,
    max_position_embeddings=131072,
    rope_theta=500000.0,
    rms_norm_eps=1e-5,
    use_cache=False,
)


def build() -> Callable[[], None]:
    """Make the model and its optimizer on the GPU; give back one step of training."""
    with torch.device("cuda"):
        model = LlamaForCausalLM(LLAMA_3_1_8B).to(torch.bfloat16)
    model.gradient_checkpointing_enable()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    done = 0

    def step() -> None:
        nonlocal done
        tokens = torch.randint(0, LLAMA_3_1_8B.vocab_size, (BATCH, SEQUENCE), device="cuda")
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        done += 1
        if done % 10 == 0:
            print(f"step {done}: loss {loss.item():.3f}")

    return step


if __name__ == "__main__":
    step = build()
    step()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    print(f"{(time.perf_counter() - begun) / STEPS:.3f} s a step")
    print(f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB at the peak")
