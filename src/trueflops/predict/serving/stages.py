"""A pipeline whose stages hold the layers that they are given, each on a card of its own.

    decode   Σ over stages of what their layers take on their own chip, and the sends between them;
             where k batches are under way, one behind another, no less than k · the slowest stage
    prompts  c chunks:  Σ / c + (c − 1) / c · the slowest stage
With equal cards and equal shares both are what Passes says of such a pipeline.
In: Stages in the order of the model's layers. Out: Passes of the whole model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from itertools import accumulate, pairwise
from typing import Final

import numpy as np

from trueflops.catalog import Cluster, cluster_of
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.predict.costs import Costs, PieceCost, join_pieces
from trueflops.predict.serving.passes import Passes, Remembered, Stage
from trueflops.profile import Engine
from trueflops.runtime import Term, exact, total
from trueflops.sizes import Size
from trueflops.tables import summed

WAITING: Final = "waits for the slowest stage"


@dataclass(frozen=True)
class StagedCosts(Costs):
    """A pass through all stages: each piece as it is on average over them, and stage by stage."""

    each: tuple[Costs, ...]


class StagePasses(Passes):
    """Passes of one stage's layers on its card."""

    def dealt(self, plan: Plan) -> Plan:
        """These layers are one stage's already."""
        return plan.but(pp=1)


class StagedPasses(Passes):
    """Passes of a model through such stages."""

    def __init__(
        self, model: Model, cluster: Cluster, weights: str, cache_bits: float,
        *, stages: Sequence[Stage], engine: Engine, priced: dict[str, Remembered] | None = None,
    ) -> None:  # fmt: skip
        self.stages = tuple(stages)
        # A layer takes the same in whichever stage of such a card.
        self.priced = {stage.chip.name: {} for stage in stages} if priced is None else priced
        first = stages[0]
        super().__init__(
            model, cluster, first.profile, weights, cache_bits,
            engine=engine, remembered=self.priced[first.chip.name],
        )  # fmt: skip
        ends = [0, *accumulate(stage.layers for stage in stages)]
        self._cards = [
            StagePasses(
                replace(model, pattern=model.pattern[first:end]),
                cluster_of(stage.chip),
                stage.profile,
                weights,
                cache_bits,
                engine=engine,
                remembered=self.priced[stage.chip.name],
            )
            for stage, (first, end) in zip(stages, pairwise(ends), strict=True)
        ]

    @property
    def cards(self) -> Sequence[Passes]:
        """Passes of each stage on its own card."""
        return self._cards

    def by_card(self, costs: Costs) -> Sequence[Costs]:
        """What each of them costs."""
        assert isinstance(costs, StagedCosts)  # as `costs` gives them
        return costs.each

    def split(self, layers: Sequence[int]) -> StagedPasses:
        """The same cards with so many layers each; what was priced is kept."""
        stages = [
            replace(stage, layers=count) for stage, count in zip(self.stages, layers, strict=True)
        ]
        return StagedPasses(
            self.model, self.cluster, self.weights.name, self.cache_bits,
            stages=stages, engine=self.engine, priced=self.priced,
        )  # fmt: skip

    def forget(self) -> None:
        """Price everything anew."""
        for passes in self.cards:
            passes.forget()

    def prepare(self, asked: object) -> None:
        """Nothing is priced beforehand: there is one plan, and stages share what they priced."""

    def costs(
        self, plan: Plan, batch: Size, seq: Size, past: Size, *, verifies: bool = False
    ) -> Costs:
        """What the ops of all stages cost."""
        return self._joined(
            [passes.costs(plan, batch, seq, past, verifies=verifies) for passes in self.cards]
        )

    def unpriced(self, plan: Plan, batch: Size, seq: Size, past: Size) -> Costs:
        """What a pass holds on every card, where no time of it is asked."""
        return self._joined([passes.unpriced(plan, batch, seq, past) for passes in self.cards])

    def _joined(self, found: Sequence[Costs]) -> StagedCosts:
        """Those of all stages as those of a pass."""
        each = tuple(self._held(costs, at) for at, costs in enumerate(found))
        blocks = tuple(
            self._on_average(kind, [c.blocks[kind] for c in each]) for kind in range(self._kinds)
        )
        whole = replace(found[0], blocks=blocks, head=found[-1].head)
        return StagedCosts(
            **{field.name: getattr(whole, field.name) for field in fields(Costs)}, each=each
        )

    @property
    def _kinds(self) -> int:
        return len(self.model.blocks)

    def _held(self, costs: Costs, at: int) -> Costs:
        """What one stage runs: the first one the embedding, the last one the head, beside layers.

        A head that shares the embedding's table has a copy of it on another card.
        """
        embedding, head = costs.embedding, costs.head
        if at > 0:
            embedding = embedding.map(lambda size: 0.0 * size)
            head = replace(head, tied_parameters=0.0 * head.tied_parameters)
        if at < len(self.stages) - 1:
            head = head.map(lambda size: 0.0 * size)
        return replace(costs, embedding=embedding, head=head)

    def _on_average(self, kind: int, found: Sequence[PieceCost]) -> PieceCost:
        """A block of one kind, averaged over the stages that hold such."""
        held = [float(passes.model.pattern.count(kind)) for passes in self.cards]
        shares = [count / max(sum(held), 1.0) for count in held]
        return join_pieces(
            found,
            lambda sizes: summed(
                share * size for share, size in zip(shares, sizes, strict=True) if share
            ),
        )

    def slowest_share(self, plan: Plan, batch: Size, seq: Size, past: Size) -> Size:
        """Of the time that all stages take, the slowest one's part."""
        taken = self.taken(self.costs(plan, batch, seq, past), plan, graphs=False)
        return _largest(taken) / summed(taken)

    def computing(
        self, costs: Costs, plan: Plan, *, graphs: bool, issued: Size | None = None,
        busy: Size = 1.0,
    ) -> list[Term]:  # fmt: skip
        """Stage by stage; `busy` is what it is where all take the same time."""
        assert not issued, "a drafter shares no unlike cards"
        taken = self.taken(costs, plan, graphs=graphs, issued=issued)
        under_way = busy * plan.pp
        whole = np.maximum(summed(taken), under_way * _largest(taken))
        found = []
        for at, (passes, own) in enumerate(zip(self.cards, self.by_card(costs), strict=True)):
            working = under_way * taken[at] / whole
            parts = passes.computing(own, plan, graphs=graphs, issued=issued, busy=working)
            found.append(total(self.names[at], *parts))
        waits = np.maximum(under_way * _largest(taken) - summed(taken), 0.0)
        if graphs and np.any(waits):
            found.append(exact(WAITING, waits, "seconds"))
        return found

    @property
    def names(self) -> list[str]:
        """Of the stages' cards, numbered where there are several of a kind."""
        chips = [stage.chip.name for stage in self.stages]
        return [
            name if chips.count(name) == 1 else f"{name} ({chips[: at + 1].count(name)})"
            for at, name in enumerate(chips)
        ]

    def least(self, costs: Costs, plan: Plan, *, graphs: bool) -> Size:
        """Every stage by the physics of its own chip."""
        return summed(
            passes.least(own, passes.dealt(plan), graphs=graphs)
            for passes, own in zip(self.cards, self.by_card(costs), strict=True)
        )


def _largest(sizes: Sequence[Size]) -> Size:
    return reduce(np.maximum, sizes)
