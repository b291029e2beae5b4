"""Every shipped profile, rebuilt from a truth folder: one per measured chip, and what transfers.

A vendor's chips run that vendor's libraries, so that curves transfer among its own chips; those of
NVIDIA's, which were measured in every kind of kernel, stand in for all that others' lack.

The result depends on the tables alone: rows are split by what they are, fits start from the laws'
usual values, and nothing is drawn at random.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

from trueflops.calibrate.collectives import collective_curves
from trueflops.calibrate.kernels import cast_before, cast_curve, own_curves, transferred_curve
from trueflops.calibrate.power import POWER_COLUMNS, power_curves
from trueflops.calibrate.samples import Split, kernel_samples, tables_in
from trueflops.catalog import accelerator
from trueflops.errors import BadInput, printable
from trueflops.interop.kernels import kernel_kind
from trueflops.profile import Curve, CurveKey, Profile, read_profile, write_profile
from trueflops.profile.datasheet import transferred
from trueflops.profile.frameworks import LENDING
from trueflops.records.measured import MEASURED

NEEDED: Final = (
    "matmul", "attention", "attention_decode", "attention_backward.cudnn", "experts", "memory",
)  # fmt: skip
Found = TypeVar("Found")
Samples = Mapping[str, Mapping[CurveKey, Split]]


def rebuild(
    folders: list[Path], into: Path, say: Callable[[str], None], only: Sequence[str] = ()
) -> list[Path]:
    """Fit every profile and write it into a folder.

    `only` names the curves that are fitted, by their first words; others stay as they are there.
    """
    found = tables_in(*folders)
    tables = []
    for table in found:
        if table.has("gpu", MEASURED):
            if kernel_kind(table):
                tables.append(table)
            else:
                say(f"nothing to {table.where}: its header names no kernels of a law")
    if not tables:
        raise BadInput(
            f"{printable(str(folders[0]))}: holds no kernel tables (CSV files with the columns gpu "
            "and latency_us)"
        )
    samples = kernel_samples(t for t in tables if not t.has("gpus", "bytes"))
    if only:
        return _renewed(samples, only, into, say)
    by_vendor = _by_vendor(samples)
    there = {str(key) for splits in by_vendor.get(LENDING, {}).values() for key in splits}
    lacking = [name for name in NEEDED if name not in there]
    if lacking and LENDING in by_vendor:
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
        made.append(Profile(f"{chip}, fitted", chip, _own(chip, splits, curves, say)))
    written = [(profile, profile.accelerator) for profile in made]
    for vendor, of_chip in sorted(by_vendor.items()):
        across = transfer(of_chip, say)
        for of_chips in power if vendor == LENDING else []:
            # relative to cap and peak: a first guess for any chip like it
            across = across.having(next(iter(of_chips.values()), {}))
        written.append((across, transferred(vendor)))
    return [_write(*profile, into) for profile in written]  # all, or none if a fit fails


def _by_vendor(samples: Samples) -> dict[str, Samples]:
    """The same, chips of each vendor apart."""
    found: dict[str, dict[str, Mapping[CurveKey, Split]]] = defaultdict(dict)
    for chip, splits in samples.items():
        found[accelerator(chip).vendor][chip] = splits
    return dict(found)


def _renewed(
    samples: Samples,
    only: Sequence[str],
    into: Path,
    say: Callable[[str], None],
) -> list[Path]:
    """Profiles that are there, some of their curves fitted anew; those without rows stay."""

    def asked(key: CurveKey) -> bool:
        words = str(key).split(".")
        return any(words[: len(name.split("."))] == name.split(".") for name in only)

    wanted = {
        chip: {key: split for key, split in splits.items() if asked(key)}
        for chip, splits in samples.items()
    }
    wanted = {chip: splits for chip, splits in wanted.items() if splits}
    if not wanted:
        raise BadInput(f"no rows of {', '.join(only)} are there; write curves as `matmul.tf32`")
    made = []
    for chip, splits in sorted(wanted.items()):
        known = _known(into, chip)
        curves = {key: curve for key, curve in known.curves.items() if key not in splits}
        made.append((replace(known, curves=_own(chip, splits, curves, say)), chip))
    for vendor, of_chips in sorted(_by_vendor(wanted).items()):
        across = _known(into, transferred(vendor))
        fitted = {key for splits in of_chips.values() for key in splits}
        kept = {key: curve for key, curve in across.curves.items() if key not in fitted}
        curves = {**kept, **transfer(of_chips, say, kept).curves}
        made.append((replace(across, curves=curves), transferred(vendor)))
    return [_write(*profile, into) for profile in made]


def _known(into: Path, name: str) -> Profile:
    path = into / f"{name}.json"
    if not path.is_file():
        raise BadInput(f"{printable(str(path))}: is not there; fit all curves of it first")
    return read_profile(path)


def _own(
    chip: str,
    splits: Mapping[CurveKey, Split],
    curves: dict[CurveKey, Curve],
    say: Callable[[str], None],
) -> dict[CurveKey, Curve]:
    """Curves of a chip, those fitted to its own rows added to some that are there."""
    for key, split in _plain_first(splits).items():
        fitted = own_curves(key, split, curves.get(CurveKey(key.kind)))
        curves |= fitted
        say(f"{chip}: {key}{_ended(fitted[key])}")
    return _error_of_all(curves)


def _error_of_all(curves: dict[CurveKey, Curve]) -> dict[CurveKey, Curve]:
    """The plain curve of memory-bound ops with the error of all kinds of them, weighed by rows.

    A plan's part that is bound by memory is made of several kinds.
    """
    kinds = [curve for key, curve in curves.items() if key.kind == "memory" and curve.fitted_rows]
    plain = CurveKey("memory")
    if plain in curves and kinds:
        rows = sum(curve.fitted_rows for curve in kinds)
        whole = sqrt(sum(curve.error**2 * curve.fitted_rows for curve in kinds) / rows)
        curves[plain] = replace(curves[plain], error=whole)
    return curves


def transfer(
    samples: Samples,
    say: Callable[[str], None],
    known: Mapping[CurveKey, Curve] = MappingProxyType({}),
) -> Profile:
    """Curves for chips without data, fitted across those that have some.

    Of plainer ones that are not fitted here the `known` stand by.
    """
    classes: dict[CurveKey, list[Split]] = defaultdict(list)
    for splits in samples.values():
        for key, split in splits.items():
            classes[key].append(split)
    curves: dict[CurveKey, Curve] = {}
    for key, found in _plain_first(classes).items():
        plain = CurveKey(key.kind)
        curve, fitted = transferred_curve(key, found, curves.get(plain) or known.get(plain))
        curves[key] = curve
        say(f"across chips: {key}{_ended(curve)}")
        if fitted.cast:
            curves[cast_before(key)] = cast_curve(curve, fitted)
    curves = _error_of_all(curves)
    if CurveKey("memory") in curves:
        curves[CurveKey("cast")] = curves[CurveKey("memory")]
    backward = CurveKey("attention_backward")
    if replace(backward, kernel="cudnn") in curves:
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


def _write(profile: Profile, name: str, into: Path) -> Path:
    path = into / f"{name}.json"
    write_profile(profile, path)
    return path
