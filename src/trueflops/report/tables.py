"""How numbers look: three digits, an interval behind each value; and where answers are written."""

from __future__ import annotations

from rich.console import Console

from trueflops import units
from trueflops.predict import Estimate

NARROWEST = 40  # below this a terminal does not know its width


def console(*, stderr: bool = False) -> Console:
    """Where answers (or, on stderr, progress and errors) are written."""
    out = Console(stderr=stderr, highlight=False, soft_wrap=False)
    return out if out.width >= NARROWEST else Console(stderr=stderr, highlight=False, width=80)


def ranged(estimate: Estimate, dimension: str) -> tuple[str, str]:
    """A value and its 90 % interval, as two texts in one unit."""
    low, value, high = (float(x) for x in (estimate.low, estimate.value, estimate.high))
    return units.show(value, dimension), units.show_between(low, value, high, dimension)


def percent(estimate: Estimate) -> tuple[str, str]:
    """A share and its interval."""
    low, high = 100.0 * float(estimate.low), 100.0 * float(estimate.high)
    return f"{100.0 * float(estimate.value):.1f} %", f"{low:.0f} – {high:.0f} %"


def count(number: float) -> str:
    """Whole numbers with separators; large ones with a suffix, small ones with digits."""
    if number < 10:
        return units.digits(number) if number != int(number) else f"{number:.0f}"
    return f"{number:,.0f}" if number < units.MILLION else units.show(number, "count")


def plural(number: float, what: str) -> str:
    """'1 replica', '8 replicas'."""
    return f"{count(number)} {what}{'' if number == 1 else 's'}"
