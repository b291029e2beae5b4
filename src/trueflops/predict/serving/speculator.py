"""Speculative decoding: steps that verify drafts, and what they gain.

In: Passes of a model and a Speculation. Out: Terms of a step and of a token.
    step     = verification of drafted + 1 tokens a request + drafting passes + what the engine adds
    speed-up = decode step · tokens a step / step
The verification reads the cache once, its products have (drafted + 1) rows a request, and more
tokens touch more experts: at a batch where that fills the chip, the gain is gone.
"""

from __future__ import annotations

from dataclasses import replace
from math import hypot
from typing import Final, NamedTuple

from trueflops.plan import Plan, serving_plan
from trueflops.predict.costs import Costs
from trueflops.predict.serving.passes import Passes, summed_over
from trueflops.predict.serving.speculation import Speculation
from trueflops.profile.speculation import engine_costs
from trueflops.runtime import Estimate, Term, leaf, total

LARGEST_BATCH: Final = 4096  # where the search for the batch without gain ends
CHAINS: Final = (1, 2, 3, 4, 5, 6, 7, 8)  # drafted tokens among which the best is sought
OWN_ERROR: Final = 0.15  # of a step with drafts over one without: by rows of two large boards
HOST_ERROR: Final = 0.35  # of one whose drafts wait for the host: hosts differ threefold
TAKEN_IN: Final = 2.0  # tokens that a draft model has not seen: its last draft, and the model's own


class Gain(NamedTuple):
    """What a chain of so many drafted tokens gives."""

    drafted: int
    tokens: float  # a step
    speedup: Estimate


class Outlook(NamedTuple):
    """What other lengths give at the same load, and from which batch on nothing is gained."""

    lengths: list[Gain]
    no_gain_from: int | None
    tried: int  # the largest batch that was looked at

    @property
    def best(self) -> Gain | None:
        """The length with the largest gain; None where acceptance is known of one alone."""
        return max(self.lengths, key=lambda gain: float(gain.speedup.value), default=None)


class _DraftingPass(NamedTuple):
    name: str
    costs: Costs
    times: float


