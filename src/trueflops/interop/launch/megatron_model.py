"""A model as the flags of Megatron-LM's pretrain_gpt.py: shapes, norms, activations, experts.

In: a Model. Out: flags; one sentence where Megatron-LM has no flag for a part of it.
Of rope's base, epsilons and initial values, which cost no time, Megatron's defaults are left.
"""

from __future__ import annotations

from itertools import groupby
from typing import NoReturn

from trueflops.errors import BadInput
from trueflops.interop.launch.settings import Settings
from trueflops.interop.launch.shell import flags
from trueflops.language import mark, say
from trueflops.model import Model
from trueflops.model.architecture import Block
from trueflops.model.layers import Attention


def model_flags(tool: str, model: Model, seq: int) -> list[str]:
    """Flags of a model; windows, parallel layers and the like have none."""
    _check(tool, model)
    first = model.blocks[0]
    attention = model.attentions[0]
    dense = next((b.ffn for b in model.blocks if b.ffn), None)
    routed = next((b.experts for b in model.blocks if b.experts), None)
    width = dense.width if dense else routed.width if routed else 0
    gated = dense.gated if dense else bool(routed and routed.gated)
    activation = dense.activation if dense else routed.activation if routed else ""
    biased = any(b.ffn and b.ffn.bias for b in model.blocks)
    said: Settings = {
        "num-layers": model.layers,
        "hidden-size": model.hidden,
        "ffn-hidden-size": width,
        **_attention(attention),
        "max-position-embeddings": max(model.learned_positions or model.max_positions, seq),
        "position-embedding-type": "learned_absolute" if model.learned_positions else "rope",
        "normalization": "RMSNorm" if first.norm == "rms" else "LayerNorm",
        "swiglu": gated,
        "squared-relu": activation == "relu2",
        "disable-bias-linear": not biased,
        "add-qkv-bias": attention.qkv_bias and not biased,
        "qk-layernorm": attention.qk_norm == "head",
        "untie-embeddings-and-output-weights": not model.tied,
        "hidden-dropout": first.dropout,
        "attention-dropout": first.attention_dropout,
    }
    if routed:
        said |= {
            "num-experts": routed.count,
            "moe-router-topk": routed.per_token,
            "moe-ffn-hidden-size": routed.width,
            "moe-grouped-gemm": True,
            "moe-layer-freq": _frequency(model),
            "moe-shared-expert-intermediate-size": routed.shared_width or None,
            "moe-shared-expert-gate": routed.shared_gate,
        }
    return flags(said)


def _attention(attention: Attention) -> Settings:
    said: Settings = {"num-attention-heads": attention.heads}
    if attention.latent:
        return said | {
            "multi-latent-attention": True,
            "q-lora-rank": attention.latent.q_rank or None,
            "kv-lora-rank": attention.latent.kv_rank,
            "qk-head-dim": attention.latent.nope_dim,
            "qk-pos-emb-head-dim": attention.latent.rope_dim,
            "v-head-dim": attention.value_dim,
        }
    said["kv-channels"] = attention.head_dim
    if attention.kv_heads < attention.heads:
        said |= {"group-query-attention": True, "num-query-groups": attention.kv_heads}
    return said


def _frequency(model: Model) -> str | None:
    """Which layers have experts: '([0]*3+[1]*58)'; None where all have."""
    kinds = [int(model.blocks[index].experts is not None) for index in model.pattern]
    if all(kinds):
        return None
    runs = [f"[{kind}]*{len(list(run))}" for kind, run in groupby(kinds)]
    return f'"({"+".join(runs)})"'


def _check(tool: str, model: Model) -> None:
    """Refuse what no flag says."""
    attentions = set(model.attentions)
    dense = {b.ffn for b in model.blocks if b.ffn}
    routed = {b.experts for b in model.blocks if b.experts}
    recurs = bool(model.recurrences) or any(len(b.parts) < 2 for b in model.blocks)
    if recurs:
        _refuse(tool, model, mark("layers that keep a state, or one half alone"))
    some = model.attentions[0]
    activations = {(f.gated, f.activation) for f in dense}
    activations |= {(f.gated, f.activation) for f in routed}
    reasons = {
        mark("attention that differs between layers"): len(attentions) > 1,
        mark("a window of attention"): bool(some.window or some.sinks or some.chunked),
        mark("positions by ALiBi"): not (some.rope or model.learned_positions),
        mark("norms of queries and keys over the width"): some.qk_norm not in ("none", "head"),
        mark("biases of some linear layers only"): _uneven_biases(model.blocks),
        mark("norms after attention or FFN"): any(b.norms != "pre" for b in model.blocks),
        mark("attention and FFN side by side"): any(b.parallel for b in model.blocks),
        mark("an embedding of its own width or norm"): bool(
            model.embedding_dim or model.embedding_norm
        ),
        mark("a bias of the head, or no final norm"): model.head_bias or not model.final_norm,
        mark("feed-forward layers of several kinds"): len(activations) > 1 or len(dense) > 1,
        say("the activation {activation}", activation=sorted(activations)[0][1]): not all(
            map(_has_activation, activations)
        ),
    }
    for what, there in reasons.items():
        if there:
            _refuse(tool, model, what)


def _refuse(tool: str, model: Model, what: str) -> NoReturn:
    raise BadInput(
        say(
            "--emit {tool}: {name} has {what}, for which pretrain_gpt.py has no "
            "flag; emit for another tool: torchtitan, deepspeed, nemo or accelerate",
            tool=tool,
            name=model.name,
            what=what,
        )
    )


def _has_activation(kind: tuple[bool, str]) -> bool:
    gated, activation = kind
    return activation == "silu" if gated else activation.startswith("gelu") or activation == "relu2"


def _uneven_biases(blocks: tuple[Block, ...]) -> bool:
    """--disable-bias-linear is for all of them, --add-qkv-bias for one more."""
    for block in blocks:
        attention = block.attention
        inner = block.ffn.bias if block.ffn else bool(block.experts and block.experts.bias)
        if attention is None:
            continue
        if inner != attention.out_bias or (inner and not attention.qkv_bias):
            return True
        if block.experts and (block.experts.router_bias or block.experts.bias):
            return True
    return False
