"""The entry point: run a command, turn errors into one clear line and an exit code.

0: answered; 1: answered "no"; 2: bad input; 101: our bug.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence

from trueflops.cli.arguments import parse, parser, wrapped
from trueflops.errors import TrueflopsError, shorten


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without ×: show ?, do not fail
            stream.reconfigure(errors="replace")
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words:
        parser().print_help()
        return 0
    try:
        options = parse(words)
    except SystemExit as stop:  # help was printed (0), or an error (2)
        return int(stop.code or 0)
    try:
        command = importlib.import_module(f"trueflops.cli.{options.command}")
        code = int(command.run(options))
        sys.stdout.flush()
        return code
    except TrueflopsError as error:
        failure: Exception = error
        code = error.exit_code
        said = f"trueflops: {error}\n[{error.code}]"
    except SystemExit as stop:  # a recalled question that does not parse
        return int(stop.code or 0)
    except BrokenPipeError:  # `trueflops … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except OSError as error:  # a full disk under stdout, and the like
        failure = error
        code, said = 2, f"trueflops: cannot write the answer: {error.strerror}\n[BAD_INPUT]"
    except Exception as error:  # a bug of ours: say so, without a traceback unless asked
        failure, code = error, 101
        said = (
            f"trueflops: a bug of ours: {type(error).__name__}: {shorten(str(error), 200)}\n"
            "[BUG] run again with -v and report what it prints"
        )
    if options.verbose:
        traceback.print_exception(failure)
    message, _, reason = said.rpartition("\n")
    print(wrapped(message), file=sys.stderr)
    print(f"           {reason}", file=sys.stderr)
    return code
