"""megatron-core's CUDA graphs: which parts of a layer are captured, or the whole iteration.

As of megatron-core 0.16.1: cuda_graph_impl and cuda_graph_scope, and what goes together
(transformer/transformer_config.py, __post_init__); a whole iteration is never looked through for
NaN, which Megatron-LM (training/arguments.py) and Megatron-Bridge (training/config.py) ask to be
said.
"""

from __future__ import annotations

from typing import Final

from trueflops.interop.launch.settings import Asked, Said, Settings, refused
from trueflops.model import Model
from trueflops.plan.captures import STEP

HOW: Final = "model.cuda_graph_impl"
SCOPE: Final = "model.cuda_graph_scope"
_SCOPES: Final = {"attention": "attn", "ffn": "mlp", "router": "moe_router"}
_PREPARED: Final = "moe_preprocess"  # how tokens are counted; captured beside their router
_ITERATION: Final = "full_iteration"
_WHOLE: Final = ("", "full")
_OLD: Final = {
    "model.enable_cuda_graph": "local",
    "model.external_cuda_graph": "transformer_engine",
}


def graph_settings(tool: str, asked: Asked) -> Settings:
    """What is captured, in their words; what they assert against is refused."""
    plan, routed = asked.plan, asked.model.is_moe
    parts = plan.captured
    if not parts:
        return {HOW: None, SCOPE: None}
    if parts == {STEP}:
        if plan.overlap_dispatch:
            raise refused(
                tool, "cuda_graphs", STEP, "attention,router goes beside --overlap-dispatch"
            )
        return {HOW: "local", SCOPE: [_ITERATION]}
    if plan.recompute == "full":
        raise refused(tool, "cuda_graphs", plan.cuda_graphs, "step goes beside --recompute full")
    if "router" in parts and not routed:
        raise refused(tool, "cuda_graphs", plan.cuda_graphs, "router needs a model with experts")
    if "ffn" in parts and all(block.experts for block in asked.model.blocks):
        raise refused(tool, "cuda_graphs", plan.cuda_graphs, "ffn needs dense layers")
    if "ffn" in parts and plan.overlap_dispatch:
        instead = "attention,router goes beside --overlap-dispatch"
        raise refused(tool, "cuda_graphs", plan.cuda_graphs, instead)
    scopes = [theirs for ours, theirs in _SCOPES.items() if ours in parts]
    return {HOW: "transformer_engine", SCOPE: scopes + [_PREPARED] * ("router" in parts)}


def read_graphs(said: Said, model: Model) -> str:
    """What is captured, in our words."""
    how = said.choice(
        HOW, {"none": "", "local": "local", "transformer_engine": "transformer_engine"}, "none"
    )
    for key, meant in _OLD.items():
        how = meant if said.switch(key) else how
    scopes = said.get(SCOPE)
    if not how:
        return ""
    listed = scopes if isinstance(scopes, list) else str(scopes or "").split(",")
    if tuple(listed) == (_ITERATION,):
        return STEP
    if all(scope in _WHOLE for scope in listed):  # the whole layer: none of experts' is
        listed = ["attn", *([] if model.is_moe else ["mlp"])]
    known = {theirs: ours for ours, theirs in _SCOPES.items()} | {_PREPARED: "router"}
    if not set(listed) <= known.keys():
        raise said.wrong(SCOPE, ", ".join([*known, _ITERATION]))
    return ",".join(sorted({known[scope] for scope in listed}))
