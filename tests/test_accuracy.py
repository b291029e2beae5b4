"""The claims of docs/accuracy.md hold: a change that makes one worse fails here.

What `truth/` holds is always judged. Other people's tables are judged where `make truth` or
$TRUEFLOPS_TRUTH has them; where one is missing, the claims about it are skipped, and one line at
the end says which tables and how to get them.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from accuracy import (
    GATHERED,
    IN_CHINESE,
    LAST,
    PUBLISHED,
    UNSEEN,
    Judged,
    gathered,
    judge_unseen,
    judge_without_source,
    tables_of_others,
    truth_folders,
    what_is_missing,
)
from trueflops.profile.stored import DATA, read_profile
from trueflops.records.tables import read_table
from trueflops.verify.findings import Findings
from trueflops.verify.measured import judge_measured
from trueflops.verify.profiles import best_known
from trueflops.verify.recognise import reader_of, verify_tables
from trueflops.verify.regimes import REGIMES, TABLES, Regime
from trueflops.verify.score import overall, summary

ROOT = Path(__file__).parent.parent
MEASURED = sorted((ROOT / "truth" / "h200_unseen").glob("*.csv"))


@cache
def verified(path: Path) -> Findings:
    """One table, judged once for all tests."""
    return verify_tables([read_table(path)], best_known)


@cache
def judged() -> Judged:
    """Everything that can be judged here."""
    paths = [PUBLISHED.with_name(f"{n}.csv") for n in ("train_runs", "infer_runs", "speculative")]
    paths += sorted((ROOT / "truth" / "h200").glob("steps*.csv"))
    paths += [
        ROOT / "truth" / "h200" / f"{name}.csv"
        for name in ("matmul_odd", "calls", "decoding_passes")
    ]
    paths += tables_of_others(truth_folders())
    paths += gathered(truth_folders())
    found = [verified(path) for path in paths if reader_of(read_table(path))]
    measured = judge_measured(map(read_table, MEASURED), "H200-SXM-141GB")
    known = Findings().extend([*found, measured])
    since = (judge_unseen(tables) for tables in (UNSEEN, LAST))
    return Judged(known, judge_without_source(), *since)


@pytest.mark.parametrize("regime", REGIMES, ids=lambda regime: regime.name)
def test_a_claim_holds(regime: Regime) -> None:
    found = judged().reach(regime)
    missing = what_is_missing(truth_folders(), regime)
    if missing and (found is None or regime.fitted == TABLES):
        pytest.skip(missing)  # our own few rows of such kernels are not what is claimed
    if found is None and len(gathered(truth_folders())) < len(GATHERED):
        pytest.skip(f"not here: {', '.join(GATHERED)}")
    assert found is not None, "a claim without rows"
    assert found.holds(regime), f"{found.figures} of {found.rows} rows, at most {regime.most}"


def test_every_claim_has_its_line_in_chinese() -> None:
    assert len(IN_CHINESE) == len(REGIMES)


def test_intervals_of_kernels_cover_what_they_say() -> None:
    if missing := what_is_missing(truth_folders(), REGIMES[0]):
        pytest.skip(missing)  # the share is one of all rows together
    rows = [f for f in judged().known.rows if f.quantity == "op_seconds" and f.scored]
    missed = sum(not row.covered for row in rows) / len(rows)
    assert 0.05 <= missed <= 0.15


@pytest.mark.parametrize("quantity", ["step_seconds", "peak_bytes"])
def test_intervals_cover_sources_that_nobody_has_seen(quantity: str) -> None:
    """By source, not in the mean: one large source would hide all others."""
    by_source = [
        score.coverage
        for score in summary(judged().without_source)
        if score.quantity == quantity and score.scored
    ]
    assert 0.85 <= sum(by_source) / len(by_source) <= 0.95


def test_a_measured_profile_is_sharper_than_what_is_shipped() -> None:
    assert len(MEASURED) == 3
    for path in MEASURED:
        own = judge_measured([read_table(path)], "H200")
        assert overall(own)[0].median < overall(verified(path))[0].median


def test_every_published_row_is_judged_or_refused_for_a_reason() -> None:
    found = verified(PUBLISHED)
    judged = {row.id for row in found.rows} | {row.id for row in found.refused}
    rows = {str(row["id"]): row for _, row in read_table(PUBLISHED).rows}
    assert judged == set(rows)
    assert {rows[refusal.id]["complete_for_sim"] for refusal in found.refused} == {"n"}


def test_a_chip_left_out_of_the_fit_is_still_predicted() -> None:
    held = read_profile(DATA / "transfer.json").curve("matmul").held_out
    assert held is not None
    assert held.median <= 0.095
    assert held.p90 <= 0.28


def test_shipped_profiles_say_where_they_come_from() -> None:
    for path in DATA.glob("*.json"):
        for name, curve in read_profile(path).curves.items():
            assert curve.source, f"{path.name}: {name}"
            assert curve.fitted_rows > 0, f"{path.name}: {name}"
            assert curve.origin in ("measured", "derived")
