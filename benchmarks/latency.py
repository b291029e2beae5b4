"""How long a user waits: `trueflops --help`, a whole command, and single predictions in process.

python benchmarks/latency.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

from trueflops.catalog import cluster
from trueflops.model import read_model
from trueflops.plan import Plan
from trueflops.predict import Server, Trainer
from trueflops.profile import profile_of
from trueflops.workload import Serving, Training

TRAINING = {
    "Llama-3.1-70B": ("64xH100", Plan(tp=8, sp=True, pp=4, dp_shard=2, zero=1, recompute="full")),
    "Mixtral-8x7B": ("64xH100", Plan(tp=2, sp=True, dp_shard=32, zero=1, ep=8)),
    "DeepSeek-V3": ("2048xH800", Plan(pp=16, dp_shard=128, zero=1, ep=64)),
}


def milliseconds(do: Callable[[], object], times: int) -> float:
    """The median of some runs, after one to warm up."""
    do()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        do()
        taken.append(time.perf_counter() - start)
    return 1e3 * statistics.median(taken)


def command(*words: str) -> Callable[[], object]:
    """A whole process, as a shell would start it."""
    return lambda: subprocess.run(
        [sys.executable, "-m", "trueflops", *words], check=True, capture_output=True
    )


def _fresh(like: Trainer, lengths: Iterator[int]) -> Trainer:
    """A trainer that remembers nothing, and is asked of a length that nobody asked of before."""
    asked = replace(like.workload, seq=next(lengths))
    return Trainer(like.model, asked, like.cluster, like.profile)


def main() -> None:
    """Print every figure."""
    print(f"{milliseconds(command('--help'), 15):7.1f} ms  trueflops --help")
    words = ("train", "Llama-3.1-70B", "--on", "64xH100")
    print(f"{milliseconds(command(*words), 7):7.1f} ms  trueflops {' '.join(words)} (a search)")
    for name, (on, plan) in TRAINING.items():
        where = cluster(on)
        asked = Training(4096, 2048, 1e12)
        trainer = Trainer(read_model(name), asked, where, profile_of(where.accelerator))
        lengths = count(4096, 8)
        cold = milliseconds(lambda: _fresh(trainer, lengths).predict_one(plan), 50)  # noqa: B023
        warm = milliseconds(lambda: trainer.predict_one(plan), 50)  # noqa: B023
        print(f"{cold:7.2f} ms  one training plan of {name}; {warm:.2f} ms for a sibling of it")
    where = cluster("8xH100")
    server = Server(
        read_model("Llama-3.1-70B"),
        Serving(1024, 256, 64),
        where,
        profile_of(where.accelerator),
    )
    taken = milliseconds(lambda: server.predict(Plan(tp=8)), 50)
    print(f"{taken:7.2f} ms  one serving point of Llama-3.1-70B")


if __name__ == "__main__":
    main()
