"""Which profile a run is predicted with: the one place that chooses it."""

from __future__ import annotations

from functools import cache
from typing import Protocol

from trueflops.catalog import Accelerator, accelerator
from trueflops.clock.given import given_profile
from trueflops.profile import Profile, profile_of
from trueflops.profile.frameworks import USUAL
from trueflops.profile.library import find_profile


class Profiles(Protocol):
    """A chip and a framework's key (see frameworks.py; "": none runs it) in, its profile out."""

    def __call__(self, chip: Accelerator, framework: str, source: str = "") -> Profile:
        """The profile by which rows of a source are judged."""


def best_known(chip: Accelerator, framework: str, source: str = "") -> Profile:
    """What is known of the chip, under the framework; a cut of it shares what the whole has."""
    return _best_known(chip.whole, framework)


def leaving_out(chip: Accelerator, framework: str, source: str = "") -> Profile:
    """The same, but for settings of the framework that were chosen with rows of that source."""
    return _best_known(chip.whole, framework, without=source)


def profiles_from(path: str | None) -> Profiles:
    """The curves of a file for the chip that it names; the best known for all else."""
    if path is None:
        return best_known
    given = given_profile(find_profile(path))

    def choose(chip: Accelerator, framework: str, source: str = "") -> Profile:
        own = given if chip.whole == given.accelerator else None
        return _best_known(chip.whole, framework, own)

    return choose


@cache
def _best_known(
    name: str, framework: str, given: Profile | None = None, without: str = ""
) -> Profile:
    """One object a chip, so that rows of the same chip share what was computed for it."""
    return profile_of(accelerator(name), framework or USUAL, given, without=without)
