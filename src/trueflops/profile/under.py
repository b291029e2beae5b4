"""What a framework makes of a chip: its settings over a profile's curves, one class of kernels
after another.

In: a Profile and a framework's name. Out: the same profile with launch, overlap, allocator and
kernels as that framework has them.
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import Any, Final

from trueflops import units
from trueflops.catalog import Accelerator
from trueflops.profile.frameworks import (
    DISPATCHES,
    HELD_BY,
    HOOKS,
    OF_THE_STEP,
    USUAL,
    settings_of,
    shares_of,
)
from trueflops.profile.keys import BETWEEN, LAID_OUT, PRODUCTS, CurveKey
from trueflops.profile.profile import Curve, Lineage, Profile

OTHERWISE: Final = ("query_bytes", "serial_rows")  # of a decode step's kernels: clock/attention.py


def under(
    profile: Profile,
    framework: str = USUAL,
    half_sums: float = 1.0,
    without: str = "",
    chip: Accelerator | None = None,
) -> Profile:
    """The profile of a chip under a framework: its curves with the framework's settings.

    `half_sums` is how much faster than at its listed peak the chip multiplies with fp16 sums;
    `chip` the one whose profile it is, where settings of chips apart count;
    `without` leaves out settings that were chosen with runs of this source alone.
    """
    said = settings_of(framework, without, chip)
    curves = _step(said, framework)
    for change in (_allocator, _memory_bound, _attention, _sums, _narrow_caches):
        curves |= change(profile, said, framework)
    curves |= _decoding(profile.having(curves), said, framework)
    if "vector_rows" in said:
        faster = half_sums if chip is not None and chip.is_cpu else 1.0
        curves |= _own_products(profile, said, half_sums, said["int8_speed"] * faster, framework)
    curves |= _experts(profile, said, framework)
    curves |= _fused_casts(profile, said, framework)
    return profile.having(curves)


def _step(said: dict[str, Any], framework: str) -> dict[CurveKey, Curve]:
    """What is the framework's own: its host, its overlap, what it does with gradients."""
    numbers = {name: _number(said[name]) for name in OF_THE_STEP}
    numbers |= {f"by_{how}": float(said.get("dispatches") == how) for how in DISPATCHES}
    numbers |= {f"hooks_{whose}": float(said.get("hooks") == whose) for whose in HOOKS}
    numbers |= {f"held_by_{code}": float(said.get("held_by") == code) for code in HELD_BY}
    key = CurveKey("framework")
    lineage = Lineage("framework", framework, key)
    return {key: Curve(numbers, said["error"], "assumed", said["why"], lineage=lineage)}


def _allocator(profile: Profile, said: dict[str, Any], framework: str) -> dict[CurveKey, Curve]:
    """What of a device is held beside the tensors."""
    held = {"slack": float(said["slack"]), "whole": float(said["memory_error"])}
    held |= {name: float(said[name]) for name in ("communicators", "cached", "unshared")}
    usual = profile.curve("allocator")
    return {CurveKey("allocator"): replace(usual, values={**usual.values, **held})}


def _memory_bound(profile: Profile, said: dict[str, Any], framework: str) -> dict[CurveKey, Curve]:
    """Kernels that a framework runs at its own share of the bandwidth."""
    found = {}
    for kind, share in shares_of(said).items():
        key = CurveKey("memory", kernel=kind)
        own = profile.curve(key)
        changed = replace(own, values={**own.values, "bandwidth": share}, landmarks=None)
        found[key] = changed.because(f"{framework}: {share:g} of the bandwidth")
    return found


def _attention(profile: Profile, said: dict[str, Any], framework: str) -> dict[CurveKey, Curve]:
    """Whose kernels they are, and of which version."""
    found = {}
    for kind in ("attention", "attention_backward"):
        own = _run_by(profile, CurveKey(kind), said.get("attention", ""), framework)
        speeds = (said["attention_speed"], said["attention_speed_64"])
        found[CurveKey(kind)] = _faster(own, *speeds, framework)
    return found


def _sums(profile: Profile, said: dict[str, Any], framework: str) -> dict[CurveKey, Curve]:
    """An all-reduce of its own inside a node; between nodes the library's stays."""
    if "all_reduce" not in said:
        return {}
    reduce = CurveKey("collective", operation="all_reduce")
    own, usual = _run_by(profile, reduce, said["all_reduce"], framework), profile.curve(reduce)
    return {} if own is usual else {reduce: own, replace(reduce, kernel=BETWEEN): usual}


def _narrow_caches(profile: Profile, said: dict[str, Any], framework: str) -> dict[CurveKey, Curve]:
    """Attention over 8-bit caches."""
    found = {}
    if "cache8" in said:
        read = profile.curve(said["cache8"]).because(f"{framework} reads 8-bit caches so")
        found[CurveKey("attention_decode", cache8=True)] = read
    for kind in ("attention", "attention_decode") if "odd_heads" in said else ():
        if fallback := profile.curves.get(CurveKey(kind, cache8=True, kernel=said["odd_heads"])):
            why = f"{framework} has no faster kernel for such heads"
            found[CurveKey(kind, cache8=True, odd_heads=True)] = fallback.because(why)
    return found


