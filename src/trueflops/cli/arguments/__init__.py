"""Commands and flags. Imports nothing heavy: `trueflops --help` must answer at once.

plans.py     flags of train, infer and sweep     chips.py   of compare, catalog, measure, verify …
programs.py  of run, ops, capture, guard …       shared.py  values and flags of several commands
links.py     flags of collective and stragglers
software.py  names of frameworks and engines     hints.py   what to write instead of a wrong flag
operation.py how a cluster is run and paid for   load.py    requests that a server is sent
deployment.py how an engine is set               flags.py   the flags of a command as data
speculation.py  how tokens are drafted and verified
web.py       flags of web                        forms.py   commands as forms of a page
"""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Sequence
from functools import cache
from typing import NoReturn

from trueflops import __version__
from trueflops.cli.arguments.chips import (
    calibrate_flags,
    catalog_flags,
    compare_flags,
    completion_flags,
    measure_flags,
    verify_flags,
)
from trueflops.cli.arguments.hints import flag_instead
from trueflops.cli.arguments.links import collective_flags, stragglers_flags
from trueflops.cli.arguments.plans import infer_flags, sweep_flags, train_flags
from trueflops.cli.arguments.programs import (
    capture_flags,
    diagnose_flags,
    explain_flags,
    guard_flags,
    ops_flags,
    run_flags,
)
from trueflops.cli.arguments.software import ENGINES
from trueflops.cli.arguments.web import web_flags
from trueflops.errors import nearest, printable, visible

NARROWEST, WIDEST = 40, 80  # columns of an error


class Help(argparse.HelpFormatter):
    """Names such as fsdp-compiled stay whole."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class TopHelp(Help, argparse.RawDescriptionHelpFormatter):
    """Every command with its sentence on one line: argparse forgets that commands are indented."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._action_max_length = max(map(len, _COMMANDS)) + self._indent_increment * 2


class Parser(argparse.ArgumentParser):
    """argparse that exits with one clear line and a suggestion."""

    def error(self, message: str) -> NoReturn:
        """One line, a suggestion, exit 2."""
        if "invalid choice" in message:
            wrong = message.split("'")[1] if "'" in message else ""
            near = nearest(wrong, self._choices(message))
            message += f" — did you mean {near[0]}?" if near else ""
            if wrong in ENGINES:
                message += f" — {wrong} serves: ask trueflops infer … --engine {wrong}"
        refuse(message, self.prog)

    def _choices(self, message: str) -> list[str]:
        """What the argument that a message complains about may be; another's would mislead."""
        said = message.partition(":")[0].removeprefix("argument ")
        for action in self._actions:
            if said in ("/".join(action.option_strings), action.metavar, action.dest):
                return [str(choice) for choice in action.choices or ()]
        return []

    def arguments(self) -> list[argparse.Action]:
        """Every argument of this command."""
        return list(self._actions)

    def flags(self) -> list[str]:
        """Every flag of this command."""
        return [flag for action in self._actions for flag in action.option_strings]

    def command(self, name: str) -> Parser:
        """The parser of one command."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                found: Parser = action.choices[name]
                return found
        raise KeyError(name)

    def about(self, name: str) -> str:
        """What a command is for, as the list of commands says it."""
        return _COMMANDS[name][1]


def refuse(message: str, program: str) -> NoReturn:
    """Say what was wrong with the command line and exit."""
    print(wrapped(f"trueflops: {message}"), file=sys.stderr)
    print(f"           [BAD_INPUT] see: {program} --help", file=sys.stderr)
    raise SystemExit(2)


def wrapped(message: str) -> str:
    """An error on as many lines as it needs, indented under the program's name."""
    width = max(NARROWEST, min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns))
    return textwrap.fill(
        visible(message),
        width,
        subsequent_indent=" " * 11,
        break_on_hyphens=False,
        break_long_words=False,
    )


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Read a command line; an unknown flag is refused with the nearest of that command.

    What stands after -- is the program's own, wherever flags stand: argparse takes it only where
    nothing stands between it and the file.
    """
    top = parser()
    cut = words.index("--") if "--" in words else len(words)
    options, unknown = top.parse_known_args(words[:cut])
    if cut < len(words):
        if not hasattr(options, "words"):
            refuse(
                f"{options.command} runs no program: leave -- out", f"trueflops {options.command}"
            )
        options.words = [*(options.words or ()), *words[cut + 1 :]]
    if unknown:
        command = top.command(options.command)
        wrong = unknown[0].split("=")[0]
        instead = flag_instead(wrong, command.flags())
        hint = f"; did you mean {instead}?" if instead else ""
        refuse(
            f"{options.command} has no flag or place for {printable(wrong, 60)!r}{hint}",
            command.prog,
        )
    return options


@cache
def parser() -> Parser:
    """The whole command line."""
    top = Parser(
        prog="trueflops",
        description="What AI accelerators will really do: time, memory, money and energy of a\n"
        "model and a plan on any chip, each with an interval and an explanation.",
        epilog="examples:\n"
        "  trueflops train Llama-3.1-70B --on 64xH100 --tokens 1T\n"
        "  trueflops train Llama-3.1-70B --on 64xH100 --tp 8 --pp 4 --zero 1 --explain\n"
        "  trueflops infer Llama-3.1-70B --on 8xH100 --input 1024 --concurrency 64\n"
        "  trueflops compare H100 MI300X RTX4090 --for Llama-3.1-8B\n"
        "  trueflops explain matmul 4096x11008x4096 --on H100\n"
        "  trueflops explain attention 1x32x8x4096x128 --on H100\n"
        "  trueflops catalog H100\n",
        formatter_class=TopHelp,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"trueflops {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (add, words) in _COMMANDS.items():
        add(commands.add_parser(name, help=words, allow_abbrev=False, formatter_class=Help))
    return top


_COMMANDS = {
    "train": (train_flags, "predict a training plan, or search for the best"),
    "infer": (infer_flags, "predict serving: latency, tokens/s, KV cache"),
    "sweep": (sweep_flags, "many questions of train or infer, in one table"),
    "compare": (compare_flags, "chips side by side, dense only; --for a model"),
    "catalog": (catalog_flags, "every fact with its source"),
    "run": (run_flags, "carry out a plan with PyTorch, predicted beside measured"),
    "ops": (ops_flags, "price a list of kernels"),
    "capture": (capture_flags, "a real PyTorch program on a chip that you do not have"),
    "guard": (guard_flags, "exit 1 where a program's step grew in time or memory"),
    "diagnose": (diagnose_flags, "why a real run is slow: a profiler's trace beside predictions"),
    "explain": (explain_flags, "how one matmul or one attention runs: limits, tiles, traffic"),
    "collective": (collective_flags, "one collective by every algorithm, step by step"),
    "stragglers": (stragglers_flags, "a slow rank or link, in step and out of it"),
    "web": (web_flags, "the same answers in a browser, and as an API"),
    "measure": (measure_flags, "what this machine really delivers: a profile"),
    "calibrate": (calibrate_flags, "rebuild the shipped profiles from measurements"),
    "verify": (verify_flags, "predicted against measured, by source"),
    "completion": (completion_flags, "completion for a shell: bash, zsh, fish"),
}
