"""What a framework makes of a chip: a few named settings over a profile's curves.

In: a Profile and a framework's name. Out: the same profile with launch, overlap, allocator and
kernels as that framework has them. Never a factor of one source or one run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from trueflops import units
from trueflops.catalog.facts import read_toml
from trueflops.errors import UnknownName
from trueflops.profile.profile import Curve, Profile

_DATA: Final = Path(__file__).parent / "data" / "frameworks.toml"
USUAL: Final = "usual"  # that trains, where none is named
SERVING: Final = "serving"  # that serves, where none is named
_OF_THE_STEP: Final = (
    "launch", "graph", "step", "token", "request", "hidden_dp", "hidden_tp", "contention",
    "fresh_gradients", "accumulation", "request_error", "chunk",
    "experts_error", "gathered_copies",
)  # fmt: skip
_WORDS: Final = (
    "attention", "attention_speed", "attention_speed_64", "all_reduce", "cache8", "odd_heads",
    "fused_casts", "matmul_speed", "experts_speed", "vector_rows", "error", "why", "slack",
    "memory_error", "habits", "serves", "elsewhere",
)  # fmt: skip


@dataclass(frozen=True)
class Habits:
    """What a framework's plans are, where nothing else is said: see data/frameworks.toml."""

    zero: int = 1
    fused: bool = True
    fused_loss: bool = False
    sp: bool = True
    gradient_dtype: str = ""  # "": as wide as the weights
    selective: str = "selective"
    selective_layers: float = 0.0

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
    return tuple(
        name
        for name, said in _settings().items()
        if name != USUAL and serving in (None, bool(said.get("serves", 0)))
    )


def serves(framework: str) -> bool:
    """Whether it is an engine that serves; the others train."""
    return bool(_section(framework).get("serves", 0))


def about(framework: str) -> str:
    """What a framework is, in a sentence."""
    return str(_section(framework)["why"])


def on_vendor(framework: str, vendor: str) -> str:
    """The framework as it is on chips of a vendor: MaxText is another program on GPUs."""
    elsewhere = _section(framework).get("elsewhere")
    return elsewhere["is"] if elsewhere and vendor != elsewhere["than"] else framework


def _section(framework: str) -> dict[str, Any]:
    if framework not in _settings():
        raise UnknownName("framework", framework, frameworks(), f"({', '.join(frameworks())})")
    return _settings()[framework]


def under(profile: Profile, framework: str = USUAL, half_sums: float = 1.0) -> Profile:
    """The profile of a chip under a framework: its curves with the framework's settings.

    `half_sums` is how much faster than at its listed peak the chip multiplies with fp16 sums.
    """
    said = {**_settings()[USUAL], **_section(framework)}
    numbers = {name: _number(said[name]) for name in _OF_THE_STEP}
    memory, slack = profile.curve("memory"), profile.curve("allocator")
    shares = {k: float(v) for k, v in said.items() if k not in (*_OF_THE_STEP, *_WORDS)}
    held = {"slack": float(said["slack"]), "whole": float(said["memory_error"])}
    curves = {
        "framework": Curve(numbers, said["error"], "assumed", said["why"]),
        "memory": replace(memory, values={**memory.values, **shares}),
        "allocator": replace(slack, values={**slack.values, **held}),
    }
    for kind in ("attention", "attention_backward"):
        own = profile.curve(f"{kind}.{said['attention']}" if "attention" in said else kind)
        curves[kind] = _faster(own, said["attention_speed"], said["attention_speed_64"])
    if "all_reduce" in said:
        reduce = "collective.all_reduce"
        curves[reduce] = profile.curve(f"{reduce}.{said['all_reduce']}")
    if "cache8" in said:
        curves["attention_decode.kv8"] = profile.curve(said["cache8"])
    for kind in ("attention.kv8", "attention_decode.kv8") if "odd_heads" in said else ():
        if fallback := profile.curves.get(f"{kind}.{said['odd_heads']}"):
            curves[f"{kind}.odd_heads"] = fallback
    if "vector_rows" in said:
        curves |= _own_products(profile, min(said["matmul_speed"] * half_sums, 1.0), said)
    if said["experts_speed"] != 1.0:
        for name in [name for name in profile.curves if name.startswith("matmul")]:
            curves[f"{name}.grouped"] = _at_speed(profile.curves[name], said["experts_speed"])
    if said["fused_casts"]:
        for name in profile.curves:
            if name.startswith("cast."):
                free = {"start_cycles": 0.0, "bandwidth": 1.0}
                curves[name] = replace(profile.curves[name], values=free)
    return profile.having(curves)


def _at_speed(curve: Curve, speed: float) -> Curve:
    """The same products at a share of their rate; landmarks of single products are dropped."""
    values = {k: v * speed if k == "efficiency" else v for k, v in curve.values.items()}
    return replace(curve, values=values, landmarks=None)


def _own_products(profile: Profile, speed: float, said: dict[str, Any]) -> dict[str, Curve]:
    """Products by an engine's own kernels: a share of the usual rate, few rows on vector units."""
    few = {**profile.curve("vector").values, "vector_rows": float(said["vector_rows"])}
    curves = {}
    for name, curve in profile.curves.items():
        if name.startswith(("matmul", "experts")):
            own = _at_speed(curve, speed)
            more = few if name.startswith("matmul") else {}
            curves[name] = replace(own, values={**own.values, **more})
    return curves


def _faster(curve: Curve, wide: float, narrow: float) -> Curve:
    """The same kernels at another share of the peak, for wide heads and for those of 64."""
    if wide == narrow == 1.0:
        return curve
    speeds = {name: wide for name in curve.values if name.startswith("efficiency")}
    speeds["efficiency_64"] = narrow
    values = {name: value * speeds.get(name, 1.0) for name, value in curve.values.items()}
    return replace(curve, values=values)


def _number(value: str | float) -> float:
    return units.parse(value, "seconds", what=str(_DATA.name)) if isinstance(value, str) else value
