"""Real training steps of small Llamas on this machine's CPU beside what a profile predicts.

trueflops measure --device cpu --budget 60s -o cpu.json
python benchmarks/small_llamas.py cpu.json        needs torch and transformers
Exit 1: a step is missed by more than WORST. The machine must be quiet, which is why no test asks.
"""

from __future__ import annotations

import contextlib
import io
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from trueflops.cli import main as trueflops

STEPS = 6
WORST = 0.25


class Case(NamedTuple):
    """A model and a batch."""

    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    batch: int
    seq: int


CASES = (
    Case(512, 1408, 4, 8, 8, 4, 256),
    Case(512, 1408, 4, 8, 8, 2, 512),
    Case(256, 688, 6, 4, 2, 4, 256),
    Case(768, 2048, 2, 12, 4, 2, 256),
)


def config_of(case: Case) -> Any:
    """The model as Hugging Face has it."""
    return LlamaConfig(
        hidden_size=case.hidden, intermediate_size=case.ffn, num_hidden_layers=case.layers,
        num_attention_heads=case.heads, num_key_value_heads=case.kv_heads, vocab_size=8000,
        tie_word_embeddings=False, attn_implementation="sdpa",
    )  # fmt: skip


def training_step(config: Any, case: Case) -> Callable[[], None]:
    """A step in fp32 with AdamW."""
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, config.vocab_size, (case.batch, case.seq))

    def step() -> None:
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def real_seconds(config: Any, case: Case) -> float:
    """The median step; the first is not counted."""
    step = training_step(config, case)
    step()
    times = []
    for _ in range(STEPS):
        begun = time.perf_counter()
        step()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def predicted_seconds(config: Any, case: Case, profile: str) -> float:
    """What `trueflops train --profile` says of the same step."""
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        words = ["train", folder, "--profile", profile, "--seq", str(case.seq), "--dp", "1",
                 "--global-batch", str(case.batch), "--micro-batch", str(case.batch),
                 "--framework", "plain", "--compute", "fp32", "--parameter-dtype", "fp32",
                 "--gradient-dtype", "fp32", "--json"]  # fmt: skip
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            trueflops(words)
    return float(json.loads(said.getvalue())["step"]["seconds"])


def main(profile: str) -> int:
    """Compare every case."""
    worst = 0.0
    for case in CASES:
        config = config_of(case)
        real, predicted = real_seconds(config, case), predicted_seconds(config, case, profile)
        missed = predicted / real - 1.0
        worst = max(worst, abs(missed))
        print(f"{case}: {real:.3f} s, predicted {predicted:.3f} s, {missed:+.1%}")
    print(f"missed by {worst:.0%} at worst; claimed is {WORST:.0%} on a quiet machine")
    return int(worst > WORST)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
