"""Which profile a run is predicted with: the one place that chooses it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from trueflops.catalog import Accelerator, accelerator
from trueflops.profile import Profile, from_datasheet

Profiles = Callable[[Accelerator, str], Profile]
"""A chip and a framework's key (see frameworks.py) in, the profile to predict with out."""


def profile_of(chip: Accelerator, framework: str) -> Profile:
    """By datasheet, whatever the framework."""
    return _by_name(chip.name)


@cache
def _by_name(name: str) -> Profile:
    """One object a chip, so that rows of the same chip share what was computed for it."""
    return from_datasheet(accelerator(name))
