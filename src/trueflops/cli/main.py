"""The entry point: run a command, turn errors into one clear line and an exit code.

0: answered; 1: answered "no"; 2: bad input; 101: our bug.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from trueflops.cli.arguments import parser
from trueflops.errors import TrueflopsError, shorten


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    top = parser()
    if not words:
        top.print_help()
        return 0
    try:
        options = top.parse_args(words)
    except SystemExit as stop:  # argparse has printed help (0) or an error (2)
        return int(stop.code or 0)
    try:
        command = importlib.import_module(f"trueflops.cli.{options.command}")
        return int(command.run(options))
    except TrueflopsError as error:
        if options.verbose:
            raise
        print(f"trueflops: {error}", file=sys.stderr)
        print(f"           [{error.code}]", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # `trueflops … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # a bug of ours: say so, without a traceback unless asked
        if options.verbose:
            raise
        print(
            f"trueflops: a bug of ours: {type(error).__name__}: {shorten(str(error), 200)}\n"
            "           run again with -v and report what it prints",
            file=sys.stderr,
        )
        return 101
