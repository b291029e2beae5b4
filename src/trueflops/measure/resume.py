"""Where a measurement is kept: a new file, or one that is gone on with if it is of this device."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trueflops.errors import BadInput
from trueflops.records.measured import LARGEST, METHOD, Record, decode


def begin(
    path: Path,
    device: dict[str, Any],
    software: dict[str, str],
    budget: float,
    *,
    fresh: bool = False,
    more: bool = False,
) -> Record:
    """A new record, or the one in the file if it is of this device and method.

    A finished one is gone on with only if there is `more` to measure than its budget was for.
    """
    path = path.resolve()  # what a link points to is written, not the link
    if path.exists() and not path.is_file():
        raise BadInput(f"{path}: is not a file; write to another one with -o")
    new = Record(device, software, budget_seconds=budget, path=path)
    new.started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if fresh or not path.exists():
        if not path.parent.is_dir():
            raise BadInput(f"{path.parent}: no such folder")
        return new
    old = read(path)
    if old.method != METHOD:
        raise BadInput(
            f"{path}: measured by method {old.method}, this is method {METHOD}; "
            "write to another file with -o, or start over with --fresh"
        )
    if _identity(old.device) != _identity(device):
        raise BadInput(
            f"{path}: holds {_identity(old.device)}, this is {_identity(device)}; "
            "write to another file with -o, or start over with --fresh"
        )
    changed = [
        name
        for name, said in old.software.items()
        if software.get(name) != said and (name in software or not more)
    ]
    caps = {d.get("power_cap_watts") for d in (old.device, device)} - {None}
    if changed or len(caps) > 1:
        changed += ["power cap"] if len(caps) > 1 else []
        raise BadInput(
            f"{path}: was measured with another {' and '.join(changed)}; "
            "write to another file with -o, or start over with --fresh"
        )
    if more:
        return old
    old.device |= device
    old.software |= software
    old.budget_seconds = max(budget, old.budget_seconds if not old.finished else budget)
    if old.finished and budget <= old.spent_seconds:
        raise BadInput(
            f"{path}: finished, {old.spent_seconds:.0f} s spent; to add to it give a larger "
            "--budget, to measure anew --fresh"
        )
    old.finished = False
    return old


def read(path: Path) -> Record:
    """The record in a file; BadInput where there is none."""
    try:
        if path.stat().st_size > LARGEST:
            raise BadInput(f"{path}: larger than any profile; write to another file with -o")
        found = decode(json.loads(path.read_text()), path)
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(
            f"{path}: cannot be resumed ({str(error)[:120]}); --fresh starts over"
        ) from None
    if found is None:
        raise BadInput(f"{path}: a profile without measurements; write to another file with -o")
    return found


def _identity(device: Mapping[str, Any]) -> str:
    return f"{device.get('name', '?')} ({device.get('uuid') or 'no uuid'})"
