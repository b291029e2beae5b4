"""Small models on this machine's CPU: real training steps beside what capture says of them.

trueflops measure --device cpu --budget 60s -o cpu.json
python benchmarks/captured_on_cpu.py cpu.json        needs torch and transformers
Exit 1: a step or its peak of memory is missed by more than WORST. The machine must be quiet.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)

from trueflops.capture.pretend.machine import Machine
from trueflops.capture.program import capture
from trueflops.catalog.measured import cluster_measured
from trueflops.clock import Clock
from trueflops.predict.captured.program import predict_program
from trueflops.profile import profile_of, read_profile

STEPS = 5
Step = Callable[[], Any]


def llama(layers: int = 4, batch: int = 4) -> Step:
    """A Llama of few layers, 256 tokens a sequence."""
    config = LlamaConfig(
        hidden_size=512, intermediate_size=1408, num_hidden_layers=layers, num_attention_heads=8,
        num_key_value_heads=8, vocab_size=8000, use_cache=False,
    )  # fmt: skip
    ids = torch.randint(0, 8000, (batch, 256))
    return _step(LlamaForCausalLM(config), input_ids=ids, labels=ids)


def resnet() -> Step:
    """A ResNet of bottlenecks on eight pictures."""
    config = ResNetConfig(embedding_size=32, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2])
    pictures = torch.randn(8, 3, 128, 128)
    return _step(
        ResNetForImageClassification(config), pixel_values=pictures,
        labels=torch.randint(0, 2, (8,)),
    )  # fmt: skip


def vit(layers: int = 6) -> Step:
    """A vision transformer of few layers on eight pictures."""
    config = ViTConfig(
        hidden_size=384, intermediate_size=1536, num_hidden_layers=layers, num_attention_heads=6,
        image_size=128, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    pictures = torch.randn(8, 3, 128, 128)
    return _step(
        ViTForImageClassification(config), pixel_values=pictures, labels=torch.randint(0, 2, (8,))
    )


def _step(model: Any, **batch: torch.Tensor) -> Step:
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


class Run(NamedTuple):
    """A step, by a clock or by a prediction."""

    seconds: float
    peak_bytes: float


def real(build: Callable[[], Step]) -> Run:
    """The median step, and the peak of what torch had allocated."""
    step = build()
    step()
    times = []
    for _ in range(STEPS):
        begun = time.perf_counter()
        step()
        times.append(time.perf_counter() - begun)
    return Run(statistics.median(times), peak_bytes(build))


def peak_bytes(build: Callable[[], Step]) -> float:
    """From torch's own record of allocations: of building, a first and a second step."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step = build()
        step()
        step()
    held = peak = 0
    events = recorded.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    for _, size in changes:
        held += size
        peak = max(peak, held)
    return float(peak)


def predicted(build: Callable[[], Step], file: Path) -> Run:
    """What capture says of the same program with this machine's profile."""
    given = read_profile(file)
    assert given.chip is not None
    where = cluster_measured(given.chip, 1)
    recording = capture(lambda: build, Machine.like(given.chip))
    found = predict_program(recording, Clock(where, profile_of(given.chip, "plain", given)))
    return Run(float(found.step.seconds.value), float(found.memory.peak_allocated_bytes))


PROGRAMS = {"llama": llama, "resnet": resnet, "vit": vit}

WORST = Run(0.30, 0.10)


def main(profile: Path) -> int:
    """Compare every program."""
    wrong = 0
    for name, program in PROGRAMS.items():
        ran, said = real(program), predicted(program, profile)
        missed = Run(*(a / b - 1.0 for a, b in zip(said, ran, strict=True)))
        wrong += any(abs(a) > b for a, b in zip(missed, WORST, strict=True))
        print(
            f"{name}: {ran.seconds:.3f} s, predicted {said.seconds:.3f} s, {missed.seconds:+.1%}; "
            f"{ran.peak_bytes / 2**20:.0f} MiB, predicted {said.peak_bytes / 2**20:.0f} MiB, "
            f"{missed.peak_bytes:+.1%}"
        )
    print(f"claimed are {WORST.seconds:.0%} and {WORST.peak_bytes:.0%} on a quiet machine")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
