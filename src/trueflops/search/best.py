"""The best of all legal plans, exactly, without predicting most of them: branch and bound.

A first look predicts a few plans that an outline of each key promises much of; keys that outlines
say are slower than what is sought are passed over, the others get tight bounds and are taken in
their order. A plan is predicted unless its bound says that it does not fit, or that it is neither
among the best of its kind nor on the front. So nothing that could be the best is passed over;
tests/test_search.py predicts all plans of small spaces to show it.

In: a Trainer and a Space. Out: Found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

import numpy as np

from trueflops.plan import BYTES, Plan
from trueflops.predict import Trainer, TrainingStep
from trueflops.predict.training.trainer import tabled
from trueflops.search.branches import CHUNK, Branch, Misses, in_order, outlines_of
from trueflops.search.choices import Rows
from trueflops.search.families import Legal, legal_plans
from trueflops.search.front import PARTS, Front
from trueflops.search.space import Offload, Space
from trueflops.sizes import Array

FIRST_LOOK: Final = 8  # families, and keys of each, tried first within each part of the memory
LEEWAY: Final = 0.85  # of a part of the memory: outlines leave out what is small
SPREAD: Final = 8192  # of these, with recomputed layers, at a time
NEAR: Final = 1.25  # a plan that needs at most so much of the memory only just does not fit
NOT_ALLOWED: Final = "NOT_ALLOWED"  # by the space itself
KIND: Final = ("tp", "cp", "pp", "ep")
"""Plans that agree in these are of one kind: what else differs, a search settles by itself."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search returns: the best plans of each kind, the front, and why others fell out."""

    best: tuple[TrainingStep, ...]  # fastest first, each of another kind
    front: tuple[TrainingStep, ...]  # fastest first, each with less memory than those before
    nearest: TrainingStep | None  # faster than the best, or the leanest of all where none fits
    legal: int  # plans that break no rule
    refused: Counter[str]  # plans by the rule that they break
    too_large: int  # plans that surely need, or may need, more memory than there is
    slower: int  # plans whose bound already says that they cannot be among these
    fitting: int  # plans that were predicted, and surely fit
    faster: int  # of these, plans faster than was asked about
    complete: bool  # False: it was interrupted


class Progress(NamedTuple):
    """How far a search has come."""

    decided: int
    legal: int
    best_seconds: float  # infinite while nothing fits


def search_plans(
    trainer: Trainer,
    space: Space,
    most: int = 5,
    *,
    at_least: float = 0.0,
    with_front: bool = True,
    say: Callable[[Progress], None] = lambda progress: None,
) -> Found:
    """Rank by step time among the plans that fit at the upper end of their memory's interval.

    Plans faster than `at_least` seconds are all predicted, however many are better; without the
    front of time and memory fewer are.

    >>> import trueflops as tf
    >>> from trueflops.search import Space
    >>> where, asked = tf.cluster("8xH100"), tf.Training(seq=4096, global_batch=64, tokens=1e9)
    >>> model, profile = tf.read_model("Llama-3.1-8B"), tf.profile_of(where.accelerator)
    >>> trainer = tf.Trainer(model, asked, where, profile)
    >>> found = tf.search_plans(trainer, Space(tp=(8,)))
    >>> found.best[0].plan.tp, found.fitting <= found.legal
    (8.0, True)
    """
    legal = Legal((), Counter())
    if not surely_too_large(trainer, space):
        legal = legal_plans(trainer.model, trainer.workload, trainer.cluster, space)
    search = _Search(trainer, legal, space, most, at_least, say)
    return search.run(with_front)


def surely_too_large(trainer: Trainer, space: Space) -> bool:
    """Whether weights and states exceed all memories together, however they are divided."""
    return states_bytes(trainer, space) > _room_bytes(trainer, space)


def states_bytes(trainer: Trainer, space: Space) -> float:
    """Weights and optimizer states of a whole model, which every plan holds at least once; not
    counted where only a part of it is trained.
    """
    if space.base.adapters or space.base.freeze_layers:
        return 0.0
    each = BYTES[space.base.trained_dtype] + space.base.state_bytes
    return trainer.model.parameter_count * each


def _room_bytes(trainer: Trainer, space: Space) -> float:
    """Where a whole cluster can hold them: its accelerators and, offloaded, its hosts."""
    cluster = trainer.cluster
    room = trainer.capacity * cluster.count
    if all(offload == Offload() for offload in space.offload):
        return room
    host = cluster.node_memory_bytes
    drives = space.base.offload_to == "nvme"
    return inf if drives or host is None else room + host * cluster.nodes


