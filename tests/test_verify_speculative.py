"""Published speed-ups by drafts beside their predictions: rows as people publish them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from trueflops.catalog import Accelerator
from trueflops.profile import Profile, from_datasheet
from trueflops.records.tables import read_table
from trueflops.verify.findings import Finding, Findings
from trueflops.verify.recognise import reader_of, verify_tables

# One real row: sgl-project/SpecForge's SpecBundle.
ROW = {
    "id": "a",
    "source": "github.com/sgl-project/SpecForge docs/spec_bundle/public/raw_data @d9952d1",
    "engine": "sglang",
    "engine_version": "",
    "model": "Llama-3.1-8B-Instruct",
    "method": "eagle3",
    "draft_model": "lmsys/sglang-EAGLE3-LLaMA3.1-Instruct-8B",
    "k": "4",
    "accelerator": "H200",
    "n_devices": "",
    "tp": "",
    "dtype": "",
    "batch_or_concurrency": "1",
    "input_len": "",
    "output_len": "",
    "task": "mtbench",
    "accept_len_mean": "2.53",
    "accept_rate": "",
    "tokens_per_s_base": "188.51",
    "tokens_per_s_spec": "356.3",
    "tpot_base_ms": "",
    "tpot_spec_ms": "",
    "speedup": "1.89",
    "notes": "steps=3 topk=1 num_draft_tokens=4",
}
BENCH = ROW | {
    "source": "github.com/hemingkx/Spec-Bench Leaderboard.md",
    "engine": "hf-transformers (Spec-Bench)",
    "model": "lmsys/vicuna-7b-v1.3",
    "method": "ngram",
    "draft_model": "",
    "k": "",
    "accelerator": "A100-80GB",
    "dtype": "fp16",
    "notes": "PLD; greedy; mean of 3 runs; mean accepted tokens is over all tasks",
}


def by_datasheet(chip: Accelerator, framework: str, source: str = "") -> Profile:
    return from_datasheet(chip)


def judge(folder: Path, *rows: dict[str, str]) -> Findings:
    path = folder / "speculative.csv"
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, fieldnames=list(ROW))
        table.writeheader()
        table.writerows(rows)
    return verify_tables([read_table(path)], by_datasheet)


def only(found: Findings) -> Finding:
    assert not found.refused, found.refused
    (row,) = found.rows
    return row


def test_the_table_is_known_by_its_header(tmp_path: Path) -> None:
    judge(tmp_path, ROW)
    reader = reader_of(read_table(tmp_path / "speculative.csv"))
    assert reader is not None
    assert reader.what == "speed-ups by drafts"


def test_a_row_is_predicted_from_its_acceptance(tmp_path: Path) -> None:
    row = only(judge(tmp_path, ROW))
    assert (row.quantity, row.measured, row.scored) == ("speedup", 1.89, True)
    assert row.group.startswith("sgl-project/SpecForge")
    assert row.predicted == pytest.approx(1.89, rel=0.15)
    more = only(judge(tmp_path, ROW | {"accept_len_mean": "3.0"}))
    assert more.predicted == pytest.approx(row.predicted * 3.0 / 2.53)


def test_a_speed_up_follows_from_two_rates(tmp_path: Path) -> None:
    assert only(judge(tmp_path, ROW | {"speedup": ""})).measured == pytest.approx(356.3 / 188.51)
    times = {"tokens_per_s_base": "", "tpot_base_ms": "5.3", "tpot_spec_ms": "2.65"}
    assert only(judge(tmp_path, ROW | times | {"speedup": ""})).measured == pytest.approx(2.0)


def test_longer_chains_and_trees_take_longer(tmp_path: Path) -> None:
    chain = only(judge(tmp_path, ROW)).predicted
    long = {"k": "8", "notes": "steps=7 topk=1 num_draft_tokens=8"}
    tree = {"k": "8", "notes": "steps=7 topk=4 num_draft_tokens=8"}
    longer = only(judge(tmp_path, ROW | long)).predicted
    assert chain > longer > only(judge(tmp_path, ROW | tree)).predicted


def test_a_task_takes_the_acceptance_of_its_run_over_all_tasks(tmp_path: Path) -> None:
    whole = BENCH | {"id": "o", "task": "overall", "accept_len_mean": "1.75", "speedup": "1.66"}
    task = BENCH | {"id": "t", "task": "summarization", "accept_len_mean": "", "speedup": "2.66"}
    overall, summarised = judge(tmp_path, whole, task).rows
    assert summarised.predicted > 1.3 * overall.predicted
    assert only(judge(tmp_path, task)).predicted != summarised.predicted  # by what is known of it


def test_other_bases_and_told_faults_do_not_count(tmp_path: Path) -> None:
    other = only(judge(tmp_path, ROW | {"engine": "sglang vs vllm"}))
    assert (other.about.apart, other.scored) == ("another base", False)
    told = only(judge(tmp_path, ROW | {"source": "https://github.com/vllm-project/vllm/issues/1"}))
    assert (told.about.apart, told.scored) == ("told of a fault", False)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"speedup": "", "tokens_per_s_base": ""}, "nothing without drafts was measured"),
        ({"batch_or_concurrency": "(2nd level)"}, "batch_or_concurrency is not a number"),
        ({"model": ""}, "model is empty"),
        ({"method": "magic"}, "'magic' is not known"),
        ({"accelerator": "Quantum 9"}, "unknown accelerator"),
    ],
)
def test_what_cannot_be_predicted_says_why(
    tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    found = judge(tmp_path, ROW | change)
    assert not found.rows
    assert reason in found.refused[0].reason
