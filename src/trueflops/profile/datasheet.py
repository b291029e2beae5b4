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
from trueflops.profile.frameworks import LENDING, USUAL, on_vendor, runs_tuned
from trueflops.profile.keys import ATTENTION, PRODUCTS, STREAMS, UNALIGNED, CurveKey
from trueflops.profile.profile import Curve, Lineage, Profile
from trueflops.profile.siblings import ASSUMED, meets_over_host, of_sibling
from trueflops.profile.stored import DATA, read_profile, shipped
from trueflops.profile.under import under

_ANY_HEADS_KERNEL: Final = "triton"
_MATMUL, _POWER = CurveKey("matmul"), CurveKey("power")
MOST_KEPT: Final = 64  # profiles: a server is asked of the same few chips again and again
UNTUNED_ERROR: Final = 0.5  # of what a vendor's libraries lose on the shapes of models
_MATRIX: Final = (*PRODUCTS, *ATTENTION)
_PORTABLE: Final = frozenset(("fa2",))
"""Kernels of instructions that all of a vendor's chips have, whatever faster ones this one adds."""
_NO_CURVES: Final = frozenset((
    "vendors", "families", "energies_of", "memories", "siblings", "hosts",
))  # fmt: skip
_MOVING: Final = (*STREAMS, "cast")
_OVERHEADS: Final = ("start_cycles", "step_cycles", "split", "join_cycles")
"""Of a product: what it spends beside moving and multiplying, however narrow its operands are."""


@cache
def _assumed() -> dict[str, Any]:
    return read_toml(ASSUMED)


def transferred(vendor: str) -> str:
    """How the profile is named that holds what transfers among a vendor's chips."""
    return "transfer" if vendor == LENDING else f"transfer-{vendor}"


@cache
def _transferred() -> Profile:
    return read_profile(DATA / f"{transferred(LENDING)}.json")


@lru_cache(maxsize=MOST_KEPT)
def profile_of(
    chip: Accelerator, framework: str = USUAL, given: Profile | None = None, *, without: str = ""
) -> Profile:
    """The best that is known of a chip, as it shows under a framework.

    Curves of a profile that the user gives come before those that are shipped; of these a framework
    gets those whose kernels it runs. `without` leaves out what was chosen with published runs of
    that source.

    >>> import trueflops as tf
    >>> tf.profile_of(tf.accelerator("H20"), "megatron").name
    'H20-96GB by H100-SXM5-80GB'
    """
    best, own_kind = _general(chip), on_vendor(framework, chip.vendor)
    if runs_tuned(own_kind, chip.vendor):
        best = best.having(_among_its_own(chip))
        if (sibling := of_sibling(chip, best)) is not None:
            best = best.having(sibling.curves).named(sibling.name)
        if (own := shipped(chip.name)) is not None:
            best = best.having(own.lent("own")).named(own.name)
    if given is not None:
        best = best.having(given.lent("given")).named(given.name)
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
    if chip.vendor != LENDING:
        return inf
    if chip.form == "consumer":
        return 2.0
    return chip.architecture.mma_sync_share


def _general(chip: Accelerator) -> Profile:
    """What is assumed of any chip, and what transfers to this one."""
    curves = _assumptions(chip)
    curves |= _lent(chip, curves[CurveKey("vector")])
    vendor, family = _software_of(chip), chip.architecture.family
    typical = {"typical": float(vendor.get("typical", 1.0)), "error": UNTUNED_ERROR}
    why = vendor.get("why", "no loss known")
    curves[CurveKey("models")] = _assumption(CurveKey("models"), {**typical, "why": why})
    if raw := _assumed()["families"].get(family):
        power = curves[_POWER]
        changed = replace(power, values={**power.values, **_numbers(raw)}, source=raw["why"])
        curves[_POWER] = changed.because(f"{family}: {raw['why']}")
    if meets_over_host(chip):
        key = CurveKey("collective")
        hosts = _assumed()["hosts"]
        curves[key] = replace(curves[key], error=hosts["error"]).because(hosts["why"])
    held = {key: curve for key, curve in curves.items() if _runs(chip, key)}
    return Profile(f"{chip.name} by datasheet", chip.name, held)


def _assumptions(chip: Accelerator) -> dict[CurveKey, Curve]:
    """Curves that nothing was fitted to, as the chip's vendor has them."""
    curves = {
        CurveKey.parse(name): _assumption(CurveKey.parse(name), raw)
        for name, raw in _assumed().items()
        if name not in _NO_CURVES
    }
    vendor = _software_of(chip)
    for name, otherwise in vendor.get("curves", {}).items():
        key = CurveKey.parse(name)
        values = {**curves[key].values, **_numbers(otherwise)}
        why = otherwise.get("why", vendor["why"])
        curves[key] = replace(curves[key], values=values, source=why)
    return curves


