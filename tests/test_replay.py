"""The table of predictions is what the code predicts: no change moves one in silence."""

from __future__ import annotations

import replay


def test_no_prediction_moved_without_its_table() -> None:
    before = replay.read_table(replay.TABLE.read_text())
    moved = replay.moved(before, replay.predictions(replay.questions()))
    assert not moved, "python benchmarks/replay.py --write, and say why:\n" + "\n".join(moved)


def test_a_moved_prediction_is_shown_with_how_far_it_moved() -> None:
    key = ("train A", "step_seconds")
    before = {key: replay.Interval(10.0, 9.0, 11.0)}
    assert replay.moved(before, before) == []
    (line,) = replay.moved(before, {key: replay.Interval(11.0, 9.9, 12.1)})
    assert "+10.00%" in line
    (line,) = replay.moved(before, {key: replay.Interval(10.0, 9.0, 12.1)})
    assert "interval +0.00%, +10.00%" in line
    (line,) = replay.moved(before, {})
    assert "gone" in line
