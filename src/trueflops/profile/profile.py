"""A Profile: one Curve per class of op, with the relative error it was seen to have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trueflops.catalog import Accelerator, Origin
from trueflops.errors import MissingFact
from trueflops.sizes import Array


@dataclass(frozen=True)
class Landmarks:
    """Measured points in a law's feature space, and the weight of each in the residual."""

    points: Array  # [landmark, feature]
    reach: Array  # [feature]: over which distance a landmark counts
    weights: Array  # [landmark]


@dataclass(frozen=True)
class HeldOut:
    """Error on rows that the fit never saw: |relative error|, its median and 90th percentile."""

    rows: int
    median: float
    p90: float


@dataclass(frozen=True)
class Curve:
    """Parameters of one law of `clock/`. `error` is one standard deviation of log(time).

    `at_bounds` names parameters whose fit ended at a bound that is no limit of their meaning. Where
    that is the rate itself the rows are of other kernels: the curve is kept to be seen, not used.
    """

    values: Mapping[str, float]
    error: float
    origin: Origin
    source: str
    landmarks: Landmarks | None = None
    fitted_rows: int = 0
    held_out: HeldOut | None = None
    at_bounds: tuple[str, ...] = ()
    used: bool = True

    def __getitem__(self, name: str) -> float:
        return self.values[name]


@dataclass(frozen=True, eq=False)
class Profile:
    """The behaviour of one chip: a curve for each class of op.

    >>> import trueflops as tf
    >>> curve = tf.profile_of(tf.accelerator("H100")).curve("matmul")
    >>> curve.origin, curve.held_out.rows > 100
    ('measured', True)
    """

    name: str
    accelerator: str
    curves: Mapping[str, Curve]
    chip: Accelerator | None = None  # where the catalog has none of that name

    def curve(self, name: str) -> Curve:
        """The curve of an op class; `matmul.fp8.x` falls back to `matmul.fp8`, then `matmul`."""
        asked = name
        while name:
            found = self.curves.get(name)
            if found is not None:
                return found
            name = name.rpartition(".")[0]
        raise MissingFact(f"profile {self.name} has no curve for {asked}")

    @property
    def usable(self) -> Mapping[str, Curve]:
        """Its curves; one that is not to be used is replaced by the next more general, if any."""
        sound = {name: curve for name, curve in self.curves.items() if curve.used}
        found = dict(sound)
        for name in self.curves.keys() - sound.keys():
            general = name.rpartition(".")[0]
            while general and general not in sound:
                general = general.rpartition(".")[0]
            if general:
                found[name] = sound[general]
        return found

    def having(self, curves: Mapping[str, Curve]) -> Profile:
        """The same profile with some curves replaced or added."""
        return replace(self, curves={**self.curves, **curves})

    def named(self, name: str) -> Profile:
        """The same profile under another name."""
        return replace(self, name=name)
