"""What chips of one die share: kernels, and with them their curves; cycles; links of one kind.

In: a chip that nobody measured. Out: the curves of the measured chip that has the same die, as
functions of its own units, clock, cache and memory; the facts that its own datasheet leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import log2
from pathlib import Path
from typing import Final

from trueflops.catalog import Accelerator, accelerator
from trueflops.catalog.facts import read_toml
from trueflops.profile.profile import Curve, Profile
from trueflops.profile.stored import shipped

ASSUMED: Final = Path(__file__).parent / "data" / "assumed.toml"
OTHER_PACKAGE: Final = 0.03  # what another package of the same die adds to the error of log(time)


@cache
def _measured_by_name() -> Mapping[str, str]:
    """Chip → the measured one of its die, as the files are named."""
    siblings = read_toml(ASSUMED)["siblings"]
    return {other: measured for measured, others in siblings.items() for other in others}


def measured_sibling(chip: Accelerator) -> Accelerator | None:
    """The measured chip that has the same die."""
    if chip.cut_of and shipped(chip.cut_of) is not None:
        return accelerator(chip.cut_of)  # a slice of the measured chip itself
    name = _measured_by_name().get(chip.whole.replace(" ", "-"))
    return accelerator(name) if name else None


def fact_of_die(chip: Accelerator, path: str) -> float | None:
    """A fact of the chip, or that of its die where its own datasheet leaves it out."""
    own = chip.get(path)
    like = measured_sibling(chip) if own is None else None
    return own if like is None else like.get(path)


def of_sibling(chip: Accelerator, across: Profile) -> Profile | None:
    """Curves of the measured chip that has the same die; `across` are those of any chip.

    Collectives are shared where nodes are of one kind, energies by all of an architecture.
    """
    like = measured_sibling(chip)
    own = shipped(like.name) if like else None
    if like is None or own is None:
        return None
    slower = _slower(chip, like)
    curves = {}
    for key, curve in own.lent("sibling").items():
        sent = key.kind == "collective"
        if key.kind == "power" or (sent and not _alike(chip, like)):
            continue
        if slower < 1.0 and not sent:
            curve = _in_cycles(curve, slower, across.curve(key).error)
        curve = replace(curve, origin="derived", error=curve.error + OTHER_PACKAGE)
        curves[key] = curve.because(
            f"the die of {like.name} in another package: {OTHER_PACKAGE:g} added to the error"
        )
    return Profile(f"{chip.name} by {like.name}", chip.name, curves)


def _alike(chip: Accelerator, like: Accelerator) -> bool:
    """Whether their nodes are of one kind: links of one generation, as many chips joined by them.

    Curves of collectives are shares of the link's bandwidth, so that fewer links of the same kind
    (an H800's, an A800's) do not change them. Cards that meet over PCIe tell of the host that they
    were measured in, not of their die.
    """
    domains = [each.get("links.scale_up_domain") for each in (chip, like)]
    named = [each.text("links.scale_up") for each in (chip, like)]
    return domains[0] == domains[1] and named[0] == named[1] and not meets_over_host(chip)


def meets_over_host(chip: Accelerator) -> bool:
    """Whether no link of its own joins it to others."""
    return not chip.text("links.scale_up") and bool(chip.text("links.host"))


def _slower(chip: Accelerator, like: Accelerator) -> float:
    """How many times fewer products a unit makes in a cycle: tensor cores are cut by halves.

    An H20's make a quarter of an H100's. A smaller difference only says that the peak was printed
    for another clock.
    """
    rates = []
    for each in (chip, like):
        units, clock = (fact_of_die(each, f"compute.{name}") for name in ("units", "clock"))
        if not units or not clock or not each.computes("bf16"):
            return 1.0
        rates.append(each.peak_flop_per_second("bf16") / (units * clock))
    return min(1.0, 2.0 ** round(log2(rates[0] / rates[1])))


def _in_cycles(curve: Curve, slower: float, error: float) -> Curve:
    """The same kernels on units that multiply slower.

    A share e of the peak is 1/e cycles where one would do: what is beyond the one is spent on
    feeding tiles, on softmax, on waiting, and takes as many cycles however slow the multiplying:
        1/e′ = 1 + (1/e − 1)·slower
    Landmarks are dropped: arithmetic and memory are in another balance than where they were seen.
    """
    values = {
        name: 1.0 / (1.0 + (1.0 / value - 1.0) * slower)
        if name.startswith(("efficiency", "tile_")) and not name.startswith("tile_rows")
        and value < 1.0
        else value
        for name, value in curve.values.items()
    }  # fmt: skip
    changed = replace(curve, values=values, landmarks=None, error=max(curve.error, error))
    return changed.because(
        f"units that multiply at {slower:g} of that rate: its shares of the peak in cycles, "
        "without its landmarks, with no less than the error across chips"
    )
