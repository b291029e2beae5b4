"""What a checkpoint's name says beside its model's: the format that weights are stored in.

In: 'RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic', 'Qwen3-8B-Q4_K_M.gguf', 'ggml-org/M-GGUF:Q8_0'.
Out: the name without such words, and the format in the words of `graph/passes/quantise.py`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from trueflops.model.architecture import Model
from trueflops.model.quantization import Released

FORMAT_WORDS: Final = (
    r"qat|awq|gptq|gguf|exl[23]|mlx|fp8|fp16|bf16|fp4|nvfp4|mxfp4|int[48]|w[48]a(?:16|8)|[48]bit"
    r"|dynamic|static|block|autoround|quantized|unsloth|marlin|bnb|kv|ud|i?q\d_\w+|\d{5}-of-\d{5}"
)
"""Words of formats, of who stored them and how, as a regular expression."""
_LAST: Final = re.compile(rf"[-_. :]+(?:{FORMAT_WORDS})$", re.IGNORECASE)
_GGUF: Final = re.compile(r"(?<![a-z0-9])q(\d)_(k(?:_[sml])?|[01])(?![a-z0-9])")
_WHOLE: Final = ("2_k", "6_k")  # of which there is one size only
# The first word that a name holds decides: bits come before methods, which have several.
_FORMATS: Final = (
    ("nvfp4", "nvfp4"), ("mxfp4", "mxfp4"), ("fp4", "nvfp4"), ("fp8", "fp8"), ("w8a8", "int8"),
    ("w8a16", "w8a16"), ("int8", "w8a16"), ("8bit", "w8a16"), ("w4a16", "int4"), ("int4", "int4"),
    ("4bit", "int4"), ("awq", "int4"), ("gptq", "int4"), ("bnb", "int4"), ("bf16", "bf16"),
    ("fp16", "bf16"),
)  # fmt: skip


def bare_name(checkpoint: str) -> str:
    """The name without what it says of its format."""
    bare = checkpoint.strip()
    while (shorter := _LAST.sub("", bare)) != bare:
        bare = shorter
    return bare


def format_in(checkpoint: str) -> str:
    """The format that a name tells; empty where it tells none.

    >>> format_in("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int8"), format_in("M-Q4_K_M.gguf")
    ('w8a16', 'q4_k_m')
    """
    name = checkpoint.casefold()
    said = name[len(bare_name(name)) :]
    if found := _GGUF.search(said):
        kind = f"{found[1]}_{found[2]}"
        return f"q{kind}_m" if found[2] == "k" and kind not in _WHOLE else f"q{kind}"
    words = re.split(r"[-_. :]+", said)
    form = next((ours for word, ours in _FORMATS if word in words), "")
    if form == "mxfp4" and "gguf" in words:
        return "gguf-mxfp4"
    if form == "mxfp4" and name.startswith("amd/"):  # Quark's, of weights and inputs
        return "mxfp4_fp4"
    return "fp8_block" if form == "fp8" and "block" in words else form


def stored_as(model: Model, checkpoint: str) -> Model:
    """The model in the format that a checkpoint's name tells, if it tells one."""
    form = format_in(checkpoint)
    return in_format(model, form, checkpoint) if form else model


def _in_blocks(model: Model, checkpoint: str) -> bool:
    """Whether fp8 of a name has a scale for each block of weights: of Qwen's own mixtures ("block
    size of 128", say their cards), but not where others made the scales (FP8-dynamic).
    """
    others = re.search("dynamic|static", checkpoint.casefold())
    return model.is_moe and model.family.startswith("qwen3") and not others


def in_format(model: Model, form: str, checkpoint: str) -> Model:
    """The model as a checkpoint stores it."""
    own = model.released.format
    if form == "fp8" and _in_blocks(model, checkpoint):
        form = "fp8_block"
    if own and own.startswith(form):  # fp8 of a name may be fp8_block of its config.json
        return model
    named = checkpoint.rpartition("/")[2][:60]
    return replace(model, released=Released() if form == "bf16" else Released(form, "", named))
