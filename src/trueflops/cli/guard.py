"""trueflops guard: a performance test without an accelerator, against a baseline that is kept.

Exit 0: as before, or written; 1: time or memory grew beyond the tolerance; 2: bad input.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from trueflops.capture.named import named_program
from trueflops.cli.capture import asked_for, program_apart, recorded
from trueflops.clock import Clock
from trueflops.errors import BadInput, printable
from trueflops.language import say
from trueflops.predict.captured.guarded import baseline_of, check_question, compare
from trueflops.predict.captured.program import predict_program
from trueflops.records.baseline import accepted, plain_name, write_baseline
from trueflops.report import encode
from trueflops.report.guard import encode_comparison, encode_written, show_comparison, show_written
from trueflops.report.tables import answers_on


def run(options: argparse.Namespace) -> int:
    """Capture the step; write it down, or hold it against what was written before."""
    where, profile = asked_for(options)
    path = baseline_path(options.program, where.name, options.baseline)
    if options.update and options.no_write:
        raise BadInput(say("--update and --no-write ask for opposites: give one of them"))
    before = accepted(path, update=options.update, may_write=not options.no_write)
    with program_apart() as answers, answers_on(answers):
        found = predict_program(recorded(options, where), Clock(where, profile))
        file, name = named_program(options.program)
        program = printable(f"{file.name}:{name}" if name else file.name)
        now = baseline_of(found, program, options.words or (), options.assume)
        if before is None:
            write_baseline(path, now)
            if options.json:
                print(encode.to_json(encode_written(path, now)), file=answers)
            else:
                show_written(path, now, updated=options.update)
            return 0
        check_question(before, now, path)
        result = compare(before, now, options.tolerance)
        if options.json:
            print(encode.to_json(encode_comparison(path, result)), file=answers)
        else:
            show_comparison(path, result)
        return 0 if result.passed else 1


def baseline_path(program: str, on: str, given: str | None) -> Path:
    """Where the baseline of a program on a chip lies: as given, else beside the program."""
    if given is not None:
        return Path(given)
    file, name = named_program(program)
    words = filter(None, (file.stem, name, plain_name(on), "baseline.json"))
    return file.with_name(".".join(words))
