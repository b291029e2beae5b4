"""What a framework makes of a chip: a few named settings over a profile's curves.

In: a Profile and a framework's name. Out: the same profile with launch, overlap, allocator and
kernels as that framework has them. Never a factor of one source or one run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, Final

from trueflops import units
from trueflops.catalog import Accelerator
from trueflops.catalog.facts import read_toml
from trueflops.errors import UnknownName
from trueflops.profile.keys import BETWEEN, LAID_OUT, PRODUCTS, CurveKey
from trueflops.profile.profile import Curve, Lineage, Profile

_DATA: Final = Path(__file__).parent / "data" / "frameworks.toml"
LENDING: Final = "NVIDIA"
"""Whose chips' curves, scaled by what another vendor's software reaches, stand in for its own."""
USUAL: Final = "usual"  # that trains, where none is named
DISPATCHES: Final = ("calls", "generated", "modules")  # how PyTorch issues kernels: clock/host.py
HELD_BY: Final = (  # predict/held/
    "torch", "own_loop", "fsdp1", "fsdp2", "fsdp2_with_logits", "deepspeed", "megatron_deepspeed",
    "megatron", "megatron_by_apex", "nanotron",
)  # fmt: skip
HOOKS: Final = ("torch", "deepspeed")  # whose run around modules: clock/host.py
OTHERWISE: Final = ("query_bytes", "serial_rows")  # of a decode step's kernels: clock/attention.py
SERVING: Final = "serving"  # that serves, where none is named
_OF_THE_STEP: Final = (
    "launch", "launches_of_experts", "launches_of_chunked", "graph", "step", "token", "request",
    "hidden_dp", "hidden_tp",
    "contention", "contention_network", "faster_on_one", "faster_on_several", "slower_on_one",
    "slower_on_several",
    "accumulation", "request_error", "request_later", "dispatch_units", "int8_speed", "flash",
    "captures", "experts_error", "slower", "gathered_copies", "foreach", "clips", "pads_vocabulary",
    "frozen_inputs", "checkpoints", "gathered_stays", "attention_copies",
)  # fmt: skip
_WORDS: Final = (
    "attention", "attention_speed", "attention_speed_64", "all_reduce", "cache8", "odd_heads",
    "fused_casts", "matmul_speed", "experts_speed", "vector_rows", "vector_bytes",
    "vector_bandwidth", "vector_flop", "vector_codes", "unpacks", "error", "why", "slack",
    "memory_error", "habits", "serves", "tuned", "elsewhere", "dispatches", "hooks",
    "vendors", "lacks", "schedules", "switches", "like", "fitted", "unfitted", "held_by",
    "communicators", "cached", "unshared", "on", "query_bytes", "serial_rows",
)  # fmt: skip


@dataclass(frozen=True)
class Habits:
    """What a framework's plans are, where nothing else is said: see data/frameworks.toml."""

    zero: int = 1
    fused: bool = True
    loss: str = "plain"
    implementation: str = "library"
    sp: bool = True
    overlap: bool = True
    overlap_from: int = 0
    gradient_dtype: str = ""  # "": as wide as the weights
    mixed: str = "engine"
    stored: str = ""  # what weights are kept in, frozen ones too; "": as the row or the plan says
    fp8_weights: bool = False  # beside products of per-tensor fp8
    master: bool = True  # a wide copy of narrow weights, and moments as wide
    selective: str = "selective"
    deals: str = "evenly"  # layers to the stages of a pipeline; or by what they cost
    selective_layers: float = 0.0

    def overlaps(self, zero: int) -> bool:
        """Whether gradients are reduced beside the backward at that ZeRO stage."""
        return self.overlap and zero >= self.overlap_from

    def recomputation(self, layers: float) -> dict[str, Any]:
        """What it calls selective, of a stage of so many layers, as fields of a Plan."""
        if not self.selective_layers:
            return {"recompute": self.selective}
        share = max(round(self.selective_layers * layers), 1)
        return {"recompute": "full", "recompute_layers": share}


@cache
def habits(framework: str) -> Habits:
    """The habits of one framework."""
    return Habits(**_section(framework).get("habits", {}))


@cache
def _settings() -> dict[str, dict[str, Any]]:
    return read_toml(_DATA)


def frameworks(*, serving: bool | None = None) -> tuple[str, ...]:
    """Every framework that has settings of its own; only those that serve, or train, if asked."""
    return tuple(name for name in _settings() if name != USUAL and serving in (None, serves(name)))


def serves(framework: str) -> bool:
    """Whether it is an engine that serves; the others train."""
    return bool(_section(framework).get("serves", 0))


