"""Hugging Face Llamas: real training steps on a GPU beside what `trueflops capture` says of them.

    python benchmarks/captured_steps.py measure FILE.csv [--apart | --compiled | --compiled-apart]
    python benchmarks/captured_steps.py compare FILE.csv... [--on H200 | --profile PROFILE]
The first needs a GPU, the second none; both need torch and transformers. `program` is what a user
would write, and the same lines are run and captured.
"""

from __future__ import annotations

import argparse
import csv
import gc
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from steps import measure_step

SETTLE_SECONDS = 1.0
TIMED_SECONDS = 1.5
LEAST_TIMED = 5


class Case(NamedTuple):
    """One training step: a model, how it is run, a batch."""

    model: str
    precision: str  # bf16: everything; autocast: fp32 weights; fp32
    batch: int
    seq: int
    checkpoint: bool = False
    compiled: bool = False
    optimizer: str = "foreach"  # or fused
    clip: bool = False


MODELS = {
    "160M": {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
             "num_attention_heads": 12, "num_key_value_heads": 12, "vocab_size": 32000},
    "1B": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
           "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
           "head_dim": 64, "tie_word_embeddings": True},
    "3B": {"hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28,
           "num_attention_heads": 24, "num_key_value_heads": 8, "vocab_size": 128256,
           "head_dim": 128, "tie_word_embeddings": True},
    "8B": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
           "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256},
}  # fmt: skip

SEEN = (
    Case("160M", "bf16", 1, 2048),
    Case("160M", "bf16", 8, 2048),
    Case("160M", "autocast", 2, 2048),
    Case("160M", "autocast", 8, 2048, checkpoint=True),
    Case("160M", "bf16", 1, 16384, optimizer="fused", clip=True),
    Case("1B", "bf16", 1, 2048),
    Case("1B", "bf16", 4, 2048),
    Case("1B", "bf16", 8, 2048, checkpoint=True),
    Case("1B", "autocast", 1, 2048),
    Case("1B", "autocast", 4, 2048),
    Case("1B", "autocast", 1, 16384, checkpoint=True),
    Case("3B", "bf16", 1, 2048),
    Case("3B", "bf16", 8, 2048),
    Case("3B", "autocast", 2, 2048),
    Case("3B", "autocast", 8, 2048, checkpoint=True, optimizer="fused", clip=True),
    Case("3B", "bf16", 1, 16384),
    Case("8B", "bf16", 1, 2048),
    Case("8B", "bf16", 4, 2048, checkpoint=True),
    Case("8B", "bf16", 2, 2048, optimizer="fused", clip=True),
    Case("8B", "bf16", 1, 16384, checkpoint=True),
)
APART = (
    Case("160M", "bf16", 4, 2048),
    Case("160M", "bf16", 2, 2048, checkpoint=True, clip=True),
    Case("160M", "autocast", 1, 2048),
    Case("160M", "autocast", 1, 16384),
    Case("1B", "bf16", 2, 2048),
    Case("1B", "bf16", 8, 2048),
    Case("1B", "autocast", 2, 2048, checkpoint=True),
    Case("1B", "autocast", 8, 2048),
    Case("1B", "bf16", 1, 16384, optimizer="fused"),
    Case("3B", "bf16", 4, 2048),
    Case("3B", "bf16", 2, 2048, checkpoint=True),
    Case("3B", "autocast", 1, 2048),
    Case("3B", "autocast", 4, 2048, clip=True),
    Case("8B", "bf16", 1, 2048, checkpoint=True),
    Case("8B", "bf16", 4, 2048),
    Case("8B", "bf16", 8, 2048, checkpoint=True),
)
COMPILED = (
    Case("160M", "bf16", 1, 2048, compiled=True),
    Case("160M", "autocast", 8, 2048, compiled=True),
    Case("1B", "bf16", 4, 2048, compiled=True),
    Case("1B", "autocast", 2, 2048, compiled=True),
    Case("1B", "bf16", 2, 2048, compiled=True, checkpoint=True),
)
COMPILED_APART = (
    Case("160M", "bf16", 8, 2048, compiled=True),
    Case("160M", "autocast", 2, 2048, compiled=True, checkpoint=True),
    Case("1B", "bf16", 1, 16384, compiled=True),
    Case("1B", "bf16", 1, 2048, compiled=True),
    Case("1B", "autocast", 4, 2048, compiled=True),
    Case("3B", "bf16", 4, 2048, compiled=True),
    Case("8B", "bf16", 1, 2048, compiled=True),
)


