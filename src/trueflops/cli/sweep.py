"""trueflops sweep: many questions of train or infer, answered into one table.

Exit 0: the table is written; 1: so it is, but no row is ok; 130: interrupted, all rows kept.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Final

from trueflops.cli import infer, train
from trueflops.cli.arguments import flags, parse, wrapped
from trueflops.cli.arguments.several import ANY
from trueflops.cli.buying import WISHES
from trueflops.cli.choosing import WEIGHING
from trueflops.cli.largest import LONGEST
from trueflops.cli.loading import SIMULATED
from trueflops.cli.question import SHOWN
from trueflops.cli.unread import refuse_unread
from trueflops.errors import BadInput, printable, shorten
from trueflops.files import check_writable, write_file
from trueflops.language import ENGLISH, mark, say, speaking
from trueflops.predict import training_bill
from trueflops.report import encode
from trueflops.report.progress import Waiting, how_far
from trueflops.report.serving.answer import why_not as why_not_served
from trueflops.report.sweep import (
    Swept,
    encode_questions,
    encode_swept,
    show_questions,
    show_swept,
)
from trueflops.report.training import why_not
from trueflops.sweep.flags import Flags
from trueflops.sweep.journal import Journal, journal_of, keys_of, read_journal
from trueflops.sweep.local import answer_by_processes
from trueflops.sweep.on_ray import answer_on_ray
from trueflops.sweep.questions import Question, Questions, questions_of
from trueflops.sweep.rows import (
    Row,
    columns_of,
    failed,
    none_fits,
    refused,
    serving_row,
    training_row,
)
from trueflops.sweep.spec import read_spec
from trueflops.sweep.table import check_table, table_bytes

UNREAD_OF_INFER: Final = frozenset({*SIMULATED, *WEIGHING, "minimise"} - {"rate"})
"""Flags of infer that a row does not read; a rate says how many requests are under way."""


def run(options: argparse.Namespace) -> int:
    """Ask what is not answered yet, then write the table."""
    file = Path(options.spec)
    spec = read_spec(file, flags_of)
    questions = questions_of(spec)
    table = Path(options.output) if options.output else file.with_suffix(".csv")
    check_table(table)
    check_writable(table)
    keys, path = keys_of(questions.asked), journal_of(table)
    if options.dry_run:
        kept = len(read_journal(path).keys() & set(keys))
        if options.json:
            print(encode.to_json(encode_questions(questions, table, kept)))
        else:
            show_questions(spec, questions, table, kept)
        return 0
    started = time.monotonic()
    with Journal(path) as journal:
        kept = len(journal.rows.keys() & set(keys))
        try:
            answers = answered(questions, keys, journal, options)
        except KeyboardInterrupt:
            return _say_interrupted(journal, keys)
        columns = (*questions.columns, *columns_of(spec.command))
        rows = [
            dict(zip(questions.columns, question.cells, strict=True)) | answers[key]
            for question, key in zip(questions.asked, keys, strict=True)
        ]
        write_file(table, table_bytes(table, columns, rows))
        journal.remove()
    done = Swept(table, len(columns), rows, kept, time.monotonic() - started)
    if options.json:
        print(encode.to_json(encode_swept(done)))
    else:
        show_swept(done)
    return 0 if any(row["status"] == "ok" for row in rows) else 1


def answered(
    questions: Questions, keys: Sequence[str], journal: Journal, options: argparse.Namespace
) -> dict[str, Row]:
    """A row for every key: those that the journal holds, and those that are asked now."""
    rows = {key: journal.rows[key] for key in keys if key in journal.rows}
    left = {key: each for key, each in zip(keys, questions.asked, strict=True) if key not in rows}
    names, total, kept = list(left), len(set(keys)), len(rows)
    began: float | None = None  # with the first row: workers take seconds to start
    with (
        Waiting(how_far(kept, total, 0, 0.0)) as wait,
        contextlib.closing(_asked(list(left.values()), options)) as answers,
    ):
        for place, row in answers:
            rows[names[place]] = row
            if row["status"] != "failed":  # which may go better when it is asked again
                journal.keep(names[place], row)
            began = began or time.monotonic()
            new = len(rows) - kept - 1
            wait.say(how_far(len(rows), total, new, time.monotonic() - began))
    return rows


def _asked(
    questions: Sequence[Question], options: argparse.Namespace
) -> Generator[tuple[int, Row]]:
    if not questions:
        return
    if options.ray is not None:
        yield from answer_on_ray(questions, answer, options.ray, options.jobs)
    else:
        yield from answer_by_processes(questions, answer, options.jobs or os.cpu_count() or 1)


@speaking(ENGLISH)  # the rows of a table
def answer(question: Question) -> Row:
    """One question, by the code that answers it on a command line; what goes wrong is its row."""
    said = io.StringIO()  # neither progress nor an error of a worker belongs on the terminal
    try:
        with contextlib.redirect_stderr(said):
            options = parse(question.words)
            return _trained(options) if options.command == "train" else _served(options)
    except BadInput as error:
        return refused(str(error))
    except SystemExit:
        return refused(said.getvalue())
    except Exception as error:  # a bug of ours must not end the sweep
        return failed(f"a bug of ours: {type(error).__name__}: {shorten(str(error), 200)}")


def _trained(options: argparse.Namespace) -> Row:
    options.top = 1  # a row has no room for the others
    refuse_unread(options, *_alone(options), WISHES)
    asked, step, _ = train.ask(options)
    if isinstance(step, str):
        return none_fits(step)
    bill = training_bill(step, rent=asked.rent, pue=asked.pue)
    row = training_row(step, bill, "" if step.fits else why_not(step))
    if options.seq == LONGEST:  # the number that the word stood for
        return {**row, "plan": f"{row['plan']} · seq {step.workload.seq}"}
    return row


def _served(options: argparse.Namespace) -> Row:
    refuse_unread(options, *_alone(options), UNREAD_OF_INFER)
    _, points, limits, _ = infer.ask(options)
    point, in_time = points[0], limits.met(points[0])
    why = why_not_served(point) if not point.fits else "" if in_time else infer.why_late(points)
    return serving_row(point, why, in_time=in_time)


def _alone(options: argparse.Namespace) -> tuple[str, str]:
    command = options.command
    if options.model == ANY:
        raise BadInput(
            say(
                "MODEL any is answered by trueflops {command} alone, not in a sweep",
                command=command,
            )
        )
    return say("a row of a sweep"), say("ask trueflops {command} alone", command=command)


def flags_of(command: str) -> Flags:
    """The flags of a command that say what is asked, by all of their names."""
    return flags.flags_of(command, SHOWN)


def _say_interrupted(journal: Journal, keys: Sequence[str]) -> int:
    kept, whole = len(journal.rows.keys() & set(keys)), len(set(keys))
    said = say("interrupted before a row was finished")
    if kept:
        said = say(
            "interrupted; {kept:,} of {whole:,} rows are kept in {path}",
            kept=kept,
            whole=whole,
            path=printable(str(journal.path)),
        )
        said += mark(": the same command goes on from there")
    print(wrapped(f"trueflops: {said}"), file=sys.stderr)
    return 130
