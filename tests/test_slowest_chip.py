"""A step waits for the slowest chip, of those that their power cap slows down."""

from __future__ import annotations

import numpy as np
import pytest

from trueflops.predict.training.slowest_chip import SCATTER, waiting_for_slowest


@pytest.mark.parametrize("ranks", [8, 64, 1000])
def test_as_late_as_the_slowest_of_so_many(ranks: int) -> None:
    chance = np.random.default_rng(7)
    slowest = chance.standard_normal((2000, ranks)).max(axis=1).mean() * SCATTER
    assert float(waiting_for_slowest(ranks, 1.0, 1.0)) == pytest.approx(slowest, rel=0.08)


def test_more_ranks_wait_longer_and_one_for_nobody() -> None:
    late = np.asarray(waiting_for_slowest(np.array([1, 2, 8, 64, 512, 4096]), 10.0, 10.0))
    assert late[0] == 0.0
    assert np.all(np.diff(late) > 0.0)


def test_chips_below_their_cap_run_alike() -> None:
    assert waiting_for_slowest(1024, 10.0, 0.0) == 0.0
    assert waiting_for_slowest(1024, 10.0, 0.01) == 0.01  # some of them are
