"""How far loads lie from their prediction: the errors of first tokens, and of tokens in a crowd.

python benchmarks/load_errors.py [TABLE…]     serving points and latencies under a stated load

Of each quantity: the share of rows that are later than their interval reaches, and sooner, where
every model on an engine counts once in its table; and how many times as far to its side an interval
would have to reach for one row in twenty to be later, or sooner. `request_error` and
`request_later` of frameworks.toml leave one first token in twenty later of the tables that are
usual here, CROWD_ERROR of serve/interval.py one time per token in ten; the second edition of
truth/unseen judges both.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from math import log
from pathlib import Path
from typing import Final

import numpy as np

from trueflops.records.tables import read_table
from trueflops.verify.findings import Finding
from trueflops.verify.profiles import best_known
from trueflops.verify.recognise import verify_tables

ROOT: Final = Path(__file__).parents[1]
OTHERS: Final = Path(os.environ.get("TRUEFLOPS_TRUTH") or ROOT.parent / "shared" / "truth")
USUAL: Final = (
    OTHERS / "serving_points.csv",
    OTHERS / "serving_latency.csv",
    ROOT / "truth" / "unseen" / "serving_latency.csv",
)
ASKED: Final = {"ttft_seconds": "time to first token", "tpot_seconds": "time per token"}
BEYOND: Final = 0.05
FARTHEST: Final = 1.5  # of a logarithm: beyond a factor of 4.5 a row was misread, not mispredicted


def main(paths: list[Path]) -> None:
    """Print both quantities of all tables together."""
    found = [
        (path, row)
        for path in paths
        for row in verify_tables([read_table(path)], best_known).rows
        if row.scored and row.quantity in ASKED
    ]
    for quantity, name in ASKED.items():
        asked = [(path, row) for path, row in found if row.quantity == quantity]
        own = [(path, row) for path, row in asked if abs(log(1.0 + row.error)) <= FARTHEST]
        times = Counter((path, row.group) for path, row in own)
        weights = np.array([1.0 / times[path, row.group] for path, row in own])
        places = np.array([place(row) for _, row in own])
        print(f"{name}: {len(own)} of {len(asked)} rows, {len(times)} models on engines")
        for side, sign in (("later", 1.0), ("sooner", -1.0)):
            share = float(weights[sign * places > 1.0].sum() / weights.sum())
            order = np.argsort(-sign * places)
            left = np.searchsorted(np.cumsum(weights[order]), BEYOND * weights.sum())
            reach = sign * places[order][left]
            print(f"  {side}: {share:.1%} beyond; one in twenty at {reach:.2f} of the reach")


def place(row: Finding) -> float:
    """Where a measured value lies: 0 as predicted, 1 and −1 at the ends of the interval."""
    apart = log(row.measured / row.predicted)
    end = row.high if apart > 0.0 else row.low
    return apart / abs(log(end / row.predicted))


if __name__ == "__main__":
    main([Path(arg) for arg in sys.argv[1:]] or list(USUAL))
