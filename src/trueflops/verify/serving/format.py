"""How weights and cache were stored, and by which engine, as a row of results says it."""

from __future__ import annotations

import re
from typing import Final

from trueflops.catalog import Accelerator
from trueflops.errors import BadInput, shorten
from trueflops.graph.passes import FORMATS
from trueflops.model import Model
from trueflops.predict.released import multiplies
from trueflops.profile.frameworks import SERVING

_GGUF: Final = re.compile(r"\bi?(q\d_(?:k(?:_[sml])?|[01]))\b")
_BITS: Final = re.compile(r"(\d(?:\.\d{1,9})?)\s*bpw")
_WIDE: Final = ("bf16", "fp16", "f16", "float16", "bfloat16", "half", "16-bit", "16bit")
_INT8: Final = ("int8", "w8a8", "w8a16", "8bit", "8-bit")
_INT4: Final = ("int4", "4bit", "4-bit", "awq", "gptq", "w4a16", "w4", "nf4", "bnb", "marlin")
_INT4_EXPERTS: Final = ("Kimi-K2",)  # released with routed experts in int4, all else in bf16
# The first that the engine's name holds.
_ENGINES: Final = {
    "exllamav3": "exllamav3",
    "exllama": "exllama",
    "llama": "llama.cpp",
    "ollama": "llama.cpp",
    "gguf": "llama.cpp",
    "vllm": "vllm",
    "trt": "trt-llm",
    "tensorrt": "trt-llm",
    "sglang": "sglang",
    "mlx": "mlx",
    "mlc": "mlc",
    "turbomind": "lmdeploy",
    "lmdeploy": "lmdeploy",
    "gpt-fast": "gpt-fast",
}
# Releases before which an engine ran otherwise: vLLM's CUDA graphs came with 0.2.6 in December
# 2023, llama.cpp's int8 tensor cores and fused attention by default for prompts after June 2024;
# all of ExLlamaV3's releases of 2025 are 0.0.
_BEFORE: Final = {
    "vllm": ("vllm-0.2", 2023.96, (0, 2, 6)),
    "llama.cpp": ("llama.cpp-2023", 2024.44, ()),
    "exllamav3": ("exllamav3-0", 2026.0, (1, 0, 0)),
}
_MONTHS: Final = (
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
)
_DATE: Final = re.compile(rf"\b({'|'.join(_MONTHS)})[a-z]*\.? (20\d\d)\b", re.IGNORECASE)
_PCIE: Final = re.compile(r"\bPCIe ?([345])(?:\.0)? ?x(16)\b", re.IGNORECASE)
_VERSION: Final = re.compile(r"\bv?(\d{1,3})\.(\d{1,3})(?:\.(\d{1,3}))?\b")


def framework_of(engine: str, version: str = "", year: str = "") -> str:
    """The key of a profile: engines that share kernels share one; others, what serves usually.

    A release that ran otherwise than those of today is told by its version, or by its date, else
    by the year of the results.
    """
    name = _engine(engine) or SERVING
    if name not in _BEFORE:
        return name
    older, since, first = _BEFORE[name]
    number = _VERSION.search(version) if first else None
    if number:
        return older if tuple(int(part or 0) for part in number.groups()) < first else name
    date = _DATE.search(version)
    if date:
        months = _MONTHS.index(date[1].casefold()) / len(_MONTHS)
        return older if float(date[2]) + months < since else name
    return older if year.isdecimal() and float(year) + 1.0 <= since else name


def knows_engine(engine: str) -> bool:
    """Whether settings of this engine are known."""
    return _engine(engine) is not None


def _engine(said: str) -> str | None:
    return next((key for part, key in _ENGINES.items() if part in said.casefold()), None)


def pcie_of(notes: str) -> str:
    """The PCIe link that notes state, as the catalog names it; empty where they state none."""
    found = _PCIE.search(notes)
    return f"PCIe {found[1]}.0 x{found[2]}" if found else ""


def tag_of(checkpoint: str) -> str:
    """The format that a checkpoint's name ends with, such as -FP8 or -AWQ."""
    tag = checkpoint.rpartition("-")[2].casefold()
    return tag if tag in ("fp8", "fp4", "nvfp4", "awq", "gptq", "int4", "int8") else ""


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
        both = ("nvfp4", "mxfp4_fp4")  # as NVIDIA's chips multiply, and AMD's
        own = [name for name in both if multiplies(chip, name) and not kept_wide]
        return own[0] if own else "nvfp4-weights"
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
