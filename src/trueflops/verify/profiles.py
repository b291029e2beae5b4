"""Which profile a run is predicted with: the one place that chooses it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from trueflops.catalog import Accelerator, accelerator
from trueflops.clock.given import given_profile
from trueflops.profile import Profile, profile_of
from trueflops.profile.frameworks import USUAL
from trueflops.profile.library import find_profile

Profiles = Callable[[Accelerator, str], Profile]
"""A chip and a framework's key (see frameworks.py; "": none runs it) in, its profile out."""


def best_known(chip: Accelerator, framework: str) -> Profile:
    """What is known of the chip, under the framework; a cut of it shares what the whole has."""
    return _best_known(chip.whole, framework)


def profiles_from(path: str | None) -> Profiles:
    """The curves of a file for the chip that it names; the best known for all else."""
    if path is None:
        return best_known
    given = given_profile(find_profile(path))

    def choose(chip: Accelerator, framework: str) -> Profile:
        own = given if chip.whole == given.accelerator else None
        return _best_known(chip.whole, framework, own)

    return choose


@cache
def _best_known(name: str, framework: str, given: Profile | None = None) -> Profile:
    """One object a chip, so that rows of the same chip share what was computed for it."""
    return profile_of(accelerator(name), framework or USUAL, given)
