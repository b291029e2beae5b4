"""Redundant experts: further copies of those that many tokens choose, so that ranks stay even.

DeepSeek-V3's report (arXiv 2412.19437, §3.4.1), deepseek-ai/EPLB; SGLang's
--ep-num-redundant-experts, vLLM's num_redundant_experts. Tokens fall evenly over all copies, which
is what they are for: to its ranks the model is one of so many more experts.
"""

from __future__ import annotations

from dataclasses import replace

from trueflops.errors import BadInput
from trueflops.language import say
from trueflops.model.architecture import Block, Model


def add_copies(model: Model, copies: int) -> Model:
    """The model as its ranks hold it, with so many copies in every layer of experts."""
    if copies == 0:
        return model
    if not model.is_moe:
        raise BadInput(say("{name} has no experts: leave redundant ones out", name=model.name))

    def copied(block: Block) -> Block:
        if block.experts is None:
            return block
        more = replace(block.experts, count=block.experts.count + copies, copies=copies)
        return replace(block, experts=more)

    return replace(model, blocks=tuple(map(copied, model.blocks)))
