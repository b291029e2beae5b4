"""What train and infer share: an earlier answer as input, the cluster, the price."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from trueflops import units
from trueflops.catalog import Cluster, Price, cluster, price
from trueflops.errors import BadInput
from trueflops.model.config import LARGEST_FILE_BYTES, decode_json


def recall(options: argparse.Namespace, command: str) -> None:
    """If MODEL is an answer of --json, ask its question again; flags given now win."""
    path = Path(options.model)
    if path.suffix != ".json" or not path.is_file() or path.stat().st_size > LARGEST_FILE_BYTES:
        return
    answer = decode_json(path.read_bytes(), path)
    asked = answer.get("question")
    if not isinstance(asked, dict):
        return  # a config.json
    if asked.get("command") != command:
        raise BadInput(f"{path}: holds an answer of {asked.get('command')!r}, not of {command!r}")
    for name, value in asked.items():
        if name == "command" or not hasattr(options, name):
            continue
        if name == "model" or getattr(options, name) in (None, False):
            setattr(options, name, value)


def question_of(options: argparse.Namespace) -> dict[str, Any]:
    """The flags that make up the question, without those that only change how it is shown."""
    shown = {"json", "verbose", "explain", "top", "plot"}
    return {
        name: value
        for name, value in vars(options).items()
        if name not in shown and value is not None and value is not False
    }


def cluster_of(options: argparse.Namespace) -> Cluster:
    """What --on names."""
    if not options.on:
        raise BadInput("say where with --on: 64xH100, 16x8xH100, 4xDGX-H100, or a cluster TOML")
    return cluster(options.on)


def rent_of(options: argparse.Namespace, where: Cluster) -> Price | None:
    """The rent that flags ask for; None leaves it to the catalog."""
    if options.price:
        given = units.parse(options.price, "usd_per_hour", what="--price")
        return Price(given, given, given, "", "--price", "given")
    if options.spot:
        found = price(where.accelerator, spot=True)
        if found is None:
            raise BadInput(f"no spot price of {where.accelerator.name} is known; give --price")
        return found
    return None


def pue_of(options: argparse.Namespace) -> float:
    """Power usage effectiveness: at least one, rarely above two."""
    pue = 1.0 if options.pue is None else options.pue
    if not 1.0 <= pue <= 5.0:
        raise BadInput(f"--pue {pue:g}: must lie between 1 and 5")
    return float(pue)
