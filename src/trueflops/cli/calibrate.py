"""trueflops calibrate: rebuild the shipped profiles from folders of measured kernels."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from trueflops.errors import BadInput, printable
from trueflops.files import is_folder
from trueflops.profile.stored import DATA


def run(options: argparse.Namespace) -> int:
    """Fit and write; says what it fits as it goes."""
    try:
        from trueflops.calibrate.profiles import rebuild
    except ModuleNotFoundError as error:
        raise BadInput(
            f"calibrate needs {error.name}: pip install 'trueflops[calibrate]'"
        ) from None
    folders = [Path(folder) for folder in options.folders]
    for folder in folders:
        if not is_folder(folder):
            raise BadInput(f"{printable(str(folder))}: no such folder")
    into = Path(options.output) if options.output else DATA
    if not is_folder(into):
        raise BadInput(f"{printable(str(into))}: no such folder")

    def say(what: str) -> None:
        print(f"fitted {what}", file=sys.stderr, flush=True)

    only = [name for name in (options.only or "").split(",") if name]
    for path in rebuild(folders, into, say, only):
        print(printable(str(path), 4096))
    return 0
