"""Every legal plan of a space, as families: keys × recomputed layers × choices.

A key is what a rank computes and which layers its stage holds: degrees, micro-batch, pieces. A
choice is how replicas share what they hold (choices.py). What a key computes costs the same
whatever is chosen, and every layer that runs again adds the same; so a few numbers of a key bound
all its plans (bounds.py), which is what makes a hundred million of them cheap.

In: a Model, a Training workload, a Cluster, a Space. Out: Families of arrays, already rid of those
that break a rule, and how many each rule refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import inf
from typing import Any, Final

import numpy as np

from trueflops.catalog import Cluster
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.plan.rules import RULES, broken_rules
from trueflops.search.choices import Choices, Rows, choices_of, repeated, ways_to_share
from trueflops.search.space import Space
from trueflops.sizes import Array, divisors
from trueflops.workload import Training

MOST_MICRO_BATCH: Final = 8  # sequences; beyond this kernels gain nothing and activations grow
LEAST_TOKENS: Final = 512  # of a sequence on each rank of cp; below this kernels are too small
MOST_PIECES: Final = 8  # of a stage where they are uneven
"""What is tried where a dimension is left open; a flag opens it further."""
FEWER_AT_THE_ENDS: Final = ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2))
"""Layers that the first and last stage have less than others, for the embedding and the head."""


@dataclass(frozen=True)
class Family:
    """Plans that agree in every field that cannot be an array."""

    keys: Plan
    most_again: Array  # of each key: 1, 2 … up to so many of its layers (all) may run again
    only_again: tuple[float, ...]  # where just these numbers may; empty: all of them
    choices: Choices
    menu: Rows  # of each key: which of the choices' menus it has

    @cached_property
    def count(self) -> int:
        """How many plans these are."""
        again = np.full(self.menu.size, float(len(self.only_again)))
        return int(((again if self.only_again else self.most_again) * self.how_many()).sum())

    def how_many(self, rows: Rows | slice = slice(None)) -> Rows:
        """Choices that some keys have."""
        return self.choices.sizes[self.menu[rows]]

    def with_choices(self, rows: Rows) -> tuple[Rows, Rows]:
        """Some keys with each of their choices: which of them, which choice."""
        return self.choices.on(self.menu[rows])

    def plans(self, rows: Rows, again: Array, columns: Rows) -> Plan:
        """Some of them as one Plan of arrays: a key, its recomputed layers and a choice each."""
        return self.keys.take(rows).but(recompute_layers=again, **self.choices.of(columns))

    def with_again(self, keys: Rows) -> tuple[Rows, Array]:
        """Each key with each number of its layers that may run again; infinity stands for all."""
        if self.only_again:
            only = np.array(self.only_again, np.float64)
            return np.repeat(keys, only.size), np.tile(only, keys.size)
        at, place = repeated(self.most_again[keys].astype(np.intp))
        rows, again = keys[at], place + 1.0
        return rows, np.where(again < self.most_again[rows], again, inf)

    def only(self, rows: Rows) -> Family:
        """Those of some keys."""
        return replace(
            self,
            keys=one_long(self.keys, rows),
            most_again=self.most_again[rows],
            menu=self.menu[rows],
        )

    def all(self) -> Plan:
        """All of them, key by key."""
        rows, again = self.with_again(np.arange(self.keys.count))
        at, columns = self.with_choices(rows)
        return self.plans(rows[at], again[at], columns)


@dataclass(frozen=True)
class Legal:
    """All families of a space, and how many plans each rule refused."""

    families: tuple[Family, ...]
    refused: Counter[str]

    @cached_property
    def count(self) -> int:
        """How many plans these are."""
        return sum(family.count for family in self.families)


def legal_plans(model: Model, training: Training, cluster: Cluster, space: Space) -> Legal:
    """Every plan of a space that breaks no rule.

    >>> import trueflops as tf
    >>> from trueflops.search import Space, legal_plans
    >>> where, asked = tf.cluster("8xH100"), tf.Training(seq=4096, global_batch=64, tokens=1e9)
    >>> model = tf.read_model("Llama-3.1-8B")
    >>> legal_plans(model, asked, where, Space(tp=(8,), pp=(1,), zero=(0,))).count > 10
    True
    """
    grids = _Grids(model, training, cluster, space)
    families: list[Family] = []
    refused: Counter[str] = Counter()
    for fields in _structures(model, space):
        columns = grids.keys(fields)
        if not columns:
            continue
        ways = {dp: len(ways_to_share(space, int(dp))) for dp in np.unique(columns["dp_replicate"])}
        many = np.array([ways[dp] for dp in columns["dp_replicate"]])
        for policy in _policies(space):
            keys = space.base.but(**fields, **columns, recompute=policy)
            broken = broken_rules(keys, model, cluster.count, training)
            for place, rule in enumerate(RULES):
                if count := int(many[broken == place].sum()):
                    refused[rule.code] += count
            if (fine := np.flatnonzero(broken < 0)).size:
                families.append(grids.family(one_long(keys, fine)))
    return Legal(tuple(family for family in families if family.count), refused)


def one_long(keys: Plan, rows: Rows) -> Plan:
    """Some keys of many, as arrays even where there is only one."""
    taken = keys.take(rows)
    return taken.but(pp=np.broadcast_to(np.asarray(taken.pp, np.float64), rows.shape).copy())


def _policies(space: Space) -> list[str]:
    """What may run again; flash attention keeps no scores, so that nothing is left to select."""
    return [
        policy
        for policy in space.recompute
        if not (policy == "selective" and space.base.flash and len(space.recompute) > 1)
    ]


def _structures(model: Model, space: Space) -> Iterator[dict[str, Any]]:
    """Every combination of the other fields that cannot be arrays."""
    dispatches = space.dispatch if model.is_moe else (space.base.dispatch,)
    axes = {
        "sp": space.sp,
        "cp_kind": space.cp_kind,
        "schedule": space.schedule,
        "dispatch": dispatches,
        "compute": space.compute or (space.base.compute,),
    }
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


class _Grids:
    """The numeric dimensions, for one structure at a time."""

    def __init__(self, model: Model, training: Training, cluster: Cluster, space: Space) -> None:
        self.model, self.training, self.space = model, training, space
        self.count = cluster.count
        heads = max([a.heads for a in model.attentions] + [r.heads for r in model.recurrences])
        experts = max((b.experts.count for b in model.blocks if b.experts), default=1)
        every = divisors(self.count)
        self.tps = [d for d in every if d in space.tp or (not space.tp and heads % d == 0)]
        self.pps = [d for d in every if d in space.pp or (not space.pp and d <= model.layers)]
        longest = training.seq // LEAST_TOKENS
        whole = [d for d in every if d == 1 or (training.seq % (2 * d) == 0 and d <= longest)]
        self.cps = [d for d in every if d in (space.cp or whole)]
        self.eps = space.ep or [d for d in divisors(experts) if self.count % d == 0]

    def keys(self, fields: dict[str, Any]) -> dict[str, Array]:
        """Columns of every key of a structure; none where it has no keys.

        Where a field of the structure makes no difference, only its first value has the key.
        """
        space = self.space
        blocks: list[Array] = []
        for tp, pp, cp in product(self.tps, self.pps, self.cps):
            if self.count % (tp * pp * cp) or not self._differs(fields, tp, pp, cp):
                continue
            dp = self.count // (tp * pp * cp)
            if (space.dp and dp not in space.dp) or self.training.global_batch % dp:
                continue
            blocks.append(self._block(fields, tp, pp, cp, dp))
        if not sum(block.size for block in blocks):
            return {}
        return dict(zip(_COLUMNS, np.concatenate(blocks, axis=1), strict=True))

    def _differs(self, fields: dict[str, Any], tp: int, pp: int, cp: int) -> bool:
        space = self.space
        first = {"sp": tp > 1, "cp_kind": cp > 1, "schedule": pp > 1}
        return all(
            matters or fields[name] == getattr(space, name)[0] for name, matters in first.items()
        )

    def _block(self, fields: dict[str, Any], tp: int, pp: int, cp: int, dp: int) -> Array:
        space, each = self.space, self.training.global_batch // dp
        axes = (
            [dp],
            [tp],
            [pp],
            [cp],
            space.vpp or self._pieces(fields["schedule"], pp),
            [e for e in self.eps if (tp * cp * dp) % e == 0],
            space.etp or [1],
            space.micro_batch or [d for d in divisors(each) if d <= MOST_MICRO_BATCH],
            range(len(ends := self._ends(pp))),
        )
        if not all(axes):
            return np.empty((len(_COLUMNS), 0))
        grid = np.meshgrid(*(np.array(list(axis), np.float64) for axis in axes), indexing="ij")
        flat = [values.ravel() for values in grid]
        layers = np.array(ends, np.float64)[flat.pop().astype(int)].T
        whole = np.stack([*flat, *layers])
        if fields["dispatch"] != space.dispatch[0] and self.model.is_moe:
            whole = whole[:, whole[_COLUMNS.index("ep")] > 1]  # nothing is sent
        return whole

    def _pieces(self, schedule: str, pp: int) -> list[int]:
        """Ways to interleave: into pieces of equally many layers, of which those with the embedding
        and the head may have one less; where there are none, into any that have a layer each.
        """
        layers, most = self.model.layers, (self.model.layers + 2) // pp
        if pp == 1 or schedule != "1f1b":
            return [1]
        even = [v for v in range(2, most + 1) if -layers % (pp * v) <= 2]
        return [1, *(even or range(2, min(most, MOST_PIECES) + 1))]

    def family(self, keys: Plan) -> Family:
        """The keys with how many of their layers may run again, and how replicas may share."""
        fixed = self.space.recompute_layers
        if np.isfinite(self.space.base.recompute_layers):
            fixed = (float(np.ravel(self.space.base.recompute_layers)[0]),)
        if keys.recompute in ("none", "selective"):
            fixed = fixed or (inf,)
        choices, menu = choices_of(self.space, keys)
        found = Family(keys, np.ceil(self.model.layers / np.asarray(keys.pp)), fixed, choices, menu)
        return found.only(np.flatnonzero(found.how_many()))

    def _ends(self, pp: int) -> list[tuple[int, int]]:
        """Layers of the first and the last stage; 0 leaves them as even as can be."""
        space, even = self.space, self.model.layers // pp
        if pp == 1:
            return [(0, 0)]
        if space.first_stage_layers or space.last_stage_layers:
            ends = product(space.first_stage_layers or (0,), space.last_stage_layers or (0,))
            return list(ends)
        return [
            (even - first if first else 0, even - last if last else 0)
            for first, last in FEWER_AT_THE_ENDS
            if even > max(first, last)
        ]


_COLUMNS: Final = (
    "dp_replicate", "tp", "pp", "cp", "vpp", "ep", "etp", "micro_batch",
    "first_stage_layers", "last_stage_layers",
)  # fmt: skip