def program(case: Case) -> Callable[[], Any]:
    """Build the model and its optimizer on the GPU; the step trains on one random batch."""
    config = LlamaConfig(**MODELS[case.model], use_cache=False)
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config)
    if case.precision == "bf16":
        model = model.to(torch.bfloat16)
    if case.checkpoint:
        model.gradient_checkpointing_enable()
    model.train()
    run = torch.compile(model) if case.compiled else model
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-5, fused=True if case.optimizer == "fused" else None
    )
    ids = torch.randint(0, config.vocab_size, (case.batch, case.seq), device="cuda")
    mixed = torch.autocast("cuda", torch.bfloat16, enabled=case.precision == "autocast")

    def step() -> Any:
        with mixed:
            loss = run(input_ids=ids, labels=ids).loss
        loss.backward()
        if case.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def measure(case: Case) -> dict[str, Any]:
    """Seconds of the median step and the peak of what was allocated and reserved."""
    return {
        **case._asdict(),
        **measure_step(program(case), SETTLE_SECONDS, TIMED_SECONDS, LEAST_TIMED),
    }


def write(path: Path, cases: Iterable[Case]) -> None:
    """Measure every case; the file is written anew after each, so that none is lost."""
    rows: list[dict[str, Any]] = []
    for case in cases:
        try:
            rows.append(measure(case))
        except torch.OutOfMemoryError:
            print(f"{case}: out of memory", flush=True)
            continue
        finally:
            torch._dynamo.reset()
            gc.collect()
            torch.cuda.empty_cache()
        print(rows[-1], flush=True)
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


def compare(files: Iterable[Path], on: str, profile: str | None) -> None:
    """Capture every case of the files and print how far each prediction is off."""
    from judged import clock_for, judge, predicted, summary  # measuring needs torch alone

    clock = clock_for(on, profile)
    for path in files:
        rows = []
        for row in csv.DictReader(path.open()):
            case = case_of(row)
            rows.append(judge(predicted(partial(program, case), clock), row))
            how = " ".join(str(v) for v in case[:4]) + "".join(
                f" {name}" for name in ("checkpoint", "compiled", "clip") if getattr(case, name)
            )
            print(f"{how:42} {rows[-1]}")
        print(f"{path.name}: {summary(rows)}")


def case_of(row: dict[str, str]) -> Case:
    """The case of a row that `write` wrote."""
    flags = {name: row[name] == "True" for name in ("checkpoint", "compiled", "clip")}
    return Case(
        row["model"], row["precision"], int(row["batch"]), int(row["seq"]),
        optimizer=row["optimizer"], **flags,
    )  # fmt: skip


def main() -> None:
    """Read the command line."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("command", choices=("measure", "compare"))
    words.add_argument("files", type=Path, nargs="+")
    words.add_argument("--on", default="H200")
    words.add_argument("--profile")
    which = words.add_mutually_exclusive_group()
    which.add_argument("--apart", action="store_const", const=APART, dest="cases")
    which.add_argument("--compiled", action="store_const", const=COMPILED, dest="cases")
    which.add_argument("--compiled-apart", action="store_const", const=COMPILED_APART, dest="cases")
    asked = words.parse_args()
    if asked.command == "compare":
        compare(asked.files, asked.on, asked.profile)
    else:
        write(asked.files[0], asked.cases or SEEN)


if __name__ == "__main__":
    main()
