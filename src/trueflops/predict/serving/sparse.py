"""Which kernel attends to the keys that an indexer chose, by engine and by pass.

In: an Engine, a chip, a model. Out: a SparseKernel for a pass, or None where it sees all keys; and
whether cached keys can be spread over ranks.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from trueflops.catalog import Accelerator
from trueflops.graph import SparseKernel
from trueflops.graph.formats import EIGHT_BITS
from trueflops.model import Model
from trueflops.profile import Engine
from trueflops.sizes import Size

# Heads that FlashMLA's sparse kernel runs multiples of, by compute capability; engines pad their
# own to it (flashmla_sparse.py of vLLM, nsa_backend.py of SGLang, modules/attention.py of
# TensorRT-LLM).
HEAD_TILES: Final = {9: 64.0, 10: 128.0}
HOPPER: Final = 9


def chosen_at_most(model: Model) -> int:
    """Keys that an indexer chooses for a query; 0: the model has none."""
    found = (attention.indexer for attention in model.attentions)
    return max((indexer.top for indexer in found if indexer), default=0)


def sees_all(model: Model, engine: Engine, seq: Size, past: Size) -> NDArray[np.bool_]:
    """Whether a pass over prompts is dense: the engine does so, and every key would be chosen. Of
    pooled keys all are read by the kernel that reads the chosen ones.
    """
    if any(attention.pooled for attention in model.attentions):
        return np.zeros(np.broadcast(seq, past).shape, dtype=bool)
    short = np.asarray(past + seq) <= chosen_at_most(model)
    return short & engine.short_dense


def sparse_kernel(engine: Engine, chip: Accelerator, *, decoding: bool) -> SparseKernel:
    """The kernel of a decode step, or of prompts."""
    scores = "fp8" if chip.computes("fp8") else "bf16"
    if decoding and engine.sparse_paged:
        return SparseKernel(scores=scores)
    major = _major(chip)
    tile = HEAD_TILES.get(major, 1.0)
    return SparseKernel(tile, engine.sparse_whole, scores, masks=major == HOPPER)


def spreads(engine: Engine, model: Model, chip: Accelerator, cache_bits: float) -> bool:
    """Whether an engine spreads the cached keys of a model over ranks that would all hold them.

    Of chosen keys vLLM does so on Hopper for a cache of 8 bits alone (mla/flashmla_sparse.py), on
    Blackwell for any (mla/flashinfer_mla_sparse.py).
    """
    if not chosen_at_most(model):
        return engine.spreads != "nothing"
    runs = _major(chip) > HOPPER or (_major(chip) == HOPPER and cache_bits <= EIGHT_BITS)
    return engine.spreads == "chosen" and runs


def _major(chip: Accelerator) -> int:
    """Of its compute capability; Hopper's where it has none."""
    major, _ = chip.architecture.compute_capability or (HOPPER, 0)
    return major
