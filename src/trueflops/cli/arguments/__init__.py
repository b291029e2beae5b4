"""Commands and flags. Imports nothing heavy: `trueflops --help` must answer at once.

plans.py     flags of train, infer and sweep     chips.py   of compare, catalog, measure, verify …
programs.py  of run, ops, capture, guard …       shared.py  values and flags of several commands
links.py     flags of collective and stragglers
software.py  names of frameworks and engines     hints.py   what to write instead of a wrong flag
operation.py how a cluster is run and paid for   load.py    requests that a server is sent
deployment.py how an engine is set               flags.py   the flags of a command as data
speculation.py  how tokens are drafted and verified
tuning.py    of what is trained, where not all   forms.py   commands as forms of a page
web.py       flags of web
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any, NoReturn

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
from trueflops.cli.arguments.shared import lang_flag
from trueflops.cli.arguments.software import ENGINES
from trueflops.cli.arguments.web import web_flags
from trueflops.errors import nearest, printable, visible
from trueflops.language import lines, mark, say, spoken, word

NARROWEST, WIDEST = 40, 80  # columns of an error


# What argparse says by itself goes by this name there, for whoever translates it.
vars(argparse)["_"] = word


class Help(argparse.HelpFormatter):
    """Help in the language spoken; names such as fsdp-compiled stay whole."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return word(action.help) if action.help else action.help

    def _split_lines(self, text: str, width: int) -> list[str]:
        return lines(" ".join(text.split()), width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled = lines(" ".join(word(text).split()), width - len(indent))
        return "\n".join(indent + line for line in filled)

    def start_section(self, heading: str | None) -> None:
        """A group of flags under its heading."""
        super().start_section(word(heading) if heading else heading)


class TopHelp(Help):
    """Every command with its sentence on one line: argparse forgets that commands are indented."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._action_max_length = max(map(len, _COMMANDS)) + self._indent_increment * 2

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "".join(indent + line for line in word(text).splitlines(keepends=True))


class Parser(argparse.ArgumentParser):
    """argparse that exits with one clear line and a suggestion."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # No flag begins with a digit: -1T and -5W are values, and their readers say what is wrong.
        self._negative_number_matcher = re.compile(r"-\d")

    def error(self, message: str) -> NoReturn:
        """One line, a suggestion, exit 2."""
        refuse(message, self.prog)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """An unknown choice is refused with the nearest that the same argument knows."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            near = nearest(str(value), map(str, action.choices or ()))
            if near:
                error.message += say(" — did you mean {near}?", near=near[0])
            if value in ENGINES:
                error.message += say(
                    " — {value} serves: ask trueflops infer … --engine {value}", value=value
                )
            raise

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
    print(say("           [BAD_INPUT] see: {program} --help", program=program), file=sys.stderr)
    raise SystemExit(2)


def wrapped(message: str) -> str:
    """An error on as many lines as it needs, indented under the program's name."""
    width = max(NARROWEST, min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns))
    return "\n".join(lines(visible(message), width, indent=" " * 11, long_words=False))


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
                say("{command} runs no program: leave -- out", command=options.command),
                f"trueflops {options.command}",
            )
        options.words = [*(options.words or ()), *words[cut + 1 :]]
    if unknown:
        command = top.command(options.command)
        wrong = unknown[0].split("=")[0]
        instead = flag_instead(wrong, command.flags())
        hint = say("; did you mean {names}?", names=instead) if instead else ""
        refuse(
            say(
                "{command} has no flag or place for {wrong!r}{hint}",
                command=options.command,
                wrong=printable(wrong, 60),
                hint=hint,
            ),
            command.prog,
        )
    return options


def parser() -> Parser:
    """The whole command line, in the language spoken."""
    return _parser(spoken())


@cache
def _parser(language: str) -> Parser:
    """One for each language: argparse words some of its texts when it is built."""
    top = Parser(
        prog="trueflops",
        description=say(
            "What AI accelerators will really do: time, memory, money and energy of a\n"
            "model and a plan on any chip, each with an interval and an explanation."
        ),
        epilog=say(
            "examples:\n  trueflops train Llama-3.1-70B --on 64xH100 --tokens 1T\n  "
            "trueflops train Llama-3.1-70B --on 64xH100 --tp 8 --pp 4 --zero 1 "
            "--explain\n  trueflops infer Llama-3.1-70B --on 8xH100 --input 1024 "
            "--concurrency 64\n  trueflops compare H100 MI300X RTX4090 --for "
            "Llama-3.1-8B\n  trueflops explain matmul 4096x11008x4096 --on H100\n  "
            "trueflops explain attention 1x32x8x4096x128 --on H100\n  trueflops catalog "
            "H100\n"
        ),
        formatter_class=TopHelp,
        allow_abbrev=False,
    )
    lang_flag(top)
    top.add_argument("--version", action="version", version=f"trueflops {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (add, words) in _COMMANDS.items():
        add(commands.add_parser(name, help=words, allow_abbrev=False, formatter_class=Help))
    return top


_COMMANDS = {
    "train": (train_flags, mark("predict a training plan, or search for the best")),
    "infer": (infer_flags, mark("predict serving: latency, tokens/s, KV cache")),
    "sweep": (sweep_flags, mark("many questions of train or infer, in one table")),
    "compare": (compare_flags, mark("chips side by side, dense only; --for a model")),
    "catalog": (catalog_flags, mark("every fact with its source")),
    "run": (run_flags, mark("carry out a plan with PyTorch, predicted beside measured")),
    "ops": (ops_flags, mark("price a list of kernels")),
    "capture": (capture_flags, mark("a real PyTorch program on a chip that you do not have")),
    "guard": (guard_flags, mark("exit 1 where a program's step grew in time or memory")),
    "diagnose": (
        diagnose_flags,
        mark("why a real run is slow: a profiler's trace beside predictions"),
    ),
    "explain": (
        explain_flags,
        mark("how one matmul or one attention runs: limits, tiles, traffic"),
    ),
    "collective": (collective_flags, mark("one collective by every algorithm, step by step")),
    "stragglers": (stragglers_flags, mark("a slow rank or link, in step and out of it")),
    "web": (web_flags, mark("the same answers in a browser, and as an API")),
    "measure": (measure_flags, mark("what this machine really delivers: a profile")),
    "calibrate": (calibrate_flags, mark("rebuild the shipped profiles from measurements")),
    "verify": (verify_flags, mark("predicted against measured, by source")),
    "completion": (completion_flags, mark("completion for a shell: bash, zsh, fish")),
}
