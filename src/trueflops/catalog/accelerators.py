"""Accelerators: one chip as software sees it, every figure dense, per device and in SI units.

In: data/accelerators/*.toml, with the values as published. Out: Accelerator.
A package that software sees as two devices (MI250X) is divided here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from trueflops import units
from trueflops.catalog.architectures import CPU, Architecture, architecture
from trueflops.catalog.facts import NONE, Fact, facts_of, read_toml
from trueflops.catalog.names import find_or_suggest, index
from trueflops.catalog.partitions import AT, SOURCE, WITHOUT, is_slice, slices_of
from trueflops.errors import BadCatalog, BadInput, MissingFact, printable, shorten
from trueflops.language import say

DTYPES: Final = (
    "fp64",
    "fp64_tensor",
    "fp32",
    "fp32_tensor",
    "tf32",
    "fp16",
    "bf16",
    "fp8",
    "int8",
    "fp6",
    "fp4",
    "int4",
)

TABLES: Final = (
    "peak",
    "accumulate",
    "sparsity",
    "compute",
    "memory",
    "links",
    "power",
    "partition",
    "measured",
)
# path -> dimension; None marks a text, "" a plain number.
_DIMENSIONS: Final[Mapping[str, str | None]] = {
    "compute.clock": "hertz",
    "memory.capacity": "bytes",
    "memory.bandwidth": "bytes_per_second",
    "memory.l2": "bytes",
    "memory.sram_per_unit": "bytes",
    "memory.generation": None,
    "links.scale_up": None,
    "links.host": None,
    "links.scale_up_bandwidth": "bytes_per_second",
    "power.tdp": "watts",
}
_PER_PACKAGE: Final = (
    "peak.",
    "accumulate.",
    "compute.units",
    "compute.tensor_cores",
    "memory.capacity",
    "memory.bandwidth",
    "memory.l2",
    "links.scale_up_bandwidth",
    "power.",
)


@dataclass(frozen=True)
class Alternative:
    """Another figure that circulates for the same field, and why it was not chosen."""

    field: str
    value: str
    source: str
    why: str


@dataclass(frozen=True)
class Accelerator:
    """One device. `values` are SI floats per device; a value of None means: no such path."""

    name: str
    vendor: str
    architecture: Architecture
    year: int
    form: str
    status: str
    devices_per_package: int
    notes: tuple[str, ...]
    facts: Mapping[str, Fact]
    values: Mapping[str, float | None]
    alternatives: tuple[Alternative, ...]
    cut_of: str = ""  # the catalog's chip that it is a part of: sold with less memory, fewer units

    def __hash__(self) -> int:
        """By name: its facts are mappings, and what is derived of a chip is kept by chip."""
        return hash(self.name)

    @property
    def unconfirmed(self) -> tuple[str, ...]:
        """Facts for which no source is at hand."""
        return tuple(path for path, fact in self.facts.items() if fact.unconfirmed)

    @property
    def whole(self) -> str:
        """The name of the catalog's chip: its own, or that of the one it is cut from."""
        return self.cut_of or self.name

    @property
    def typed(self) -> str:
        """Its name as one word of a command line: RTX-4090."""
        return self.name.replace(" ", "-")

    @property
    def is_cpu(self) -> bool:
        """Whether it is a host's own processor, which runs what it issues itself."""
        return self.architecture.processor

    def dimension(self, path: str) -> str | None:
        """The SI unit of a fact, by its suffix in the code; "" of a plain number, None: a text."""
        return _dimension(path)

    def get(self, path: str) -> float | None:
        """The value in SI units, or None when it is unknown or the hardware has no such path."""
        return self.values.get(path)

    def need(self, path: str) -> float:
        """The value in SI units; an error that says where to add it when it is not known."""
        value = self.values.get(path)
        if value is None:
            table, _, field = path.partition(".")
            raise MissingFact(
                say(
                    "{name}: {path} is not known; add it under [{table}] as {field!r} to "
                    "catalog/data/accelerators/{file}.toml, with a source",
                    name=self.name,
                    path=path,
                    table=table,
                    field=field,
                    file=slug(self.name),
                )
            )
        return value

    def text(self, path: str) -> str:
        """A textual fact, such as the memory generation; empty when unknown."""
        fact = self.facts.get(path)
        return "" if fact is None or fact.text == NONE else fact.text

    def computes(self, dtype: str) -> bool:
        """Whether the chip has a path for this dtype, as far as the catalog knows."""
        return bool(self.values.get(f"peak.{dtype}"))

    def peak_flop_per_second(self, dtype: str) -> float:
        """The dense peak of products, by matrix units where these have a rate of their own. A dtype
        without a path is an error that names those with one.
        """
        path = f"peak.{dtype}"
        value = self.values.get(f"{path}_tensor") or self.values.get(path)
        if value:
            return value
        have = [d for d in DTYPES if self.computes(d)]
        if self.status == "measured":
            raise MissingFact(
                say(
                    "{name}: {dtype} was not measured; measured: {names}",
                    name=self.name,
                    dtype=dtype,
                    names=", ".join(have) or "nothing",
                )
            )
        if path in self.values:
            raise MissingFact(
                say(
                    "{name} has no {dtype} path; it computes in {names}",
                    name=self.name,
                    dtype=dtype,
                    names=", ".join(have),
                )
            )
        raise MissingFact(
            say(
                "{name}: the dense {dtype} peak is not known (known: {names}); add it under "
                "[peak] to catalog/data/accelerators/{file}.toml",
                name=self.name,
                dtype=dtype,
                names=", ".join(have) or "none",
                file=slug(self.name),
            )
        )

    @property
    def sparse_factor(self) -> float:
        """How much the 2:4 (or vendor's own) structured sparsity multiplies the peak on paper."""
        return self.values.get("sparsity.factor") or 1.0


