"""Which plans are possible. Each rule has a code, a test that broadcasts, and advice.

In: a Plan, a Model, how many accelerators there are, and for training the workload.
Out: ImpossiblePlan with the code, the rule and what would fit; or, for many plans, a mask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trueflops.errors import ImpossiblePlan, join_or
from trueflops.language import say, word
from trueflops.model import Model
from trueflops.plan.asked import Ask, Mask, expert_ffns, experts, ffns, heads, kv_heads
from trueflops.plan.plan import Plan
from trueflops.plan.recomputed import recompute_advice, recompute_suits
from trueflops.plan.scheduled import pairs_suit, schedule_suits, what_it_needs
from trueflops.plan.spread import keys_spread, spread_advice
from trueflops.plan.tuning import has_targets, sizes_suit, targets_advice, widths_suit
from trueflops.sizes import divisors
from trueflops.workload import Training


@dataclass(frozen=True)
class Rule:
    """A condition on plans: `holds` broadcasts, `advice` is asked about a single bad plan."""

    code: str
    holds: Callable[[Ask], Mask]
    advice: Callable[[Ask], str]


def check_plan(
    plan: Plan, model: Model, accelerators: int, training: Training | None = None
) -> None:
    """Refuse an impossible plan, saying which rule it breaks and what would fit.

    >>> import trueflops as tf
    >>> model = tf.read_model("Llama-3.1-8B")
    >>> tf.check_plan(tf.Plan(tp=8), model, 8)
    >>> tf.check_plan(tf.Plan(tp=7), model, 7)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    trueflops.errors.ImpossiblePlan: tp 7 ...
    """
    ask = Ask(plan, model, accelerators, training)
    for rule in RULES:
        holds = rule.holds(ask)
        if not (holds.all() if isinstance(holds, np.ndarray) else holds):
            raise ImpossiblePlan(rule.code, rule.advice(ask))


def broken_rules(
    plan: Plan, model: Model, accelerators: int, training: Training | None = None
) -> NDArray[np.int8]:
    """Of many plans the first rule that each breaks, by its place in RULES; -1 where none."""
    ask = Ask(plan, model, accelerators, training)
    broken = np.full(plan.count, -1, dtype=np.int8)
    for place, rule in enumerate(RULES):
        holds = np.asarray(rule.holds(ask), np.bool_)
        if not holds.all():
            broken[(broken < 0) & ~holds] = place
    return broken


def possible(
    plan: Plan, model: Model, accelerators: int, training: Training | None = None
) -> NDArray[np.bool_]:
    """Which of many plans break no rule."""
    return broken_rules(plan, model, accelerators, training) < 0


# ── what each rule asks ─────────────────────────────────────────────────────────────────────────


def _kv_heads_divide(ask: Ask) -> Mask:
    """Whole key/value heads on each rank, or one repeated on several, as engines have it and
    megatron-core 0.19 (transformer_config.py: a multiple or divisor). What its ranks exchange of
    such a head, megabytes, is not counted.
    """
    tp = np.asarray(ask.plan.tp)
    fine: Mask = True
    for count in kv_heads(ask):
        fine = fine & ((count % tp == 0) | (tp % count == 0))
    return fine


def _batch_divides(ask: Ask) -> Mask:
    if ask.training is None:
        return True
    together = np.asarray(ask.plan.micro_batch * ask.plan.dp)
    return ask.training.global_batch % together == 0


def _interleaving_divides(ask: Ask) -> Mask:
    if ask.training is None:
        return True
    pp, vpp = np.asarray(ask.plan.pp), np.asarray(ask.plan.vpp)
    return (vpp == 1) | (ask.plan.micro_batches(ask.training.global_batch) % pp == 0)


def _sequence_divides(ask: Ask) -> Mask:
    if ask.training is None:
        return True
    cp = np.asarray(ask.plan.cp)
    ways = cp * (ask.plan.tp if ask.plan.sp else 1)
    fine = ask.training.seq % ways == 0
    if ask.plan.cp_kind == "ring":  # two pieces a rank, one early and one late, balance the mask
        fine = fine & ((cp == 1) | (ask.training.seq % (2 * cp) == 0))
    return fine


def _heads_swap(ask: Ask) -> Mask:
    """All-to-all context parallelism gives each rank whole heads of the whole sequence."""
    if ask.plan.cp_kind == "ring":
        return True
    return ask.every(heads(ask) | kv_heads(ask), np.asarray(ask.plan.tp) * ask.plan.cp)


def _positive(ask: Ask) -> Mask:
    fine: Mask = True
    for name in ("tp", "cp", "pp", "vpp", "dp_replicate", "dp_shard", "ep", "etp", "micro_batch"):
        value = np.asarray(getattr(ask.plan, name))
        fine = fine & (value >= 1) & (value == np.floor(value))
    return fine


def _fractions(ask: Ask) -> Mask:
    fine: Mask = True
    for name in ("offload_optimizer", "offload_parameters", "offload_activations"):
        value = np.asarray(getattr(ask.plan, name))
        fine = fine & (value >= 0) & (value <= 1)
    return fine


def _stage_layers(ask: Ask) -> Mask:
    """Every piece has at least one layer and together they have all; where stages are interleaved,
    the piece with the embedding and that with the head may have none.
    """
    p, layers = ask.plan, ask.model.layers
    pp, vpp = np.asarray(p.pp * p.pieces / p.vpp), np.asarray(p.vpp)  # zb-v has 2·pp stages
    first, last = np.asarray(p.first_stage_layers), np.asarray(p.last_stage_layers)
    given = 1.0 * (first > 0) + (last > 0)
    empty = np.where(vpp > 1, 2.0 - given, 0.0)
    free = vpp * (pp - given)
    rest = layers - first - last
    ends = np.where(vpp > 1, vpp - 1.0, 1.0)
    enough = np.where(free > 0, rest >= free - empty, rest == 0)
    filled = ((first == 0) | (first >= ends)) & ((last == 0) | (last >= ends))
    return enough & filled & ((given == 0) | (pp > 1))


def _one_process(ask: Ask) -> Mask:
    p = ask.plan
    if p.engine == "ddp":
        return True
    alone = np.asarray(p.tp * p.cp * p.pp * p.ep) == 1
    return alone & (np.asarray(p.zero) == 0)


# ── the rules, in the order in which a user would want to hear of them ───────────────────────────


def _fit(what: str, degree: str, get: Callable[[Ask], set[int]]) -> Callable[[Ask], str]:
    """'ep 6 does not divide 64 experts; try 2, 4 or 8'."""

    def advice(ask: Ask) -> str:
        asked = int(np.ravel(getattr(ask.plan, degree))[0])
        sizes = sorted(get(ask))
        whole = sizes if degree != "tp" else [*heads(ask), *kv_heads(ask), *ffns(ask)]
        shared = int(np.gcd.reduce(whole or sizes))
        fits = [d for d in divisors(shared) if ask.accelerators % d == 0]
        near = sorted(sorted(fits, key=lambda d: abs(d - asked))[:4])
        counted = " and ".join(str(s) for s in sizes)
        return say(
            "{degree} {asked} does not divide {counted} {what}; try {near}",
            degree=degree, asked=asked, counted=counted, what=what, near=join_or(near),
        )  # fmt: skip

    return advice


def _world_advice(ask: Ask) -> str:
    p = ask.plan
    within = int(p.tp * p.cp * p.pp)
    said = say(
        "tp {p.tp:g} × cp {p.cp:g} × pp {p.pp:g} × dp {p.dp:g} = {p.world:g} accelerators", p=p
    )
    if ask.accelerators % within == 0:
        return say(
            "{said}, but the cluster has {accelerators}; try dp {dp}",
            said=said, accelerators=ask.accelerators, dp=ask.accelerators // within,
        )  # fmt: skip
    return say(
        "{said}; tp × cp × pp = {within} does not divide the {accelerators} of the "
        "cluster; try a product that does",
        said=said,
        within=within,
        accelerators=ask.accelerators,
    )


def _batch_advice(ask: Ask) -> str:
    assert ask.training is not None
    batch, dp, micro = ask.training.global_batch, int(ask.plan.dp), int(ask.plan.micro_batch)
    if batch % dp:
        other = max(dp, round(batch / dp) * dp)
        return say(
            "global batch {batch} is not a multiple of dp {dp}; try a global batch of {other}",
            batch=batch, dp=dp, other=other,
        )  # fmt: skip
    fits = divisors(batch // dp)
    near = sorted(sorted(fits, key=lambda d: abs(d - micro))[:4])
    return say(
        "global batch {batch} is not a multiple of micro batch {micro} × dp {dp}; "
        "try a micro batch of {near}",
        batch=batch, micro=micro, dp=dp, near=join_or(near),
    )  # fmt: skip


def _interleaving_advice(ask: Ask) -> str:
    assert ask.training is not None
    m = ask.plan.micro_batches(ask.training.global_batch)
    return say(
        "interleaving (vpp {p.vpp:g}) needs micro-batches in multiples of pp {p.pp:g}, "
        "and there are {m:g}; change the global batch, or use vpp 1",
        p=ask.plan,
        m=m,
    )


def _sequence_advice(ask: Ask) -> str:
    assert ask.training is not None
    ways = int(ask.plan.cp) * (int(ask.plan.tp) if ask.plan.sp else 1)
    return say(
        "sequence length {seq} must divide by 2·cp and by cp × tp = {ways} (the "
        "ranks that share it); try {other}",
        seq=ask.training.seq,
        ways=ways,
        other=-(-ask.training.seq // (2 * ways)) * 2 * ways,
    )


def _always(text: str) -> Callable[[Ask], str]:
    return lambda ask: word(text).format(p=ask.plan, model=ask.model)


RULES: tuple[Rule, ...] = (
    Rule("POSITIVE", _positive, _always("every degree of a plan is a whole number of at least 1")),
    Rule(
        "ZERO_STAGE",
        lambda a: np.isin(np.asarray(a.plan.zero), (0, 1, 2, 3)),
        _always("ZeRO has stages 0, 1, 2 and 3"),
    ),
    Rule(
        "ADAPTERS",
        lambda a: sizes_suit(a.plan),
        _always(
            "adapters have a rank of at least 1 and a dropout below 1: --lora 16 --lora-dropout 0.1"
        ),
    ),
    Rule(
        "ADAPTER_TARGETS",
        lambda a: has_targets(a.plan, a.model),
        lambda a: targets_advice(a.plan, a.model),
    ),
    Rule(
        "ADAPTER_OPTIMIZER",
        lambda a: not (a.plan.adapters and a.plan.optimizer == "muon"),
        _always("muon updates the whole matrices of a model; adapters: --optimizer adamw"),
    ),
    Rule(
        "PACKED_COMPUTE",
        lambda a: widths_suit(a.plan),
        _always(
            "packed weights ({p.base_format}) are written out for products in bf16 or fp16, not "
            "{p.compute}; use --lora, or --compute bf16"
        ),
    ),
    Rule(
        "FREEZE_LAYERS",
        lambda a: 0 <= a.plan.freeze_layers < a.model.layers,
        _always(
            "{model.name} has {model.layers} layers: freeze some of them, at most all but the last"
        ),
    ),
    Rule("OFFLOAD_FRACTION", _fractions, _always("offload fractions lie between 0 and 1")),
    Rule(
        "REDUCE_BUCKET",
        lambda a: a.plan.reduce_bucket >= 0.0,
        _always("a bucket of gradients has some elements; 0 asks for the framework's own"),
    ),
    Rule(
        "DENSE_EP",
        lambda a: (np.asarray(a.plan.ep * a.plan.etp) == 1) | a.model.is_moe,
        _always("{model.name} has no experts: ep and etp must be 1"),
    ),
    Rule("TP_HEADS", lambda a: a.every(heads(a), a.plan.tp), _fit("heads", "tp", heads)),
    Rule("TP_KV_HEADS", _kv_heads_divide, _fit("key/value heads", "tp", kv_heads)),
    Rule("DCP", keys_spread, spread_advice),
    Rule("TP_FFN", lambda a: a.every(ffns(a), a.plan.tp), _fit("FFN columns", "tp", ffns)),
    Rule("EP_EXPERTS", lambda a: a.every(experts(a), a.plan.ep), _fit("experts", "ep", experts)),
    Rule(
        "ETP_FFN",
        lambda a: a.every(expert_ffns(a), a.plan.etp),
        _fit("columns of an expert", "etp", expert_ffns),
    ),
    Rule(
        "PP_LAYERS",
        _stage_layers,
        _always(
            "the {model.layers} layers of {model.name} must fill pp {p.pp:g} × vpp {p.pieces:g} "
            "pieces with at least one each (where vpp > 1 the first and the last may have none); "
            "lower pp or vpp, or give the first and the last stage other layers, where pp > 1"
        ),
    ),
    Rule("RECOMPUTE_LAYERS", recompute_suits, recompute_advice),
    Rule(
        "VPP_NEEDS_PP",
        lambda a: (np.asarray(a.plan.vpp) == 1) | (np.asarray(a.plan.pp) > 1),
        _always("vpp {p.vpp:g} interleaves pipeline stages: it needs pp of at least 2"),
    ),
    Rule(
        "SCHEDULE",
        schedule_suits,
        lambda a: say(
            "schedule {schedule} needs {needs}; try 1f1b",
            schedule=a.plan.schedule,
            needs=what_it_needs(a.plan.schedule),
        ),
    ),
    Rule(
        "OVERLAP_DISPATCH",
        pairs_suit,
        _always(
            "overlap_dispatch pairs forwards with backwards: it needs schedule 1f1b, and vpp of at "
            "least 2 where pp is more than 1 (megatron-core); DualPipe overlaps by itself"
        ),
    ),
    Rule("WORLD", lambda a: np.asarray(a.plan.world) == a.accelerators, _world_advice),
    Rule(
        "EP_WORLD",
        lambda a: np.asarray(a.plan.tp * a.plan.cp * a.plan.dp) % (a.plan.ep * a.plan.etp) == 0,
        _always(
            "ep {p.ep:g} × etp {p.etp:g} must divide tp × cp × dp: experts are spread over "
            "those ranks"
        ),
    ),
    Rule(
        "MOE_TP_NEEDS_SP",
        lambda a: (
            (np.asarray(a.plan.tp) == 1) | a.plan.sp | (not a.model.is_moe) | (a.training is None)
        ),
        _always(
            "a mixture of experts with tp {p.tp:g} needs sequence parallelism (--sp), or "
            "every rank of tp would route the same tokens"
        ),
    ),
    Rule(
        "CP_HEADS",
        _heads_swap,
        _always(
            "all-to-all context parallelism needs tp × cp to divide the heads and key/value heads; "
            "use --cp-kind ring, or a smaller cp"
        ),
    ),
    Rule("SEQUENCE", _sequence_divides, _sequence_advice),
    Rule("BATCH", _batch_divides, _batch_advice),
    Rule("INTERLEAVING", _interleaving_divides, _interleaving_advice),
    Rule(
        "ENGINE",
        _one_process,
        _always("engine {p.engine} only replicates: tp, cp, pp and ep must be 1 and ZeRO 0"),
    ),
)
