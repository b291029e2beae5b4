"""Rules of how many layers recompute: some of those that a stage has."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trueflops.language import say
from trueflops.plan.asked import Ask, Mask
from trueflops.plan.pieces import layers_of_fullest


def recompute_suits(ask: Ask) -> Mask:
    """Whether the layers that recompute are some of the fullest stage's, or all of any."""
    count = np.asarray(ask.plan.recompute_layers)
    some = (count >= 1) & (count == np.floor(count)) & (count <= _of_a_stage(ask))
    return some | np.isinf(count)


def recompute_advice(ask: Ask) -> str:
    """How many layers a stage has."""
    return say(
        "--recompute-layers {asked:g}: a stage of {model} on pp {pp:g} has {own:g} layers; write a "
        "whole number from 1 to {own:g}, or leave it out for all",
        asked=ask.plan.recompute_layers,
        model=ask.model.name,
        pp=ask.plan.pp,
        own=float(_of_a_stage(ask)),
    )


def _of_a_stage(ask: Ask) -> NDArray[np.float64]:
    p = ask.plan
    pp, pieces = np.asarray(p.pp), np.asarray(p.pieces)
    ends = np.asarray(p.first_stage_layers), np.asarray(p.last_stage_layers)
    return layers_of_fullest(ask.model.layers, pp, pieces, *ends)
