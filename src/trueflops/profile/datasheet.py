"""A profile for any chip: what its own measurements taught, else what transfers from others.

In: an Accelerator. Out: a Profile. Where a chip was measured, its shipped curves; for the rest
curves fitted across chips, as functions of units, clock, cache, bandwidth and peak (`transfer`),
scaled by what the vendor's software is known to reach; for what nobody measured, assumptions.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import inf
from typing import Any, Final

from trueflops import units
from trueflops.catalog import Accelerator, Origin, accelerator
from trueflops.catalog.facts import read_toml
from trueflops.profile.frameworks import USUAL, on_vendor, under
from trueflops.profile.profile import Curve, Profile
from trueflops.profile.siblings import ASSUMED, of_sibling
from trueflops.profile.stored import DATA, read_profile, shipped

_TRANSFER: Final = DATA / "transfer.json"
UNTUNED_ERROR: Final = 0.5  # of what a vendor's libraries lose on the shapes of models
_MATRIX: Final = ("matmul", "experts", "attention")


@cache
def _assumed() -> dict[str, Any]:
    return read_toml(ASSUMED)


@cache
def _transferred() -> Profile:
    return read_profile(_TRANSFER)


def profile_of(chip: Accelerator, framework: str = USUAL, given: Profile | None = None) -> Profile:
    """The best that is known of a chip, as it shows under a framework.

    Curves of a profile that the user gives come before those that are shipped.

    >>> import trueflops as tf
    >>> tf.profile_of(tf.accelerator("H20"), "megatron").name
    'H20-96GB by H100-SXM5-80GB'
    """
    best = _general(chip)
    for own in (of_sibling(chip, best), shipped(chip.name), given):
        if own is not None:
            best = best.having(own.usable).named(own.name)
    own_kind = on_vendor(framework, chip.vendor)
    return under(_with_joules(best, chip), own_kind, _half_sums(chip))


def from_datasheet(chip: Accelerator) -> Profile:
    """The profile of a chip of which only the datasheet is known."""
    return under(_with_joules(_general(chip), chip))


def _half_sums(chip: Accelerator) -> float:
    """How much faster than at its listed peak a chip multiplies when sums are kept in fp16.

    GeForce cards halve their rate for fp32 sums; a Hopper reaches its peak only by instructions
    that portable kernels do not use (mma.sync: 0.6 of it). Of others than NVIDIA's, what software
    reaches was seen under engines that keep fp16: no limit.
    """
    if chip.vendor != "NVIDIA":
        return inf
    if chip.form == "consumer":
        return 2.0
    return chip.architecture.mma_sync_share


def _general(chip: Accelerator) -> Profile:
    curves = {
        name: Curve(_numbers(raw), raw["error"], "assumed", raw["why"])
        for name, raw in _assumed().items()
        if name not in ("vendors", "families", "energies_of", "siblings")
    }
    reached, error, origin, why = _matmul_share(chip)
    usual = _transferred().curves["matmul"]["efficiency"]
    for name, curve in _transferred().usable.items():
        if name.partition("_")[0].partition(".")[0] not in _MATRIX:
            if name != "power" or chip.vendor == "NVIDIA":
                curves[name] = replace(curve, origin="derived")
            continue
        # What a vendor's software reaches of its peak in matmul it also reaches elsewhere.
        values = {
            key: value * reached / usual if key.startswith("efficiency") else value
            for key, value in curve.values.items()
        }
        if name.startswith("matmul") and chip.computes("fp32"):
            values |= curves["vector"].values
        # A measured rate of large bf16 products says little of other kernels.
        claim: Origin = origin if name == "matmul" or origin != "measured" else "derived"
        curves[name] = Curve(values, max(error, curve.error), claim, why or curve.source)
    flash = chip.architecture.flash_attention
    if flash is None or flash <= 2:
        for kind in ("attention", "attention_backward"):
            curves.pop(f"{kind}.fa2", None)  # the chip's best kernels are FlashAttention-2 itself
    if flash == 3:  # it takes heads of any size, over 8-bit caches too: no fallback runs
        curves = {name: curve for name, curve in curves.items() if not name.endswith(".triton")}
    vendor = _assumed()["vendors"].get(chip.vendor, {})
    typical = {"typical": float(vendor.get("typical", 1.0))}
    curves["models"] = Curve(typical, UNTUNED_ERROR, "assumed", vendor.get("why", "no loss known"))
    if raw := _assumed()["families"].get(chip.architecture.family):
        values = {**curves["power"].values, **_numbers(raw)}
        curves["power"] = replace(curves["power"], values=values, source=raw["why"])
    return Profile(f"{chip.name} by datasheet", chip.name, curves)


def _with_joules(profile: Profile, chip: Accelerator) -> Profile:
    """Energies in joules: measured ones hold for the architecture, others scale with the chip.

    A stored power curve is relative: one second at the dense peak of a dtype takes `flop_<dtype>`
    times the cap, one of full bandwidth `byte` times.
    """
    law = profile.curve("power")
    if "joules_byte" in law.values:  # a profile of the user's own may say it outright
        return profile
    known = _assumed()["energies_of"].get(chip.architecture.family)
    like = accelerator(known) if known else chip
    watts, values = like.get("power.tdp") or 0.0, {}
    for name, share in law.values.items():
        dtype = name.removeprefix("flop_")
        if dtype != name and like.computes(dtype):
            values[f"joules_{dtype}"] = share * watts / like.peak_flop_per_second(dtype)
    values.setdefault("joules_bf16", 0.0)
    values["joules_byte"] = law["byte"] * watts / like.need("memory.bandwidth")
    # What is drawn under any load goes with the size of the die.
    units = [each.get("compute.units") or 0.0 for each in (chip, like)]
    values["static_watts"] = law["static"] * watts * (units[0] / units[1] if all(units) else 1.0)
    values |= {
        name: law[name] for name in ("exponent", "clocked", "cap_watts") if name in law.values
    }
    return profile.having({"power": replace(law, values=values)})


def _matmul_share(chip: Accelerator) -> tuple[float, float, Origin, str]:
    """The share of the bf16 peak that large tiles reach: measured, the vendor's, or usual."""
    across = _transferred().curves["matmul"]
    measured = chip.get("measured.matmul_bf16")
    if measured:
        share = measured / chip.peak_flop_per_second("bf16")
        return share, across.error, "measured", chip.facts["measured.matmul_bf16"].source
    if chip.vendor == "NVIDIA":
        return across["efficiency"], across.error, across.origin, ""
    vendors = _assumed()["vendors"]
    own = vendors.get(chip.vendor, vendors["other"])
    return own["efficiency"], own["error"], "assumed", own["why"]


def _numbers(raw: dict[str, Any]) -> dict[str, float]:
    return {
        key: _si(value) if isinstance(value, str) else float(value)
        for key, value in raw.items()
        if key not in ("error", "why")
    }


def _si(text: str) -> float:
    dimension = "bytes" if text.endswith("B") else "seconds"
    return units.parse(text, dimension, what="profile/data/assumed.toml")
