"""Plans carried out on one GPU beside their prediction: `python benchmarks/run_on_gpu.py`.

Runs `trueflops run` on a 1B and an 8B Llama and GPT-2 XL, and prints step time and peak memory,
predicted and measured. Needs torch and a GPU of some 140 GB; the aim is 6 % in time, 3 % in memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

MIXED = {"compute": "bf16"}
NARROW = {
    "compute": "bf16", "parameter_dtype": "bf16", "gradient_dtype": "bf16",
    "optimizer": "adamw-bf16",
}  # fmt: skip


class Case(NamedTuple):
    """One plan of one model."""

    model: str
    plan: Mapping[str, Any]
    seq: int
    global_batch: int


CASES = (
    Case("Llama-3.2-1B", MIXED | {"micro_batch": 1}, 4096, 4),
    Case("Llama-3.2-1B", NARROW | {"micro_batch": 1}, 4096, 4),
    Case("Llama-3.2-1B", MIXED | {"micro_batch": 4}, 2048, 8),
    Case("Llama-3.2-1B", MIXED | {"micro_batch": 4, "recompute": "full"}, 4096, 8),
    Case("GPT-2-XL", MIXED | {"micro_batch": 4}, 1024, 16),
    Case("Llama-3.1-8B", NARROW | {"micro_batch": 1}, 4096, 4),
    Case("Llama-3.1-8B", NARROW | {"micro_batch": 2, "recompute": "full"}, 4096, 4),
)


def ran(case: Case, on: str, steps: int) -> dict[str, Any]:
    """What `trueflops run --json` answers."""
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.json"
        plan.write_text(json.dumps(case.plan))
        words = [
            sys.executable, "-m", "trueflops", "run", str(plan), "--model", case.model, "--on", on,
            "--seq", str(case.seq), "--global-batch", str(case.global_batch),
            "--steps", str(steps), "--json",
        ]  # fmt: skip
        found = subprocess.run(words, capture_output=True, text=True, check=False)
    if found.returncode:
        raise SystemExit(found.stderr)
    answer: dict[str, Any] = json.loads(found.stdout)
    return answer


def main() -> None:
    """Print one line a plan."""
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--on", default="1xH200")
    flags.add_argument("--steps", type=int, default=15)
    options = flags.parse_args()
    print("model          plan                                    step ms  predicted      "
          " peak GB  predicted")  # fmt: skip
    for case in CASES:
        answer = ran(case, options.on, options.steps)
        rank = answer["ranks"][0]
        took, wanted = answer["measured_step_seconds"], answer["predicted_step_seconds"]
        peak, held = rank["peak_bytes"], rank["predicted_peak_bytes"]
        width = "bf16 weights" if case.plan.get("parameter_dtype") else "fp32 weights"
        again = ", recompute" if case.plan.get("recompute") else ""
        words = f"{width}, {case.plan['micro_batch']} × {case.seq:,}{again}"
        print(
            f"{case.model:14} {words:38} {took * 1e3:8.1f} {wanted * 1e3:8.1f} "
            f"({wanted / took - 1.0:+.1%}) {peak / 1e9:8.2f} {held / 1e9:8.2f} "
            f"({held / peak - 1.0:+.1%})",
            flush=True,
        )


if __name__ == "__main__":
    main()