def slug(name: str) -> str:
    """The file name of a record."""
    return name.replace(" ", "-")


@cache
def accelerator(name: str) -> Accelerator:
    """Load one accelerator by name or alias.

    >>> import trueflops as tf
    >>> chip = tf.accelerator("H100")
    >>> chip.name, chip.peak_flop_per_second("bf16") / 1e12, chip.facts["peak.bf16"].origin
    ('H100-SXM5-80GB', 989.4, 'datasheet')
    """
    if is_slice(name):
        profile, _, whole = name.partition(AT)
        return part_of(accelerator(whole.strip()), profile)
    path = find_or_suggest("accelerators", name, "(list them with: trueflops catalog)")
    return decode(read_toml(path), f"accelerators/{path.name}")


def part_of(chip: Accelerator, profile: str) -> Accelerator:
    """The slice of a chip that a profile names, as a device of its own."""
    known = slices_of(chip.name, chip.get("memory.capacity") or 0.0, chip.get("compute.units") or 1)
    found = next((each for each in known if each.name == profile.strip().casefold()), None)
    if found is None:
        asked = f"{shorten(profile)}{AT}{chip.name}"
        if not known:
            raise BadInput(
                say(
                    "{asked}: it cannot be divided; chips with MIG are A30, A100, H100, H200, "
                    "B200 and RTX PRO 6000",
                    asked=asked,
                )
            )
        names = ", ".join(each.name for each in known)
        raise BadInput(
            say(
                "{asked}: no such slice; write one of {names}, as {slice}{at}{chip}",
                asked=asked,
                names=names,
                slice=known[0].name,
                at=AT,
                chip=chip.name,
            )
        )
    facts = {path: fact for path, fact in chip.facts.items() if path not in WITHOUT}
    values = {path: value for path, value in chip.values.items() if path not in WITHOUT}
    for path, value in values.items():
        if value and found.share(path) != 1.0:
            own, dimension = value * found.share(path), chip.dimension(path)
            values[path] = own
            text = units.show(own, dimension) if dimension else f"{own:g}"
            facts[path] = Fact(text, "derived", SOURCE)
    values |= {"partition.share": found.compute, "partition.most": float(found.most)}
    facts["partition.share"] = Fact(f"{found.compute:.3g}", "derived", SOURCE)
    facts["partition.most"] = Fact(str(found.most), "datasheet", SOURCE)
    note = (
        f"A slice of {chip.name}: {found.compute:.1%} of its multiprocessors and power, "
        f"{found.memory:.1%} of its memory and bandwidth; {found.most} of them fit on one."
    )
    return replace(
        chip,
        name=f"{found.name}{AT}{chip.name}",
        facts=facts,
        values=values,
        notes=(note, *chip.notes),
        cut_of=chip.whole,
    )


def accelerators() -> list[Accelerator]:
    """Every accelerator of the catalog."""
    return [accelerator(path.stem) for path in index("accelerators").values()]


