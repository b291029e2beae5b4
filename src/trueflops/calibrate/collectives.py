"""Curves of collectives inside a node: NCCL's three protocols, with latencies and rates as seen.

    t = smooth min over LL, LL128, Simple of  base + hops·latency + moved / (rate·bus)
on the tiers of the catalog's own node, or on one that the rows themselves tell of, so that what is
fitted is what the clock computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from trueflops.calibrate.datasets import Dataset, row_sources, rows_of, source_of
from trueflops.calibrate.fit import TOLERATED, at_bounds, solve_landmarks
from trueflops.calibrate.kernels import summarise
from trueflops.catalog import PROTOCOLS, Tier, accelerator, cluster
from trueflops.clock.collectives import REACH, collective_features, collective_transfer
from trueflops.clock.law import Parameter
from trueflops.graph.kinds import CollectiveKind
from trueflops.interop.kernels import Batch, batch_kernels
from trueflops.profile import Curve, CurveKey, Landmarks
from trueflops.records.measured import MEASURED
from trueflops.records.rows import by_chip, identity, measured_seconds
from trueflops.records.split import held_out
from trueflops.records.tables import Table
from trueflops.sizes import Array
from trueflops.units import MICRO

LANDMARKS: Final = 30
FEWEST_ROWS_TO_SPLIT: Final = 40  # fewer are all fitted, and judged by cross-validation
PARTS: Final = 5
PULL: Final = TOLERATED  # towards what is usual, where few rows cannot tell
ROWS_PER_LANDMARK: Final = 2  # where rows are few
NOISE: Final = 0.3
PARAMETERS: Final = {
    "base_ll": Parameter(7.0 * MICRO, 0.0, 60.0 * MICRO, "before the first hop", "both", unit="s"),
    "base_ll128": Parameter(
        12.0 * MICRO, 0.0, 80.0 * MICRO, "before the first hop", "both", unit="s"
    ),
    "base_simple": Parameter(
        9.0 * MICRO, 0.0, 80.0 * MICRO, "before the first hop", "both", unit="s"
    ),
    "hop_ll": Parameter(0.6 * MICRO, 0.0, 8.0 * MICRO, "one step of a ring", "low", unit="s"),
    "hop_ll128": Parameter(1.5 * MICRO, 0.0, 12.0 * MICRO, "one step of a ring", "low", unit="s"),
    "hop_simple": Parameter(3.0 * MICRO, 0.0, 30.0 * MICRO, "one step of a ring", "low", unit="s"),
    "rate_ll": Parameter(0.2, 0.003, 1.0, "of the link, two words in four being flags"),
    "rate_ll128": Parameter(0.5, 0.01, 1.4, "of the link"),
    "rate_simple": Parameter(0.8, 0.03, 2.5, "of the link; switches that reduce exceed it"),
    "crowding": Parameter(0.1, -1.0, 2.5, "bandwidth lost with each doubling of the ranks"),
    "blend": Parameter(6.0, 2.0, 40.0, "how sharply protocols are switched", "both"),
}


def collective_curves(tables: Iterable[Table]) -> dict[str, dict[CurveKey, Curve]]:
    """Chip → key → curve, for every collective and library in the tables."""
    found: dict[str, dict[CurveKey, Curve]] = {}
    for table in tables:
        for name, rows in by_chip(table):
            chip = accelerator(name).name
            for batch in batch_kernels(rows)[0]:
                if batch.collective is not None:
                    tiers = cluster(f"{batch.widest}x{chip}").tiers
                    found.setdefault(chip, {}).update(fitted_collectives([batch], tiers, chip))
    return found


def fitted_collectives(
    batches: Iterable[Batch], tiers: tuple[Tier, ...], chip: str, dataset: Dataset | None = None
) -> dict[CurveKey, Curve]:
    """Key → curve, for every collective and library in the batches."""
    found = {}
    for batch in batches:
        if (sent := batch.collective) is None:
            continue
        seconds = np.array([measured_seconds(row) for row in batch.rows])
        group, payload = np.asarray(sent.group), np.asarray(sent.payload.bytes)
        seen = _Seen(sent.kind, group, payload, seconds, tiers)
        if seen.few:
            parts = np.argsort(np.lexsort((payload, group))) % PARTS
            misses = [seen.missed(*seen.fit(parts != i), parts == i) for i in np.unique(parts)]
            fitted = np.ones(len(seconds), bool)
            point, marks = seen.fit(fitted)
        else:
            fitted = np.array([not held_out(identity(row)) for row in batch.rows])
            point, marks = seen.fit(fitted)
            misses = [seen.missed(point, marks, ~fitted)]
        held, error = summarise(np.concatenate(misses))
        sources = row_sources(batch.table, batch.rows, chip, dataset)
        sources = tuple(compress(sources, fitted))
        key = CurveKey("collective", operation=sent.kind, kernel=sent.library)
        found[key] = Curve(
            _values(point), error, "measured", source_of(sources), marks, len(sources), held,
            at_bounds(PARAMETERS, point / seen.slowness), rows=rows_of(sources),
        )  # fmt: skip
    return found


def plain_tiers(rows: Iterable[Mapping[str, str | int | float]]) -> tuple[Tier, ...]:
    """One tier for a machine that no catalog knows: the best that was seen on it.

    Rows are those of `trueflops measure`: op, gpus, busbw, latency_us.
    """
    rows = list(rows)
    if not rows:
        return ()
    hop = min(float(row[MEASURED]) * MICRO / _steps(row) for row in rows)
    widest = max(float(row["gpus"]) for row in rows)
    fastest = max(float(row["busbw"]) for row in rows)
    return (Tier("plain", widest, fastest, dict.fromkeys(PROTOCOLS, hop), "switch", "measured"),)


def _steps(row: Mapping[str, str | int | float]) -> float:
    """Hops of a message, one after another, around a ring."""
    around = float(row["gpus"]) - 1.0
    return {"all_reduce": 2.0 * around, "all_to_all": 1.0}.get(str(row["op"]), around)


def _values(point: Array) -> dict[str, float]:
    return {**dict(zip(PARAMETERS, point.tolist(), strict=True)), "efficiency": 1.0}


@dataclass(frozen=True)
class _Seen:
    """Measured collectives of one kind, and the tiers they ran on."""

    kind: CollectiveKind
    group: Array
    payload: Array
    seconds: Array
    tiers: tuple[Tier, ...]

    @property
    def few(self) -> bool:
        return len(self.seconds) < FEWEST_ROWS_TO_SPLIT

    def missed(self, point: Array, marks: Landmarks | None, rows: NDArray[np.bool_]) -> Array:
        """log(predicted / measured) of some rows."""
        law = Curve(_values(point), 0.0, "measured", "", marks)
        group, payload = self.group[rows], self.payload[rows]
        taken = collective_transfer(self.kind, group, payload, 1.0, self.tiers, law).seconds
        return np.log(np.asarray(taken) / self.seconds[rows])

    def fit(self, rows: NDArray[np.bool_]) -> tuple[Array, Landmarks | None]:
        """Parameters, and landmarks of what they leave over."""
        low, high, usual = (
            np.array([getattr(p, bound) for p in PARAMETERS.values()]) * self.slowness
            for bound in ("low", "high", "usual")
        )
        scale = np.maximum(np.abs(usual), (high - low) / 50.0)

        def misses(point: Array) -> Array:
            pull = PULL * (point - usual) / scale
            missed = self.missed(point, None, rows)
            return np.concatenate([missed, pull]) if self.few else missed

        best = least_squares(
            misses, usual, bounds=(low, high), x_scale=scale,
            loss="soft_l1", f_scale=TOLERATED, diff_step=1e-3, max_nfev=80,
        ).x  # fmt: skip
        count = int(rows.sum()) // ROWS_PER_LANDMARK if self.few else LANDMARKS
        if not count:
            return best, None
        features = collective_features(self.group[rows], self.payload[rows])
        left = -self.missed(best, None, rows)
        return best, solve_landmarks(features, left, np.array(REACH), count, NOISE)

    @property
    def slowness(self) -> Array:
        """By how much latencies exceed a GPU's, where the fastest row is slower than any GPU's."""
        base, hop = PARAMETERS["base_ll"], PARAMETERS["hop_ll"]
        fastest = float(self.seconds.min())
        longer = fastest / (base.usual + hop.usual) if fastest > base.high else 1.0
        return np.array([longer if p.startswith(("base_", "hop_")) else 1.0 for p in PARAMETERS])
