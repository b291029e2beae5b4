"""What a pass of an engine holds beside weights and cache, at its fullest moment.

vLLM runs one at start, of as many tokens as a step may take, and samples from random logits
(v1/worker/gpu_model_runner.py, profile_run and _dummy_sampler_run):
    dense    = residual + max(input + gate and up, gate and up + their product)
               uncompiled, residual + input + gate and up + their product + output
    experts  = residual + input + output + tokens · chosen · (max(gate and up, hidden) + product)
    sampling = hidden of all tokens + rows · vocabulary · bytes that the sampler holds for a logit
Where nothing is compiled, names of Python keep what they name: gate and up while their product is
projected down (models/llama.py, LlamaMLP.forward), the input in the layer that called.
Fused experts reuse one buffer for the first product and for the last (fused_moe.py,
intermediate_cache13), and take 32,768 tokens at a time.
"""

from __future__ import annotations

from typing import Final

from trueflops.model import Model
from trueflops.model.architecture import Block
from trueflops.plan import Plan
from trueflops.profile import Engine

EXPERT_TOKENS: Final = 32768  # VLLM_FUSED_MOE_CHUNK_SIZE
WIDE: Final = 2.0  # bytes of an activation


def trial_bytes(model: Model, plan: Plan, engine: Engine) -> float:
    """The fullest moment of one pass of one rank."""
    tokens = float(engine.step_tokens)
    forward = max(_block_width(model, block, plan, engine) for block in model.blocks)
    rows = min(engine.most_sequences, engine.step_tokens)
    logits = rows * model.vocab * engine.sampler_bytes
    if engine.pool == "free":  # TensorRT-LLM's decoder keeps its buffers beside those of a pass
        return tokens * forward * WIDE + logits
    return max(tokens * forward * WIDE, tokens * model.hidden * WIDE + logits)


def _block_width(model: Model, block: Block, plan: Plan, engine: Engine) -> float:
    """Numbers for each token while the hungriest part of a block runs."""
    hidden, tp = float(model.hidden), float(plan.tp)
    others = (block.streams - 1.0) * hidden  # residual streams beside the one that a part reads
    widest = 2.0 * hidden
    if block.attention:
        attention = block.attention
        heads = attention.heads / tp
        keys = heads if attention.latent else max(attention.kv_heads / tp, 1.0)
        projected = (heads + keys) * attention.head_dim + keys * attention.value_dim
        widest = max(widest, 2.0 * hidden + projected + heads * attention.value_dim)
    if block.recurrent:  # queries and keys, values and their gate
        recurrent = block.recurrent
        values = recurrent.heads / tp * recurrent.value_dim
        keys = max(recurrent.key_heads / tp, 1.0) * recurrent.key_dim
        widest = max(widest, 2.0 * hidden + 2.0 * (keys + values) + values)
    if block.ffn:
        wide = block.ffn.width / tp
        both = 2.0 * wide if block.ffn.gated else wide
        held = 2.0 * hidden + both + wide if engine.eager else max(hidden + both, both + wide)
        widest = max(widest, hidden + held)
    if block.experts:
        each = block.experts
        wide = each.width / float(plan.etp)
        both = 2.0 * wide if each.gated else wide
        part = min(EXPERT_TOKENS / engine.step_tokens, 1.0)
        widest = max(widest, 3.0 * hidden + part * each.per_token * (max(both, hidden) + wide))
    return widest + others
