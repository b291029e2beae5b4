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
from trueflops.language import ENGLISH, asked_for, say, speaking, spoken


def main(arguments: Sequence[str] | None = None, begin: Callable[[], None] = lambda: None) -> int:
    """Run the command line; returns the exit code. `begin` is called before a command runs."""
    if sys.stderr is None:  # closed: print(file=None) would write to stdout, into the answer
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        print(say("trueflops: standard output is closed; send it to /dev/null"), file=sys.stderr)
        return 2
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without ×: show ?, do not fail
            stream.reconfigure(errors="replace")
    words = list(sys.argv[1:] if arguments is None else arguments)
    with speaking(asked_for(words, os.environ)):
        return _answer(words, begin)


def _answer(words: list[str], begin: Callable[[], None]) -> int:
    """What one command line is answered, in the language spoken."""
    verbose = False
    try:
        if all(each in ("--lang", f"--lang={spoken()}", spoken()) for each in words):
            parser().print_help()
            sys.stdout.flush()
            return 0
        options = parse(words)
        verbose = options.verbose
        command = importlib.import_module(f"trueflops.cli.{options.command}")
        begin()
        # A program reads JSON: its words are the same whoever asked.
        with speaking(ENGLISH if getattr(options, "json", False) else spoken()):
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
        said = say(
            "trueflops: cannot write the answer: {reason}\n[BAD_INPUT]",
            reason=error.strerror or error,
        )
    except MemoryError as error:
        failure, code = error, 2
        said = say(
            "trueflops: this needs more memory than there is; ask something smaller\n[TOO_LARGE]"
        )
    except Exception as error:  # a bug of ours: say so, without a traceback unless asked
        failure, code = error, 101
        said = say(
            "trueflops: a bug of ours: {kind}: {error}\n"
            "[BUG] run again with -v and report what it prints",
            kind=type(error).__name__,
            error=shorten(str(error), 200),
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