def _lent(chip: Accelerator, vector: Curve) -> dict[CurveKey, Curve]:
    """Curves fitted across NVIDIA's chips, scaled by what this one is known to reach."""
    reached, error, origin, why = _matmul_share(chip)
    usual = _transferred().curve("matmul")["efficiency"]
    curves = {}
    for key, curve in _transferred().lent("transfer").items():
        if key.kind not in _MATRIX:
            if key.kind != "power" or chip.vendor == LENDING:
                own = _started(curve, chip) if key.kind in _MOVING else curve
                curves[key] = replace(own, origin="derived")
            continue
        # What a vendor's software reaches of its peak in matmul it also reaches elsewhere.
        values = {
            name: value * reached / usual if name.startswith("efficiency") else value
            for name, value in curve.values.items()
        }
        if key.kind == "matmul" and chip.computes("fp32"):
            values |= vector.values
        if key.kind == "matmul" and _is_new(chip):
            values |= {name: _wide()[name] for name in _OVERHEADS if name in values}
        # A measured rate of the largest bf16 products says little of other sizes and kernels.
        claim: Origin = "derived" if origin == "measured" else origin
        own = replace(curve, values=values, error=max(error, curve.error), origin=claim)
        if why:
            # Where a vendor's share is assumed so is its error: rows of other chips do not tell it.
            held = None if origin == "assumed" else curve.held_out
            own = replace(own, source=f"{why}; {curve.source}", held_out=held).because(
                f"× {reached / usual:.2f}: large products reach {reached:.2f} of the bf16 peak"
            )
        curves[key] = _by_mma_sync(own, chip) if key.kernel in _PORTABLE else own
    return curves


def _wide() -> Curve:
    return _transferred().curve(_MATMUL)


def _is_new(chip: Accelerator) -> bool:
    """Whether a chip computes in eight bits and none of its family was measured.

    How late the narrow kernels of the first chips begin says nothing of it: a kernel that widens
    narrow weights as it loads them is there in any library, so that they take no longer than wide.
    """
    return chip.computes("fp8") and chip.architecture.family not in _families(_transferred())


def _by_mma_sync(curve: Curve, chip: Accelerator) -> Curve:
    """Kernels of mma.sync, at the share of the peak that it reaches on this chip.

    FlashAttention-2 runs its heads of 128 at 354 TFLOP/s on a B200 (meta-pytorch/tritonbench pull
    request 171), which multiplies at 2,250, and at 366 on an H200, which multiplies at 989.
    """
    own = chip.architecture.mma_sync_share
    measured = accelerator(curve.rows[0].chip).architecture.mma_sync_share
    if own == measured:
        return curve
    values = {
        name: value * own / measured if name.startswith("efficiency") else value
        for name, value in curve.values.items()
    }
    return replace(curve, values=values).because(
        f"× {own / measured:.2f}: mma.sync reaches {own:g} of the peak, {measured:g} of that of "
        "the chip it was measured on"
    )


def _runs(chip: Accelerator, key: CurveKey) -> bool:
    """Whether kernels of a curve run on the chip, as far as that is known."""
    flash = chip.architecture.flash_attention
    if key.kernel in UNALIGNED:  # how others' libraries take such sides was not measured
        return chip.vendor == LENDING
    if key.kernel == "fa2" and key.kind in ("attention", "attention_backward"):
        return flash is not None and flash > 2  # else the chip's best kernels are these themselves
    # FlashAttention-3 takes heads of any size, over 8-bit caches too: no fallback runs beside it.
    return key.kernel != _ANY_HEADS_KERNEL or flash != 3


def _started(curve: Curve, chip: Accelerator) -> Curve:
    """A kernel that only moves data, with no less than its vendor's shortest ones take."""
    shortest, hertz = _software_of(chip).get("shortest"), chip.get("compute.clock")
    if shortest is None or not hertz:
        return curve
    least = _si(shortest["start"]) * hertz
    if curve["start_cycles"] >= least:
        return curve
    longer = replace(curve, values={**curve.values, "start_cycles": least})
    return longer.because(f"none takes less than {shortest['start']}: {shortest['why']}")


def _among_its_own(chip: Accelerator) -> dict[CurveKey, Curve]:
    """Curves fitted across chips of the same vendor, for those of the families that were measured.

    Large bf16 products reach what is known of the chip, or else of its vendor. A chip without
    products of four-bit floats widens such weights by kernels of its own.
    """
    own = shipped(transferred(chip.vendor)) if chip.vendor != LENDING else None
    if own is None or chip.architecture.family not in _families(own):
        return {}
    curves = {
        key: curve
        for key, curve in own.lent("transfer").items()
        if _runs(chip, key) and (chip.computes("fp4") or "fp4" not in f"{key.dtype} {key.format}")
    }
    reached, *_ = _matmul_share(chip)
    wide = curves[_MATMUL]
    scaled = replace(wide, values={**wide.values, "efficiency": reached})
    curves[_MATMUL] = scaled.because(f"large products reach {reached:.2f} of the bf16 peak")
    return curves


@lru_cache(maxsize=MOST_KEPT)
def _families(across: Profile) -> set[str]:
    """Of the chips whose rows curves were fitted to."""
    chips = {row.chip for curve in across.curves.values() for row in curve.rows}
    return {accelerator(name).architecture.family for name in chips}


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
    if chip.vendor == LENDING:
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
