"""Stages of a pipeline that are captured side by side and replayed together."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest

import trueflops as tf
from trueflops.cli import main
from trueflops.runtime.replay import Issue, Score, Timeline, Wait, replay, replay_together

CLUSTER = tf.cluster("4xH200")
CLOCK = tf.Clock(CLUSTER, tf.profile_of(CLUSTER.accelerator))
LAW = CLOCK.host.law
TOLERANCE = 50e-6  # launches and gaps of a few kernels
STAGES, MICRO_BATCHES = 4, 8


def kernel(seconds: float) -> Any:
    return SimpleNamespace(seconds=seconds, clocked=False)


def together(ranks: dict[int, list[Issue[Any]]]) -> dict[int, Timeline[Any]]:
    scores = {rank: Score(issues, 0.0) for rank, issues in ranks.items()}
    return replay_together(scores, LAW, CLOCK.power, one_thread=False)


def sends(seconds: float, route: tuple[int, int], number: int, at: int) -> list[Issue[Any]]:
    """A message on a stream of its own, after all before it; the main stream waits for it."""
    meets = ("message", route, number)
    return [
        Issue(wait=Wait(100, 0, at)),
        Issue(kernels=[kernel(seconds)], stream=100, meets=meets),
        Issue(wait=Wait(0, 100, at + 2)),
    ]


def stage(place: int, stages: int, batches: int, seconds: float) -> list[Issue[Any]]:
    """GPipe's forward and backward of one stage, each micro-batch of which takes so long."""
    found: list[Issue[Any]] = []
    for ahead in (True, False):
        before, after = (place - 1, place + 1) if ahead else (place + 1, place - 1)
        for number in range(batches):
            if 0 <= before < stages:
                found += sends(0.0, (before, place), number, len(found))
            found.append(Issue(kernels=[kernel(seconds)]))
            if 0 <= after < stages:
                found += sends(0.0, (place, after), number, len(found))
    return found


@pytest.mark.parametrize(("stages", "batches"), [(2, 1), (4, 8), (8, 4)])
def test_the_bubble_is_what_theory_says(stages: int, batches: int) -> None:
    """GPipe: (stages − 1) / micro-batches of the time that a stage computes (Huang et al. 2019)."""
    each = 1e-3
    found = together({place: stage(place, stages, batches, each) for place in range(stages)})
    for place, timeline in found.items():
        waited = sum(p.waited for p in timeline.placed)
        assert timeline.end <= 2 * each * (batches + stages - 1) + TOLERANCE * stages
        if place > 0:  # the first stage waits only where the backward turns
            assert waited >= each * place
    longest = max(timeline.end for timeline in found.values())
    assert longest == pytest.approx(2 * each * (batches + stages - 1), rel=0.02)


def test_a_rank_alone_is_replayed_as_before() -> None:
    issues = stage(0, 1, 4, 1e-3)
    alone = replay(issues, LAW, CLOCK.power, 0.0, one_thread=False)
    assert together({3: issues})[3].end == alone.end
    assert not any(p.waited for p in alone.placed)


def test_a_collective_begins_when_the_last_has_come() -> None:
    def rank(seconds: float) -> list[Issue[Any]]:
        met = Issue(kernels=[kernel(1e-4)], meets="all_reduce")
        return [Issue(kernels=[kernel(seconds)]), met]

    found = together({0: rank(1e-3), 1: rank(5e-3)})
    assert found[0].end == pytest.approx(found[1].end)
    assert found[0].placed[1].waited == pytest.approx(4e-3, abs=TOLERANCE)
    assert found[1].placed[1].waited == 0.0


def test_ranks_that_wait_for_one_another_go_on() -> None:
    def rank(first: str, second: str) -> list[Issue[Any]]:
        return [Issue(kernels=[kernel(1e-3)], meets=name) for name in (first, second)]

    found = together({0: rank("a", "b"), 1: rank("b", "a")})
    assert all(len(timeline.placed) == 2 for timeline in found.values())


SCRIPT = """
    import sys
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    if __name__ == "__main__":
        dist.init_process_group("nccl")
        place, stages, batches = dist.get_rank(), dist.get_world_size(), int(sys.argv[1])
        layers = [nn.Linear(4096, 4096) for _ in range(4 if place == 2 else 2)]
        part = nn.Sequential(*layers).cuda().bfloat16()
        stage = PipelineStage(part, place, stages, torch.device("cuda"))
        schedule = Schedule1F1B(stage, batches, loss_fn=nn.functional.mse_loss)
        optimizer = torch.optim.AdamW(part.parameters(), fused=True)
        x = torch.randn(batches * 8192, 4096, device="cuda", dtype=torch.bfloat16)
        for _ in range(5):
            inputs = [x] if place == 0 else []
            targets = {"target": x} if place == stages - 1 else {}
            schedule.step(*inputs, **targets)
            optimizer.step()
            optimizer.zero_grad()
"""


def test_a_pipeline_is_captured_stage_by_stage_and_replayed_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "train.py"
    file.write_text(dedent(SCRIPT))
    asked = ["capture", "--on", f"{STAGES}xH100", "--pipeline", "--json", str(file)]
    assert main([*asked, "--", str(MICRO_BATCHES)]) == 0
    answer = json.loads(capsys.readouterr().out)
    ranks = {each["rank"]: each for each in answer["pipeline"]["ranks"]}
    assert sorted(ranks) == list(range(STAGES))
    assert answer["pipeline"]["slowest_rank"] == 2  # it has twice as many layers
    slow = ranks[2]["device_busy_seconds"]
    assert answer["pipeline"]["seconds"] > slow
    for rank in (0, 1, 3):
        # The others wait at least for what the slowest computes beyond their own.
        assert ranks[rank]["bubble_seconds"] > 0.9 * (slow - ranks[rank]["device_busy_seconds"])
    assert answer["step"]["parts"]
    assert "pipeline bubble" in {part["name"] for part in answer["step"]["parts"]}


def test_a_program_without_messages_has_one_stage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "train.py"
    text = """
        import torch
        def build():
            model = torch.nn.Linear(64, 64).cuda()
            return lambda: model(torch.randn(8, 64, device="cuda")).sum().backward()
    """
    file.write_text(dedent(text))
    assert main(["capture", "--on", "H100", "--pipeline", f"{file}:build"]) == 0
    assert "no stage waits for another" in " ".join(capsys.readouterr().out.split())
