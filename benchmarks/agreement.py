"""Two roads to one step: Hugging Face's Llamas captured, and planned from their config.json.

    python benchmarks/agreement.py
captures a training step (eager and compiled, with and without recomputation) on an H200 that is not
there, predicts the same step with `train --framework transformers`, and prints both part by part,
in seconds and bytes. Needs torch and transformers, no GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import transformers

import trueflops as tf
from trueflops.capture.pretend.machine import Machine
from trueflops.capture.program import capture
from trueflops.catalog.models import model_record
from trueflops.model.config import Config
from trueflops.model.read import model_from
from trueflops.predict.captured.program import predict_program
from trueflops.predict.training.peaks import peak_of
from trueflops.records.recording import Recording
from trueflops.runtime import Term
from trueflops.units import GIBI


class Case(NamedTuple):
    """A model of the catalog with so many of its layers, and how it is trained."""

    model: str
    layers: int
    batch: int
    seq: int
    compiled: bool
    recompute: bool

    @property
    def framework(self) -> str:
        """Under which it is planned."""
        return "transformers-compiled" if self.compiled else "transformers"

    def __str__(self) -> str:
        again = ", recomputed" if self.recompute else ""
        mode = "compiled" if self.compiled else "eager"
        return f"{self.model}, {self.layers} layers, {self.batch}×{self.seq}, {mode}{again}"


class Part(NamedTuple):
    """One part of a step on both roads; `whole` is that of the captured one."""

    name: str
    captured: float
    planned: float
    whole: float

    @property
    def error(self) -> float:
        """Relative to the captured part."""
        return self.planned / self.captured - 1.0 if self.captured else 0.0


SHAPES = (("Llama-3-8B", 4, 2, 2048), ("Llama-3.2-1B", 4, 1, 1024))
CASES = [
    Case(*shape, compiled, recompute)
    for shape in SHAPES
    for compiled in (False, True)
    for recompute in (False, True)
]


def program(config: dict[str, Any], case: Case) -> Callable[[], Callable[[], None]]:
    """What a user would write: bf16, AdamW, gradients clipped."""

    def build() -> Callable[[], None]:
        fields = {k: v for k, v in config.items() if k not in ("model_type", "architectures")}
        settings = transformers.LlamaConfig(**fields)
        with torch.device("cuda"):
            model: Any = transformers.AutoModelForCausalLM.from_config(
                settings, dtype=torch.bfloat16
            )
        if case.recompute:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        model.train()
        if case.compiled:
            model.compile()
        optimizer = torch.optim.AdamW(model.parameters())
        ids = torch.zeros((case.batch, case.seq), dtype=torch.int64, device="cuda")

        def step() -> None:
            model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

        return step

    return build


def recorded(case: Case) -> Recording:
    """One step of it."""
    config = {**model_record(case.model)["config"], "num_hidden_layers": case.layers}
    return capture(lambda: program(config, case), Machine.like(tf.accelerator("H200")))


def compare(case: Case) -> Iterator[Part]:
    """Seconds and bytes of both roads."""
    where = tf.cluster("1xH200")
    profile = tf.profile_of(where.accelerator, case.framework)
    found = predict_program(recorded(case), tf.Clock(where, profile))
    config = {**model_record(case.model)["config"], "num_hidden_layers": case.layers}
    model = model_from(Config(config, case.model), case.model)
    asked = tf.Training(seq=case.seq, global_batch=case.batch, tokens=1e9)
    plan = tf.Plan(
        micro_batch=case.batch,
        recompute="full" if case.recompute else "none",
        optimizer="adamw-bf16",
        implementation="compiled" if case.compiled else "eager",
    )
    step = tf.Trainer(model, asked, where, profile).predict_one(plan)
    yield from _seconds(found.step.step, step.step)
    yield from _bytes(found.memory.by("category"), found.memory.peak_allocated_bytes, step.memory)


def _seconds(captured: Term, planned: Term) -> Iterator[Part]:
    whole = float(captured.value)
    names = dict.fromkeys(p.name for side in (captured, planned) for p in side["compute"].parts)
    for name in names:
        theirs, ours = (_value(side["compute"], name) for side in (captured, planned))
        yield Part(name, theirs, ours, whole)
    yield Part("optimizer", _value(captured, "optimizer"), _value(planned, "optimizer"), whole)
    yield Part("step", whole, float(planned.value), whole)


def _bytes(captured: dict[str, int], peak: int, planned: Term) -> Iterator[Part]:
    """At the peak: states, and all that comes and goes."""
    lasting = {
        "weights": ("parameters",),
        "gradients": ("gradients",),
        "optimizer states": ("optimizer state",),
    }
    for name, theirs in lasting.items():
        held = float(sum(captured.get(category, 0) for category in theirs))
        yield Part(name, held, _value(planned, name), peak)
    passing = ("activations", "recomputed activations", "temporary")
    ours = ("activations", "logits and loss", "working tensors", "communication buffers")
    yield Part(
        "activations and temporaries",
        float(sum(captured.get(c, 0) for c in passing)),
        sum(_value(planned, name) for name in ours),
        peak,
    )
    yield Part("peak", float(peak), float(peak_of(planned, "allocated").value), peak)


def _value(tree: Term, name: str) -> float:
    return sum(float(part.value) for part in tree.parts if part.name == name)


def main() -> None:
    """Print all cases."""
    for case in CASES:
        print(case)
        in_bytes = False
        for part in compare(case):
            in_bytes |= part.name == "weights"
            unit, scale = ("GiB", 1.0 / GIBI) if in_bytes else ("ms", 1e3)
            if max(part.captured, part.planned) > 0.001 * part.whole:
                print(
                    f"  {part.name:28} captured {part.captured * scale:8.2f} {unit:3}"
                    f"  planned {part.planned * scale:8.2f} {unit:3}  {100.0 * part.error:+6.1f} %"
                )


if __name__ == "__main__":
    main()
