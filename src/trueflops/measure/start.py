"""One measurement from its flags: what the package's door and the bare one both call."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from trueflops.measure.collectives import join_world, leave_world, measure_collectives
from trueflops.measure.device import Device, find_device, software
from trueflops.measure.flags import USUAL_BUDGET, budget
from trueflops.measure.limits import Limits
from trueflops.measure.products import WIDTH
from trueflops.measure.record import Record, Refused, begin, data_folder
from trueflops.measure.run import measure

LimitsOf = Callable[[dict[str, Any]], Limits]
_KEYS: Final = {
    "hidden": "hidden_size", "ffn": "intermediate_size", "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads", "vocab": "vocab_size", "head_dim": "head_dim",
}  # fmt: skip


def start(
    options: argparse.Namespace, dims: dict[str, int] | None, limits_of: LimitsOf
) -> Record | None:
    """Measure as asked; the record, or None on ranks that only take part.

    Ctrl-C and SIGTERM keep what is done: KeyboardInterrupt is raised again after it is saved.
    """
    unknown = [d for d in options.dtypes if d not in WIDTH]
    if unknown:
        raise Refused(f"--dtypes {unknown[0][:40]!r}: known are {', '.join(WIDTH)}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.collectives:
        return _among_ranks(options)
    device = find_device(options.device)
    path = output_of(options, device)
    asked = options.budget or budget(USUAL_BUDGET)
    record = begin(path, device.identity, software(), asked, fresh=options.fresh)
    measure(device, record, limits_of(device.identity), dims, options.dtypes, quiet=options.quiet)
    return record


def _among_ranks(options: argparse.Namespace) -> Record | None:
    """Collectives; rank 0 keeps them."""
    local = os.environ.get("LOCAL_RANK", "0")
    device = find_device(options.device or _of_rank(local))
    world = join_world(device)
    record = None
    asked = options.budget or budget(USUAL_BUDGET)
    try:
        if world.rank == 0:
            record = begin(
                output_of(options, device), device.identity, software(), asked, fresh=options.fresh
            )
        measure_collectives(device, world, record, asked, lambda _: None)
        if record is not None:
            record.finished = True
            record.save()
    finally:
        leave_world()
    return record


def _of_rank(local: str) -> str:
    kind = find_device().kind
    return kind if kind in ("cpu", "mps") else f"{kind}:{local}"


def output_of(options: argparse.Namespace, device: Device) -> Path:
    """Where the profile goes: what -o says, else the user's data folder."""
    if options.output:
        return Path(options.output).expanduser()
    folder = data_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"{folder}: cannot be made ({error.strerror}); give -o FILE") from None
    name = re.sub(r"[^A-Za-z0-9.]+", "-", str(device.identity["name"])).strip("-")
    return folder / f"{name}.json"


def dims_of_config(path: str) -> dict[str, int]:
    """Sizes of a model from its config.json, as Hugging Face writes it."""
    try:
        raw = json.loads(Path(path).expanduser().read_text())
        sizes = {ours: raw.get(theirs) for ours, theirs in _KEYS.items()}
        sizes["kv_heads"] = sizes["kv_heads"] or sizes["heads"]
        sizes["head_dim"] = sizes["head_dim"] or sizes["hidden"] // sizes["heads"]
        return {name: int(size) for name, size in sizes.items()}
    except (OSError, ValueError, TypeError, AttributeError, ZeroDivisionError):
        raise Refused(
            f"--for {path[:80]}: on a bare node, the path of a config.json with hidden_size, …"
        ) from None
