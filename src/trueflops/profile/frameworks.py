"""What a framework is: its settings, its habits, whose chips it runs on (data/frameworks.toml).

A few named settings each, of what it adds to a chip or takes from it (under.py makes curves of
them). Never a factor of one source or one run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from trueflops.catalog import Accelerator
from trueflops.catalog.facts import read_toml
from trueflops.errors import UnknownName

_DATA: Final = Path(__file__).parent / "data" / "frameworks.toml"
LENDING: Final = "NVIDIA"
"""Whose chips' curves, scaled by what another vendor's software reaches, stand in for its own."""
USUAL: Final = "usual"  # that trains, where none is named
DISPATCHES: Final = ("calls", "generated", "modules")  # how PyTorch issues kernels: clock/host.py
HELD_BY: Final = (  # predict/training/held/
    "torch", "own_loop", "fsdp1", "fsdp2", "fsdp2_with_logits", "deepspeed", "megatron_deepspeed",
    "megatron", "megatron_by_apex", "nanotron",
)  # fmt: skip
HOOKS: Final = ("torch", "deepspeed")  # whose run around modules: clock/host.py
SERVING: Final = "serving"  # that serves, where none is named
_MEMORY_BOUND: Final = ("norm", "norm_backward", "softmax", "rope", "cast")
"""Kernels whose share of the bandwidth a framework may say."""
OF_THE_STEP: Final = (
    "launch", "launches_of_experts", "launches_of_chunked", "graph", "step", "token", "request",
    "hidden_dp", "hidden_tp",
    "contention", "contention_network", "faster_on_one", "faster_on_several", "slower_on_one",
    "slower_on_several",
    "accumulation", "request_error", "request_later", "dispatch_units", "int8_speed", "flash",
    "captures", "experts_error", "slower", "gathered_copies", "foreach", "clips", "pads_vocabulary",
    "trainers_optimizer", "frozen_inputs", "checkpoints", "gathered_stays", "attention_copies",
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
    splits_experts: bool = False  # each of them over the ranks of tp, as the rest of a layer

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
    known = {*OF_THE_STEP, *_MEMORY_BOUND, *_WORDS}
    read = read_toml(_DATA)
    for name, said in read.items():
        if unknown := said.keys() - known:
            raise UnknownName(f"setting of {name}", min(unknown), sorted(known))
    return read


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


def settings_of(
    framework: str, without: str = "", chip: Accelerator | None = None
) -> dict[str, Any]:
    """What a framework says, and of all else what is usual, on a chip.

    `without` leaves out settings that were chosen with runs of this source alone.
    """
    left_out, section = chosen_by(framework, without), _section(framework)
    kept = {name: value for name, value in section.items() if name not in left_out}
    known = {name: v for name, v in section.get("unfitted", {}).items() if name in left_out}
    said = {**_settings()[USUAL], **kept, **known}
    return said | _on_chip(said, chip)


def shares_of(said: dict[str, Any]) -> dict[str, float]:
    """The memory-bound kernels of which the settings say a share of the bandwidth."""
    return {kind: float(said[kind]) for kind in _MEMORY_BOUND if kind in said}


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
