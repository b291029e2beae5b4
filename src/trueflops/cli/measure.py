"""trueflops measure: what this machine delivers; show a profile; fit one from a bare node."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

from trueflops.catalog import accelerator
from trueflops.clock.given import given_profile
from trueflops.errors import BadInput, TrueflopsError, UnknownName, printable, shorten
from trueflops.language import say
from trueflops.model import read_model
from trueflops.profile import write_profile
from trueflops.profile.library import SHIPPED, find_profile, profiles
from trueflops.profile.stored import read_record
from trueflops.records.measured import Record
from trueflops.report import encode
from trueflops.report.plots import check_name


def run(options: argparse.Namespace) -> int:
    """Measure, or do what the words say with a profile."""
    if options.plot:
        check_name(Path(options.plot))
    match options.words:
        case []:
            return _measure(options)
        case ["show", name]:
            with _as_measured(name):
                return _show(find_profile(name), options)
        case ["fit", name]:
            path = find_profile(name)
            if path.is_relative_to(SHIPPED):
                raise BadInput(
                    say("{name}: is shipped, and fitted already; show it instead", name=name)
                )
            with _as_measured(name):
                _fit(read_record(path), path, options)
                return _show(path, options)
        case [word, *_]:
            if word in ("show", "fit"):
                raise BadInput(say("measure {word} PROFILE: name one profile", word=word))
            raise UnknownName("word", word, ["show", "fit"], "(measure, measure show PROFILE)")
    return 2


def _measure(options: argparse.Namespace) -> int:
    try:
        from trueflops.measure.start import start
    except ModuleNotFoundError as error:
        raise BadInput(
            say("measuring needs {name}: pip install 'trueflops[measure]'", name=error.name)
        ) from None
    sides = _sides(options.model) if options.model else []
    try:
        record = start(options, sides, _limits)
    except KeyboardInterrupt:
        print(
            say("\ntrueflops: stopped; what was measured is kept, the same command resumes it"),
            file=sys.stderr,
        )
        raise
    if record is None or record.path is None:  # a rank that only takes part
        return 0
    _fit(record, record.path, options)
    return _show(record.path, options)


def _limits(device: dict[str, Any]) -> dict[str, float]:
    """The datasheet's figures of what torch calls the device, if the catalog knows it."""
    try:
        from trueflops.calibrate.device import device_chip, limits_of

        return limits_of(device_chip(Record(device, {})))
    except (TrueflopsError, ModuleNotFoundError):  # no such chip; no scipy yet: judged when fitted
        return {}


def _sides(name: str) -> list[tuple[int, int]]:
    """The two sides (n, k) of every matrix of a model."""
    model = read_model(name)
    found = [(model.vocab, model.hidden)]
    for weight in (p for block in model.blocks for p in block.parameters(model.hidden)):
        sizes = [size for _, size in weight.dims]
        if weight.routed:
            sizes = sizes[1:]  # one expert's
        if len(sizes) < 2 or "norm" in weight.name:
            continue
        ins = 1 if weight.name == "attention.out" else -1  # it alone reads heads and writes hidden
        found.append((prod(sizes[:ins]), prod(sizes[ins:])))
    return found


def _fit(record: Record, path: Path, options: argparse.Namespace) -> None:
    try:
        from trueflops.calibrate.measured import fit_record
    except ModuleNotFoundError as error:
        raise BadInput(
            say(
                "{path}: measured; fitting it needs {name}: pip install "
                "'trueflops[measure]', then trueflops measure fit FILE",
                path=path,
                name=error.name,
            )
        ) from None

    def tell(name: str) -> None:
        if not options.quiet:
            print(say("fitted {name}", name=name), file=sys.stderr)

    write_profile(fit_record(record, tell), path, record)


def _show(path: Path, options: argparse.Namespace) -> int:
    from trueflops.report.measured import encode_measured, plot_measured, show_measured

    profile, record = given_profile(path), read_record(path)
    chip = profile.chip or accelerator(profile.accelerator)
    if options.plot:
        plot_measured(profile, record, chip, Path(options.plot))
    if options.json:
        answer = encode_measured(profile, record, chip)
        print(encode.to_json({"profile": printable(str(path)), **answer}))
    else:
        show_measured(profile, record, chip)
        name = next((known.name for known in profiles() if known.path == path), str(path))
        print(say("\nuse it with --profile {name}", name=printable(name)))
    return 0


@contextmanager
def _as_measured(name: str) -> Iterator[None]:
    """A file that anyone may have written: tables that lack what `measure` writes are bad input.

    What was just measured is not judged so: there such an error is ours.
    """
    try:
        yield
    except (KeyError, ValueError, TypeError, OverflowError, ZeroDivisionError) as error:
        what = shorten(f"{type(error).__name__} {error}", 60)
        said = say("its tables are not as trueflops measure writes them ({what})", what=what)
        raise BadInput(f"{printable(name)}: {said}") from error
