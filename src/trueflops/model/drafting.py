"""The small networks that draft tokens for a model, as speculative decoding has them.

In: the model that verifies. Out: a Model of the drafter, priced like any other.
    heads of EAGLE (arXiv 2401.15077 §4.1, 2503.01840 §3.1)  a layer, fed by a join of two streams
    blocks of DFlash (arXiv 2602.06036)                      some such layers, all tokens at once
    modules of multi-token prediction (arXiv 2412.19437 §2.2)  one more layer like the model's last
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

from trueflops.model.architecture import Block, Model
from trueflops.model.layers import Attention, Ffn
from trueflops.model.predicting import module_layer

HEAD: Final = 128  # of a drafter whose model has latent attention, as SpecForge's configs have it
KV_HEADS: Final = 8
# Drafters of mixtures are dense, some six times as wide as the stream: SpecForge's configs have
# 12288 of 2048 (Qwen3-30B-A3B), 24576 of 4096 (Qwen3-235B), 40960 of 7168 (DeepSeek-V3).
WIDE: Final = 6


@lru_cache(maxsize=256)
def drafting_head(model: Model, layers: int = 1, vocab: int = 0) -> Model:
    """A drafter of a few dense layers beside the model; `vocab` where it knows fewer tokens."""
    layers_back = (model.blocks[index].attention for index in reversed(model.pattern))
    last = next((attention for attention in layers_back if attention), None)
    if last is None or last.latent or last.pooled:
        heads = max(model.hidden // HEAD, 1)
        attention = Attention(heads, min(KV_HEADS, heads), HEAD, HEAD)
    else:
        attention = replace(last, window=0, chunked=False)
    dense = next((block.ffn for block in model.blocks if block.ffn and not model.is_moe), None)
    block = Block(attention, dense or Ffn(WIDE * model.hidden, gated=True), None, joins=True)
    return replace(
        model,
        name=f"{model.name} drafter",
        vocab=min(vocab or model.vocab, model.vocab),
        blocks=(block,),
        pattern=(0,) * layers,
        tied=False,
        learned_positions=0,
        embedding_dim=0,
        modules=0,
    )


@lru_cache(maxsize=256)
def prediction_module(model: Model) -> Model:
    """The model's own module: a layer like the last behind a join, and the model's head."""
    layer = module_layer(model)
    return replace(model, name=f"{model.name} module", blocks=(layer,), pattern=(0,), modules=0)