def decode(raw: Mapping[str, Any], where: str) -> Accelerator:
    """Build an Accelerator from a TOML record; unknown keys and missing sources are errors."""
    plain = {"name", "vendor", "architecture", "year", "form", "status", "devices_per_package"}
    unknown = raw.keys() - plain - set(TABLES) - {"notes", "alternatives"}
    if unknown or plain - raw.keys():
        odd = ", ".join(sorted(unknown or plain - raw.keys()))
        raise BadCatalog(f"{where}: {'unknown' if unknown else 'missing'} key: {odd}")
    facts = facts_of(raw, TABLES, where)
    devices = raw["devices_per_package"]
    values: dict[str, float | None] = {}
    for path, fact in facts.items():
        dimension = _dimension(path)
        if dimension is None:
            continue
        values[path] = None if fact.text == NONE else _si(fact.text, dimension, f"{where}: {path}")
        if devices > 1 and values[path] and path.startswith(_PER_PACKAGE):
            values[path] = values[path] / devices
    return Accelerator(
        **{key: raw[key] for key in plain - {"architecture"}},
        architecture=architecture(raw["architecture"]),
        notes=tuple(raw.get("notes", ())),
        facts=facts,
        values=values,
        alternatives=tuple(Alternative(**a) for a in raw.get("alternatives", ())),
    )


def accelerator_like(described: Mapping[str, Any], where: str) -> Accelerator:
    """A chip of the user's own: `like` one of the catalog, with some facts changed."""
    if "like" not in described:
        raise BadCatalog(
            say('{where}: [accelerator] needs like = "H100", the chip it starts from', where=where)
        )
    base = accelerator(str(described["like"]))
    facts, values = dict(base.facts), dict(base.values)
    for table, fields in described.items():
        if table in ("like", "name"):
            continue
        if table == "links":
            raise BadCatalog(
                say("{where}: links are set under [scale_up], [scale_out] and [host]", where=where)
            )
        if table not in TABLES or not isinstance(fields, Mapping):
            raise BadCatalog(
                say(
                    "{where}: [accelerator] {table} must be one of {names}, with fields: "
                    'memory.capacity = "96 GiB"',
                    where=where,
                    table=table,
                    names=", ".join(TABLES),
                )
            )
        for field, text in fields.items():
            path = f"{table}.{field}"
            if path not in facts and path not in _DIMENSIONS and table != "peak":
                raise BadCatalog(
                    say("{where}: [accelerator] has no field {path!r}", where=where, path=path)
                )
            facts[path] = Fact(str(text), "assumed", where)
            dimension = _dimension(path)
            if dimension is not None:
                value = _si(str(text), dimension, f"{where}: {path}")
                values[path] = units.check_sane(value, dimension, what=f"{where}: {path}")
    # Rates that were measured on the chip it is like keep their share of the peak.
    for path, rate in base.values.items():
        of_products, _, dtype = path.rpartition("_")
        before, after = base.values.get(f"peak.{dtype}"), values.get(f"peak.{dtype}")
        if of_products != "measured.matmul" or facts[path].source == where:
            continue
        if rate and before and after and before != after:
            values[path] = rate * after / before
            facts[path] = Fact(f"{values[path]:.4g} FLOP/s", "assumed", where)
    name = printable(str(described.get("name", f"{base.name} ({where})")), 60)
    return replace(base, name=name, facts=facts, values=values)


def accelerator_measured(
    name: str, kind: str, values: Mapping[str, float], source: str
) -> Accelerator:
    """A device without a datasheet: its peaks are the ceilings that were measured on it."""
    for path, value in values.items():
        dimension = "seconds" if path == "links.latency" else _dimension(path)
        units.check_sane(value, dimension or "", what=f"{printable(name, 60)}: {path}")
    return Accelerator(
        name=printable(name, 60),
        vendor="",
        architecture=Architecture(kind, processor=kind == CPU),
        year=0,
        form="measured",
        status="measured",
        devices_per_package=1,
        notes=("no datasheet: every figure was measured",),
        facts={path: Fact(f"{value:.4g}", "measured", source) for path, value in values.items()},
        values=dict(values),
        alternatives=(),
    )


def _dimension(path: str) -> str | None:
    if path.startswith(("peak.", "accumulate.", "measured.")):
        return "flop_per_second"
    return _DIMENSIONS.get(path, "")


def _si(text: str, dimension: str, where: str) -> float:
    if dimension:
        return units.parse(text, dimension, what=where)
    value = units.read_number(text, what=where)
    if value < 0.0:
        raise BadCatalog(
            say("{where}: {text!r} must be at least 0", where=where, text=shorten(text))
        )
    return value
