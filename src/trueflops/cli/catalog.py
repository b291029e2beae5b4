"""trueflops catalog: every fact with its source."""

from __future__ import annotations

import argparse
from pathlib import Path

from trueflops.catalog import Accelerator, Cluster
from trueflops.catalog.formats import NumberFormat
from trueflops.catalog.links import Link
from trueflops.catalog.lookup import Record, look_up
from trueflops.catalog.nodes import Node
from trueflops.model import read_model
from trueflops.model.config import Config
from trueflops.report import catalog as report
from trueflops.report import encode
from trueflops.report.catalog_json import encode_overview, encode_record
from trueflops.report.tables import console


def run(options: argparse.Namespace) -> int:
    """Show one record, or what there is."""
    out = console()
    if not options.name:
        if options.json:
            print(encode.to_json(encode_overview()))
        else:
            report.print_overview(out)
        return 0
    name = " ".join(options.name)
    record = config_record(Path(name)) if name.endswith(".json") else look_up(name)
    if options.json:
        print(encode.to_json(encode_record(record)))
    else:
        show(record)
    return 0


def config_record(file: Path) -> Record:
    """A model that a user has the config.json of, as the catalog would show it."""
    model, config = read_model(str(file)), Config.read(file)
    return {"name": str(file), "family": model.family, "source": str(file), "config": config.fields}


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
