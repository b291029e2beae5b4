"""trueflops catalog: every fact with its source."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from trueflops.catalog import Accelerator, Cluster, Fact, errata_about
from trueflops.catalog.formats import NumberFormat
from trueflops.catalog.links import Link
from trueflops.catalog.lookup import Record, known_names, look_up
from trueflops.catalog.nodes import Node
from trueflops.errors import printable
from trueflops.profile.library import profiles
from trueflops.report import catalog as report
from trueflops.report import encode
from trueflops.report.tables import console


def run(options: argparse.Namespace) -> int:
    """Show one record, or what there is."""
    out = console()
    if not options.name:
        if options.json:
            shelf = {known.name: printable(str(known.path)) for known in profiles()}
            print(encode.to_json({"names": known_names(), "profiles": shelf}))
        else:
            report.print_overview(out)
        return 0
    record = look_up(" ".join(options.name))
    if options.json:
        print(encode.to_json(as_json(record)))
    else:
        show(record)
    return 0


def show(record: Record) -> None:
    """Print a record of any kind."""
    out = console()
    match record:
        case Accelerator():
            report.print_accelerator(out, record)
        case Node():
            report.print_node(out, record)
        case Cluster():
            report.print_cluster(out, record)
        case Link():
            report.print_link(out, record)
        case NumberFormat():
            report.print_format(out, record)
        case _:
            report.print_model(out, record)


def as_json(record: Record) -> dict[str, Any]:
    """A record of any kind for JSON."""
    match record:
        case Accelerator():
            return {
                "kind": "accelerator",
                "name": record.name,
                "vendor": record.vendor,
                "architecture": record.architecture,
                "year": record.year,
                "status": record.status,
                "devices_per_package": record.devices_per_package,
                "facts": _facts(record.facts),
                "si_per_device": dict(record.values),
                "alternatives": [vars(a) for a in record.alternatives],
                "notes": list(record.notes),
                "errata": [
                    {"document": e.document, "says": e.says, "is": e.is_}
                    for e in errata_about(record.name)
                ],
            }
        case Node():
            return {
                "kind": "node",
                "name": record.name,
                "accelerator": record.accelerator.name,
                "accelerators": record.count,
                "domain": record.domain,
                "facts": _facts(record.facts),
                "notes": list(record.notes),
            }
        case Cluster():
            return {"kind": "cluster", **encode.cluster(record)}
        case Link():
            return {
                "kind": "link",
                "name": record.name,
                "scope": record.scope,
                "facts": _facts(record.facts),
                "notes": list(record.notes),
            }
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
            return {"kind": "model", **record}


def _facts(facts: Mapping[str, Fact]) -> dict[str, Any]:
    return {
        path: {"value": f.text, "origin": f.origin, "source": f.source, "note": f.note}
        for path, f in facts.items()
    }
