"""Fitting a law to measured kernels: its few parameters first, then landmarks of what is left.

Both see log(time), so that a kernel of a microsecond weighs as much as one of a second, and both
are robust: tables hold outliers (a kernel chosen badly, a clock that fell) that teach nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from trueflops.calibrate.datasets import RowSource
from trueflops.clock.law import Law, Parameter, kernel, residual
from trueflops.clock.silicon import Silicon
from trueflops.clock.streams import STREAM, StreamWork
from trueflops.profile import Landmarks
from trueflops.sizes import Array

TOLERATED: Final = 0.05  # errors of log(time) beyond this count linearly
MOST_ROWS: Final = 2500  # of one table, enough for fifteen parameters
PRIOR_ROWS: Final = 1.0
ROUNDS: Final = 6  # of reweighting
LEAST_SHARE: Final = 0.3  # what a matmul takes at least of a row that also casts its input


@dataclass(frozen=True)
class Sample:
    """Measured kernels of one class on one chip. `cast_bytes` of a row that narrows its input.

    `sources` says of each row where it comes from.
    """

    chip: Silicon
    work: Any
    seconds: Array
    cast_bytes: Array | None = None
    sources: tuple[RowSource, ...] = ()

    def take(self, rows: NDArray[np.intp]) -> Sample:
        """Some of the rows."""
        cast = None if self.cast_bytes is None else self.cast_bytes[rows]
        sources = tuple(self.sources[row] for row in rows.tolist()) if self.sources else ()
        return Sample(self.chip, pick(self.work, rows), self.seconds[rows], cast, sources)


def join(samples: Sequence[Sample]) -> Sample:
    """Samples of one chip and law as one."""
    if len(samples) == 1:
        return samples[0]
    lengths = [len(s.seconds) for s in samples]
    casts = [
        np.zeros(count) if s.cast_bytes is None else s.cast_bytes
        for s, count in zip(samples, lengths, strict=True)
    ]
    cast = np.concatenate(casts)
    seconds = np.concatenate([s.seconds for s in samples])
    work = _joined([s.work for s in samples], lengths)
    sources = tuple(source for s in samples for source in s.sources)
    return Sample(samples[0].chip, work, seconds, cast if cast.any() else None, sources)


def _joined(works: Sequence[Any], lengths: Sequence[int]) -> Any:
    first = works[0]
    if isinstance(first, tuple):
        return type(first)(*(_joined(parts, lengths) for parts in zip(*works, strict=True)))
    if isinstance(first, np.ndarray):
        parts = zip(works, lengths, strict=True)
        return np.concatenate([np.broadcast_to(w.reshape(1, -1), (1, n)) for w, n in parts], axis=1)
    return first


def pick(work: Any, rows: NDArray[np.intp]) -> Any:
    """Some rows of a law's work: a NamedTuple of arrays, numbers, words and NamedTuples."""
    if isinstance(work, tuple):
        return type(work)(*(pick(part, rows) for part in work))
    several = isinstance(work, np.ndarray) and work.ndim > 0 and work.shape[-1] > 1
    return work[..., rows] if several else work


CAST: Final = {name: STREAM.parameters[name] for name in ("start_cycles", "bandwidth")}


def cast_seconds(sample: Sample, values: dict[str, float]) -> Array:
    """Seconds that narrowing the input takes before the product itself."""
    if sample.cast_bytes is None:
        return np.zeros_like(sample.seconds)
    taken = STREAM.formula(StreamWork(sample.cast_bytes), sample.chip, values)
    return np.where(sample.cast_bytes > 0.0, taken, 0.0)


@dataclass(frozen=True)
class Fitted:
    """Parameters of a law, and of the cast before it where rows had one.

    `at_bounds` names those that ended at a guard; `used` is false where a decisive one did.
    """

    values: dict[str, float]
    cast: dict[str, float]
    at_bounds: tuple[str, ...] = ()
    used: bool = True


