"""Which pipeline schedules suit a plan, and whether its tokens may travel beside compute."""

from __future__ import annotations

import numpy as np

from trueflops.language import say
from trueflops.plan.asked import Ask, Mask


def schedule_suits(ask: Ask) -> Mask:
    """Whether stages, pieces and micro-batches are what the schedule was drawn for."""
    p = ask.plan
    pp, whole = np.asarray(p.pp), np.asarray(p.vpp) == 1
    if p.schedule != "dualpipe":
        return whole | (p.schedule == "1f1b")
    enough: Mask = True
    if ask.training is not None:
        m = np.asarray(p.micro_batches(ask.training.global_batch))
        enough = (m >= 2 * pp) & (m % 2 == 0)
    return whole & (pp % 2 == 0) & enough


def pairs_suit(ask: Ask) -> Mask:
    """What megatron-core asserts (transformer_config.py, __post_init__); without experts that are
    spread nothing travels.
    """
    p = ask.plan
    if not p.overlap_dispatch:
        return True
    inside = (np.asarray(p.pp) == 1) | (np.asarray(p.vpp) > 1)
    return (np.asarray(p.ep) == 1) | (inside & (p.schedule == "1f1b"))


def what_it_needs(schedule: str) -> str:
    """The same as advice."""
    if schedule == "dualpipe":
        return say("vpp 1, an even pp and an even number of at least 2·pp micro-batches")
    return say("vpp 1") + (
        say(", as it has two pieces a rank by itself") if schedule == "zb-v" else ""
    )
