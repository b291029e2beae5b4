"""Records of the catalog for JSON: SI numbers, the unit in the key, each with its source."""

from __future__ import annotations

from typing import Any

from trueflops import units
from trueflops.catalog import Accelerator, Cluster, errata_about, price
from trueflops.catalog.facts import NONE, UNCONFIRMED, Fact, sources
from trueflops.catalog.formats import NumberFormat
from trueflops.catalog.links import Link
from trueflops.catalog.lookup import Record, known_names, names_by_kind
from trueflops.catalog.nodes import Node
from trueflops.catalog.prices import purchases
from trueflops.model import read_model
from trueflops.profile.library import profiles
from trueflops.report import encode


def encode_overview() -> dict[str, Any]:
    """What there is, by kind; of profiles whose they are, and not where they lie."""
    shelf = {known.name: "shipped" if known.shipped else "yours" for known in profiles()}
    return {"names": known_names(), "kinds": names_by_kind(), "profiles": shelf}


def encode_record(record: Record) -> dict[str, Any]:
    """A record of any kind."""
    match record:
        case Accelerator():
            return _chip(record)
        case Node():
            return {
                "kind": "node",
                "name": record.name,
                "accelerator": record.accelerator.name,
                "accelerators": record.count,
                "domain": record.domain,
                **_facts(record),
            }
        case Cluster():
            return {"kind": "cluster", **encode.cluster(record)}
        case Link():
            return {"kind": "link", "name": record.name, "scope": record.scope, **_facts(record)}
        case NumberFormat():
            return {
                "kind": "number format",
                "name": record.name,
                "bits": record.bits,
                "exponent_bits": record.exponent,
                "mantissa_bits": record.mantissa,
                "maximum": record.maximum,
                "smallest_normal": record.smallest_normal,
                "smallest": record.smallest,
                "epsilon": record.epsilon,
                "source": record.source,
            }
        case _:
            model = read_model(record["name"])
            counts = {
                "parameters": model.parameter_count,
                "active_parameters": model.active_parameter_count,
            }
            return {"kind": "model", **record, **counts}


def _chip(chip: Accelerator) -> dict[str, Any]:
    rent = price(chip)
    return {
        "kind": "accelerator",
        "name": chip.name,
        "vendor": chip.vendor,
        "architecture": chip.architecture.name,
        "form": chip.form,
        "year": chip.year,
        "status": chip.status,
        "devices_per_package": chip.devices_per_package,
        **_facts(chip),
        "alternatives": [
            {
                "fact": other.field,
                **_typed(other.value, chip.dimension(other.field), other.field),
                "source": other.source,
                "unconfirmed": other.source == UNCONFIRMED,
                "why_not": other.why,
            }
            for other in chip.alternatives
        ],
        "rent": rent
        and {
            "usd_per_hour": rent.usd_per_hour,
            "low_usd_per_hour": rent.low,
            "high_usd_per_hour": rent.high,
            "kind": rent.kind,
            "date": rent.date,
            "source": rent.source,
        },
        "purchases": [
            {
                "usd": units.parse(row["price"], "usd", what="prices.toml"),
                "date": row.get("date"),
                "source": row["source"],
            }
            for row in purchases(chip.name)
        ],
        "errata": [
            {"document": e.document, "title": e.title, "says": e.says, "is": e.is_}
            for e in errata_about(chip.name)
        ],
    }


def _facts(record: Accelerator | Node | Link) -> dict[str, Any]:
    """Every fact under its name and unit: 'memory.bandwidth_bytes_per_second'; and who says so.

    `value` is per device; null says that the hardware has no such path. `published` is the text of
    the source, which may be of a package of several devices.
    """
    found = {}
    for path, fact in record.facts.items():
        dimension = record.dimension(path)
        value: float | str | None = record.values.get(path)
        if dimension is None and fact.text != NONE:
            value = fact.text
        found[_key(path, dimension)] = {"value": _whole(value), **_claim(fact)}
    shared = record.architecture.facts if isinstance(record, Accelerator) else {}
    cited = sorted({fact.source for fact in (*record.facts.values(), *shared.values())})
    return {
        "facts": found,
        **({"architecture_facts": {n: _claim(f) for n, f in shared.items()}} if shared else {}),
        "notes": list(record.notes),
        "sources": {key: sources().get(key, {}).get("citation", key) for key in cited},
    }


def _claim(fact: Fact) -> dict[str, Any]:
    return {
        "published": fact.text,
        "origin": fact.origin,
        "source": fact.source,
        "unconfirmed": fact.unconfirmed,
        "note": fact.note or None,
    }


def _typed(text: str, dimension: str | None, path: str) -> dict[str, Any]:
    """A text of the catalog as a number where it is one."""
    name = f"value_{dimension}" if dimension else "value"
    if dimension and text != NONE:
        return {name: units.parse(text, dimension, what=path)}
    try:
        return {name: _whole(float(text))}
    except ValueError:
        return {name: None if text == NONE else text}


def _key(path: str, dimension: str | None) -> str:
    return f"{path}_{dimension}" if dimension else path


def _whole(value: float | str | None) -> float | str | None:
    """Counts are whole numbers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
