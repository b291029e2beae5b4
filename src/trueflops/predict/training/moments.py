"""Memory of every pipeline stage on one accelerator, part by part, at the step's fullest moment.

In: Costs, a Plan, the Stages, Held. Out: Stored, a Term [stage, plan] whose parts sum, and what the
allocator keeps beside. Activations, what differentiation keeps of the micro-batches in flight,
shrink from block to block as evenly as gradients grow, so the fullest moment is at an end: the
loss, the first or the last block's backward, the embedding's, the optimizer's step, or where a
bucket of gradients is full. What is held beside activations is the framework's (held/).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property, reduce
from typing import Any, Final

import numpy as np

from trueflops.graph.liveness import Live
from trueflops.plan import BYTES, Plan
from trueflops.predict.costs import Costs
from trueflops.predict.training.foreach import updates_by_lists
from trueflops.predict.training.held import (
    Backward,
    Holding,
    Keeper,
    Rank,
    adafactor_of,
    blockwise_of,
    keeper_of,
)
from trueflops.predict.training.memory import Held
from trueflops.predict.training.schedule import in_flight, weight_copies
from trueflops.predict.training.stages import Stages
from trueflops.predict.training.staying import copies_that_stay, inputs_that_stay
from trueflops.profile import Curve, Profile
from trueflops.runtime.terms import Term, exact, leaf, total
from trueflops.sizes import Size, weighs
from trueflops.tables import where_largest

FULLEST: Final = "fullest stage"
HANDLES: Final = 2.0
"""Forward and backward run in two threads of the host, each with a handle of the library of
products and its workspace (aten/src/ATen/cuda/CublasHandlePool.cpp)."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Bytes alive at one moment of a step, [stage, plan]."""

    activations: Size = 0.0  # of blocks that wait for their backward
    logits: Size = 0.0  # of the head
    working: Size = 0.0  # of the piece at work, beside what it keeps
    held: Holding

    @property
    def total(self) -> Size:
        """All of them."""
        h = self.held
        beside = h.weights + h.gradients + h.states + h.buffers
        return self.activations + self.logits + self.working + beside


@dataclass(frozen=True)
class Stored:
    """Memory of every stage, and what PyTorch's allocator keeps of other moments, [stage, plan]."""

    memory: Term
    cached: Size  # bytes

    def where_fullest(self) -> tuple[Term, Size]:
        """Both of the stage whose memory is largest, plan by plan."""
        return self.fullest, self._chosen(self.cached)

    @property
    def fullest(self) -> Term:
        """The memory of that stage."""
        return self.memory.where(self._chosen)

    @cached_property
    def _chosen(self) -> Callable[[Size], Size]:
        return where_largest(self.memory.value, FULLEST)


def stage_memory(
    costs: Costs,
    plan: Plan,
    stages: Stages,
    held: Held,
    micro_batches: Size,
    profile: Profile,
    workspace_bytes: float = 0.0,
    per_node: int = 1,
) -> Stored:
    """Everything one accelerator of each stage holds at its fullest moment."""
    law, tensors = profile.curve("allocator"), profile.curve("activations")
    by_lists = updates_by_lists(profile, plan)
    keeper = keeper_of(profile)
    rank = Rank(
        plan=plan, parameters=held, micro_batches=micro_batches, by_lists=by_lists,
        adafactor=adafactor_of(profile, plan), blockwise=blockwise_of(profile, plan),
    )  # fmt: skip
    stay = inputs_that_stay(costs, plan, stages, profile)
    copies = copies_that_stay(costs, plan, stages, profile)
    rank = replace(rank, parameters=replace(held, kept_bytes=held.kept_bytes + copies))
    stage = _Stage(costs, plan, stages, rank, keeper, stay)
    standing = keeper.standing(rank)
    moments = list(stage.moments())
    peak = _fullest(moments)
    all_held = standing + peak.held + _frozen(plan, held)
    passing = peak.activations + peak.working + peak.logits + all_held.buffers
    memory = total(
        "memory",
        exact("weights", all_held.weights, "bytes"),
        exact("gradients", all_held.gradients, "bytes"),
        exact("optimizer states", all_held.states, "bytes"),
        leaf("activations", peak.activations, tensors, "activations", "bytes"),
        leaf("logits and loss", peak.logits, tensors, "activations", "bytes"),
        leaf("working tensors", peak.working, tensors, "activations", "bytes"),
        leaf("communication buffers", all_held.buffers, law, "allocator", "bytes"),
        leaf("library workspaces", HANDLES * workspace_bytes, law, "allocator", "bytes"),
        leaf("allocator slack", passing * law["slack"], law, "allocator", "bytes"),
        leaf("communicators", _communicators(plan, law, per_node), law, "allocator", "bytes"),
        leaf("context", law["context"], law, "allocator", "bytes"),
        unit="bytes",
        cause="allocator",
        spread=law["whole"],
    )
    # What comes and goes, as above, and what other moments need more of.
    kept = law["cached"] * passing + law["unshared"] * _apart(moments, peak)
    return Stored(memory, np.maximum(kept - passing * law["slack"], 0.0))


