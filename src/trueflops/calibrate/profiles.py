"""Every shipped profile, rebuilt from a truth folder: one per measured chip, and what transfers.

The result depends on the tables alone: rows are split by what they are, fits start from the laws'
usual values, and nothing is drawn at random.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from trueflops.calibrate.collectives import collective_curves
from trueflops.calibrate.kernels import cast_before, cast_curve, own_curves, transferred_curve
from trueflops.calibrate.power import POWER_COLUMNS, power_curves
from trueflops.calibrate.samples import Split, kernel_samples, tables_in
from trueflops.errors import BadInput, printable
from trueflops.profile import Curve, CurveKey, Profile, write_profile
from trueflops.records.measured import MEASURED

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
    there = {str(key) for splits in samples.values() for key in splits}
    if lacking := [name for name in NEEDED if name not in there]:
        raise BadInput(
            f"{printable(str(folders[0]))}: too few rows of {', '.join(lacking)}: a chip without "
            "measurements is priced by what is fitted here, so that every kind of kernel must be"
        )
    sent = collective_curves(t for t in tables if t.has("gpus", "bytes"))
    power = [power_curves(table) for table in found if table.has(*POWER_COLUMNS)]
    for chip, of_kinds in sorted(sent.items()):
        for key, curve in of_kinds.items():
            say(f"{chip}: {key}{_ended(curve)}")
    made = []
    for chip, splits in sorted(samples.items()):
        curves = dict(sent.get(chip, {}))
        for of_chips in power:
            curves |= of_chips.get(chip, {})
        for key, split in _plain_first(splits).items():
            fitted = own_curves(key, split, curves.get(CurveKey(key.kind)))
            curves |= fitted
            say(f"{chip}: {key}{_ended(fitted[key])}")
        made.append(Profile(f"{chip}, fitted", chip, curves))
    across = transfer(samples, say)
    for of_chips in power:  # relative to cap and peak: a first guess for any chip like it
        across = across.having(next(iter(of_chips.values()), {}))
    return [_write(profile, into) for profile in (*made, across)]  # all, or none if a fit fails


def transfer(
    samples: Mapping[str, Mapping[CurveKey, Split]], say: Callable[[str], None]
) -> Profile:
    """Curves for chips without data, fitted across those that have some."""
    classes: dict[CurveKey, list[Split]] = defaultdict(list)
    for splits in samples.values():
        for key, split in splits.items():
            classes[key].append(split)
    curves: dict[CurveKey, Curve] = {}
    for key, found in _plain_first(classes).items():
        curve, fitted = transferred_curve(key, found, curves.get(CurveKey(key.kind)))
        curves[key] = curve
        say(f"across chips: {key}{_ended(curve)}")
        if fitted.cast:
            curves[cast_before(key)] = cast_curve(curve, fitted)
    curves[CurveKey("cast")] = curves[CurveKey("memory")]
    backward = CurveKey("attention_backward")
    curves[backward] = curves[replace(backward, kernel="cudnn")]
    return Profile("across chips", "any", curves)


def _plain_first(found: Mapping[CurveKey, Found]) -> dict[CurveKey, Found]:
    """By name, `matmul` before `matmul.fp8`: each starts from the plainer one."""
    return dict(sorted(found.items(), key=lambda item: str(item[0])))


def _ended(curve: Curve) -> str:
    """What is said of a fit that ended at bounds which are no limits of what they bound."""
    if not curve.at_bounds:
        return ""
    named = ", ".join(curve.at_bounds)
    return f" (ended at a bound of {named}{'' if curve.used else ': not used'})"


def _write(profile: Profile, into: Path) -> Path:
    name = TRANSFER if profile.accelerator == "any" else profile.accelerator
    path = into / f"{name}.json"
    write_profile(profile, path)
    return path
