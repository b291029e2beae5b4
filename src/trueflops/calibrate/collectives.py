"""Curves of collectives inside a node: NCCL's three protocols, with latencies and rates as seen.

    t = smooth min over LL, LL128, Simple of  base + hops·latency + moved / (rate·bus)
on the tiers of the catalog's own node, so that what is fitted is what the clock computes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from trueflops.calibrate.fit import TOLERATED, solve_landmarks
from trueflops.calibrate.kernels import summarise
from trueflops.catalog import accelerator, cluster
from trueflops.clock.collectives import REACH, collective_features, collective_seconds
from trueflops.clock.law import Parameter
from trueflops.interop.kernels import batch_kernels
from trueflops.interop.tables import Table
from trueflops.profile import Curve, Landmarks
from trueflops.sizes import Array
from trueflops.verify.kernels import MEASURED, by_chip, identity
from trueflops.verify.split import held_out

MICRO: Final = 1e-6
LANDMARKS: Final = 30
NOISE: Final = 0.3
PARAMETERS: Final = {
    "base_ll": Parameter(7.0 * MICRO, 0.0, 60.0 * MICRO, "before the first hop"),
    "base_ll128": Parameter(12.0 * MICRO, 0.0, 80.0 * MICRO, "before the first hop"),
    "base_simple": Parameter(9.0 * MICRO, 0.0, 80.0 * MICRO, "before the first hop"),
    "hop_ll": Parameter(0.6 * MICRO, 0.0, 8.0 * MICRO, "one step of a ring"),
    "hop_ll128": Parameter(1.5 * MICRO, 0.0, 12.0 * MICRO, "one step of a ring"),
    "hop_simple": Parameter(3.0 * MICRO, 0.0, 30.0 * MICRO, "one step of a ring"),
    "rate_ll": Parameter(0.2, 0.003, 1.0, "of the link, two words in four being flags"),
    "rate_ll128": Parameter(0.5, 0.01, 1.4, "of the link"),
    "rate_simple": Parameter(0.8, 0.03, 2.5, "of the link; switches that reduce exceed it"),
    "crowding": Parameter(0.1, -1.0, 2.5, "bandwidth lost with each doubling of the ranks"),
    "blend": Parameter(6.0, 2.0, 40.0, "how sharply protocols are switched"),
}


def collective_curves(tables: Iterable[Table], source: str) -> dict[str, dict[str, Curve]]:
    """Chip → curve name → curve, for every collective and library in the tables."""
    found: dict[str, dict[str, Curve]] = {}
    for table in tables:
        for name, rows in by_chip(table):
            batches, _ = batch_kernels(rows)
            for batch in batches:
                if batch.collective is None:
                    continue
                sent, chip = batch.collective, accelerator(name).name
                seconds = np.array([float(row[MEASURED]) for row in batch.rows]) * MICRO
                apart = np.array([held_out(identity(row)) for row in batch.rows])
                curve = _curve(
                    chip, sent.kind, np.asarray(sent.group), np.asarray(sent.payload.bytes),
                    seconds, apart, source,
                )  # fmt: skip
                key = f"collective.{sent.kind}" + (f".{sent.library}" if sent.library else "")
                found.setdefault(chip, {})[key] = curve
    return found


def _curve(
    chip: str,
    kind: str,
    group: Array,
    payload: Array,
    seconds: Array,
    apart: NDArray[np.bool_],
    source: str,
) -> Curve:
    tiers = cluster(f"{int(group.max())}x{chip}").tiers
    low, high, usual = (
        np.array([getattr(p, bound) for p in PARAMETERS.values()])
        for bound in ("low", "high", "usual")
    )

    def misses(point: Array, rows: NDArray[np.bool_], marks: Landmarks | None = None) -> Array:
        values = {**dict(zip(PARAMETERS, point.tolist(), strict=True)), "efficiency": 1.0}
        law = Curve(values, 0.0, "measured", "", marks)
        taken = collective_seconds(kind, group[rows], payload[rows], 1.0, tiers, law)
        return np.log(np.asarray(taken) / seconds[rows])

    best = least_squares(
        misses, usual, bounds=(low, high), x_scale=np.maximum(np.abs(usual), (high - low) / 50.0),
        loss="soft_l1", f_scale=TOLERATED, diff_step=1e-3, max_nfev=80, args=(~apart,),
    )  # fmt: skip
    fitted, reach = ~apart, np.array(REACH)
    features = collective_features(group[fitted], payload[fitted])
    marks = solve_landmarks(features, -misses(best.x, fitted), reach, LANDMARKS, NOISE)
    held, error = summarise(misses(best.x, apart, marks))
    values = {**dict(zip(PARAMETERS, best.x.tolist(), strict=True)), "efficiency": 1.0}
    return Curve(values, error, "measured", source, marks, int((~apart).sum()), held)