def _apart(moments: list[Moment], peak: Moment) -> Size:
    """By how much the kinds' own maxima, each at its moment, exceed the maximum of their sum.

    Blocks that were cut for one kind, or on another stream, seldom suit another kind: what the
    forward left in the cache, the optimizer's step asks the device for once more.
    """
    each: Size = 0.0
    for of in zip(*(_kinds(moment) for moment in moments), strict=True):
        each = each + reduce(np.maximum, of)
    return np.maximum(each - sum(_kinds(peak)), 0.0)


def _kinds(moment: Moment) -> tuple[Size, ...]:
    """What comes and goes at a moment, by what it is for."""
    held = moment.held
    return moment.activations + moment.working, moment.logits, held.gradients, held.buffers


def _communicators(plan: Plan, law: Curve, per_node: int) -> Size:
    """NCCL's kernels and buffers: one communicator for every degree above 1, those that the
    framework makes anyway, and a connection to every further rank of a node that takes part in
    all-to-alls (a ring has one).
    """
    groups: Size = law["communicators"]
    # Of a framework's own one is that of data-parallel ranks.
    for degree in (
        plan.tp,
        plan.cp,
        plan.pp,
        plan.ep,
        *(() if law["communicators"] else (plan.dp,)),
    ):
        groups = groups + np.where(degree > 1, 1.0, 0.0)
    direct = plan.dispatch == "all-to-all"
    near = np.minimum(plan.ep, np.maximum(per_node // plan.tp, 1.0))
    peers = np.maximum(near - 2.0, 0.0) * direct
    kernels = np.where(groups > 0.0, law["collectives"], 0.0)
    return kernels + groups * law["communicator"] + peers * law["connection"]


def _frozen(plan: Plan, held: Held) -> Holding:
    """Weights that are not trained: those of this rank and, where they are divided or kept outside,
    two pieces at a time that are gathered here, the one at work and the next.
    """
    if not np.any(held.frozen):
        return Holding()
    stored, pieces = held.own_frozen_bytes, 2.0 * held.frozen_largest_bytes
    # What is divided is gathered where it is at work, and counted there.
    here = np.where(plan.zero >= 3, 0.0, np.minimum(pieces, stored)) * plan.offload_parameters
    return Holding(
        weights=(stored * (1.0 - plan.offload_parameters) + here) * weight_copies(plan),
        buffers=np.where(plan.zero >= 3, pieces, 0.0),
    )


def _fullest(moments: list[Moment]) -> Moment:
    """The largest of them, stage by stage and plan by plan."""
    best, most = moments[0], moments[0].total
    for moment in moments[1:]:
        size = moment.total
        more = size > most
        if not np.any(more):
            continue
        most = np.where(more, size, most)
        best = Moment(
            activations=_either(more, moment.activations, best.activations),
            logits=_either(more, moment.logits, best.logits),
            working=_either(more, moment.working, best.working),
            held=Holding(
                *(
                    _either(more, getattr(moment.held, f.name), getattr(best.held, f.name))
                    for f in fields(Holding)
                )
            ),
        )
    return best


def _either(condition: Any, yes: Size, no: Size) -> Size:
    """One where the condition holds, else the other; where they are one, that."""
    same = yes is no or not (weighs(yes) or weighs(no))
    return yes if same else np.where(condition, yes, no)


class _Stage:
    """The moments of a step that can be the fullest, in their order."""

    def __init__(
        self, costs: Costs, plan: Plan, stages: Stages, rank: Rank, keeper: Keeper, stay: Size
    ) -> None:
        self.costs, self.plan, self.stages = costs, plan, stages
        self.rank, self.keeper = rank, keeper
        self.held = rank.parameters
        here = 1.0 - plan.offload_activations
        self.flying = in_flight(plan, stages.index, rank.micro_batches)
        kept = self.held.kept_bytes * here
        # Narrow copies of weights that autocast made live until the backward of their product;
        # those of a block that runs again only until the forward ends, with autocast's cache.
        cast = BYTES["bf16"] if plan.autocasts and keeper.casts else 0.0
        blocks = self.held.all - self.held.embedding - self.held.head
        lasting = self.held.head + blocks * (1.0 - stages.recomputed)
        self.cast = cast
        self.dropped_casts = (blocks + self.held.head - lasting) * cast
        self.whole = kept * self.flying + lasting * cast
        # Other micro-batches, and what stays of this one until its backward ends.
        self.others = kept * (self.flying - 1.0) + stay

    def moments(self) -> Iterator[Moment]:
        """All of them."""
        yield from self._head()
        for kind in range(len(self.costs.blocks)):
            yield from self._block(kind)
        yield from self._embedding()
        yield Moment(held=self.keeper.step(self.rank))

    def _head(self) -> Iterator[Moment]:
        live, here = torch_loss(self.costs, self.plan, self.keeper), self.stages.has_last
        losses = here * self.stages.heads  # each keeps its own logits
        yield Moment(
            activations=self.whole,
            logits=losses * live.forward,
            working=self.dropped_casts,
            held=self.keeper.forward(self.rank, 0.0 * here),
        )
        for alive, made, opened in backward_moments(live):
            at = self._at(made=0.0, fresh=here * made, opened=here * opened, block=0.0 * here)
            yield Moment(
                activations=self.whole,
                logits=losses * alive,
                held=self.keeper.backward(self.rank, at),
            )

    def _block(self, kind: int) -> Iterator[Moment]:
        costs, stages = self.costs, self.stages
        there = np.where(stages.layers[kind] > 0.0, 1.0, 0.0)
        piece = costs.blocks[kind]
        unit = there * (piece.dense_parameters + piece.expert_parameters)
        again = stages.recomputed
        some, all_again = again > 0.0, again >= 1.0
        # Layers recompute from the first on: the last, whose backward comes first, may not.
        first = _chosen(all_again, costs.live[kind], costs.live_whole[kind])
        first_kept = np.where(all_again, piece.kept_bytes, costs.kept_whole[kind])
        last = _chosen(some, costs.live[kind], costs.live_whole[kind])
        last_kept = np.where(some, piece.kept_bytes, costs.kept_whole[kind])
        casts = unit * self.cast
        yield Moment(
            activations=self.whole,
            working=there * (first.forward - first_kept),
            held=self.keeper.forward(self.rank, unit),
        )
        before = self.held.head
        yield from self._backward(
            first, there, unit, made=before, first=True,
            activations=self.whole - there * first_kept - self.held.head * self.cast,
            casts=np.where(all_again, casts, 0.0),
        )  # fmt: skip
        left = self.held.all - self.held.embedding - unit
        if self.keeper.looks_ahead:  # then the second and the last but one are fuller
            more = there * np.where(stages.all_layers > 1.0, 1.0, 0.0)
            yield from self._backward(
                first, more, unit * more, made=before + unit, first=False,
                activations=self.whole - 2.0 * there * first_kept - self.held.head * self.cast,
                casts=0.0 * unit,
            )  # fmt: skip
            yield from self._backward(
                last, more, unit * more, made=left - unit, first=False,
                activations=self.others + more * last_kept, casts=casts,
            )  # fmt: skip
        yield from self._backward(
            last, there, unit, made=left, first=False, activations=self.others, casts=casts
        )
        yield from self._full_bucket(last, there, np.maximum(last.opening - last_kept, 0.0))

    def _backward(
        self, live: Live, there: Size, unit: Size, *, made: Size, first: bool, activations: Size,
        casts: Size,
    ) -> Iterator[Moment]:  # fmt: skip
        for alive, fresh, opened in backward_moments(live):
            at = self._at(
                made=made, fresh=there * fresh, opened=there * opened, block=unit, first=first
            )
            yield Moment(
                activations=activations,
                working=there * alive + casts,
                held=self.keeper.backward(self.rank, at),
            )
        at = self._at(made=made, fresh=unit, opened=0.0, block=unit, first=first)
        yield Moment(
            activations=activations,
            working=there * self.costs.boundary_bytes,
            held=self.keeper.reduced(self.rank, at),
        )

    def _full_bucket(self, live: Live, there: Size, working: Size) -> Iterator[Moment]:
        """Where gradients fill a bucket somewhere among the blocks."""
        bucket = self.keeper.bucket(self.rank)
        if bucket is None:
            return
        blocks = np.maximum(self.held.all - self.held.embedding - self.held.head, 1.0)
        done = np.clip(bucket - self.held.head, 0.0, blocks)
        at = self._at(
            made=self.held.head + done, fresh=0.0, opened=there * live.opened, block=0.0 * there
        )
        yield Moment(
            activations=self.others + (self.whole - self.others) * (1.0 - done / blocks),
            working=there * working,
            held=self.keeper.reduced(self.rank, at),
        )

    def _embedding(self) -> Iterator[Moment]:
        live, here, own = self.costs.live_embedding, self.stages.has_first, self.held.embedding
        at = self._at(made=self.held.all - own, fresh=own, opened=own, block=0.0 * own)
        for held in (
            self.keeper.backward(self.rank, at),
            self.keeper.reduced(self.rank, replace(at, opened=0.0 * own)),
        ):
            yield Moment(activations=self.others, working=here * live.backward, held=held)

    def _at(
        self, *, made: Size, fresh: Size, opened: Size, block: Size, first: bool = False
    ) -> Backward:
        left = self.held.all - made
        return Backward(made=made, fresh=fresh, opened=opened, block=block, left=left, first=first)


def torch_loss(costs: Costs, plan: Plan, keeper: Keeper) -> Live:
    """The head; F.cross_entropy of wide logits holds these, narrow and wide, and their log-softmax
    in the forward, and in the backward that, its gradient and theirs, all fp32
    (torch/nn/functional.py; derivatives.yaml: nll_loss, _log_softmax). Of logits that nobody lifts
    all are as narrow, and there is no copy.
    """
    live, wide = costs.live_head, costs.wide_logits_bytes
    if plan.loss == "chunked":
        # As many logits at a time as the head reads numbers, that input, and its gradient, which
        # the forward makes (liger_kernel/ops/fused_linear_cross_entropy.py).
        some = costs.boundary_bytes
        return replace(live, forward=3.0 * some, backward=2.0 * some, opening=2.0 * some)
    if not keeper.torch_loss:
        return live
    lifted = plan.loss != "narrow"
    kept, narrow = costs.head.kept_bytes, wide * (plan.wide_bytes / BYTES["fp32"] if lifted else 1)
    named = {"": 0.0, "narrow": narrow, "wide": wide}[keeper.names_logits]
    return replace(
        live,
        forward=np.maximum(live.forward, kept + narrow + wide * lifted),
        backward=np.maximum(live.backward, kept + 2.0 * wide + named),
    )


def backward_moments(live: Live) -> tuple[tuple[Size, Size, Size], ...]:
    """Bytes, parameters whose gradients exist, the one being made: of a piece's backward."""
    return (
        (live.backward, live.backward_made, 0.0),
        (live.opening, live.opening_made, live.opened),
    )


def _chosen(where: Any, yes: Live, no: Live) -> Live:
    """One or the other, plan by plan."""
    return Live(
        **{f.name: np.where(where, getattr(yes, f.name), getattr(no, f.name)) for f in fields(Live)}
    )
