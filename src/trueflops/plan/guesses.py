"""What nobody said of a run: what was taken for it, by which rule, and what else it may have been.

A guess is no error of a law, and no framework's average hides it: predict/training/guessed.py
widens an interval by what the alternatives would have given.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from trueflops.language import say, word
from trueflops.plan.captures import LAYERS
from trueflops.plan.plan import Plan
from trueflops.sizes import divisors

Changes = Mapping[str, Any]


@dataclass(frozen=True)
class Guess:
    """One thing that was not stated."""

    taken: str  # 'gradients fp32'
    because: str  # 'the default of megatron'
    others: tuple[Changes, ...]  # fields of the plan, were it otherwise

    def __str__(self) -> str:
        return say("{taken}: {because}", taken=self.taken, because=self.because)


@dataclass(frozen=True)
class Asked:
    """The plan whose unstated fields are looked at."""

    plan: Plan
    framework: str
    experts: bool

    @property
    def replicas(self) -> bool:
        """Whether there is anything to share between replicas."""
        return bool(self.plan.dp * self.plan.cp > 1)


@dataclass(frozen=True)
class Rule:
    """A field of the plan that sources leave out, and when it matters."""

    field: str
    asked_of: Literal["framework", "run"]  # a framework's default, or whoever laid out the run
    matters: Callable[[Asked], bool]
    taken: Callable[[Plan], str]
    others: Callable[[Plan], tuple[Changes, ...]]
    because: str = ""  # the rule by which it was taken; "": the framework's default


def unstated(
    plan: Plan, stated: Collection[str], framework: str, *, experts: bool
) -> tuple[Guess, ...]:
    """What a plan says that nobody stated, field by field."""
    asked = Asked(plan, framework, experts)
    because = say("the default of {framework}", framework=framework)
    return tuple(
        Guess(rule.taken(plan), rule.because or because, rule.others(plan))
        for rule in RULES
        if rule.field not in stated and rule.matters(asked)
    )


def layouts(ranks: int, node: int, layers: int) -> Iterator[tuple[int, int]]:
    """Tp and pp of so many ranks, the cheapest first, where nobody said them: tp as far as a node
    reaches, then pp as far as the layers go. Who trains spreads a model no farther than it must.
    """
    inside = [tp for tp in divisors(node) if ranks % tp == 0]
    yield from ((tp, 1) for tp in inside)
    widest = inside[-1]
    yield from ((widest, pp) for pp in divisors(layers)[1:] if ranks % (widest * pp) == 0)


def laid_out(plan: Plan, tp: int, pp: int) -> Changes:
    """The fields of a plan whose ranks are split so; its replicas share what they shared."""
    dp = int(plan.tp * plan.pp * plan.dp) // (tp * pp)
    shard = dp if plan.zero else 1
    return {"tp": tp, "pp": pp, "dp_shard": shard, "dp_replicate": dp // shard}


def _other_layouts(plan: Plan) -> tuple[Changes, ...]:
    """Half and twice the degrees."""
    tp, pp, dp = int(plan.tp), int(plan.pp), int(plan.dp)
    both = ((2 * tp, pp), (tp, 2 * pp)) if dp % 2 == 0 else ()
    fewer = [(tp // 2, pp)] * (tp % 2 == 0) + [(tp, pp // 2)] * (pp % 2 == 0)
    return tuple(laid_out(plan, *degrees) for degrees in (*both, *fewer))


def _other_micro_batches(plan: Plan) -> tuple[Changes, ...]:
    """Half and twice as many sequences."""
    micro = int(plan.micro_batch)
    return tuple({"micro_batch": m} for m in (micro // 2, 2 * micro) if m)


def _other_sums(plan: Plan) -> tuple[Changes, ...]:
    return ({"gradient_dtype": plan.wide_dtype if plan.gradient_dtype == "fp32" else "fp32"},)


def _other_sharing(plan: Plan) -> tuple[Changes, ...]:
    if plan.zero:
        return ({"zero": 0, "dp_replicate": plan.dp, "dp_shard": 1},)
    return ({"zero": 1, "dp_replicate": 1, "dp_shard": plan.dp},)


def _other_recomputation(plan: Plan) -> tuple[Changes, ...]:
    kinds = {"none": ("selective", "full"), "selective": ("none", "full")}
    others = kinds.get(plan.recompute, ("none", "selective"))
    return tuple({"recompute": kind, "recompute_layers": float("inf")} for kind in others)


def _other_ranks(plan: Plan) -> tuple[Changes, ...]:
    """PEFT's default, and what is common for harder tasks."""
    return tuple({"lora_rank": rank} for rank in (8, 64) if rank != plan.lora_rank)


