"""Mixtures of one form: GQA, dense first layers, routed experts with shared ones of their width.

What differs is in a table: norms, windows, a gate, and how their config.json calls it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from trueflops.model.architecture import Block, Model
from trueflops.model.config import Config
from trueflops.model.families.llama import Traits, attentions
from trueflops.model.families.registry import assemble, one_a_layer, reads, refuse_unknown
from trueflops.model.layers import Experts, Ffn

SPARSE: Final = "sparse"


@dataclass(frozen=True)
class Form:
    """How a family departs from the others."""

    traits: Traits
    dense: int = 0  # first layers without experts, where its config.json is silent
    shared: int = 0  # experts that every token meets, likewise
    gated: bool = False  # what attention answers is multiplied by a gate
    chosen_bias: bool = False  # choosing has a bias that counts as a parameter
    norms_asked: bool = False  # queries and keys are normed where `use_qk_norm` says so


FORMS: Final = {
    # Hy3: HYV3Attention, HYV3MoE of transformers; `expert_hidden_dim` in vLLM's models/hy_v3.py.
    "hy_v3": Form(Traits(qk_norm="head"), dense=1, shared=1),
    # Ling and Ring, 1.5 and 2.0: vLLM's models/bailing_moe.py.
    "bailing_moe": Form(Traits(), norms_asked=True),
    "bailing_moe_v2": Form(Traits(), norms_asked=True),
    # Trinity: AfmoeAttention, AfmoeMoE of transformers.
    "afmoe": Form(
        Traits(qk_norm="head", norms="sandwich", local="three of four"),
        dense=1, shared=2, gated=True, chosen_bias=True,
    ),
    # K-EXAONE: ExaoneMoeAttention, ExaoneMoeSparseMoEBlock of transformers.
    "exaone_moe": Form(Traits(qk_norm="head", local="three of four"), dense=1, shared=1),
}  # fmt: skip


@reads(*FORMS)
def mixture(c: Config, name: str) -> Model:
    """By the table above."""
    form = FORMS[c.text("model_type")]
    hidden, layers = c.size("hidden_size"), c.layers("num_hidden_layers")
    traits = form.traits
    if form.norms_asked and c.flag("use_qk_norm", default=False):
        traits = replace(traits, qk_norm="head")
    width = c.size("moe_intermediate_size", "expert_hidden_dim")
    each = c.size("moe_shared_expert_intermediate_size", default=width)
    shared = c.size("num_shared_experts", "n_shared_experts", default=form.shared, least=0)
    experts = Experts(
        c.size("num_experts", "n_routed_experts", "num_local_experts"),
        c.size("num_experts_per_tok"),
        width,
        shared_width=each * shared,
        router_bias=form.chosen_bias,
    )
    dense = Ffn(c.size("intermediate_size"), gated=True, bias=c.flag("mlp_bias", default=False))
    routed = _routed(c, form, layers)
    blocks = [
        Block(
            replace(attention, gated=form.gated),
            None if routes else dense,
            experts if routes else None,
            norms=traits.norms,
        )
        for attention, routes in zip(attentions(c, traits, hidden, layers), routed, strict=True)
    ]
    return assemble(c, name, blocks, hidden, tied=False)


def _routed(c: Config, form: Form, layers: int) -> list[bool]:
    """Which layers have experts: each by its name, or all behind the first."""
    kinds = c.texts("mlp_layer_types")
    if kinds:
        one_a_layer(c, "mlp_layer_types", kinds, layers)
        known = (SPARSE, "dense")
        refuse_unknown(c, "mlp_layer_types", kinds, known.__contains__, known)
        return [kind == SPARSE for kind in kinds]
    first = c.size("first_k_dense_replace", "num_dense_layers", default=form.dense, least=0)
    return [i >= first for i in range(layers)]


@reads("hunyuan_v1_moe", "hunyuan")
def hunyuan_moe(c: Config, name: str) -> Model:
    """Hunyuan-A13B: every layer routes, beside one expert of the same width that all tokens meet.

    HunYuanMoEV1Moe of transformers; lists that say the same of every layer, as its release has.
    """
    hidden, layers = c.size("hidden_size"), c.layers("num_hidden_layers")
    widths = _of_all(c, "moe_intermediate_size", c.size("intermediate_size"))
    experts = Experts(
        c.size("num_experts"),
        _of_all(c, "moe_topk", 1),
        widths,
        shared_width=widths * _of_all(c, "num_shared_expert", 1),
    )
    every = attentions(c, Traits(qk_norm="head"), hidden, layers)
    return assemble(c, name, [Block(a, None, experts) for a in every], hidden, tied=False)


def _of_all(c: Config, field: str, usual: int) -> int:
    """A number, or the one that a list says of every layer."""
    if not isinstance(c.fields.get(field), list):
        return c.size(field, default=usual)
    said = set(c.sizes(field))
    return Config({field: said.pop() if len(said) == 1 else sorted(said)}, c.where).size(field)
