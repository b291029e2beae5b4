"""The entry point: run a command, turn errors into one clear line and an exit code.

0: answered; 1: answered "no"; 2: bad input; 101: our bug.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from trueflops.cli.arguments import parse, parser, wrapped
from trueflops.errors import TrueflopsError, shorten, visible


def main(arguments: Sequence[str] | None = None, begin: Callable[[], None] = lambda: None) -> int:
    """Run the command line; returns the exit code. `begin` is called before a command runs."""
    if sys.stderr is None:  # closed: print(file=None) would write to stdout, into the answer
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        print("trueflops: standard output is closed; send it to /dev/null", file=sys.stderr)
        return 2
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without ×: show ?, do not fail
            stream.reconfigure(errors="replace")
    words = list(sys.argv[1:] if arguments is None else arguments)
    verbose = False
    try:
        if not words:
            parser().print_help()
            sys.stdout.flush()
            return 0
        options = parse(words)
        verbose = options.verbose
        command = importlib.import_module(f"trueflops.cli.{options.command}")
        begin()
        code = int(command.run(options))
        sys.stdout.flush()
        return code
    except TrueflopsError as error:
        failure: Exception = error
        code = error.exit_code
        said = f"trueflops: {error}\n[{error.code}]"
    except SystemExit as stop:  # help was printed (0), or an error (2)
        return int(stop.code or 0)
    except BrokenPipeError:  # `trueflops … | head`: whoever asked has read enough
        _forget_output()
        return 0
    except KeyboardInterrupt:
        return 130
    except OSError as error:  # a full disk under stdout, and the like
        _forget_output()
        failure, code = error, 2
        said = f"trueflops: cannot write the answer: {error.strerror or error}\n[BAD_INPUT]"
    except MemoryError as error:
        failure, code = error, 2
        said = "trueflops: this needs more memory than there is; ask something smaller\n[TOO_LARGE]"
    except Exception as error:  # a bug of ours: say so, without a traceback unless asked
        failure, code = error, 101
        said = (
            f"trueflops: a bug of ours: {type(error).__name__}: {shorten(str(error), 200)}\n"
            "[BUG] run again with -v and report what it prints"
        )
    if verbose:
        print(visible("".join(traceback.format_exception(failure))), file=sys.stderr)
    message, _, reason = said.rpartition("\n")
    print(wrapped(message), file=sys.stderr)
    print(f"           {reason}", file=sys.stderr)
    return code


def _forget_output() -> None:
    """What is left in the buffer can go nowhere: let it fall, without a second error at exit."""
    with contextlib.suppress(OSError, ValueError):  # a stream of memory has no number
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
