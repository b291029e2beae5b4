"""A model with modules beside it that predict further tokens, as it is trained.

Multi-token prediction (DeepSeek-V3, arXiv 2412.19437 §2.2): each module joins the stream of the one
before with the embedding of the next token, passes it through one more layer like the last, and
through the head, whose weights and those of the embedding it shares with the model. Where layers
are one half each, a module has attention and what widens (Nemotron 3's mtp_layers_block_type).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from trueflops.model.architecture import Block, Model


@lru_cache(maxsize=256)
def predict_further(model: Model, modules: int) -> Model:
    """The same model with so many modules behind its last layer."""
    if not modules:
        return model
    return replace(
        model,
        blocks=(*model.blocks, module_layer(model)),
        pattern=(*model.pattern, *[len(model.blocks)] * modules),
        modules=modules,
    )


def module_layer(model: Model) -> Block:
    """The layer of a module: like the model's last, behind a join, with an indexer of its own where
    layers share theirs (vLLM's models/deepseek_v2.py: the pattern governs the backbone alone), and
    without pooled keys (models/deepseek_v4/attention.py: compress_ratio 1 behind the last).
    """
    behind = [model.blocks[index] for index in reversed(model.pattern)]
    layer = behind[0]
    if len(layer.parts) < 2:
        widening = next((block for block in behind if block.ffn or block.experts), layer)
        attention = next((block.attention for block in behind if block.attention), None)
        layer = replace(widening, attention=attention)
    own = layer.attention
    if own and own.indexer and own.indexer.shared:
        indexer = replace(own.indexer, shared=False)
        layer = replace(layer, attention=replace(own, indexer=indexer))
    if own and own.pooled:
        alone = replace(own.pooled, rate=0, overlaps=False)
        layer = replace(layer, attention=replace(own, pooled=alone, indexer=None))
    return replace(layer, joins=True, frozen=False)
