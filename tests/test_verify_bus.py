"""Collectives among cards on PCIe: a table of nccl-tests, and whose evidence a host's is."""

from __future__ import annotations

from pathlib import Path

import pytest

from trueflops.catalog import accelerator
from trueflops.profile import CurveKey, profile_of
from trueflops.records.tables import read_table
from trueflops.verify.bus import COLUMNS
from trueflops.verify.findings import BusRow, Findings
from trueflops.verify.profiles import best_known
from trueflops.verify.recognise import verify_tables

PUBLISHED = Path(__file__).parents[1] / "truth/published/pcie_collectives.csv"


def judge(folder: Path, *rows: str) -> Findings:
    path = folder / "bus.csv"
    path.write_text("\n".join([",".join((*COLUMNS, "pcie")), *rows]))
    return verify_tables([read_table(path)], best_known)


def test_a_way_through_host_memory_takes_twice_as_long(tmp_path: Path) -> None:
    found = judge(
        tmp_path,
        "RTX 4090,8,no,all_reduce,67108864,8000,4.0 x16",
        "RTX 4090,8,yes,all_reduce,67108864,4000,4.0 x16",
        "RTX 4090,8,yes,all_reduce,67108864,8000,3.0 x16",
    )
    host, peer, slow = (row.predicted for row in found.rows)
    assert host == pytest.approx(2.0 * peer, rel=0.05)
    assert slow == pytest.approx(2.0 * peer, rel=0.05)
    assert found.rows[0].about == BusRow("RTX 4090", 8, "no", "all_reduce", 67108864)
    assert found.rows[0].group == "through host memory, from 16 MiB"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("RTX 4090,,no,all_reduce,1024,9,", "gpus or bytes is empty"),
        ("RTX 4090,2,no,sum,1024,9,", "no collective"),
        ("RTX 9999,2,no,all_reduce,1024,9,", "unknown accelerator"),
        ("RTX 4090,2,no,all_reduce,1024,9,9.0 x16", "unknown link"),
    ],
)
def test_what_cannot_be_predicted_is_refused(row: str, said: str, tmp_path: Path) -> None:
    found = judge(tmp_path, row)
    assert not found.rows
    assert said in found.refused[0].reason


def test_hosts_that_nobody_measured_are_within_their_intervals() -> None:
    found = verify_tables([read_table(PUBLISHED)], best_known)
    assert len(found.rows) == 78
    inside = [row.low <= row.measured <= row.high for row in found.rows]
    assert sum(inside) / len(inside) > 0.8


def test_one_host_is_not_lent_to_another_card_of_the_die() -> None:
    key = CurveKey.parse("collective.all_reduce")
    measured, other = (profile_of(accelerator(name)).curve(key) for name in ("L40S", "L4"))
    assert measured.origin == "measured"
    assert other.origin == "assumed"
    assert other.error > 2.0 * measured.error
