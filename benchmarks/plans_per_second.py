"""How many training plans a second one core predicts, and how much memory a million take.

Every plan is distinct and possible: tp, pp, vpp, cp, dp, ZeRO stage, micro-batch and the number of
recomputed layers of Llama-3.1-70B on 512 H100s. Each gets its full tree: every part of
its step time and of its fullest accelerator's memory; parts that plans share are computed once, and
each plan has its own step time, memory and whether it fits. Run with one thread:

    OMP_NUM_THREADS=1 python benchmarks/plans_per_second.py [--plans 1000000]
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from itertools import product
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from trueflops.catalog import cluster
from trueflops.model import read_model
from trueflops.plan import Plan, possible
from trueflops.predict import Trainer
from trueflops.profile import profile_of
from trueflops.units import GIBI
from trueflops.workload import Training

SEQ, BATCH = 8192, 4096


def many_plans(count: int, accelerators: int) -> Plan:
    """The first `count` possible plans of a large space, as one Plan of arrays."""
    model = read_model("Llama-3.1-70B")
    powers = [2.0**i for i in range(15)]
    axes = {
        "recompute_layers": [float(n) for n in range(81)],
        "micro_batch": [1.0, 2.0, 4.0, 8.0],
        "zero": [0.0, 1.0, 2.0, 3.0],
        "vpp": [1.0, 2.0, 4.0, 5.0, 10.0, 20.0],
        "cp": [1.0, 2.0, 4.0],
        "pp": [p for p in powers if p <= 16],
        "tp": [1.0, 2.0, 4.0, 8.0],
        "dp_replicate": [1.0, 2.0, 4.0],
    }
    rows = np.array(list(product(*axes.values())))
    columns: dict[str, Any] = {name: rows[:, i] for i, name in enumerate(axes)}
    inner = columns["tp"] * columns["pp"] * columns["cp"] * columns["dp_replicate"]
    fits = accelerators % inner == 0
    columns = {name: c[fits] for name, c in columns.items()}
    columns["dp_shard"] = accelerators / inner[fits]
    plan = Plan(**columns, sp=True, recompute="full")
    fine = possible(plan, model, accelerators, Training(SEQ, BATCH, 1e12))
    return plan.take(np.flatnonzero(fine)[:count])


def main() -> None:
    """Build the plans, then time predicting them."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--plans", type=int, default=1_000_000)
    wanted = options.parse_args().plans
    where = cluster("512xH100")
    model = read_model("Llama-3.1-70B")
    trainer = Trainer(model, Training(SEQ, BATCH, 1e12), where, profile_of(where.accelerator))
    plans = many_plans(wanted, where.count)
    best = np.inf
    for _ in range(3):
        start = time.perf_counter()
        fitting = 0
        for _, step in trainer.predict_in_parts(plans):
            fitting += int(np.count_nonzero(step.fits_surely))
        best = min(best, time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"{plans.count:,} plans of {model.name} on {where.count} H100 in {best:.2f} s")
    print(f"{plans.count / best:,.0f} plans a second on one core; {fitting:,} fit")
    print(f"{peak / GIBI:.2f} GiB peak memory of the process")


if __name__ == "__main__":
    main()
