"""A profile for any chip: what its own measurements taught, else what transfers from others.

In: an Accelerator. Out: a Profile. Where a chip was measured, its shipped curves; for the rest
curves fitted across chips, as functions of units, clock, cache, bandwidth and peak (`transfer`),
scaled by what the vendor's software is known to reach; for what nobody measured, assumptions.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache
from math import inf
from typing import Any, Final

from trueflops import units
from trueflops.catalog import Accelerator, Origin, accelerator
from trueflops.catalog.facts import read_toml, sources
from trueflops.profile.correction import corrected
from trueflops.profile.frameworks import USUAL, on_vendor, under
from trueflops.profile.keys import ATTENTION, PRODUCTS, UNALIGNED, CurveKey
from trueflops.profile.profile import Curve, Lineage, Profile
from trueflops.profile.siblings import ASSUMED, of_sibling
from trueflops.profile.stored import DATA, read_profile, shipped

_TRANSFER: Final = DATA / "transfer.json"
_ANY_HEADS_KERNEL: Final = "triton"
_MATMUL, _POWER = CurveKey("matmul"), CurveKey("power")
MOST_KEPT: Final = 64  # profiles: a server is asked of the same few chips again and again
UNTUNED_ERROR: Final = 0.5  # of what a vendor's libraries lose on the shapes of models
_MATRIX: Final = (*PRODUCTS, *ATTENTION)


@cache
def _assumed() -> dict[str, Any]:
    return read_toml(ASSUMED)


@cache
def _transferred() -> Profile:
    return read_profile(_TRANSFER)


@lru_cache(maxsize=MOST_KEPT)
def profile_of(
    chip: Accelerator, framework: str = USUAL, given: Profile | None = None, *, without: str = ""
) -> Profile:
    """The best that is known of a chip, as it shows under a framework.

    Curves of a profile that the user gives come before those that are shipped. `without` leaves
    out what was chosen with published runs of that source.

    >>> import trueflops as tf
    >>> tf.profile_of(tf.accelerator("H20"), "megatron").name
    'H20-96GB by H100-SXM5-80GB'
    """
    best = _general(chip)
    if (sibling := of_sibling(chip, best)) is not None:
        best = best.having(sibling.curves).named(sibling.name)
    if (own := shipped(chip.name)) is not None:
        best = best.having(own.lent("own")).named(own.name)
    if given is not None:
        best = best.having(given.lent("given")).named(given.name)
    own_kind = on_vendor(framework, chip.vendor)
    return corrected(under(_with_joules(best, chip), own_kind, _half_sums(chip), without, chip))


def from_datasheet(chip: Accelerator) -> Profile:
    """The profile of a chip of which only the datasheet is known."""
    return under(_with_joules(_general(chip), chip))


def _half_sums(chip: Accelerator) -> float:
    """How much faster than at its listed peak a chip multiplies when sums are kept in fp16.

    GeForce cards halve their rate for fp32 sums; a Hopper reaches its peak only by instructions
    that portable kernels do not use (mma.sync: 0.6 of it), and so does a CPU that has tiles. Of
    others than NVIDIA's, what software reaches was seen under engines that keep fp16: no limit.
    """
    if chip.is_cpu:
        return chip.architecture.mma_sync_share
    if chip.vendor != "NVIDIA":
        return inf
    if chip.form == "consumer":
        return 2.0
    return chip.architecture.mma_sync_share


def _general(chip: Accelerator) -> Profile:
    curves = {
        CurveKey.parse(name): _assumption(CurveKey.parse(name), raw)
        for name, raw in _assumed().items()
        if name not in ("vendors", "families", "energies_of", "memories", "siblings")
    }
    own_vendor = _software_of(chip)
    if "vector_bytes" in own_vendor:
        few = curves[CurveKey("vector")]
        loads = {"vector_bytes": own_vendor["vector_bytes"]}
        curves[CurveKey("vector")] = replace(few, values={**few.values, **loads})
    reached, error, origin, why = _matmul_share(chip)
    usual = _transferred().curve("matmul")["efficiency"]
    for key, curve in _transferred().lent("transfer").items():
        if key.kind not in _MATRIX:
            if key.kind != "power" or chip.vendor == "NVIDIA":
                curves[key] = replace(curve, origin="derived")
            continue
        # What a vendor's software reaches of its peak in matmul it also reaches elsewhere.
        values = {
            name: value * reached / usual if name.startswith("efficiency") else value
            for name, value in curve.values.items()
        }
        if key.kind == "matmul" and chip.computes("fp32"):
            values |= curves[CurveKey("vector")].values
        # A measured rate of large bf16 products says little of other kernels.
        claim: Origin = origin if key == _MATMUL or origin != "measured" else "derived"
        own = replace(curve, values=values, error=max(error, curve.error), origin=claim)
        if why:
            # Where a vendor's share is assumed so is its error: rows of other chips do not tell it.
            held = None if origin == "assumed" else curve.held_out
            own = replace(own, source=f"{why}; {curve.source}", held_out=held).because(
                f"× {reached / usual:.2f}: large products reach {reached:.2f} of the bf16 peak"
            )
        curves[key] = own
    if chip.vendor != "NVIDIA":  # how others' libraries take such sides was not measured
        curves = {key: curve for key, curve in curves.items() if key.kernel not in UNALIGNED}
    flash = chip.architecture.flash_attention
    if flash is None or flash <= 2:
        for kind in ("attention", "attention_backward"):
            # The chip's best kernels are FlashAttention-2 itself.
            curves.pop(CurveKey(kind, kernel="fa2"), None)
    if flash == 3:  # it takes heads of any size, over 8-bit caches too: no fallback runs
        curves = {key: curve for key, curve in curves.items() if key.kernel != _ANY_HEADS_KERNEL}
    vendor = _software_of(chip)
    why = vendor.get("why", "no loss known")
    typical = {"typical": float(vendor.get("typical", 1.0)), "error": UNTUNED_ERROR, "why": why}
    curves[CurveKey("models")] = _assumption(CurveKey("models"), typical)
    family = chip.architecture.family
    if raw := _assumed()["families"].get(family):
        power = curves[_POWER]
        changed = replace(power, values={**power.values, **_numbers(raw)}, source=raw["why"])
        curves[_POWER] = changed.because(f"{family}: {raw['why']}")
    return Profile(f"{chip.name} by datasheet", chip.name, curves)


def _software_of(chip: Accelerator) -> dict[str, Any]:
    """What a vendor's libraries reach; CPUs have their own, whoever makes them."""
    vendors: dict[str, dict[str, Any]] = _assumed()["vendors"]
    return vendors["CPU"] if chip.is_cpu else vendors.get(chip.vendor, {})


