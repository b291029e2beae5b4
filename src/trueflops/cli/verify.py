"""trueflops verify: predicted against measured."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trueflops.catalog import cluster
from trueflops.catalog.measured import cluster_measured
from trueflops.cli.correcting import observed_as, runs_in, uncorrected
from trueflops.clock.given import given_profile
from trueflops.errors import BadInput, printable
from trueflops.files import own_path
from trueflops.language import say
from trueflops.profile import Profile
from trueflops.profile.library import find_profile
from trueflops.records.tables import read_table
from trueflops.report import encode
from trueflops.report.progress import Waiting
from trueflops.report.verify import encode_findings, show_findings
from trueflops.run.judged import judge_runs
from trueflops.verify.findings import Findings
from trueflops.verify.profiles import Profiles, leaving_out, profiles_from
from trueflops.verify.recognise import verify_tables


def run(options: argparse.Namespace) -> int:
    """Predict every row of every file and show by how much it was missed; exit 1 if none was."""
    if options.profile and options.leave_source_out:
        raise BadInput(say("give --profile or --leave-source-out, not both"))
    with Waiting(say("reading {number} files", number=len(options.files))) as wait:
        tables = [read_table(Path(file)) for file in options.files if not _keeps_runs(file)]
        runs = [_Runs(own_path(file)) for file in options.files if _keeps_runs(file)]
        wait.say("predicting every row")
        profiles = leaving_out if options.leave_source_out else profiles_from(options.profile)
        path = find_profile(options.profile) if options.profile else None
        seen = (runs_in(path) if path and runs else None) or []

        def judge(by: Profiles, given: Profile | None) -> Findings:
            found = [each.judge(given, seen, only_unseen=options.held_out) for each in runs]
            if tables:
                found.insert(0, verify_tables(tables, by, only_held_out=options.held_out))
            return Findings().extend(found)

        findings = judge(profiles, given_profile(path) if path and runs else None)
        without = None
        if options.profile:  # by how much the profile sharpens what is shipped
            without = judge(profiles_from(None), None)
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
    return 0 if findings.rows else 1


def _keeps_runs(file: str) -> bool:
    return file.endswith(".json")


class _Runs:
    """Plans that ran, as `run --calibrate` kept them in a profile, and the curves beneath."""

    def __init__(self, path: Path) -> None:
        own = given_profile(path)
        runs = runs_in(path)
        if not runs:
            raise BadInput(
                say(
                    "{path}: a profile without runs; trueflops run --calibrate keeps them, and "
                    "tables of others are CSV files",
                    path=printable(str(path)),
                )
            )
        where = cluster_measured(own.chip, 1) if own.chip else cluster(own.accelerator)
        self.path, self.base = path, uncorrected(own)
        self.observed = [observed_as(each, where, path) for each in runs]

    def judge(
        self, given: Profile | None, seen: Sequence[Mapping[str, Any]], *, only_unseen: bool
    ) -> Findings:
        """By a profile of their chip; by any other, as they were predicted before they ran."""
        same = given is not None and given.accelerator == self.base.accelerator
        found = judge_runs(self.path.name, self.observed, given if same else self.base, seen)
        if only_unseen:
            found.rows = [row for row in found.rows if row.scored]
        return found
