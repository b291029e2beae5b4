"""Readers of config.json, one per `model_type`: fields in Hugging Face spelling, a Model out.

gemma.py  heads of two widths, keys and inputs of other layers: Gemma 4
gpt.py    learned positions or alibi, LayerNorm, biases: GPT-2, OPT, BLOOM, GPT-NeoX, Falcon, MPT …
llama.py  RMSNorm, rope, gated FFN: LLaMA, Mistral, Qwen, Gemma, Phi-3, OLMo-2, Granite …
moe.py    routed experts: Mixtral, Qwen-MoE, Llama 4, GPT-OSS, GLM-4.5, MiniMax-M2, MiMo-V2
hybrid.py linear attention beside full: Qwen3-Next, Qwen3.5, Kimi Linear, MiniMax-01, LFM2
mamba.py  state spaces: Mamba, Nemotron-H, Granite 4.0, Falcon-H1, Jamba, Bamba
mixtures.py  mixtures of one form: Hy3, Ling, Trinity, K-EXAONE, Hunyuan
mla.py    latent attention: DeepSeek-V2/V3/R1, Kimi-K2, GLM-5
pooled.py pooled keys: DeepSeek-V4
step.py   more heads in layers of a window: Step-3.7-Flash
searched.py  layers that differ one by one: Llama-Nemotron
registry.py  the table of readers, and what they share
"""

# ruff: noqa: F401 (they register)
from trueflops.model.families import (
    gemma,
    gpt,
    hybrid,
    llama,
    mamba,
    mixtures,
    mla,
    moe,
    pooled,
    searched,
    step,
)
from trueflops.model.families.registry import READERS as READERS
