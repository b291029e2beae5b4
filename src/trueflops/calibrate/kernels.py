"""Curves of single kernels: fitted per chip, and across chips for those that have no data.

A chip's own curve has the law's parameters and landmarks of what the law misses. A transferred
curve has parameters alone, and its error is that of chips left out of the fit, one at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from trueflops.calibrate.datasets import rows_of, source_of
from trueflops.calibrate.fit import CAST, Fitted, Sample, fit_landmarks, fit_values, predict
from trueflops.calibrate.samples import Split
from trueflops.clock.attention import HEAD_DIMS, efficiency
from trueflops.clock.law import Law, residual
from trueflops.clock.works import FALLBACK, MOVING, law_of
from trueflops.profile import Curve, CurveKey, HeldOut, Landmarks
from trueflops.runtime.terms import Z90


class Detail(NamedTuple):
    """How many landmarks a class of kernels gets, and how noisy its tables are taken to be."""

    landmarks: int
    noise: float


# Chosen by cross-validation within the fitted rows.
DETAILS: Final[Mapping[str, Detail]] = {
    "matmul": Detail(800, 0.2),
    "attention": Detail(200, 0.1),
    "attention_backward": Detail(200, 0.1),
    "attention_decode": Detail(200, 0.1),
    "experts": Detail(160, 0.1),
    "eager": Detail(400, 0.05),
}
ALONE: Final = 1.5  # times the error, for a law fitted to one chip alone, on other chips
FEWEST_ROWS_FOR_LANDMARKS: Final = 120  # with fewer, each landmark would overfit one row
# Kernels of one class that only move data lie on a grid of few sizes, and their laws are rougher.
FEWEST_OF_A_STREAM: Final = 12


def own_curves(key: CurveKey, split: Split, like: Curve | None = None) -> dict[CurveKey, Curve]:
    """The curve of one class on one chip, and that of the cast before it where there is one.

    Parameters that the rows do not determine are taken from the curve `like` it.
    """
    law, detail = law_of(key), DETAILS.get(split.kind, Detail(0, 0.0))
    fitted = fit_values(law, [split.fitted], like.values if like else {})
    if key.kernel == FALLBACK:
        fitted = replace(fitted, values=_any_head(fitted.values, split.fitted))
    rows = len(split.fitted.seconds)
    fewest = FEWEST_OF_A_STREAM if split.kind in MOVING else FEWEST_ROWS_FOR_LANDMARKS
    count = detail.landmarks if rows >= fewest else 0
    marks = fit_landmarks(law, split.fitted, fitted, count, detail.noise)
    held, error = judge(law, split.judged, fitted, marks)
    source, told = source_of(split.fitted.sources), rows_of(split.fitted.sources)
    ended = (fitted.at_bounds, fitted.used)
    curve = Curve(fitted.values, error, "measured", source, marks, rows, held, *ended, told)
    curves = {key: curve}
    if fitted.cast:
        curves[cast_before(key)] = cast_curve(curve, fitted)
    return curves


def cast_before(product: CurveKey) -> CurveKey:
    """The cast that narrows a product's input."""
    return CurveKey("cast", format=product.format or product.dtype)


def cast_curve(curve: Curve, fitted: Fitted) -> Curve:
    """The curve of the cast, fitted with the product that comes after it to the same rows."""
    return replace(
        curve, values=fitted.cast, landmarks=None, held_out=None, at_bounds=(), used=True
    )


def _any_head(values: dict[str, float], sample: Sample) -> dict[str, float]:
    """A fallback kernel takes any head dimension: those without rows do as those with rows."""
    seen = np.unique(sample.work.shape.head_dim)

    def nearest(head_dim: float) -> float:
        return float(seen[np.argmin(np.abs(np.log2(seen / head_dim)))])

    named = {f"efficiency_{d:.0f}": d for d in HEAD_DIMS}
    return {
        name: float(efficiency(nearest(named[name]), values)) if name in named else value
        for name, value in values.items()
    }


def transferred_curve(
    key: CurveKey, splits: Sequence[Split], like: Curve | None = None
) -> tuple[Curve, Fitted]:
    """One curve for chips without data: parameters fitted across all others."""
    law = law_of(key)
    samples = [split.fitted for split in splits]
    near = like.values if like else {}
    fitted = fit_values(law, samples, near)
    if key.kernel == FALLBACK:
        fitted = replace(fitted, values=_any_head(fitted.values, samples[0]))
    misses = [
        log_error(
            law,
            left.held_out,
            fit_values(law, [s for s in samples if s is not left.fitted], near),
        )
        for left in splits
        if len(splits) > 1 and len(left.held_out.seconds)
    ]
    if not misses:  # one chip alone cannot say how well it speaks for others
        misses = [ALONE * log_error(law, splits[0].judged, fitted)]
    held, error = summarise(np.concatenate(misses))
    rows = sum(len(s.seconds) for s in samples)
    sources = [source for sample in samples for source in sample.sources]
    source, told = source_of(sources), rows_of(sources)
    ended = (fitted.at_bounds, fitted.used)
    return Curve(fitted.values, error, "derived", source, None, rows, held, *ended, told), fitted


def judge(
    law: Law, sample: Sample, fitted: Fitted, marks: Landmarks | None
) -> tuple[HeldOut, float]:
    """Error on rows that were not fitted."""
    return summarise(log_error(law, sample, fitted, marks))


def log_error(
    law: Law, sample: Sample, fitted: Fitted, marks: Landmarks | None = None
) -> np.ndarray:
    """log(predicted / measured) of every row."""
    cast_law = fitted.cast or {k: p.usual for k, p in CAST.items()}
    plain, cast = predict(law, sample, Fitted(fitted.values, cast_law))
    if marks is not None:
        features = law.features(sample.work, sample.chip)
        features = np.broadcast_to(features, (1, len(plain), len(marks.reach)))[0]
        plain = plain * np.exp(residual(features, marks))
    return np.log((plain + cast) / sample.seconds)


def summarise(errors: np.ndarray) -> tuple[HeldOut, float]:
    """Median and 90th percentile, and the deviation whose 90 % interval holds nine in ten."""
    size = np.abs(np.expm1(errors))
    held = HeldOut(len(errors), float(np.median(size)), float(np.quantile(size, 0.9)))
    return held, float(np.quantile(np.abs(errors), 0.9)) / Z90
