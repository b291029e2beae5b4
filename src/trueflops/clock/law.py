"""A law: how one class of kernels takes time, with parameters that mean something.

    seconds = formula(work, chip, parameters) · exp(residual(features(work, chip)))
The formula transfers between chips; the residual belongs to the chip whose data taught it and
fades to nothing away from that data, so that it never extrapolates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueflops.clock.silicon import Silicon
from trueflops.errors import BadInput
from trueflops.profile import Curve, Landmarks
from trueflops.sizes import Array, Size

Values = Mapping[str, float]
AT_A_BOUND: Final = 2e-3  # of the distance between its bounds: a fit that ended this near
MANY: Final = 256  # kernels from which it pays to look for equal ones
ROWS_AT_ONCE: Final = 1 << 13  # so that a table of 60,000 kernels stays within a few MiB


class Parameter(NamedTuple):
    """Where a fit starts, between which bounds it stays, and what the number means.

    A bound is either a limit of that meaning (`limits`: no cycles, all of the bandwidth), where a
    fit may well end, or only a guard, whose reaching is reported. A fit in which a `decisive` one,
    the rate itself, ends at a guard is of other kernels than the law's, and is not used.
    """

    usual: float
    low: float
    high: float
    meaning: str
    limits: Literal["", "low", "high", "both"] = ""
    decisive: bool = False
    unit: str = ""  # shares, ratios and exponents have none

    def at_bound(self, value: float) -> bool:
        """Whether a fitted value ended at a bound that is no limit of its meaning."""
        near = AT_A_BOUND * (self.high - self.low)
        below = value <= self.low + near and self.limits not in ("low", "both")
        return below or (value >= self.high - near and self.limits not in ("high", "both"))


@dataclass(frozen=True)
class Law:
    """One class of kernels. `features` maps its work into the space of the landmarks."""

    formula: Callable[[Any, Silicon, Values], Array]
    parameters: Mapping[str, Parameter]
    features: Callable[[Any, Silicon], Array]
    reach: tuple[float, ...]  # over which distance a landmark counts, feature by feature

    def seconds(self, work: Any, chip: Silicon, curve: Curve) -> Array:
        """Seconds of each kernel of `work`, whose fields broadcast: once for equal ones."""
        work, places = distinct(work)
        seconds = self._seconds(work, chip, curve)
        return seconds if places is None else seconds[places]

    def _seconds(self, work: Any, chip: Silicon, curve: Curve) -> Array:
        plain = np.asarray(self.formula(work, chip, curve.values))
        if curve.landmarks is None:
            return plain
        if len(curve.landmarks.reach) != len(self.reach):
            raise BadInput(
                f"a profile's landmarks have {len(curve.landmarks.reach)} features where "
                f"{len(self.reach)} are needed: it is of another version"
            )
        shape = (*plain.shape, len(self.reach))
        features = np.broadcast_to(self.features(work, chip), shape)
        return plain * np.exp(residual(features, curve.landmarks))

    def usual(self) -> dict[str, float]:
        """The parameters that a fit starts from."""
        return {name: parameter.usual for name, parameter in self.parameters.items()}


def distinct(work: Any) -> tuple[Any, NDArray[np.intp] | None]:
    """The kernels of `work` that differ from each other, and which of them each one is.

    Plans of one structure differ in many fields of which a kernel sees few: of DeepSeek-V3's
    products in a search one in eleven is like no other.
    """
    arrays = list(_arrays(work))
    shape = np.broadcast_shapes(*(size.shape for size in arrays))
    if prod(shape) < MANY:
        return work, None
    table = np.stack([np.broadcast_to(size, shape).ravel() for size in arrays], axis=-1)
    rows = table.view(np.dtype((np.void, table.dtype.itemsize * len(arrays)))).ravel()
    _, first, places = np.unique(rows, return_index=True, return_inverse=True)
    return _with_arrays(work, iter(table[first].T)), places.reshape(shape)


def _arrays(work: Any) -> Iterator[Array]:
    """The fields that differ from kernel to kernel, those of a shape within too."""
    for size in work:
        if isinstance(size, tuple):
            yield from _arrays(size)
        elif isinstance(size, np.ndarray):
            yield size


def _with_arrays(work: Any, others: Iterator[Array]) -> Any:
    """The same work with other arrays in these places."""
    fields = (
        _with_arrays(size, others)
        if isinstance(size, tuple)
        else next(others)
        if isinstance(size, np.ndarray)
        else size
        for size in work
    )
    return type(work)(*fields)


def residual(features: Array, marks: Landmarks) -> Array:
    """Σ wᵢ·exp(−|x − zᵢ|): the correction of log(time) by the landmarks near a kernel."""
    flat = features.reshape(-1, features.shape[-1]) / marks.reach
    points = marks.points / marks.reach
    found = np.empty(len(flat))
    for start in range(0, len(flat), ROWS_AT_ONCE):
        found[start : start + ROWS_AT_ONCE] = (
            kernel(flat[start : start + ROWS_AT_ONCE], points) @ marks.weights
        )
    return found.reshape(features.shape[:-1])


def kernel(rows: Array, points: Array) -> Array:
    """exp(−distance) of each row to each point: |a − b|² = |a|² + |b|² − 2a·b."""
    square = (rows**2).sum(1)[:, None] + (points**2).sum(1)[None] - 2.0 * rows @ points.T
    return np.exp(-np.sqrt(np.maximum(square, 0.0)))


def together(sharpness: float, *seconds: Size) -> Array:
    """Things that overlap: (Σ tᵢ^q)^(1/q), the longest for q → ∞, their sum for q = 1.

    The smooth roofline (Williams 2009): kernels lose most where two limits are equal. Scaled by
    the longest, since raising seconds of 1e-6 to a power loses digits.
    """
    longest: Size = 0.0
    for each in seconds:
        longest = np.maximum(longest, each)
    safe = np.maximum(longest, 1e-300)
    total: Size = 0.0
    for each in seconds:
        total = total + (each / safe) ** sharpness
    return np.asarray(longest * total ** (1.0 / sharpness))


def stacked(*features: Size) -> Array:
    """Features side by side along a last axis."""
    return np.stack(np.broadcast_arrays(*features), axis=-1)


def log2(size: Size) -> Array:
    """Binary logarithm of a size of at least one."""
    return np.log2(np.maximum(size, 1.0))
