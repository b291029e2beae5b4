"""A model of which only the size is known: a transformer of that size in the usual proportions.

Tokens per second depend first on how many bytes of weights a step reads, which the size gives;
layers, heads and experts follow from it by the proportions of the Llama 3 and Qwen 3 families:
    hidden : layers = 128 : 1, heads of 128, 8 key/value heads, 128 Ki vocabulary, gated FFN
Of a hybrid, three layers in four keep a state of fixed size instead of a cache that grows
(Qwen3-Next and Qwen3.5, config.json: full_attention_interval 4, heads of 128 × 128 in fp32).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Final

from trueflops.model.architecture import Block, Model
from trueflops.model.families.hybrid import gated_delta
from trueflops.model.layers import Attention, Experts, Ffn, Recurrent
from trueflops.model.parameters import attention_parameters, recurrent_parameters

FAMILY: Final = "stand-in"
VOCABULARY: Final = 131072
HEAD: Final = 128
KV_HEADS: Final = 8
WIDTH_PER_LAYER: Final = 128
CHOSEN: Final = 8  # experts of a token
MOST_EXPERTS: Final = 1024
MOST_LAYERS: Final = 64  # of a mixture: 48 (Qwen3-30B), 61 (DeepSeek-V3), 62 (MiniMax-M2)
MIXTURE: Final = 0.9  # above this share of active parameters a model is dense
FULL_EVERY: Final = 4  # layers of a hybrid has full attention
CONVOLUTION: Final = 4  # tokens that its other layers look at
POSITIONS: Final = 1_000_000


@cache
def stand_in(name: str, parameters: float, active: float, hybrid: bool = False) -> Model:
    """Build a dense model, or a mixture of experts where clearly fewer parameters are active."""
    if active < MIXTURE * parameters:
        return _mixture(name, parameters, active, hybrid)
    hidden, tied = _hidden(parameters), parameters < 4.0 * VOCABULARY * _hidden(parameters)
    inside = parameters - (1 if tied else 2) * VOCABULARY * hidden
    attention = _attention(hidden)
    layers = max(round(hidden / WIDTH_PER_LAYER), 1)
    width = inside / layers - _of_a_layer(attention, hidden, hybrid)
    ffn = Ffn(max(round(width / (3 * hidden) / 256), 1) * 256, gated=True)
    return _model(name, hidden, Block(attention, ffn, None), layers, tied, hybrid)


def is_stand_in(model: Model) -> bool:
    """Whether a model was built here."""
    return model.family == FAMILY


def _mixture(name: str, parameters: float, active: float, hybrid: bool) -> Model:
    """Experts hold what attention and embedding leave; a shared one what the chosen lack."""
    hidden = _hidden(0.5 * active)
    attention = _attention(hidden)
    layers = min(max(round(hidden / 64), 16), MOST_LAYERS)
    ends = 2.0 * VOCABULARY * hidden
    dense = min(layers * _of_a_layer(attention, hidden, hybrid) + ends, 0.8 * active)
    count = 2 * CHOSEN
    while count < MOST_EXPERTS and dense + (parameters - dense) * CHOSEN / count > active:
        count *= 2
    # dense + shared + routed = parameters;  dense + shared + routed · chosen / count = active
    routed = (parameters - active) / (1.0 - CHOSEN / count)
    shared = max(parameters - dense - routed, 0.0)
    one = 3.0 * hidden * layers
    experts = Experts(
        count,
        CHOSEN,
        max(round(routed / count / one / 16), 1) * 16,
        shared_width=round(shared / one / 128) * 128,
    )
    return _model(name, hidden, Block(attention, None, experts), layers, False, hybrid)


def _hidden(parameters: float) -> int:
    """The width at which 12.5 · hidden² · hidden / 128 and two tables make up the parameters."""
    step = 1024 if parameters > 4 * VOCABULARY * 2048 else 256
    width = step
    while _dense_parameters(width + step // 2) < parameters:
        width += step
    return width


def _dense_parameters(hidden: int) -> float:
    return 12.5 * hidden**3 / WIDTH_PER_LAYER + 2.0 * VOCABULARY * hidden


def _attention(hidden: int) -> Attention:
    heads = max(hidden // HEAD, 1)
    return Attention(heads, min(KV_HEADS, heads), HEAD, HEAD)


def _linear(attention: Attention) -> Recurrent:
    """A layer of linear attention with as many heads."""
    side = attention.head_dim
    return gated_delta(attention.heads, attention.kv_heads, side, side, CONVOLUTION)


def _of_a_layer(attention: Attention, hidden: int, hybrid: bool) -> float:
    """Parameters of a layer's attention; of a hybrid, the mean over its layers."""
    full = _held(attention, hidden)
    if not hybrid:
        return full
    return ((FULL_EVERY - 1) * _kept(_linear(attention), hidden) + full) / FULL_EVERY


def _held(attention: Attention, hidden: int) -> int:
    """Parameters of an attention layer."""
    return sum(part.elements for part in attention_parameters(attention, hidden))


def _kept(recurrent: Recurrent, hidden: int) -> int:
    """Parameters of a layer of linear attention."""
    return sum(part.elements for part in recurrent_parameters(recurrent, hidden))


def _model(name: str, hidden: int, block: Block, layers: int, tied: bool, hybrid: bool) -> Model:
    """Blocks of one kind; of a hybrid three in four are linear layers of as many heads."""
    blocks: tuple[Block, ...] = (block,)
    if hybrid and block.attention:
        blocks = replace(block, attention=None, recurrent=_linear(block.attention)), block
    several = len(blocks) > 1
    pattern = tuple(int(several and at % FULL_EVERY == FULL_EVERY - 1) for at in range(layers))
    note = "a stand-in of this size: its layers were not published, or are not in the catalog"
    return Model(
        name=name,
        family=FAMILY,
        hidden=hidden,
        vocab=VOCABULARY,
        blocks=blocks,
        pattern=pattern,
        tied=tied,
        max_positions=POSITIONS,
        notes=(note,),
    )