def _experts(profile: Profile, said: dict[str, Any], framework: str) -> dict[CurveKey, Curve]:
    """Products of experts, where they are slower than others."""
    speed = said["experts_speed"]
    return {
        replace(key, grouped=True): _at_speed(product, speed, f"{framework}, products of experts")
        for key, product in profile.curves.items()
        if key.kind == "matmul" and speed != 1.0
    }


def _fused_casts(profile: Profile, said: dict[str, Any], framework: str) -> dict[CurveKey, Curve]:
    """Casts that take nothing: the kernel before writes narrow numbers."""
    free = {"start_cycles": 0.0, "bandwidth": 1.0}
    return {
        key: replace(cast, values=free).because(f"{framework} casts inside the kernel before")
        for key, cast in profile.curves.items()
        if key.kind == "cast" and key.format and said["fused_casts"]
    }


def _decoding(profile: Profile, said: dict[str, Any], framework: str) -> dict[CurveKey, Curve]:
    """Kernels of a decode step that share it out otherwise than most: clock/attention.py."""
    own: dict[str, float] = {name: float(said[name]) for name in OTHERWISE if name in said}
    return {
        key: replace(curve, values={**curve.values, **own}).because(
            f"{framework}: {', '.join(own)}"
        )
        for key, curve in profile.curves.items()
        if own and key.kind == "attention_decode"
    }


def laying_out(profile: Profile) -> Profile:
    """The same profile with experts as one product over rows in blocks, at the speed of the
    format's own products.
    """
    routed = CurveKey("experts", dtype="fp8", format="fp8_block")
    product = profile.curve(replace(routed, kind="matmul"))
    values = {**product.values, "route_cycles": profile.curve(routed)["start_cycles"]}
    one = replace(product, values=values, landmarks=None)
    why = "experts laid out in blocks are one product of all rows"
    return profile.having({replace(routed, kernel=LAID_OUT): one.because(why)})


def attending_by(profile: Profile, kernel: str, why: str) -> Profile:
    """The same profile where another kernel than the framework's own runs all attention."""
    curves = {}
    for kind in ("attention", "attention_backward"):
        own = profile.curve(CurveKey(kind, kernel=kernel))
        curves[CurveKey(kind)] = own.because(f"{kernel}: {why}")
    return profile.having(curves)


def _run_by(profile: Profile, key: CurveKey, kernel: str, framework: str) -> Curve:
    """The curve of a framework's own kernel or library, where the profile has one."""
    usual, own = profile.curve(key), profile.curve(replace(key, kernel=kernel))
    return own if own is usual else own.because(f"{framework} runs {kernel}")


def _at_speed(curve: Curve, speed: float, whose: str) -> Curve:
    """The same products at a share of their rate, whatever was seen of single ones nearby."""
    values = {k: v * speed if k == "efficiency" else v for k, v in curve.values.items()}
    changed = replace(curve, values=values, landmarks=None)
    return changed.because(f"{whose}: {speed:g} of the rate, without its landmarks")


def _own_products(
    profile: Profile, said: dict[str, Any], half_sums: float, int8_speed: float, framework: str
) -> dict[CurveKey, Curve]:
    """Products by an engine's own kernels: at a share of the usual rate, few rows on vectors."""
    speed = said["matmul_speed"] * half_sums if isfinite(half_sums) else 1.0
    few = {**profile.curve("vector").values, "vector_rows": float(said["vector_rows"])}
    own_speeds = ("vector_bytes", "vector_bandwidth", "vector_flop")
    few |= {k: float(said[k]) for k in own_speeds if k in said}
    if said.get("unpacks"):
        few["unpack"] = few["vector_bandwidth"]
    curves = {}
    for key, curve in profile.curves.items():
        if key.kind in PRODUCTS:
            share = int8_speed or speed if key.dtype == "int8" else speed
            own = _at_speed(curve, share, f"{framework}, its own kernels")
            if key.kind == "matmul":
                own = replace(own, values={**own.values, **few})
                rows = few["vector_rows"]
                own = own.because(f"{framework}: up to {rows:g} rows on vector units")
            curves[key] = own
    return curves | _unpacked(curves[CurveKey("matmul")], said, framework)


def _unpacked(plain: Curve, said: dict[str, Any], framework: str) -> dict[CurveKey, Curve]:
    """Products whose weights are put together on vector units."""
    curves = {}
    for name, codes in said.get("vector_codes", {}).items():
        packed = replace(plain, values={**plain.values, "vector_codes": float(codes)})
        why = f"{framework}: {codes:g} weights of {name} a unit and cycle"
        for dtype in ("", "fp32"):  # chips without fast fp16 multiply in fp32
            curves[CurveKey("matmul", dtype=dtype, format=name)] = packed.because(why)
    return curves


def _faster(curve: Curve, wide: float, narrow: float, framework: str) -> Curve:
    """The same kernels at another share of the peak, for wide heads and for those of 64."""
    if wide == narrow == 1.0:
        return curve
    speeds = {name: wide for name in curve.values if name.startswith("efficiency")}
    speeds["efficiency_64"] = narrow
    values = {name: value * speeds.get(name, 1.0) for name, value in curve.values.items()}
    return replace(curve, values=values).because(
        f"{framework}: {wide:g} of the rate, {narrow:g} where heads are of 64"
    )


def _number(value: str | float) -> float:
    return (
        units.parse(value, "seconds", what="a setting of a framework")
        if isinstance(value, str)
        else value
    )
