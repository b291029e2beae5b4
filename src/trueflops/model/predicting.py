"""A model with modules beside it that predict further tokens, as it is trained.

Multi-token prediction (DeepSeek-V3, arXiv 2412.19437 §2.2): each module joins the stream of the one
before with the embedding of the next token, passes it through one more layer like the last, and
through the head, whose weights and those of the embedding it shares with the model.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from trueflops.model.architecture import Model


@lru_cache(maxsize=256)
def predict_further(model: Model, modules: int) -> Model:
    """The same model with so many modules behind its last layer."""
    if not modules:
        return model
    layer = replace(model.blocks[model.pattern[-1]], joins=True, frozen=False)
    return replace(
        model,
        blocks=(*model.blocks, layer),
        pattern=(*model.pattern, *[len(model.blocks)] * modules),
        modules=modules,
    )
