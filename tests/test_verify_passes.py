"""Passes of decoding measured alone, and at which batch drafts stop paying."""

from __future__ import annotations

from pathlib import Path

import pytest

import drafts
from trueflops.errors import BadInput
from trueflops.records.tables import read_table
from trueflops.verify.findings import Findings, PassRow
from trueflops.verify.profiles import best_known
from trueflops.verify.recognise import verify_tables
from trueflops.verify.serving.passes import COLUMNS, network_of
from trueflops.verify.serving.served_model import model_of


def judge(folder: Path, *rows: str) -> Findings:
    path = folder / "passes.csv"
    path.write_text("\n".join([",".join(COLUMNS), *rows]))
    return verify_tables([read_table(path)], best_known)


def test_a_pass_is_its_kernels_alone(tmp_path: Path) -> None:
    found = judge(tmp_path, "h200,Llama-3.1-8B,,1,1024,1,5000", "h200,Llama-3.1-8B,,1,1024,64,7600")
    assert [row.quantity for row in found.rows] == ["pass_seconds"] * 2
    one, many = found.rows
    assert one.about == PassRow("h200", "Llama-3.1-8B", "", 1, 1024, 1)
    weights = 2.0 * model_of("Llama-3.1-8B").parameter_count / 4.8e12
    assert weights < one.predicted < 2.0 * weights
    assert one.low < one.predicted < one.high
    assert one.predicted < many.predicted < 3.0 * one.predicted


def test_a_drafter_is_what_its_method_has_beside_the_model(tmp_path: Path) -> None:
    (row,) = judge(tmp_path, "h200,Llama-3.1-8B,eagle3,1,1024,1,300").rows
    assert row.group == "Llama-3.1-8B eagle3"
    assert row.predicted < 1e-3
    model = model_of("Llama-3.1-8B")
    assert network_of(model, "") is model
    with pytest.raises(BadInput, match="leave drafter empty"):
        network_of(model, "ngram")


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("h200,Llama-3.1-8B,,,1024,1,5000", "tokens or batch is empty"),
        ("h200,Llama-3.1-8B,,1,1024,1,", "is not a time"),
        ("h200,nobody,,1,1024,1,5000", "nobody"),
        ("abacus,Llama-3.1-8B,,1,1024,1,5000", "abacus"),
        ("h200,Llama-3.1-8B,guess,1,1024,1,5000", "guess"),
    ],
)
def test_what_cannot_be_predicted_is_refused(tmp_path: Path, row: str, why: str) -> None:
    (refused,) = judge(tmp_path, row).refused
    assert why in refused.reason


def test_drafts_stop_paying_between_two_batches() -> None:
    falling = {1: 0.5, 4: 0.5, 16: 0.25}
    assert drafts.turning(falling, 1.5) == 1.0
    assert drafts.turning(falling, 2.0 * 2.0**0.5) == pytest.approx(8.0)
    assert drafts.turning(falling, 5.0) == float("inf")


def test_a_round_is_what_predictions_say_it_is() -> None:
    small, head, none = drafts.DRAFTED[:3]
    model = drafts.Network("Llama-3.1-8B")
    assert small.round() == [
        (model, 5, 1.0),
        (drafts.Network("Llama-3.2-1B"), 2, 1.0),
        (drafts.Network("Llama-3.2-1B"), 1, 3.0),
    ]
    assert [tokens for _, tokens, _ in head.round()] == [5, 5, 1]
    assert none.round() == [(model, 5, 1.0)]


def test_the_batch_from_which_drafts_lose_is_told_within_a_factor_of_two() -> None:
    measured, told = drafts.passes_in(drafts.USUAL)
    seen = 0
    for case in drafts.DRAFTED:
        for past in (1024, 4096):
            real, guess = (drafts.speedups(case, past, passes) for passes in (measured, told))
            for accepted in drafts.ACCEPTED:
                batches = [drafts.turning(found, accepted) for found in (real, guess)]
                if max(batches) <= max(real):
                    seen += 1
                    assert 0.5 < batches[1] / batches[0] < 2.0, (case, past, accepted)
    assert seen > 15