def runs_tuned(framework: str, vendor: str) -> bool:
    """Whether it runs the kernels by which chips of a vendor were measured.

    Of NVIDIA's those are the libraries that all frameworks call.
    """
    return vendor == LENDING or bool(_section(framework).get("tuned", 0))


def by_itself(vendor: str) -> str:
    """By which framework a kernel is priced where none runs it: one whose kernels were measured."""
    return USUAL if runs_tuned(USUAL, vendor) else SERVING


def about(framework: str, chip: Accelerator | None = None) -> str:
    """What a framework is, in a sentence; on some chips it runs other kernels."""
    section = _section(framework)
    return str((section | _on_chip(section, chip))["why"])


def on_vendor(framework: str, vendor: str) -> str:
    """The framework as it is on chips of a vendor: MaxText is another program on GPUs."""
    elsewhere = _section(framework).get("elsewhere")
    return elsewhere["is"] if elsewhere and vendor != elsewhere["than"] else framework


def runs_on(framework: str, vendor: str) -> bool:
    """Whether there is such a framework for chips of a vendor; of one that is not known, yes."""
    vendors = _section(framework).get("vendors")
    return not vendor or vendors is None or vendor in vendors


def lacking(framework: str) -> tuple[str, ...]:
    """Degrees of a plan that it has no code for: pp, cp …"""
    return tuple(_section(framework).get("lacks", ()))


def schedules(framework: str) -> tuple[str, ...]:
    """The pipeline schedules that it has; empty where nothing is said."""
    return tuple(_section(framework).get("schedules", ()))


def switches(framework: str) -> tuple[str, ...]:
    """Fields of a plan that are off there unless asked for, and that only help."""
    return tuple(_section(framework).get("switches", ()))


def chosen_by(framework: str, source: str) -> set[str]:
    """Settings that runs of a source alone decided; of those without a choice, none."""
    fitted = _section(framework).get("fitted", {})
    elsewhere = {name for other, names in fitted.items() if other != source for name in names}
    return set(fitted.get(source, ())) - elsewhere


def _section(framework: str) -> dict[str, Any]:
    if framework not in _settings():
        raise UnknownName("framework", framework, frameworks(), f"({', '.join(frameworks())})")
    own = _settings()[framework]
    if "like" in own:
        base = _section(own["like"])
        own = {**base, **own, "habits": {**base.get("habits", {}), **own.get("habits", {})}}
    return own


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
    left_out, section = chosen_by(framework, without), _section(framework)
    kept = {name: value for name, value in section.items() if name not in left_out}
    known = {name: v for name, v in section.get("unfitted", {}).items() if name in left_out}
    said = {**_settings()[USUAL], **kept, **known}
    said |= _on_chip(said, chip)
    numbers = {name: _number(said[name]) for name in _OF_THE_STEP}
    numbers |= {f"by_{how}": float(said.get("dispatches") == how) for how in DISPATCHES}
    numbers |= {f"hooks_{whose}": float(said.get("hooks") == whose) for whose in HOOKS}
    numbers |= {f"held_by_{code}": float(said.get("held_by") == code) for code in HELD_BY}
    slack = profile.curve("allocator")
    shares = {k: float(v) for k, v in said.items() if k not in (*_OF_THE_STEP, *_WORDS)}
    held = {"slack": float(said["slack"]), "whole": float(said["memory_error"])}
    held |= {name: float(said[name]) for name in ("communicators", "cached", "unshared")}
    key = CurveKey("framework")
    lineage = Lineage("framework", framework, key)
    curves = {
        key: Curve(numbers, said["error"], "assumed", said["why"], lineage=lineage),
        **_with_shares(profile, shares, framework),
        CurveKey("allocator"): replace(slack, values={**slack.values, **held}),
    }
    for kind in ("attention", "attention_backward"):
        own = _run_by(profile, CurveKey(kind), said.get("attention", ""), framework)
        speeds = (said["attention_speed"], said["attention_speed_64"])
        curves[CurveKey(kind)] = _faster(own, *speeds, framework)
    if "all_reduce" in said:
        reduce = CurveKey("collective", operation="all_reduce")
        own = _run_by(profile, reduce, said["all_reduce"], framework)
        if own is not profile.curve(reduce):
            curves[reduce] = own
            curves[replace(reduce, kernel=BETWEEN)] = profile.curve(reduce)
    if "cache8" in said:
        read = profile.curve(said["cache8"]).because(f"{framework} reads 8-bit caches so")
        curves[CurveKey("attention_decode", cache8=True)] = read
    for kind in ("attention", "attention_decode") if "odd_heads" in said else ():
        if fallback := profile.curves.get(CurveKey(kind, cache8=True, kernel=said["odd_heads"])):
            why = f"{framework} has no faster kernel for such heads"
            curves[CurveKey(kind, cache8=True, odd_heads=True)] = fallback.because(why)
    curves |= _decoding(profile.having(curves), said, framework)
    if "vector_rows" in said:
        speed = said["matmul_speed"] * half_sums if isfinite(half_sums) else 1.0
        few = {**profile.curve("vector").values, "vector_rows": float(said["vector_rows"])}
        own_speeds = ("vector_bytes", "vector_bandwidth", "vector_flop")
        few |= {k: float(said[k]) for k in own_speeds if k in said}
        if said.get("unpacks"):
            few["unpack"] = few["vector_bandwidth"]
        int8_speed = said["int8_speed"] * (half_sums if chip is not None and chip.is_cpu else 1.0)
        curves |= _own_products(profile, speed, int8_speed or speed, few, framework)
        for name, codes in said.get("vector_codes", {}).items():
            plain = curves[CurveKey("matmul")]
            packed = replace(plain, values={**plain.values, "vector_codes": float(codes)})
            why = f"{framework}: {codes:g} weights of {name} a unit and cycle"
            for dtype in ("", "fp32"):  # chips without fast fp16 multiply in fp32
                key = CurveKey("matmul", dtype=dtype, format=name)
                curves[key] = packed.because(why)
    if said["experts_speed"] != 1.0:
        for key, product in profile.curves.items():
            if key.kind == "matmul":
                slowed = _at_speed(
                    product, said["experts_speed"], f"{framework}, products of experts"
                )
                curves[replace(key, grouped=True)] = slowed
    if said["fused_casts"]:
        for key, cast in profile.curves.items():
            if key.kind == "cast" and key.format:
                free = replace(cast, values={"start_cycles": 0.0, "bandwidth": 1.0})
                curves[key] = free.because(f"{framework} casts inside the kernel before")
    return profile.having(curves)


