"""trueflops calibrate: rebuild the shipped profiles from folders of measured kernels."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from trueflops.errors import BadInput, printable
from trueflops.files import is_folder
from trueflops.language import say
from trueflops.profile.stored import DATA


def run(options: argparse.Namespace) -> int:
    """Fit and write; says what it fits as it goes."""
    try:
        from trueflops.calibrate.profiles import rebuild
    except ModuleNotFoundError as error:
        raise BadInput(
            say("calibrate needs {name}: pip install 'trueflops[calibrate]'", name=error.name)
        ) from None
    folders = [Path(folder) for folder in options.folders]
    for folder in folders:
        if not is_folder(folder):
            raise BadInput(say("{folder}: no such folder", folder=printable(str(folder))))
    into = Path(options.output) if options.output else DATA
    if not is_folder(into):
        raise BadInput(say("{into}: no such folder", into=printable(str(into))))

    def tell(what: str) -> None:
        print(say("fitted {what}", what=what), file=sys.stderr, flush=True)

    only = [name for name in (options.only or "").split(",") if name]
    for path in rebuild(folders, into, tell, only):
        print(printable(str(path), 4096))
    return 0
