"""trueflops verify: predicted against measured."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from trueflops.errors import BadInput
from trueflops.language import say
from trueflops.records.tables import read_table
from trueflops.report import encode
from trueflops.report.progress import Waiting
from trueflops.report.verify import encode_findings, show_findings
from trueflops.verify.profiles import leaving_out, profiles_from
from trueflops.verify.recognise import verify_tables


def run(options: argparse.Namespace) -> int:
    """Predict every row of every file and show by how much it was missed."""
    if options.profile and options.leave_source_out:
        raise BadInput(say("give --profile or --leave-source-out, not both"))
    with Waiting(say("reading {number} files", number=len(options.files))) as wait:
        tables = [read_table(Path(file)) for file in options.files]
        wait.say("predicting every row")
        profiles = leaving_out if options.leave_source_out else profiles_from(options.profile)
        findings = verify_tables(tables, profiles, only_held_out=options.held_out)
        without = None
        if options.profile:  # by how much the profile sharpens what is shipped
            without = verify_tables(tables, profiles_from(None), only_held_out=options.held_out)
    if without is not None and all(
        a.predicted == b.predicted for a, b in zip(findings.rows, without.rows, strict=True)
    ):
        print(
            say("trueflops: no row here is of {profile}'s chip", profile=options.profile),
            file=sys.stderr,
        )
    if options.json:
        print(encode.to_json(encode_findings(findings, without)))
    else:
        show_findings(findings, without)
    return 0
