"""How weights and cache were stored, and by which engine, as a row of results says it."""

from __future__ import annotations

import re
from typing import Final

from trueflops.catalog import Accelerator
from trueflops.errors import BadInput, shorten
from trueflops.graph.passes import FORMATS
from trueflops.model import Model
from trueflops.profile.frameworks import SERVING

_GGUF: Final = re.compile(r"\bi?(q\d_(?:k(?:_[sml])?|[01]))\b")
_BITS: Final = re.compile(r"(\d(?:\.\d{1,9})?)\s*bpw")
_WIDE: Final = ("bf16", "fp16", "f16", "float16", "bfloat16", "half", "16-bit", "16bit")
_INT8: Final = ("int8", "w8a8", "w8a16", "8bit", "8-bit")
_INT4: Final = ("int4", "4bit", "4-bit", "awq", "gptq", "w4a16", "w4", "nf4", "bnb", "marlin")
_INT4_EXPERTS: Final = ("Kimi-K2",)  # released with routed experts in int4, all else in bf16
# In llama.cpp's order of names; the first that the engine's name holds.
_ENGINES: Final = {
    "llama": "llama.cpp",
    "ollama": "llama.cpp",
    "gguf": "llama.cpp",
    "vllm": "vllm",
    "trt": "trt-llm",
    "tensorrt": "trt-llm",
    "sglang": "sglang",
    "mlx": "mlx",
}


def framework_of(engine: str) -> str:
    """The key of a profile: engines that share kernels share one; others, what serves usually."""
    return _engine(engine) or SERVING


def knows_engine(engine: str) -> bool:
    """Whether settings of this engine are known."""
    return _engine(engine) is not None


def _engine(said: str) -> str | None:
    return next((key for part, key in _ENGINES.items() if part in said.casefold()), None)


def weight_format(said: str, activations: str, model: Model, chip: Accelerator) -> str:
    """Our name of a weight format; empty text means as released, in 16 bits.

    A format whose products the chip cannot compute, or whose activations were kept in 16 bits,
    only narrows the weights.
    """
    text, narrow = said.casefold().replace("float", "fp"), activations.casefold()
    kept_wide = any(wide in narrow for wide in _WIDE)
    if not text or text in ("auto", "none"):
        return "bf16"
    if found := _GGUF.search(text):
        name = found[1] if found[1] in FORMATS else f"{found[1]}_m"
        if name in FORMATS:
            return name
    if found := _BITS.search(text):
        return f"{float(found[1]):.2f}bpw"
    if "mxfp4" in text:
        if "gguf" in text:
            return "gguf-mxfp4"
        return "mxfp4-experts" if model.is_moe else "mxfp4"
    if "nvfp4" in text or "fp4" in text:
        return "nvfp4" if chip.computes("fp4") and not kept_wide else "nvfp4-weights"
    if "fp8" in text or "e4m3" in text:
        if not chip.computes("fp8") or kept_wide:
            return "w8a16"
        return "fp8_block" if "block" in text else "fp8"
    if any(word in text for word in _INT4):
        return "int4-experts" if model.name.startswith(_INT4_EXPERTS) else "int4"
    if any(word in text for word in _INT8):
        return "int8" if chip.computes("int8") and "w8a8" in text and not kept_wide else "w8a16"
    if any(word in text for word in _WIDE):
        return "bf16"
    if "fp32" in text or "f32" in text:
        return "fp32"
    raise BadInput(f"weight_dtype {shorten(said, 40)!r} is not a weight format that is known")


def cache_bits(said: str, activations: str = "", framework: str = "") -> float:
    """Bits of one value in the KV cache: 16 unless said otherwise.

    Where nothing is said, TensorRT-LLM and vLLM follow quantised checkpoints that ask for fp8.
    """
    text = said.casefold()
    if (
        not text
        and framework in ("trt-llm", "vllm")
        and activations.casefold() in ("fp8", "fp4", "nvfp4")
    ):
        return 8.0
    if "fp4" in text or "q4" in text or "int4" in text:
        return 4.5
    if "q8" in text:
        return 8.5
    return 8.0 if "8" in text else 16.0
