"""Which servers can spread the keys of a sequence over ranks of tp: decode context parallelism.

The ranks must hold the same keys: all of tp where a latent has no heads to split, else tp over
key/value heads; and engines do so for layers that keep every key (vLLM's config/model.py,
verify_with_parallel_config, and v1/core/single_type_kv_cache_manager.py, which refuses windows and
states); an indexer may choose single keys of a latent, whose keys are spread alike.
"""

from __future__ import annotations

from trueflops.language import say
from trueflops.model import Attention, Model
from trueflops.plan.asked import Ask
from trueflops.sizes import divisors


def keys_spread(ask: Ask) -> bool:
    """Whether a plan's ranks can share keys as it says; one rank shares with nobody."""
    dcp = ask.plan.dcp
    if dcp == 1:
        return True
    return ask.training is None and dcp in ways_to_spread(ask.model, int(ask.plan.tp))


def ways_to_spread(model: Model, tp: int) -> list[int]:
    """Over how many of tp's ranks keys may lie."""
    if model.recurrences or not all(map(_keeps_all, model.attentions)):
        return [1]
    return [1, *(n for n in divisors(tp)[1:] if all(_shares(a, tp, n) for a in model.attentions))]


def spread_advice(ask: Ask) -> str:
    """What to write instead."""
    model, tp, dcp = ask.model, int(ask.plan.tp), ask.plan.dcp
    if ask.training is not None:
        return say("dcp {dcp} spreads the cache of a server; training has --cp", dcp=dcp)
    if model.recurrences or not all(map(_keeps_all, model.attentions)):
        return say(
            "dcp {dcp}: {name} has layers with states, windows or chosen blocks, whose cache "
            "engines do not spread; leave dcp out",
            dcp=dcp, name=model.name,
        )  # fmt: skip
    ways = ways_to_spread(model, tp)
    if ways == [1]:
        return say(
            "dcp {dcp} with tp {tp}: no two ranks hold the same keys of {name}; raise tp, or leave "
            "dcp out",
            dcp=dcp, tp=tp, name=model.name,
        )  # fmt: skip
    return say(
        "dcp {dcp} with tp {tp}: {most} ranks hold the same keys of {name}; use dcp {ways}",
        dcp=dcp, tp=tp, most=ways[-1], name=model.name, ways=", ".join(map(str, ways)),
    )  # fmt: skip


def _keeps_all(a: Attention) -> bool:
    chooses_blocks = a.indexer is not None and not a.latent
    return not (a.window or a.pooled or chooses_blocks)


def _shares(a: Attention, tp: int, ranks: int) -> bool:
    """Whether so many ranks hold the same keys, and the queries of all of them belong to these."""
    if a.latent:
        return True
    return a.kv_heads * ranks <= tp and a.heads // a.kv_heads % ranks == 0