def _assumption(key: CurveKey, raw: dict[str, Any]) -> Curve:
    """One that nothing was fitted to."""
    lineage = Lineage("assumed", ASSUMED.name, key)
    return Curve(_numbers(raw), raw["error"], "assumed", raw["why"], lineage=lineage)


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
    kind = chip.facts.get("memory.generation")
    memory = _assumed()["memories"].get(f"{chip.architecture.family} {kind.text}" if kind else "")
    if memory:
        values["joules_byte"] = memory["byte"]
        values["static_watts"] = memory["static"] * (chip.get("power.tdp") or 0.0)
    values |= {
        name: law[name] for name in ("exponent", "clocked", "cap_watts") if name in law.values
    }
    return profile.having({_POWER: replace(law, values=values)})


def _matmul_share(chip: Accelerator) -> tuple[float, float, Origin, str]:
    """The share of the bf16 peak that large tiles reach: measured, the vendor's, or usual."""
    across = _transferred().curve("matmul")
    measured = chip.get("measured.matmul_bf16")
    if measured:
        share = measured / chip.peak_flop_per_second("bf16")
        cited = chip.facts["measured.matmul_bf16"].source
        return share, across.error, "measured", sources().get(cited, {}).get("citation", cited)
    if chip.vendor == "NVIDIA":
        return across["efficiency"], across.error, across.origin, ""
    own = _software_of(chip) or _assumed()["vendors"]["other"]
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