def _on_chip(said: dict[str, Any], chip: Accelerator | None) -> dict[str, Any]:
    """What a framework does otherwise on chips of a vendor or of a CUDA compute capability, or on a
    host's own processor.
    """
    found: dict[str, Any] = {}
    if chip is None:
        return found
    is_so: dict[str, Callable[[Any], bool]] = {
        "vendor": lambda vendor: vendor == chip.vendor,
        "capability": lambda majors: (chip.architecture.compute_capability or (0,))[0] in majors,
        "processor": lambda is_cpu: is_cpu == chip.is_cpu,
    }
    for row in said.get("on", []):
        if all(is_so[name](row[name]) for name in is_so.keys() & row.keys()):
            found |= {name: value for name, value in row.items() if name not in is_so}
    return found


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


def _with_shares(
    profile: Profile, shares: dict[str, float], framework: str
) -> dict[CurveKey, Curve]:
    """Memory-bound kernels that a framework runs at its own share of the bandwidth."""
    found = {}
    for kind, share in shares.items():
        key = CurveKey("memory", kernel=kind)
        own = profile.curve(key)
        changed = replace(own, values={**own.values, "bandwidth": share}, landmarks=None)
        found[key] = changed.because(f"{framework}: {share:g} of the bandwidth")
    return found


def _at_speed(curve: Curve, speed: float, whose: str) -> Curve:
    """The same products at a share of their rate, whatever was seen of single ones nearby."""
    values = {k: v * speed if k == "efficiency" else v for k, v in curve.values.items()}
    changed = replace(curve, values=values, landmarks=None)
    return changed.because(f"{whose}: {speed:g} of the rate, without its landmarks")


def _own_products(
    profile: Profile, speed: float, int8_speed: float, few: dict[str, float], framework: str
) -> dict[CurveKey, Curve]:
    """Products by an engine's own kernels: at a share of the usual rate, few rows on vectors."""
    curves = {}
    for key, curve in profile.curves.items():
        if key.kind in PRODUCTS:
            share = int8_speed if key.dtype == "int8" else speed
            own = _at_speed(curve, share, f"{framework}, its own kernels")
            if key.kind == "matmul":
                own = replace(own, values={**own.values, **few})
                rows = few["vector_rows"]
                own = own.because(f"{framework}: up to {rows:g} rows on vector units")
            curves[key] = own
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
    return units.parse(value, "seconds", what=str(_DATA.name)) if isinstance(value, str) else value
