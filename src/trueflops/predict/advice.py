"""What would help, and by how much: one form of advice for traces and for captured programs.

A saving is the difference of two predictions. What both have wrong in common cancels: errors of one
cause move together (`runtime/terms.py`), so that σ² = Σ_cause (σ_before − σ_after)².
"""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt
from typing import Final, NamedTuple

from trueflops.runtime.terms import Z90, Term

MATTERS: Final = 0.01  # of the step: below this nothing is said
HOST_CAUSE: Final = "dispatch"  # of what follows the host's own speed


class Saved(NamedTuple):
    """Seconds, and the 90 % interval of them."""

    seconds: float
    low: float
    high: float


class Advice(NamedTuple):
    """One thing to do, alone; low and high where it was priced, else `saves_seconds` at most."""

    code: str
    text: str
    saves_seconds: float
    low: float | None = None
    high: float | None = None
    peak_bytes: int | None = None  # that the step then holds
    makes_fit: bool = False  # what did not fit before then does

    @property
    def sure(self) -> bool:
        """Whether the saving is larger than its own uncertainty."""
        return self.low is None or self.low > 0.0


def worth_saying(found: Iterable[Advice], step_seconds: float) -> list[Advice]:
    """What the numbers support and what matters: that which makes it fit, then the most first."""
    least = MATTERS * step_seconds
    kept = [a for a in found if a.makes_fit or (a.sure and a.saves_seconds >= least)]
    return sorted(kept, key=lambda a: (not a.makes_fit, -a.saves_seconds))


def saving(
    before: Term, after: Term, *, times: float = 1.0, own: float = 0.0, other_code: bool = False
) -> Saved:
    """What is saved by `after`, run so many times, instead of `before`.

    `own` is a relative error of the saving itself, of a change that is modelled and not run.
    `other_code`: the host runs other code then, so that what its law has wrong of one says nothing
    of the other. Two launch-bound steps of an H200 took 3 and 2 % longer compiled, not 11 % less.
    """
    seconds = float(before.value) - times * float(after.value)
    deviations = {cause: float(d) for cause, d in before.deviations().items()}
    for cause, deviation in after.deviations().items():
        cause = f"{cause} then" if other_code and cause == HOST_CAUSE else cause
        deviations[cause] = deviations.get(cause, 0.0) - times * float(deviation)
    spread = Z90 * sqrt(sum(d * d for d in deviations.values()) + (own * seconds) ** 2)
    return Saved(seconds, seconds - spread, min(seconds + spread, float(before.value)))
