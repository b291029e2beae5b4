"""A model of which the first layers, and the embedding before them, are not trained."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from trueflops.model.architecture import Model


@lru_cache(maxsize=256)
def freeze_first(model: Model, layers: int) -> Model:
    """The same model; frozen layers are kinds of blocks of their own."""
    if not layers:
        return model
    blocks, kinds = list(model.blocks), dict[int, int]()
    for kind in model.pattern[:layers]:
        if kind not in kinds:
            kinds[kind] = len(blocks)
            blocks.append(replace(model.blocks[kind], frozen=True))
    pattern = (*(kinds[kind] for kind in model.pattern[:layers]), *model.pattern[layers:])
    return replace(model, blocks=tuple(blocks), pattern=pattern)


def trained_count(model: Model) -> int:
    """Parameters of all that is not frozen."""
    trained = [
        0 if block.frozen else sum(p.elements for p in block.parameters(model.hidden))
        for block in model.blocks
    ]
    ends = [*model.head_parameters()]  # a tied head's table is the embedding's
    if not model.blocks[model.pattern[0]].frozen:
        ends += model.embedding_parameters()
    return sum(p.elements for p in ends) + sum(trained[kind] for kind in model.pattern)
