"""Every shipped profile, rebuilt from a truth folder: one per measured chip, and what transfers.

The result depends on the tables alone: rows are split by what they are, fits start from the laws'
usual values, and nothing is drawn at random.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from trueflops.calibrate.collectives import collective_curves
from trueflops.calibrate.fit import Fitted
from trueflops.calibrate.kernels import own_curves, transferred_curve
from trueflops.calibrate.power import POWER_COLUMNS, power_curves
from trueflops.calibrate.samples import Split, kernel_samples, tables_in
from trueflops.errors import BadInput, printable
from trueflops.profile import Curve, Profile, write_profile
from trueflops.records.measured import MEASURED

TABLES: Final = "kernel tables of ai-dynamo/aiconfigurator (Apache-2.0), ops/*.csv"
OURS: Final = "our own measurements on an H200, truth/h200"
TRANSFER: Final = "transfer"
NEEDED: Final = (
    "matmul", "attention", "attention_decode", "attention_backward.cudnn", "experts", "memory",
)  # fmt: skip
Found = TypeVar("Found")


def rebuild(folders: list[Path], into: Path, say: Callable[[str], None]) -> list[Path]:
    """Fit every profile and write it into a folder."""
    found = tables_in(*folders)
    tables = [table for table in found if table.has("gpu", MEASURED)]
    if not tables:
        raise BadInput(
            f"{printable(str(folders[0]))}: holds no kernel tables (CSV files with the columns gpu "
            "and latency_us)"
        )
    samples = kernel_samples(t for t in tables if not t.has("gpus", "bytes"))
    there = {name for splits in samples.values() for name in splits}
    if lacking := [name for name in NEEDED if name not in there]:
        raise BadInput(
            f"{printable(str(folders[0]))}: too few rows of {', '.join(lacking)}: a chip without "
            "measurements is priced by what is fitted here, so that every kind of kernel must be"
        )
    sent = collective_curves((t for t in tables if t.has("gpus", "bytes")), TABLES)
    power = [power_curves(table, OURS) for table in found if table.has(*POWER_COLUMNS)]
    for chip, of_kinds in sorted(sent.items()):
        for name, curve in of_kinds.items():
            say(f"{chip}: {name}{_ended(curve)}")
    made = []
    for chip, splits in sorted(samples.items()):
        curves: dict[str, Curve] = dict(sent.get(chip, {}))
        for of_chips in power:
            curves |= of_chips.get(chip, {})
        for name, split in _plain_first(splits).items():
            like = curves.get(name.partition(".")[0])
            fitted = own_curves(name, split, _source(name, chip), like)
            curves |= fitted
            say(f"{chip}: {name}{_ended(fitted[name])}")
        made.append(Profile(f"{chip}, fitted", chip, curves))
    across = transfer(samples, say)
    for of_chips in power:  # relative to cap and peak: a first guess for any chip like it
        across = across.having(next(iter(of_chips.values()), {}))
    return [_write(profile, into) for profile in (*made, across)]  # all, or none if a fit fails


def transfer(samples: Mapping[str, Mapping[str, Split]], say: Callable[[str], None]) -> Profile:
    """Curves for chips without data, fitted across those that have some."""
    classes: dict[str, list[Split]] = defaultdict(list)
    for splits in samples.values():
        for name, split in splits.items():
            classes[name].append(split)
    curves: dict[str, Curve] = {}
    for name, found in _plain_first(classes).items():
        like = curves.get(name.partition(".")[0])
        curve, fitted = transferred_curve(name, found, _source(name, ""), like)
        curves[name] = curve
        say(f"across chips: {name}{_ended(curve)}")
        if fitted.cast:
            curves[f"cast.{name.rpartition('.')[2]}"] = _cast(curve, fitted)
    curves["cast"] = curves["memory"]
    curves["attention_backward"] = curves["attention_backward.cudnn"]
    return Profile("across chips", "any", curves)


def _plain_first(found: Mapping[str, Found]) -> dict[str, Found]:
    """Curves by name, `matmul` before `matmul.fp8`: each starts from the plainer one."""
    return dict(sorted(found.items()))


def _cast(curve: Curve, fitted: Fitted) -> Curve:
    return Curve(fitted.cast, curve.error, curve.origin, curve.source, None, curve.fitted_rows)


def _ended(curve: Curve) -> str:
    """What is said of a fit that ended at bounds which are no limits of what they bound."""
    if not curve.at_bounds:
        return ""
    named = ", ".join(curve.at_bounds)
    return f" (ended at a bound of {named}{'' if curve.used else ': not used'})"


def _source(name: str, chip: str) -> str:
    ours = name in ("memory", "eager") or name.endswith(
        (
            ".fa2",
            ".cudnn",
            ".cudnn_masked",
            ".convolution",
            ".convolution_backward",
            ".fp16",
            ".tf32",
            ".fp32",
        )
    )
    if ours:
        return OURS
    return f"{TABLES}; {OURS}" if chip.startswith("H200") and name.startswith("matmul") else TABLES


def _write(profile: Profile, into: Path) -> Path:
    name = TRANSFER if profile.accelerator == "any" else profile.accelerator
    path = into / f"{name}.json"
    write_profile(profile, path)
    return path