class Speculator:
    """Steps of one model on one cluster, by one engine, under one way of drafting."""

    def __init__(self, passes: Passes, engine: str, speculation: Speculation) -> None:
        self.passes, self.engine, self.speculation = passes, engine, speculation
        self.added = engine_costs(engine)
        self.drafting: Passes | None = None
        if speculation.drafter is not None:
            # A module of the model is stored as the model is; drafters of one's own in 16 bits.
            own = speculation.method.drafter == "module"
            weights = passes.weights.name if own else "bf16"
            self.drafting = Passes(
                speculation.drafter,
                passes.cluster,
                passes.profile,
                weights,
                passes.cache_bits,
                engine=passes.engine,
            )

    def plain(self, plan: Plan, batch: float, past: float) -> Term:
        """A decode step without drafts."""
        return self._model_pass("decode step", plan, batch, 1, past)

    def step(self, plan: Plan, batch: float, past: float) -> Term:
        """A step that verifies what was drafted, and drafts anew."""
        s, law = self.speculation, self.passes.profile.curve("framework")
        verified = self._model_pass("verification", plan, batch, s.drafted + 1, past)
        parts = [verified, *self._drafts(plan, batch, past)]
        passes = 0 if self.drafting is None else 1 if s.method.drafter == "heads" else s.passes
        added = self.added.step + passes * self.added.per_pass + self.added.tree * s.tree
        parts.append(leaf("sampling and host", added, law, "framework"))
        return total("speculative step", *parts, least=verified.least)

    def token(self, plan: Plan, batch: float, past: float) -> Term:
        """The share of a step that one token of a request has."""
        s = self.speculation
        error = hypot(OWN_ERROR, HOST_ERROR * self.waits_for_host, s.acceptance.error(s.method))
        shared = self.step(plan, batch, past).scaled(1.0 / s.tokens(past))
        return replace(shared, name="step, a token", cause="acceptance", spread=error)

    def speedup(self, plan: Plan, batch: float, past: float) -> Estimate:
        """Tokens per second with drafts over those without, prompts aside.

        Where the engine runs fewer requests at once with drafts, the others wait meanwhile.
        """
        running = min(batch, float(self.passes.engine.most_drafting) or batch)
        plain = replace(self.plain(plan, batch, past), least=0.0)
        token = replace(self.token(plan, running, past), least=0.0)
        return plain.estimate.over(token.estimate).times(running / batch)

    @property
    def waits_for_host(self) -> bool:
        """Whether passes of a draft model are issued layer by layer."""
        return self.speculation.method.drafter == "model" and self.added.layer > 0.0

    def joules(self, plan: Plan, batch: float, past: float) -> float:
        """Of one accelerator at full clock, for a token of every request."""
        s = self.speculation
        spent = summed_over(
            self._model_costs(plan, batch, s.drafted + 1, past), self.passes.model, "joules"
        )
        if self.drafting is not None:
            for each in self._draft_costs(self.drafting, self.draft_plan(plan), batch, past):
                spent += each.times * summed_over(each.costs, self.drafting.model, "joules")
        return float(spent / s.tokens(past))

    def drafter_bytes(self, plan: Plan) -> float:
        """Of the drafter's weights, on one accelerator."""
        if self.drafting is None:
            return 0.0
        costs = self.drafting.costs(self.draft_plan(plan), 1.0, 1.0, 1.0)
        if self.speculation.method.drafter == "heads":
            return float(costs.head.weight_bytes)
        pieces = costs.pieces(self.drafting.model)
        held = sum(float(times * piece.weight_bytes) for piece, times in pieces)
        # Embedding and, of a module, the head are the model's own.
        shared = float(costs.embedding.weight_bytes)
        if self.speculation.method.drafter == "module":
            shared += float(costs.head.weight_bytes)
        return held - (0.0 if self.speculation.method.drafter == "model" else shared)

    def outlook(self, plan: Plan, batch: float, past: float, most: int) -> Outlook:
        """Beyond this load and this length, up to as many requests as a replica can hold."""
        tried = min(max(most, round(batch)), LARGEST_BATCH)
        lengths = self.by_length(plan, batch, past)
        return Outlook(lengths, self.batch_without_gain(plan, past, tried), tried)

    def batch_without_gain(self, plan: Plan, past: float, most: int = LARGEST_BATCH) -> int | None:
        """The smallest batch of one replica at which drafts no longer pay; None: they always do.

        Of a mixture's experts all are touched from some batch on: there drafts may pay again.
        """

        def loses(batch: int) -> bool:
            return float(self.speedup(plan, float(batch), past).value) < 1.0

        low, high = 0, 1
        while not loses(high):
            if high >= most:
                return None
            low, high = high, min(2 * high, most)
        while high - low > max(1, high // 32):
            middle = (low + high) // 2
            low, high = (low, middle) if loses(middle) else (middle, high)
        return high

    def by_length(self, plan: Plan, batch: float, past: float) -> list[Gain]:
        """What chains of other lengths give; empty where acceptance does not follow from that."""
        s = self.speculation
        if s.acceptance.length or s.tree or s.method.drafter == "heads":
            return []
        others = [Speculator(self.passes, self.engine, s.drafting(k)) for k in CHAINS]
        return [
            Gain(o.speculation.drafted, o.speculation.tokens(past), o.speedup(plan, batch, past))
            for o in others
        ]

    def _model_pass(self, name: str, plan: Plan, batch: float, tokens: int, past: float) -> Term:
        costs = self._model_costs(plan, batch, tokens, past)
        issued = self._issued(self.passes, costs, drafts=False)
        return self.passes.time(
            name, costs, plan, graphs=self.added.graphs, tokens=round(batch), issued=issued
        )

    def _issued(self, passes: Passes, costs: Costs, *, drafts: bool) -> float:
        """Seconds that the host needs for a pass.

        It issues a head's or a module's few layers while the model still verifies; a draft model's
        passes are too many for that.
        """
        if not self.added.graphs:
            return self.added.host * float(summed_over(costs, passes.model, "host"))
        cut = drafts and self.waits_for_host
        return self.added.layer * passes.model.layers if cut else 0.0

    def _model_costs(self, plan: Plan, batch: float, tokens: int, past: float) -> Costs:
        """An engine without graphs runs PyTorch's functions one by one."""
        own = plan if self.added.graphs else replace(plan, implementation="eager")
        return self.passes.costs(own, batch, float(tokens), past, verifies=True)

    def _drafts(self, plan: Plan, batch: float, past: float) -> list[Term]:
        drafting = self.drafting
        if drafting is None:
            return []
        own = self.draft_plan(plan)
        if self.speculation.method.drafter == "heads":
            costs = drafting.costs(own, batch, 1.0, past, verifies=True)
            seconds = sum(float(each) for each in costs.head.seconds.values())
            return [leaf("drafting heads", seconds, self.passes.profile.curve("matmul"), "matmul")]
        terms = []
        for name, costs, times in self._draft_costs(drafting, own, batch, past):
            issued = self._issued(drafting, costs, drafts=True)
            graphs = self.added.graphs
            terms.append(
                drafting.time(name, costs, own, graphs=graphs, issued=issued).scaled(times)
            )
        return terms

    def _draft_costs(
        self, drafting: Passes, own: Plan, batch: float, past: float
    ) -> list[_DraftingPass]:
        """The first pass takes in what was accepted, each later one the drafts before.

        Captured graphs are padded to what may be accepted at most.
        """
        s = self.speculation
        taken = TAKEN_IN if s.method.drafter == "model" else s.depth + 1.0
        first = drafting.costs(own, batch, taken, past, verifies=True)
        parts = [_DraftingPass("first drafting pass", first, 1.0)]
        if s.passes > 1:
            later = drafting.costs(own, batch, float(s.branches), past, verifies=True)
            parts.append(_DraftingPass("later drafting passes", later, s.passes - 1.0))
        return parts

    def draft_plan(self, plan: Plan) -> Plan:
        """A drafter is split as the model is, and lies on the last stage of a pipeline."""
        assert self.drafting is not None
        own = plan
        if self.speculation.method.drafter != "module":
            own = serving_plan(self.drafting.model, self.drafting.dtype, tp=int(plan.tp))
        return replace(own, pp=1, implementation="library" if self.added.graphs else "eager")
