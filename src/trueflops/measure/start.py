"""One measurement from its flags: what `trueflops measure` and `-m trueflops.measure` call."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trueflops.errors import BadInput
from trueflops.files import own_path
from trueflops.measure import stopping
from trueflops.measure.collectives import join_world, leave_world, measure_collectives
from trueflops.measure.device import Device, device_count, find_device, software
from trueflops.measure.flags import USUAL_BUDGET, budget
from trueflops.measure.host_speed import python_loop_seconds
from trueflops.measure.node import measure_all
from trueflops.measure.resume import begin
from trueflops.measure.run import measure
from trueflops.measure.state import Meter
from trueflops.records.formats import FORMATS
from trueflops.records.limits import Limits
from trueflops.records.measured import Record, data_folder

LimitsOf = Callable[[dict[str, Any]], Limits]
Sides = Sequence[tuple[int, int]]


def start(options: argparse.Namespace, sides: Sides, limits_of: LimitsOf) -> Record | None:
    """Measure as asked; the record, or None on ranks that only take part.

    Ctrl-C and SIGTERM keep what is done: KeyboardInterrupt is raised again after it is saved.
    """
    unknown = [d for d in options.dtypes if d not in FORMATS]
    if unknown:
        raise BadInput(f"--dtypes {unknown[0][:40]!r}: known are {', '.join(FORMATS)}")
    stopping.listen()
    if options.collectives:
        return _among_ranks(options)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise BadInput("under torchrun only --collectives; all GPUs of a node: --all, without it")
    device = find_device(options.device)
    path = output_of(options, device)
    if options.all_devices:
        names = [f"{device.kind}:{i}" for i in range(device_count(device.kind))]
        return measure_all(names if device.kind not in ("cpu", "mps") else [""], path, options)
    asked = options.budget or budget(USUAL_BUDGET)
    known, versions = _known(device)
    record = begin(path, known, versions, asked, fresh=options.fresh)
    measure(device, record, limits_of(known), sides, options.dtypes, quiet=options.quiet)
    return record


def _known(device: Device) -> tuple[dict[str, Any], dict[str, str]]:
    """What the device is, its power cap included, and the software on it with its driver."""
    said = dict(Meter(device).limits)
    driver = said.pop("driver", None)
    versions = software() | ({"driver": str(driver)} if driver else {})
    loop = {} if device.is_cpu else {"python_loop_seconds": python_loop_seconds()}
    return device.identity | said | loop, versions


def _among_ranks(options: argparse.Namespace) -> Record | None:
    """Collectives; rank 0 keeps them."""
    local = os.environ.get("LOCAL_RANK", "0")
    device = find_device(options.device or _of_rank(local))
    world = join_world(device)
    record = None
    asked = options.budget or budget(USUAL_BUDGET)
    try:
        if world.rank == 0:
            path = output_of(options, device)
            known, versions = _known(device)
            versions.pop("threads", None)  # of each rank: says nothing of the links
            record = begin(path, known, versions, asked, fresh=options.fresh, more=True)
        measure_collectives(device, world, record, asked, _saying(options.quiet or world.rank > 0))
        if record is not None:
            record.save()
    finally:
        leave_world()
    return record


def _saying(quiet: bool) -> Callable[[str], None]:
    return lambda text: None if quiet else print(text, file=sys.stderr, flush=True)


def _of_rank(local: str) -> str:
    """The rank's own device; the first where each rank sees but one (Slurm)."""
    kind = find_device().kind
    if kind in ("cpu", "mps"):
        return kind
    return f"{kind}:{local if device_count(kind) > 1 else 0}"


def output_of(options: argparse.Namespace, device: Device) -> Path:
    """Where the profile goes: what -o says, else the user's data folder."""
    if options.output:
        return own_path(options.output)
    folder = data_folder()
    if folder is None:
        raise BadInput("there is no home folder to keep it in: give -o FILE")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{folder}: cannot be made ({error.strerror}); give -o FILE") from None
    name = re.sub(r"[^A-Za-z0-9.]+", "-", str(device.identity["name"])).strip("-")
    return folder / f"{name}.json"


def sides_of_config(path: str) -> Sides:
    """Weights (n, k) of a model from its config.json, as Hugging Face writes it."""
    try:
        raw = json.loads(own_path(path).read_text())
        hidden, ffn, heads = (
            int(raw[key]) for key in ("hidden_size", "intermediate_size", "num_attention_heads")
        )
        head_dim = int(raw.get("head_dim") or hidden // heads)
        keys = int(raw.get("num_key_value_heads") or heads) * head_dim
        queries = heads * head_dim
        return [(queries, hidden), (keys, hidden), (hidden, queries), (ffn, hidden), (hidden, ffn),
                (queries + 2 * keys, hidden), (2 * ffn, hidden),
                (int(raw["vocab_size"]), hidden)]  # fmt: skip
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ZeroDivisionError):
        raise BadInput(
            f"--for {path[:80]}: on a bare node, the path of a config.json with hidden_size, "
            "intermediate_size, num_attention_heads and vocab_size"
        ) from None
