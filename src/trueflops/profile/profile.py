"""A Profile: one Curve per class of op, with the relative error it was seen to have.

`Profile.choose` says which curve prices an op, and which more particular ones there were not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from trueflops.catalog import Accelerator, Origin
from trueflops.errors import MissingFact
from trueflops.language import say
from trueflops.profile.keys import CurveKey
from trueflops.sizes import Array

Holder = Literal["given", "own", "sibling", "transfer", "assumed", "framework"]
"""Whose a curve is: of the profile that the user gave, fitted to this chip, to the measured chip of
the same die, across chips; assumed (assumed.toml); a setting of the framework (frameworks.toml)."""
Outcome = Literal["found", "absent", "not used", "replaced"]
"""What became of a key: its curve was taken; there is none; its fit ended at a bound; or another
curve was put in its place, as the framework runs other kernels."""


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
class FittedRows:
    """Measured rows that a curve was fitted to: those of one table, chip and software."""

    table: str  # the file and its folder, or the section of a measured profile
    chip: str
    software: str  # as the rows say, else as their folder's entry of datasets.toml; may be empty
    date: str  # empty where nobody wrote it down
    count: int


@dataclass(frozen=True)
class Lineage:
    """From where a profile that was put together took a curve, and what was done to it since."""

    holder: Holder
    profile: str  # the name of the profile that holds it, or the file
    key: CurveKey  # under which it stands there
    changes: tuple[str, ...] = ()
    ended_at: tuple[str, ...] = ()  # bounds that the fit ended at in whose stead this curve is used


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
    rows: tuple[FittedRows, ...] = ()  # what the fitted rows are, where the profile says
    lineage: Lineage | None = None  # None: the curve stands where it was fitted

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def because(self, why: str) -> Curve:
        """The same curve, with one more reason why it is not as it was fitted."""
        if self.lineage is None:
            return self
        changes = (*self.lineage.changes, why)
        return replace(self, lineage=replace(self.lineage, changes=changes))


@dataclass(frozen=True)
class Tried:
    """One key of a chain of choice, and what became of it."""

    key: CurveKey
    outcome: Outcome
    at_bounds: tuple[str, ...] = ()  # of a curve that is not used


@dataclass(frozen=True)
class Choice:
    """The curve that is used for a key, and every key that was tried, the last one being it."""

    key: CurveKey
    curve: Curve
    tried: tuple[Tried, ...]

    @property
    def found(self) -> CurveKey:
        """The key under which the curve was fitted."""
        return self.tried[-1].key


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
    curves: Mapping[CurveKey, Curve]
    chip: Accelerator | None = None  # where the catalog has none of that name
    _looked_up: dict[CurveKey | str, Curve] = field(default_factory=dict, init=False, repr=False)

    def curve(self, key: CurveKey | str) -> Curve:
        """The curve of a class of op, or the nearest more general one; a dotted name is a key."""
        found = self._looked_up.get(key)
        if found is None:
            found = self._looked_up[key] = self._look_up(key)
        return found

    def _look_up(self, key: CurveKey | str) -> Curve:
        wanted = CurveKey.parse(key) if isinstance(key, str) else key
        for at in wanted.chain():
            found = self.curves.get(at)
            if found is not None and found.used:
                return found
        raise MissingFact(
            say("profile {name} has no curve for {wanted}", name=self.name, wanted=wanted)
        )

    def capped(self, watts: float) -> Profile:
        """The same chip under a power limit of its operator's."""
        key = CurveKey("power")
        law = self.curve(key)
        limited = replace(law, values={**law.values, "cap_watts": watts})
        return self.having({key: limited.because(f"a power limit of {watts:g} W")})

    def choose(self, key: CurveKey) -> Choice:
        """The curve that `curve` gives, with the chain of keys that led to it.

        >>> import trueflops as tf
        >>> h100 = tf.profile_of(tf.accelerator("H100"))
        >>> choice = h100.choose(CurveKey("matmul", dtype="fp8", grouped=True))
        >>> [(str(each.key), each.outcome) for each in choice.tried]
        [('matmul.fp8.grouped', 'absent'), ('matmul.fp8', 'found')]
        """
        curve, tried = self.curve(key), []
        for at in key.chain():
            there = self.curves.get(at)
            if there is curve:
                break
            ended = there.at_bounds if there else ()
            tried.append(Tried(at, "not used" if there else "absent", ended))
        origin = curve.lineage.key if curve.lineage else at
        if curve.lineage and origin != at:
            ended = curve.lineage.ended_at
            tried.append(Tried(at, "not used" if ended else "replaced", ended))
        return Choice(key, curve, (*tried, Tried(origin, "found")))

    def lent(self, holder: Holder) -> dict[CurveKey, Curve]:
        """Its curves for a profile that is put together of several, each with its lineage.

        Instead of one that is not used the next more general is lent, if there is any.
        """
        found = {}
        for key, own in self.curves.items():
            if any(at in self.curves and self.curves[at].used for at in key.chain()):
                choice = self.choose(key)
                ended = () if own.used else own.at_bounds
                lineage = Lineage(holder, self.name, choice.found, ended_at=ended)
                found[key] = replace(choice.curve, lineage=lineage)
        return found

    def having(self, curves: Mapping[CurveKey, Curve]) -> Profile:
        """The same profile with some curves replaced or added."""
        return replace(self, curves={**self.curves, **curves})

    def named(self, name: str) -> Profile:
        """The same profile under another name."""
        return replace(self, name=name)
