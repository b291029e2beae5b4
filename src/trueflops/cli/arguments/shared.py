"""Values and flags that several commands have."""

from __future__ import annotations

import argparse
from typing import Final

from trueflops.errors import BadInput, printable
from trueflops.language import LANGUAGES, say
from trueflops.units import GIGA, read_number, read_whole

LARGEST: Final = int(GIGA)


def whole(text: str) -> int:
    """A degree: a whole number of at least one."""
    value = integer(text)
    if not 1 <= value <= LARGEST:
        raise argparse.ArgumentTypeError(_outside(text, value, 1))
    return value


def _outside(text: str, value: int, least: int) -> str:
    shown = printable(text, 40)
    if value < least:
        return say("{text} must be at least {least}", text=shown, least=least)
    return say("{text} must be at most {most:,}", text=shown, most=LARGEST)


def integer(text: str) -> int:
    """A whole number, perhaps 0 or below."""
    try:
        return read_whole(text)
    except BadInput:
        raise argparse.ArgumentTypeError(
            say("{text!r} is not a whole number", text=printable(text, 40))
        ) from None


def natural(text: str) -> int:
    """A whole number of at least 0."""
    value = integer(text)
    if not 0 <= value <= LARGEST:
        raise argparse.ArgumentTypeError(_outside(text, value, 0))
    return value


def real(text: str) -> float:
    """A plain number."""
    try:
        return read_number(text)
    except BadInput:
        raise argparse.ArgumentTypeError(
            say("{text!r} is not a number", text=printable(text, 40))
        ) from None


def share(text: str) -> float:
    """A fraction between 0 and 1."""
    value = real(text)
    if not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(
            say("{text} must lie between 0 and 1", text=printable(text, 40))
        )
    return value


def percentage(text: str) -> float:
    """A share of at most one, as 2% or 0.02; a bare 2 could mean either."""
    number, sign, rest = text.strip().partition("%")
    value = real(number.strip()) * (0.01 if sign else 1.0)
    if rest or not 0.0 <= value <= 1.0:
        raise argparse.ArgumentTypeError(
            say("{text} must lie between 0% and 100%: write 2% or 0.02", text=printable(text, 40))
        )
    return value


def profile_flags(p: argparse.ArgumentParser) -> None:
    """Whose curves come first."""
    p.add_argument(
        "--profile",
        metavar="PROFILE",
        default=None,
        help="what the chip delivers: a measured profile, by file or by name",
    )


def provenance_flag(p: argparse.ArgumentParser) -> None:
    """Where numbers come from."""
    p.add_argument(
        "--provenance",
        action="store_true",
        help="which curve priced what, from which measurements, with which error",
    )


def what_helps_flag(p: argparse.ArgumentParser) -> None:
    """Elasticities."""
    p.add_argument(
        "--what-helps",
        action="store_true",
        help="the gain from twice the FLOP/s, memory, bandwidth, links, network, power",
    )


def common_flags(p: argparse.ArgumentParser) -> None:
    """What every command has."""
    p.add_argument("--json", action="store_true", help="one JSON object, SI units in the keys")
    p.add_argument("-v", "--verbose", action="store_true", help="tracebacks on errors")
    lang_flag(p)


def lang_flag(p: argparse.ArgumentParser) -> None:
    """Read before all else (language/choose.py): help and errors are in it too."""
    p.add_argument(
        "--lang",
        choices=LANGUAGES,
        default=None,
        help="language of the answer (else TRUEFLOPS_LANG, else the locale); --json is English",
    )


def top_flags(p: argparse.ArgumentParser) -> None:
    """How many kernels are listed."""
    p.add_argument("--top", type=whole, default=12, metavar="N", help="kernels to list (12)")


def launch_flags(p: argparse.ArgumentParser, *, emit: str, read: str) -> None:
    """An answer out to the files of other tools, and back; `emit` and `read` say which."""
    files = p.add_argument_group("launch files")
    files.add_argument("--emit", nargs=2, metavar=("TOOL", "DIR"), default=None, help=emit)
    files.add_argument(
        "--force", action="store_true", default=None, help="overwrite files that are there"
    )
    files.add_argument("--from", dest="from_file", metavar="FILE", default=None, help=read)