def fit_values(
    law: Law, samples: Sequence[Sample], near: Mapping[str, float] = MappingProxyType({})
) -> Fitted:
    """The parameters under which the law comes closest to all samples together.

    A parameter that the rows do not determine stays near the law's usual value, or that in `near`.
    """
    few = [_thin(sample) for sample in samples]
    casts = any(sample.cast_bytes is not None for sample in few)
    named = {**law.parameters, **({f"cast.{k}": p for k, p in CAST.items()} if casts else {})}
    low, high, usual = (
        np.array([getattr(p, bound) for p in named.values()]) for bound in ("low", "high", "usual")
    )
    start = np.array([near.get(name, p.usual) for name, p in named.items()])
    start = np.clip(start, low + 1e-6 * (high - low), high - 1e-6 * (high - low))
    scale = np.maximum(usual, (high - low) / 20.0)
    # Chips weigh alike; a parameter off by its scale costs as much as PRIOR_ROWS rows off by 5 %.
    each = [np.sqrt(len(few[0].seconds) / len(s.seconds)) for s in few]
    weights = np.concatenate([np.full(len(s.seconds), w) for s, w in zip(few, each, strict=True)])
    loose = np.sqrt(PRIOR_ROWS) * TOLERATED

    def split(point: Array) -> Fitted:
        values = dict(zip(named, point.tolist(), strict=True))
        cast = {k.removeprefix("cast."): v for k, v in values.items() if k.startswith("cast.")}
        return Fitted({k: v for k, v in values.items() if not k.startswith("cast.")}, cast)

    def misses(point: Array) -> Array:
        at = split(point)
        found = []
        for sample in few:
            plain = law.formula(sample.work, sample.chip, at.values).reshape(-1)
            found.append(np.log((plain + cast_seconds(sample, at.cast)) / sample.seconds))
        return np.concatenate([weights * np.concatenate(found), loose * (point - start) / scale])

    best = least_squares(
        misses, start, bounds=(low, high), x_scale=scale,
        loss="soft_l1", f_scale=TOLERATED, diff_step=1e-3, max_nfev=60,
    )  # fmt: skip
    ended = at_bounds(named, best.x)
    used = not any(named[name].decisive for name in ended)
    return replace(split(best.x), at_bounds=ended, used=used)


def at_bounds(named: Mapping[str, Parameter], point: Array) -> tuple[str, ...]:
    """The parameters of a fit that ended at a guard: a bound that is no limit of their meaning."""
    found = zip(named.items(), point.tolist(), strict=True)
    return tuple(name for (name, parameter), value in found if parameter.at_bound(value))


def _thin(sample: Sample) -> Sample:
    count = len(sample.seconds)
    if count <= MOST_ROWS:
        return sample
    return sample.take(np.unique(np.linspace(0, count - 1, MOST_ROWS).astype(int)))


def predict(law: Law, sample: Sample, fitted: Fitted) -> tuple[Array, Array]:
    """Seconds of the law alone, and of the casts before it."""
    plain = law.formula(sample.work, sample.chip, fitted.values).reshape(-1)
    return plain, cast_seconds(sample, fitted.cast)


def fit_landmarks(
    law: Law, sample: Sample, fitted: Fitted, count: int, noise: float,
    known: Landmarks | None = None,
) -> Landmarks | None:  # fmt: skip
    """Landmarks of log(measured / law): a kernel regression on few, well-spread rows.

    Those already `known` stay, and the new ones explain only what they miss.
    """
    if not count:
        return known
    plain, cast = predict(law, sample, fitted)
    left = np.maximum(sample.seconds - cast, LEAST_SHARE * sample.seconds)
    missed = np.log(left / plain)
    reach = np.array(law.reach)
    found = law.features(sample.work, sample.chip)
    features = np.broadcast_to(found, (1, len(plain), len(reach)))[0]
    if known is None:
        return solve_landmarks(features, missed, reach, count, noise)
    more = solve_landmarks(features, missed - residual(features, known), reach, count, noise)
    points, weights = (
        np.concatenate([getattr(marks, name) for marks in (known, more)])
        for name in ("points", "weights")
    )
    return Landmarks(points, reach, weights)


def solve_landmarks(
    features: Array, missed: Array, reach: Array, count: int, noise: float
) -> Landmarks:
    """Weights of a few, well-spread rows that explain what all rows missed."""
    points = features[_spread_out(features / reach, min(count, len(features)))]
    near = kernel(features / reach, points / reach)
    own = kernel(points / reach, points / reach)
    weights: Array = np.zeros(len(points))
    trust: Array = np.ones(len(missed))
    for _ in range(ROUNDS):
        normal = (near * trust[:, None]).T @ near + noise * own
        right = near.T @ (trust * missed)
        weights = np.asarray(np.linalg.solve(normal + 1e-9 * np.eye(len(points)), right), float)
        trust = np.minimum(1.0, TOLERATED / np.maximum(np.abs(missed - near @ weights), 1e-12))
    return Landmarks(points, reach, weights)


def _spread_out(rows: Array, count: int) -> NDArray[np.intp]:
    """Rows that are far from one another: each next one is the farthest from all before."""
    chosen = [0]
    distance = np.full(len(rows), np.inf)
    distance = np.minimum(distance, np.square(rows - rows[0]).sum(1))
    for _ in range(count - 1):
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, np.square(rows - rows[chosen[-1]]).sum(1))
    return np.array(chosen)
