"""How layers are dealt out to the pieces of a pipeline.

In: layers, stages, pieces of each, layers of the ends. Out: layers of every piece, in layer order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trueflops.sizes import Size


def deal(layers: int, pp: int, vpp: int = 1, first: int = 0, last: int = 0) -> list[int]:
    """Layers of each of the pp·vpp pieces, in layer order; piece i lies on stage i mod pp.

    `first` and `last` are of whole stages; where these are interleaved, the piece with the
    embedding and that with the head get fewer, or none (Llama 3, arXiv 2407.21783 §3.3.2).
    """
    pieces = pp * vpp
    fixed: dict[int, int] = {}
    if first:
        fixed |= dict(zip(reversed(range(0, pieces, pp)), _evenly(first, vpp), strict=True))
    if last and pieces > 1:
        fixed |= dict(zip(range(pp - 1, pieces, pp), _evenly(last, vpp), strict=True))
    free = [i for i in range(pieces) if i not in fixed]
    rest = max(layers - sum(fixed.values()), 0)
    middle_first = sorted(free, key=lambda i: (i == pieces - 1, i == 0, i))
    dealt = fixed | dict(zip(middle_first, _evenly(rest, len(free)), strict=True))
    return [dealt[i] for i in range(pieces)]


def layers_of_fullest(
    layers: int, pp: Size, vpp: Size, first: Size, last: Size
) -> NDArray[np.float64]:
    """Layers of the fullest stage, of many plans at once; where pieces differ, as if all of a stage
    were the larger ones, as Megatron-LM counts what it recomputes by the piece.
    """
    others = pp - (np.asarray(first) > 0) - (np.asarray(last) > 0)
    rest = np.ceil((layers - first - last) / (np.maximum(others, 1) * vpp)) * vpp
    return np.maximum(np.maximum(first, last), np.where(others > 0, rest, 0.0))


def deal_by_cost(layers: int, pp: int, layer: float, head: float) -> list[int]:
    """Layers of each stage where every one is filled until it has its share of what layers and the
    head cost; the piece that passes that share still belongs to it (huggingface/nanotron,
    models/base.py, build_model).
    """
    share = (layers * layer + head) / pp
    dealt, spent, stage = [0] * pp, 0.0, 0
    for _ in range(layers):
        dealt[stage] += 1
        spent += layer
        if spent > share * (stage + 1):
            stage += 1
    return dealt


def _evenly(layers: int, pieces: int) -> list[int]:
    """As even as can be, what is left over to the first of them."""
    each, extra = divmod(layers, pieces) if pieces else (0, 0)
    return [each + (i < extra) for i in range(pieces)]
