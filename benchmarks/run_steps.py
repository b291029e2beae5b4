"""Step time of real plans on this machine's cores, predicted by its measured profile.

    trueflops measure --device cpu --budget 5m -o cpu.json
    torchrun --nproc-per-node 8 -m trueflops.measure --device cpu --collectives -o cpu.json
    trueflops measure fit cpu.json
    python benchmarks/run_steps.py cpu.json [--only N] [--calibrate own.json]    needs torch

Every plan is run by `trueflops run`; its seconds stand beside those that the profile predicts for
as many ranks on these cores. With --calibrate every second plan corrects the profile, and the error
of the others is shown before and after. Exit 1: the median error is above MEDIAN, or the ranking
below RANKING. The machine must be quiet.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

MEDIAN, RANKING = 0.35, 0.8
STEPS = 9
CONFIG = {
    "model_type": "llama", "vocab_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 4,
    "max_position_embeddings": 512, "tie_word_embeddings": False,
}  # fmt: skip
SHAPES = {"narrow": (4, 128, 352), "wide": (4, 256, 704), "deep": (12, 128, 352)}
"""Layers, hidden, ffn."""


class Case(NamedTuple):
    """A plan of a model."""

    shape: str
    plan: dict[str, Any]
    seq: int = 128
    batch: int = 8


CASES = [
    Case("wide", {}),
    Case("narrow", {"dp_replicate": 2}),
    Case("deep", {}, seq=64),
    Case("wide", {"dp_replicate": 2}, batch=16),
    Case("wide", {"tp": 2}),
    Case("deep", {"dp_shard": 2, "zero": 3}),
    Case("narrow", {}, seq=256),
    Case("wide", {"pp": 2, "micro_batch": 2}, batch=16),
    Case("deep", {"dp_shard": 2, "zero": 1}, seq=64),
    Case("narrow", {"dp_shard": 4, "zero": 2}, batch=16),
    Case("wide", {"tp": 2, "sp": True, "dp_replicate": 2}),
    Case("narrow", {"pp": 4}, batch=16),
    Case("wide", {"dp_replicate": 8}, batch=16),
    Case("narrow", {"cp": 2}, seq=256),
]


class Step(NamedTuple):
    """What became of one."""

    case: Case
    measured: float
    predicted: float

    @property
    def off(self) -> float:
        """How far the prediction is from the truth."""
        return self.predicted / self.measured - 1.0


def ran(case: Case, profile: str, folder: Path, *more: str) -> Step:
    """Run one plan."""
    layers, hidden, ffn = SHAPES[case.shape]
    sizes = {"num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": ffn}
    model = folder / case.shape
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps(CONFIG | sizes))
    plan = folder / "plan.json"
    plan.write_text(json.dumps({"micro_batch": 1} | case.plan))
    ranks = int(np.prod([v for k, v in case.plan.items() if k in ("tp", "pp", "cp", "dp_replicate",
                                                                  "dp_shard")]))  # fmt: skip
    named = json.loads(Path(profile).read_text())["accelerator"]
    words = [
        sys.executable, "-m", "trueflops", "run", str(plan), "--model", str(model),
        "--steps", str(STEPS), "--seq", str(case.seq), "--global-batch", str(case.batch),
        "--device", "cpu", "--profile", profile, "--on", f"{ranks}x{named}", "--json", *more,
    ]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{case}: {done.stderr[-2000:]}")
    answer = json.loads(done.stdout)
    return Step(case, answer["measured_step_seconds"], answer["predicted_step_seconds"])


def spearman(one: list[float], other: list[float]) -> float:
    """The correlation of ranks."""
    ranks = [np.argsort(np.argsort(np.array(each))).astype(float) for each in (one, other)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def judged(steps: list[Step], what: str) -> tuple[float, float]:
    """Median error and ranking, said."""
    middle = statistics.median(abs(step.off) for step in steps)
    order = spearman([s.predicted for s in steps], [s.measured for s in steps])
    print(f"{what}: {len(steps)} plans, median error {middle:.0%}, Spearman {order:.2f}")
    return middle, order


def main() -> int:
    """Run all, say how far off the predictions are."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("profile")
    flags.add_argument("--only", type=int, default=len(CASES))
    flags.add_argument("--calibrate", metavar="OWN.json")
    asked = flags.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, steps = Path(name), []
        for place, case in enumerate(CASES[: asked.only]):
            teaches = asked.calibrate and place % 2 == 0
            more = ["--calibrate", asked.calibrate] if teaches else []
            step = ran(case, asked.profile, folder, *more)
            steps.append(step)
            words = json.dumps(case.plan).replace('"', "")
            print(f"{case.shape:7}{words:44}{case.seq:4}{case.batch:4}  measured "
                  f"{step.measured:7.3f} s  predicted {step.predicted:7.3f} s  "
                  f"{step.off:+.0%}", flush=True)  # fmt: skip
        middle, order = judged(steps, "by the profile")
        if asked.calibrate:
            others = steps[1::2]
            judged(others, "of these, not used to correct it, before")
            again = [ran(step.case, asked.calibrate, folder) for step in others]
            judged([b._replace(measured=a.measured) for a, b in zip(others, again, strict=True)],
                   "the same, corrected by the rest")  # fmt: skip
    return int(middle > MEDIAN or order < RANKING)


if __name__ == "__main__":
    raise SystemExit(main())
