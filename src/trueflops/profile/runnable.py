"""Which plans an engine can run: over which ranks it spreads experts, attention and layers.

In: a plan that breaks no rule of plans, the Engine, how many accelerators a node has, and what is
known of the model. Out: None, or ImpossiblePlan with a code and what would run. What each engine
can do is a fact of data/engines.toml; one that nobody named can do everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from trueflops.errors import ImpossiblePlan, join_or
from trueflops.language import say
from trueflops.model import Model
from trueflops.plan import Plan, shares_experts
from trueflops.profile.engines import Engine
from trueflops.sizes import divisors

IN_BLOCKS: Final = "fp8_block"
"""Weights whose scales are of blocks; a rank holds whole ones."""


class Deployment(NamedTuple):
    """A plan as an engine is to run it; a file that starts one does not say of which model."""

    plan: Plan
    engine: Engine
    per_node: int
    weights: str = ""  # the name of their format
    model: Model | None = None

    @property
    def ranks(self) -> int:
        """That hold the experts of a layer together."""
        return max(int(self.plan.tp), int(self.plan.ep * self.plan.etp))

    @property
    def may_be_moe(self) -> bool:
        """Whether there may be experts to spread."""
        return self.model is None or self.model.is_moe

    @property
    def widths(self) -> list[int]:
        """Columns of an expert, of each kind of layer."""
        blocks = self.model.blocks if self.model else ()
        return sorted({b.experts.width for b in blocks if b.experts})


class _Rule(NamedTuple):
    code: str
    holds: Callable[[Deployment], bool]
    advice: Callable[[Deployment], str]


def why_not_run(asked: Deployment) -> ImpossiblePlan | None:
    """The first rule of the engine that a plan breaks, as the error to raise."""
    broken = (rule for rule in _RULES if not rule.holds(asked))
    return next((ImpossiblePlan(rule.code, rule.advice(asked)) for rule in broken), None)


def _spreads_experts(asked: Deployment) -> bool:
    plan, ranks = asked.plan, asked.ranks
    if asked.engine.experts == "all":
        whole = plan.ep * plan.etp == ranks and ranks % int(plan.tp) == 0
        return bool(whole and plan.ep in (1, ranks)) or not asked.may_be_moe
    return asked.engine.experts == "some" or not (plan.ep > 1 or shares_experts(plan))


def _experts_advice(asked: Deployment) -> str:
    said = {"ep": int(asked.plan.ep), "etp": int(asked.plan.etp), "engine": asked.engine.name}
    if asked.engine.experts == "nothing":
        return say(
            "ep {ep}, etp {etp}: {engine} does not spread experts over ranks; leave --ep and --etp "
            "out",
            **said,
        )
    return say(
        "ep {ep}, etp {etp}: {engine} spreads experts over all ranks or over none; write --ep "
        "{all}, or leave --ep and --etp out",
        **said,
        all=-(-asked.ranks // int(asked.plan.tp)) * int(asked.plan.tp),
    )


def _splits_attention(asked: Deployment) -> bool:
    shared = shares_experts(asked.plan) and asked.plan.tp > 1
    return asked.engine.splits_shared or not shared


def _attention_advice(asked: Deployment) -> str:
    return say(
        "tp {tp} with replicas of attention that share experts: {engine} splits attention over all "
        "of their ranks or over none; use tp 1, or leave --ep and --etp out",
        tp=int(asked.plan.tp), engine=asked.engine.name,
    )  # fmt: skip


def _crosses(asked: Deployment) -> bool:
    return asked.engine.crosses or asked.plan.tp == 1 or asked.plan.pp == 1


def _within_a_node(asked: Deployment) -> bool:
    return asked.engine.spans_nodes or int(asked.plan.tp * asked.plan.pp) <= asked.per_node


def _in_whole_blocks(asked: Deployment) -> bool:
    block = asked.engine.weight_block
    if asked.weights != IN_BLOCKS or not block:
        return True
    return all(width % (int(asked.plan.etp) * block) == 0 for width in asked.widths)


def _blocks_advice(asked: Deployment) -> str:
    etp, block = int(asked.plan.etp), asked.engine.weight_block
    width = next(w for w in asked.widths if w % (etp * block))
    held = say(
        "an expert's {width:,} columns over {etp} ranks are {each:g} each, and {engine} loads "
        "weights in blocks of fp8 by multiples of {block}",
        width=width, etp=etp, each=width / etp, engine=asked.engine.name, block=block,
    )  # fmt: skip
    fits = [n for n in divisors(asked.ranks) if all(w % (n * block) == 0 for w in asked.widths)]
    if not fits:
        return say("{held}; use --weights bf16 or fp8", held=held)
    ways = [] if shares_experts(asked.plan) else [f"--tp {fits[-1]}"]
    return say("{held}; use {ways}", held=held, ways=join_or([*ways, f"--ep {asked.ranks}"]))


_RULES: Final = (
    _Rule("ENGINE_EXPERTS", _spreads_experts, _experts_advice),
    _Rule("ENGINE_ATTENTION", _splits_attention, _attention_advice),
    _Rule(
        "ENGINE_AXES",
        _crosses,
        lambda a: say(
            "tp {tp} with pp {pp}: {engine} splits rows or layers, not both; use --tp or --pp "
            "alone",
            tp=int(a.plan.tp), pp=int(a.plan.pp), engine=a.engine.name,
        ),
    ),
    _Rule(
        "ENGINE_NODES",
        _within_a_node,
        lambda a: say(
            "tp {tp} with pp {pp}: {engine} serves on one node, of {per_node} accelerators here; "
            "use a cut that fits into one",
            tp=int(a.plan.tp), pp=int(a.plan.pp), engine=a.engine.name, per_node=a.per_node,
        ),
    ),
    _Rule("FP8_BLOCKS", _in_whole_blocks, _blocks_advice),
)  # fmt: skip