class _Search:
    """The state of a search: what was found so far, and how many plans were decided how."""

    def __init__(
        self,
        trainer: Trainer,
        legal: Legal,
        space: Space,
        most: int,
        at_least: float,
        say: Callable[[Progress], None],
    ) -> None:
        self.trainer, self.legal, self.say = trainer, legal, say
        self.most, self.at_least, self.allows = most, at_least, space.allows
        self.kinds: dict[tuple[float, ...], tuple[float, Plan]] = {}
        self.front = Front(trainer.capacity)
        self.misses: list[Misses] = []
        self.decided = self.too_large = self.slower = self.fitting = self.forbidden = 0
        self.faster = 0  # than `at_least`

    def run(self, with_front: bool) -> Found:
        """All of it, or as much as there was time for."""
        outlines = list(outlines_of(self.trainer, self.legal.families))
        branches: list[Branch] = []
        complete = True
        try:
            self._first_look(outlines, self.front.budgets[:: -1 if with_front else -PARTS])
            branches = [branch for outline in outlines if (branch := self._narrowed(outline))]
            for branch, rows in in_order(branches, self.trainer.capacity):
                self._decide(branch, rows)
                self.say(Progress(self.decided, self.legal.count, self._best_seconds))
        except KeyboardInterrupt:
            complete = False
        return self._found(branches, complete)

    def _first_look(self, branches: list[Branch], budgets: Array) -> None:
        """Find good plans within parts of the memory, by which most others are passed over."""
        branches = sorted(branches, key=lambda branch: branch.least)
        looked: dict[int, list[tuple[Rows, Array]]] = {}
        for budget in budgets:
            ahead: list[tuple[float, int, Rows, Array]] = []
            for place, branch in enumerate(branches):
                if len(ahead) == FIRST_LOOK and ahead[-1][0] <= branch.least:
                    break
                again = branch.bounds.fewest_again(LEEWAY * budget)
                rows = np.flatnonzero(np.isfinite(again))
                if rows.size:
                    seconds = branch.bounds.seconds(rows, again[rows])
                    few = rows[np.argsort(seconds)[:FIRST_LOOK]]
                    ahead.append((float(seconds.min()), place, few, again[few]))
                    ahead = sorted(ahead, key=lambda row: row[0])[:FIRST_LOOK]
            for _, place, few, again in ahead:
                looked.setdefault(place, []).append((few, again))
        for place, found in looked.items():
            branch = branches[place]
            rows, again = (np.concatenate(each) for each in zip(*found, strict=True))
            at, columns = branch.family.with_choices(rows)
            layers = branch.legal_again(rows, again)
            least = branch.bounds.seconds(rows, layers)
            self._predict(branch, rows[at], layers[at], columns, least[at])
        self.front.seek(budgets)
        # Plans are counted, and near misses kept, when they are decided.
        self.misses.clear()
        self.too_large = self.slower = self.fitting = self.forbidden = self.faster = 0

    def _narrowed(self, outline: Branch) -> Branch | None:
        """Keys that neither the mean stage nor the slowest makes too slow, with tight bounds."""
        rows = self._left_open(outline)
        if not rows.size:
            return None
        tight = outline.narrowed(rows, self.trainer)
        rows = self._left_open(tight)
        return tight.only(rows) if rows.size else None

    def _left_open(self, branch: Branch) -> Rows:
        """Keys that their bounds do not make too slow; the others are decided."""
        limit = max(self._limit, float(self.front.limits.max()))
        rows = np.flatnonzero(branch.seconds < limit)
        slower = branch.family.count - (branch.family.only(rows).count if rows.size else 0)
        self.slower += slower
        self.decided += slower
        return rows

    def _decide(self, branch: Branch, keys: Rows) -> None:
        """Predict those of some keys' plans whose bounds leave it open."""
        rows, again = branch.family.with_again(keys)
        choices = branch.family.how_many(rows)
        self.decided += int(choices.sum())
        seconds = branch.bounds.seconds(rows, again)
        limit = max(self._limit, float(self.front.limits.max()))
        near = seconds < limit
        self.slower += int(choices[~near].sum())
        rows, again, seconds = rows[near], again[near], seconds[near]
        for start in range(0, rows.size, SPREAD):
            part = slice(start, start + SPREAD)
            self._weigh(branch, rows[part], again[part], seconds[part])

    def _weigh(self, branch: Branch, rows: Rows, again: Array, seconds: Array) -> None:
        """The same with their memory, choice by choice."""
        at, columns = branch.family.with_choices(rows)
        needed = branch.bounds.bytes(rows, again, at, columns)
        fits = needed <= self.trainer.capacity
        self.too_large += int(np.count_nonzero(~fits))
        taken = branch.bounds.chosen_seconds(rows[at], seconds[at], columns)
        wanted = fits & ((taken < self._limit) | self.front.matters(taken, needed))
        self.slower += int(np.count_nonzero(fits & ~wanted))
        open_ = np.flatnonzero(wanted)
        for start in range(0, open_.size, CHUNK):
            some = open_[start : start + CHUNK]
            which = at[some]
            self._predict(branch, rows[which], again[which], columns[some], taken[some])

    def _predict(
        self, branch: Branch, rows: Rows, again: Array, columns: Rows, least: Array
    ) -> None:
        """Predict some plans, which take `least` seconds; remember the good ones, count them all.

        First their memory: by what they really need fewer are on the front than by its bound.
        """
        plans = branch.family.plans(rows, again, columns)
        if self.allows is not None and not (fine := self.allows(plans)).all():
            self.forbidden += int(np.count_nonzero(~fine))
            rows, again, columns, least = rows[fine], again[fine], columns[fine], least[fine]
            if not rows.size:
                return
            plans = branch.family.plans(rows, again, columns)
        shared = tabled(plans)
        memory = self.trainer.memory(shared, branch.keyed.spread(rows, shared))
        needed = np.broadcast_to(np.asarray(memory.value), rows.shape)
        high = np.asarray(memory.estimate.high)
        fits = np.broadcast_to(high, rows.shape) <= self.trainer.capacity
        # Those that only just do not fit are kept, to say what a little more memory would bring.
        near = ~fits & (needed <= NEAR * self.trainer.capacity) & (least < self._best_seconds)
        if near.any():
            self.misses.append(Misses(branch, rows, again, columns, least, needed).only(near))
        matters = fits & ((least < self._limit) | self.front.matters(least, needed))
        open_ = np.flatnonzero(matters)
        self.too_large += int(np.count_nonzero(~fits))
        self.slower += int(np.count_nonzero(fits)) - open_.size
        if not open_.size:
            return
        plans = branch.family.plans(rows[open_], again[open_], columns[open_])
        shared = tabled(plans)
        step = self.trainer.combine(shared, branch.keyed.spread(rows[open_], shared))
        seconds = np.broadcast_to(np.asarray(step.step.value), open_.shape)
        inside = np.broadcast_to(step.fits, open_.shape)  # and what is offloaded fits the host
        taken = np.where(inside, seconds, np.inf)
        self.fitting += int(np.count_nonzero(inside))
        self.too_large += int(np.count_nonzero(~inside))
        self.faster += int(np.count_nonzero(taken < self.at_least))
        self.front.add(taken, needed[open_], plans)
        self._remember_kinds(plans, taken)

    def _remember_kinds(self, plans: Plan, taken: Array) -> None:
        open_ = np.flatnonzero(taken < self._limit)
        kinds = np.stack([np.broadcast_to(getattr(plans, name), taken.shape) for name in KIND])
        order = open_[np.argsort(taken[open_], kind="stable")]
        _, first = np.unique(kinds[:, order], axis=1, return_index=True)
        for place in order[first]:
            kind = tuple(kinds[:, place])
            if taken[place] < self.kinds.get(kind, (np.inf,))[0]:
                self.kinds[kind] = float(taken[place]), plans.pick(int(place))

    @property
    def _best_seconds(self) -> float:
        return min((seconds for seconds, _ in self.kinds.values()), default=np.inf)

    @property
    def _limit(self) -> float:
        """What a plan must be faster than to be among the best of each kind."""
        times = sorted(seconds for seconds, _ in self.kinds.values())
        worst = times[self.most - 1] if len(times) >= self.most else np.inf
        return max(worst, self.at_least)

    def _nearest_miss(self) -> Plan | None:
        """Of the plans that only just do not fit and would be the fastest, the leanest."""
        found, least = None, np.inf
        for misses in Misses.by_branch(self.misses):
            for some in misses.leanest_first(self._best_seconds):
                if some.needed[0] >= least:
                    break
                plans = some.branch.family.plans(some.rows, some.again, some.columns)
                shared = tabled(plans)
                costs = some.branch.keyed.spread(some.rows, shared)
                step = self.trainer.combine(shared, costs)
                seconds = np.broadcast_to(np.asarray(step.step.value), some.rows.shape)
                faster = np.flatnonzero((seconds < self._best_seconds) & (some.needed < least))
                if faster.size:
                    found, least = plans.pick(int(faster[0])), float(some.needed[faster[0]])
                    break
        return found

    def _found(self, branches: list[Branch], complete: bool) -> Found:
        predict = self.trainer.predict_one
        ranked = sorted(self.kinds.values(), key=lambda row: row[0])[: self.most]
        nearest = self._nearest_miss()
        if not ranked and branches:
            nearest = min((branch.leanest() for branch in branches), key=lambda row: row[0])[-1]
        return Found(
            best=tuple(predict(plan) for _, plan in ranked),
            front=tuple(predict(plan) for plan in self.front.plans),
            nearest=None if nearest is None else predict(nearest),
            legal=self.legal.count,
            refused=self.legal.refused + Counter({NOT_ALLOWED: self.forbidden}),
            too_large=self.too_large,
            slower=self.slower,
            fitting=self.fitting,
            faster=self.faster,
            complete=complete,
        )