def _other_targets(plan: Plan) -> tuple[Changes, ...]:
    usual = ("q,v", "attention", "all-linear")
    return tuple({"lora_targets": layers} for layers in usual if layers != plan.lora_targets)


def _flipped(field: str) -> Callable[[Plan], tuple[Changes, ...]]:
    return lambda plan: ({field: not getattr(plan, field)},)


def _other_dispatch(plan: Plan) -> tuple[Changes, ...]:
    plain = plan.dispatch == "all-to-all"
    return ({"dispatch": "deduplicated" if plain else "all-to-all"},)


def _other_captures(plan: Plan) -> tuple[Changes, ...]:
    """None, or what megatron-core captures where it captures parts of layers."""
    return ({"cuda_graphs": "" if plan.cuda_graphs else LAYERS},)


def _switched(words: str, field: str) -> Callable[[Plan], str]:
    return lambda plan: word(words) if getattr(plan, field) else say("no {words}", words=words)


RECIPES: Final = ("nemo",)  # frameworks whose recipes set these as often as not
_NARROW: Final = ("bf16", "fp16")

RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "layout",
        "run",
        lambda a: bool(a.plan.zero < 3 and a.plan.tp * a.plan.pp * a.plan.dp > 1),
        lambda plan: f"tp {plan.tp:g}, pp {plan.pp:g}",
        _other_layouts,
        "the fewest ranks that hold the model",
    ),
    Rule(
        "micro_batch",
        "run",
        lambda a: bool(a.plan.pp == 1),
        lambda plan: say("micro-batch {size:g}", size=plan.micro_batch),
        _other_micro_batches,
        "as many sequences as the chip holds",
    ),
    Rule(
        "vpp",
        "run",
        lambda a: bool(a.plan.vpp > 1),
        lambda plan: f"vpp {plan.vpp:g}",
        lambda plan: ({"vpp": 1},),
    ),
    Rule(
        "gradient_dtype",
        "framework",
        lambda a: a.plan.wide_dtype in _NARROW and not a.plan.adapters,
        lambda plan: say("gradients {gradient_dtype}", gradient_dtype=plan.gradient_dtype),
        _other_sums,
    ),
    Rule(
        "zero",
        "run",
        lambda a: bool(a.replicas and a.plan.zero <= 1),
        lambda plan: f"ZeRO {plan.zero:g}",
        _other_sharing,
    ),
    Rule(
        "recompute",
        "run",
        lambda a: True,
        lambda plan: say("recomputation {recompute}", recompute=plan.recompute),
        _other_recomputation,
    ),
    Rule(
        "loss",
        "framework",
        lambda a: True,
        lambda plan: say("cross-entropy {loss}", loss=plan.loss),
        lambda plan: ({"loss": "fused" if plan.loss == "plain" else "plain"},),
    ),
    Rule(
        "sp",
        "run",
        lambda a: bool(a.plan.tp > 1 and not a.experts),
        _switched("sequence parallelism", "sp"),
        _flipped("sp"),
    ),
    Rule(
        "overlap",
        "framework",
        lambda a: a.replicas,
        _switched("overlap of gradients with the backward", "overlap"),
        _flipped("overlap"),
    ),
    Rule(
        "lora_rank",
        "run",
        lambda a: bool(a.plan.adapters),
        lambda plan: f"rank {plan.lora_rank}",
        _other_ranks,
    ),
    Rule(
        "lora_targets",
        "run",
        lambda a: bool(a.plan.adapters),
        lambda plan: say("adapters of {lora_targets}", lora_targets=plan.lora_targets),
        _other_targets,
    ),
    Rule(
        "dispatch",
        "framework",
        lambda a: bool(a.experts and a.plan.ep > 1),
        lambda plan: say("dispatch {dispatch}", dispatch=plan.dispatch),
        _other_dispatch,
    ),
    Rule(
        "overlap_dispatch",
        "framework",
        lambda a: bool(a.framework in RECIPES and a.experts and a.plan.ep > 1),
        _switched("overlap of the dispatch with compute", "overlap_dispatch"),
        _flipped("overlap_dispatch"),
    ),
    Rule(
        "cuda_graphs",
        "framework",
        lambda a: a.framework in RECIPES,
        lambda plan: (
            say("CUDA graphs of {parts}", parts=plan.cuda_graphs)
            if plan.cuda_graphs
            else say("no CUDA graphs")
        ),
        _other_captures,
    ),
)

EVERY_FIELD: Final = frozenset(rule.field for rule in RULES)
LAID_OUT: Final = frozenset(rule.field for rule in RULES if rule.asked_of == "run")
"""What a plan that someone is about to run says by itself."""
