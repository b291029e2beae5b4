"""What all chips of one architecture share: its unit, instructions, kernels and library settings.

In: data/architectures.toml, every figure with its source. Out: Architecture. A chip names its
architecture exactly; nothing is read from words inside a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal, get_args

from trueflops import units
from trueflops.catalog.facts import DATA, Fact, read_toml
from trueflops.errors import BadCatalog, UnknownName

MatrixInstruction = Literal["mma.m8n8k4", "mma.m16n8k8", "mma.m16n8k16", "wgmma", "tcgen05"]
CPU: Final = "cpu"
_FMA: Final = "fma_per_clock"
_FACTS: Final = (
    "unit",
    "compute_capability",
    "consumer_share",
    "matrix_instruction",
    "matrix_instruction_lacks",
    "mma_sync_share",
    "blas_workspace",
    "flash_attention",
)


@dataclass(frozen=True)
class Architecture:
    """One architecture. A field at its default is not known or, where it says so, not there."""

    name: str
    family: str = ""  # the generation: chips of one draw power alike and run the same kernels
    processor: bool = False  # a host's own, which runs what it issues itself
    unit: str = ""  # what compute.units counts: SM, CU …
    compute_capability: tuple[int, int] | None = None  # CUDA's; None: not a CUDA device
    fma_per_clock: Mapping[str, float] = field(default_factory=dict)  # per unit and dtype, dense
    consumer_share: float = 1.0  # of those, with fp32 sums on cards of the form "consumer"
    matrix_instruction: MatrixInstruction | None = None
    matrix_instruction_lacks: str = ""  # a dtype that it does not take
    mma_sync_share: float = 1.0  # of the peak, by the portable instruction
    blas_workspace_bytes: float = 0.0  # for each thread that multiplies, under PyTorch
    flash_attention: int | None = None  # the newest generation of it made for these chips
    facts: Mapping[str, Fact] = field(default_factory=dict)


@cache
def architectures() -> Mapping[str, Architecture]:
    """Every architecture of the catalog, by name."""
    table = read_toml(DATA / "architectures.toml")
    return {name: _decode(name, table) for name in table}


def architecture(name: str) -> Architecture:
    """Look an architecture up by its exact name."""
    found = architectures().get(name)
    if found is None:
        raise UnknownName("architecture", name, architectures(), "(data/architectures.toml)")
    return found


def _decode(name: str, table: Mapping[str, Any]) -> Architecture:
    where = f"architectures.toml: {name}"
    raw: Mapping[str, Any] = table[name]
    if "like" in raw:
        if raw["like"] not in table or "like" in table[raw["like"]]:
            raise BadCatalog(f"{where}: like = {raw['like']!r} must be an entry without a like")
        raw = {**table[raw["like"]], **{key: raw[key] for key in raw if key != "like"}}
    if unknown := raw.keys() - {"family", "processor", _FMA, *_FACTS}:
        raise BadCatalog(f"{where}: unknown key {', '.join(sorted(unknown))}")
    facts = {key: Fact.decode(raw[key], f"{where}: {key}") for key in _FACTS if key in raw}
    fma = {key: raw[_FMA][key] for key in raw.get(_FMA, {}) if key not in ("origin", "source")}
    if fma:
        claim = {key: raw[_FMA].get(key) for key in ("origin", "source")}
        text = ", ".join(f"{dtype} {rate}" for dtype, rate in fma.items())
        facts[_FMA] = Fact.decode({"value": text, **claim}, f"{where}: {_FMA}")
    said = {key: fact.text for key, fact in facts.items()}
    major, _, minor = said.get("compute_capability", "").partition(".")
    workspace = said.get("blas_workspace")
    generation = said.get("flash_attention")
    return Architecture(
        name,
        raw["family"],
        raw.get("processor", False),
        unit=said.get("unit", ""),
        compute_capability=(int(major), int(minor)) if major else None,
        fma_per_clock=fma,
        consumer_share=float(said.get("consumer_share", 1.0)),
        matrix_instruction=_instruction(said.get("matrix_instruction"), where),
        matrix_instruction_lacks=said.get("matrix_instruction_lacks", ""),
        mma_sync_share=float(said.get("mma_sync_share", 1.0)),
        blas_workspace_bytes=units.parse(workspace, "bytes", what=where) if workspace else 0.0,
        flash_attention=int(generation) if generation else None,
        facts=facts,
    )


def _instruction(said: str | None, where: str) -> MatrixInstruction | None:
    known: dict[str, MatrixInstruction] = {name: name for name in get_args(MatrixInstruction)}
    if said is not None and said not in known:
        raise BadCatalog(f"{where}: matrix_instruction {said!r} is none of {', '.join(known)}")
    return known[said] if said is not None else None
