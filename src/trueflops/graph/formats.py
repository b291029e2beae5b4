"""Number formats of weights: what they take in memory, and in which dtype their products run.

Weight-only formats read fewer bytes and multiply in the wide dtype; where inputs are narrowed too
(fp8, int8, fp4) the `quantise` pass puts a cast before each product.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from math import inf
from types import MappingProxyType
from typing import Final

from trueflops.errors import UnknownName
from trueflops.language import say


@dataclass(frozen=True)
class Format:
    """`weight_bits` include the scales; `compute` is the product's dtype, "" the pass's own."""

    name: str
    weight_bits: float
    _: KW_ONLY
    compute: str = ""
    input_bits: float = 0.0  # 0: inputs are not narrowed
    head_bits: float = 0.0  # 0: the head stays wide
    dense_bits: float = 0.0  # of weights outside routed experts; 0: the same, inf: those stay wide
    dense: str = ""  # the format of these, where it is another altogether
    wide: tuple[str, ...] = ()  # how names of products begin that stay wide
    alike: str = ""  # the format by whose kernels it is multiplied, where they are another's

    @property
    def kernels(self) -> str:
        """The format whose kernels multiply: those of experts alone are those of all weights."""
        return self.alike or self.name.split("-experts")[0]


EIGHT_BIT_DTYPES: Final = ("fp8", "int8")
EIGHT_BITS: Final = 8.0  # of a cached number, its scale aside

# Block scales: int4 groups of 128 with an fp16 scale and zero point (AWQ, GPTQ): 4.25 bits;
# MXFP4 one E8M0 per 32: 4.25; NVFP4 one E4M3 per 16: 4.5; fp8 one fp32 per 128×128 weights, and per
# 128 of an input.
FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {
        f.name: f
        for f in (
            Format("fp32", 32.0, compute="fp32"),
            Format("bf16", 16.0),
            Format("fp16", 16.0),
            Format("fp8", 8.0, compute="fp8", input_bits=8.0),
            Format("fp8_block", 8.002, compute="fp8", input_bits=8.25),
            # Meta's own narrow checkpoints (arXiv 2407.21783 §6.2; of the first and the last layer,
            # which stay wide as a whole, nothing is known here)
            Format("fp8-ffn", 8.0, compute="fp8", input_bits=8.0, wide=("attention.",)),
            Format("int8", 8.0, compute="int8", input_bits=8.0),
            Format("w8a16", 8.0),
            # 2:4 sparsity keeps two of four weights, and two bits each that say which (PTX ISA,
            # mma.sp): (2 · 16 + 4) / 4 bits a weight. Products are priced at the dense rate.
            Format("bf16-2:4", 9.0),
            Format("fp8-2:4", 5.0, compute="fp8", input_bits=8.0),
            Format("int4", 4.25),
            Format("int4-experts", 4.25, dense_bits=inf),  # Kimi-K2 Thinking and K2.5 as released
            Format("mxfp4", 4.25),
            Format("mxfp4_fp8", 4.25, compute="fp8", input_bits=8.25),
            Format("mxfp4_fp4", 4.25, compute="fp4", input_bits=4.25, alike="nvfp4"),
            Format("nvfp4", 4.5, compute="fp4", input_bits=4.5),
            Format("nvfp4-weights", 4.5),
            Format("mxfp4-experts", 4.25, dense_bits=inf),  # GPT-OSS as released
            Format(
                "mxfp4_fp4-experts",
                4.25,
                compute="fp4",
                input_bits=4.25,
                dense_bits=inf,
                alike="nvfp4",
            ),
            Format("mxfp4-experts-fp8", 4.25, dense="fp8_block"),  # DeepSeek-V4 as released
            Format("mxfp4-experts-w8a16", 4.25, dense="w8a16"),
            # GGUF: blocks of 32, or of 256 with 6-bit scales; the mixed ones (_S, _M, _L) keep some
            # projections wider, and all below 8 bits keep the head at q6_k. Bits of the layers
            # follow from the whole files of Llama-3.1-8B (llama.cpp tools/quantize/README.md).
            Format("q2_k", 2.94, head_bits=6.5625),
            Format("q3_k_s", 3.44, head_bits=6.5625),
            Format("q3_k_m", 3.9, head_bits=6.5625),
            Format("q3_k_l", 4.19, head_bits=6.5625),
            Format("q4_0", 4.5, head_bits=6.5625),
            Format("q4_1", 5.0, head_bits=6.5625),
            Format("q4_k_s", 4.54, head_bits=6.5625),
            Format("q4_k_m", 4.8, head_bits=6.5625),
            Format("q5_0", 5.5, head_bits=6.5625),
            Format("q5_1", 6.0, head_bits=6.5625),
            Format("q5_k_s", 5.5, head_bits=6.5625),
            Format("q5_k_m", 5.65, head_bits=6.5625),
            Format("q6_k", 6.5625, head_bits=6.5625),
            Format("q8_0", 8.5, head_bits=8.5),
            Format("gguf-mxfp4", 4.25, head_bits=8.5, dense_bits=8.5),
        )
    }
)
CALLED: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("awq", "gptq", "marlin", "w4a16", "nf4", "4bit", "bitsandbytes"), "int4"),
        **dict.fromkeys(("awq_marlin", "gptq_marlin", "int4_awq"), "int4"),
        **dict.fromkeys(("w8a8", "w8a8_int8", "smoothquant", "8bit"), "int8"),
        **dict.fromkeys(("fp8_e4m3", "e4m3", "float8", "w8a8_fp8"), "fp8"),
        **dict.fromkeys(("w4a4", "modelopt_fp4"), "nvfp4"),
        **dict.fromkeys(("q4", "gguf"), "q4_k_m"),
        "q8": "q8_0", "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32",
    }
)  # fmt: skip
"""How others call them: by who chose the scales, or by the kernels."""
_GGUF: Final = re.compile(r"q\d_|gguf-")
_BITS_PER_WEIGHT: Final = re.compile(r"(\d(?:\.\d{1,2})?)bpw")  # exl2, exl3: 4.0bpw


def is_gguf(to: Format) -> bool:
    """Whether llama.cpp's files hold it."""
    return bool(_GGUF.match(to.name))


def format_named(name: str) -> Format:
    """Look a format up, in small letters or large, as GGUF files write them; an unknown one is an
    error that names the one that is meant, or near.
    """
    given, name = name, name.casefold()
    if found := _BITS_PER_WEIGHT.fullmatch(name):
        return Format(name, float(found[1]), head_bits=6.0)
    if meant := CALLED.get(name.replace("-", "_")):
        raise UnknownName("weight format", given, (), say("(write {meant})", meant=meant))
    if name not in FORMATS:
        raise UnknownName("weight format", given, [*FORMATS, "4.0bpw"], f"({', '.join(FORMATS)})")
    return FORMATS[name]
