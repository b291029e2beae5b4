"""Shapes of a model that settings of megatron-core say, beside those of the model asked for.

A script describes its model by itself (training/arguments.py), where the question names one: what a
plan says of another model, such as how layers lie on stages, need not hold for this one.
"""

from __future__ import annotations

from typing import Final

from trueflops.errors import BadInput
from trueflops.interop.launch.settings import Said
from trueflops.language import mark, say, word
from trueflops.model import Model

EXPERTS: Final = "model.num_moe_experts"
_SHAPES: Final = {
    "model.num_layers": mark("layers"),
    "model.hidden_size": mark("wide"),
    "model.num_attention_heads": mark("heads"),
    "model.num_query_groups": mark("key-value heads"),
    "model.ffn_hidden_size": mark("wide in the FFN"),
    "model.moe_ffn_hidden_size": mark("wide in an expert"),
    "model.moe_router_topk": mark("experts a token"),
    EXPERTS: mark("experts"),
}


def check_model(said: Said, model: Model, *, alone: bool) -> tuple[str, ...]:
    """One note of what differs; experts of which the model has none are refused.

    `alone`: nothing but these settings describes the model, so that none of experts means none.
    """
    if said.whole(EXPERTS, 0) > 1 and not model.is_moe:
        raise BadInput(
            say(
                "{place}: the script's model has {count} experts, and {name} has none; name the "
                "script's model, or leave its experts out",
                place=said.place(EXPERTS),
                count=said.whole(EXPERTS, 0),
                name=model.name,
            )
        )
    own = _shapes(model, said.get("model.moe_ffn_hidden_size") is not None)
    other = {key: said.whole(key, 0) for key in _SHAPES if said.get(key) is not None}
    if alone and "model.num_layers" in other:
        other.setdefault(EXPERTS, 0)
    differing = [key for key, value in other.items() if own.get(key) and value not in own[key]]
    if not differing:
        return ()
    shapes = [
        say(
            "{value:,} {shape}, not {own:,}",
            value=other[key],
            shape=word(_SHAPES[key]),
            own=own[key][0],
        )
        for key in differing
    ]
    return (
        say(
            "{where}: the script's model is another than {name}, which is priced: {shapes}",
            where=said.where,
            shapes=say("; ").join(shapes),
            name=model.name,
        ),
    )


def _shapes(model: Model, apart: bool) -> dict[str, list[int]]:
    """What each setting may be for a model; none where the model has no such part.

    `apart`: the width of an expert has a setting of its own, so that the FFN's is of dense layers.
    """
    dense = [b.ffn.width for b in model.blocks if b.ffn]
    routed = [b.experts for b in model.blocks if b.experts]
    plain = [a for a in model.attentions if not a.latent]
    return {
        "model.num_layers": [model.layers],
        "model.hidden_size": [model.hidden],
        "model.num_attention_heads": [a.heads for a in model.attentions],
        "model.num_query_groups": [a.kv_heads for a in plain],
        "model.ffn_hidden_size": dense or ([] if apart else [e.width for e in routed]),
        "model.moe_ffn_hidden_size": [e.width for e in routed],
        "model.moe_router_topk": [e.per_token for e in routed],
        EXPERTS: [e.count for e in routed],
    }
