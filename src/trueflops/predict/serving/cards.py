"""What accelerators draw while they serve, and what each card of an unlike pipeline does.

In: Passes and what they cost. Out: watts of the cluster, and a StagePoint for every card.
"""

from __future__ import annotations

from collections.abc import Sequence

from trueflops.catalog import weakest
from trueflops.plan import Plan
from trueflops.predict.costs import Costs
from trueflops.predict.money.bill import cluster_watts
from trueflops.predict.serving.memory import ServerMemory
from trueflops.predict.serving.passes import Passes, summed_over
from trueflops.predict.serving.point import StagePoint
from trueflops.runtime import Estimate


def serving_watts(
    passes: Passes, plan: Plan, costs: tuple[Costs, Costs], often: tuple[float, float],
    taken: Estimate, *, pue: float, drafting: float | None = None,
) -> Estimate | None:  # fmt: skip
    """Of the cluster while requests are read and written.

    `costs` are those of reading one prompt and of writing tokens, which a replica does so `often`;
    `drafting` are the joules of such a step with drafts.
    """
    each = []
    for card, *own in zip(passes.cards, *map(passes.by_card, costs), strict=True):
        joules = _joules(card, own, often, drafting) / float(card.dealt(plan).pp)
        each.append(cluster_watts(card.cluster, card.profile, joules, 1.0, taken, pue))
    return each[0] if len(each) == 1 else _together(each)


def _joules(
    passes: Passes, costs: Sequence[Costs], often: tuple[float, float], drafting: float | None
) -> float:
    """Of all layers of these passes."""
    reading, writing = (float(summed_over(each, passes.model, "joules")) for each in costs)
    return often[0] * reading + often[1] * (writing if drafting is None else drafting)


def _together(each: Sequence[Estimate | None]) -> Estimate | None:
    """The power of all; None where that of one is not known."""
    known = [watts for watts in each if watts is not None]
    if len(known) < len(each):
        return None
    whole = sum(float(watts.value) for watts in known)
    causes = dict.fromkeys(cause for watts in known for cause in watts.spreads)
    spreads = {
        cause: sum(float(w.value * w.spreads.get(cause, 0.0)) for w in known) / whole
        for cause in causes
    }
    return Estimate(whole, spreads, weakest([watts.origin for watts in known]))


def stage_points(
    passes: Passes, memory: ServerMemory, plan: Plan, costs: tuple[Costs, Costs], batch: int
) -> tuple[StagePoint, ...]:
    """What each card holds and takes; none where all accelerators are alike."""
    if not passes.stages:
        return ()
    reading, writing = costs
    written = passes.taken(writing, plan, graphs=True)
    read = passes.taken(reading, plan, graphs=False)
    held = zip(memory.cards, passes.by_card(reading), strict=True)
    return tuple(
        StagePoint(
            stage.chip,
            stage.layers,
            card.of(plan, own, batch)[0],
            card.capacity(plan),
            decode_seconds=float(written[at]),
            prefill_seconds=float(read[at]),
        )
        for at, (stage, (card, own)) in enumerate(zip(passes.stages, held, strict=True))
    )
