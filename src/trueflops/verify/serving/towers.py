"""Models that see or hear: the language model inside, and the encoders that are loaded beside it.

In: a checkpoint's name. Out: the name of the language model in the catalog, and the parameters of
the encoders, which engines keep in 16 bits on every rank.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

QWEN_VISION: Final = 0.675e9  # arXiv 2409.12191 §2.1: a ViT of 675M; Qwen2.5-VL's is as large
WHISPER: Final = 0.637e9  # the encoder of whisper-large-v3, arXiv 2503.20215 §2.2
SIGLIP: Final = 0.417e9  # arXiv 2503.19786, table 1
CLIP: Final = 0.325e9  # ViT-L/14 at 336 px and the projector, arXiv 2310.03744
QWEN3_VISION: Final = 0.58e9  # SigLIP2-SO-400M and its mergers, arXiv 2511.21631 §2
PIXTRAL: Final = 0.4e9  # arXiv 2410.07073 §2.1


class Picture(NamedTuple):
    """The largest image that an encoder takes: its tokens, its patches, how wide layers are."""

    tokens: int
    patches: int
    width: int
    ffn: int

    def bytes(self, images: int, tp: int) -> float:
        """What a pass over so many holds on one rank: residual, normed input, the wider product."""
        wide = 2.0 * self.width + max(3 * self.width, self.ffn) / tp
        return images * self.patches * wide * 2.0


# Qwen2-VL's max_pixels, 12,845,056, in patches of 14 × 14, of which four make a token; Gemma 3's
# mm_tokens_per_image, with what stands around them (vLLM's gemma3_mm.py, get_image_repl). Widths:
# transformers' Qwen2VLVisionConfig, and the vision_config of SigLIP-so400m as PaliGemma has it, at
# 896 px (arXiv 2503.19786).
QWEN_PICTURE: Final = Picture(16384, 65536, 1280, 5120)
# Qwen3-VL and Qwen3.5: a longest_edge of 16,777,216 (preprocessor_config.json), patches of 16 × 16.
QWEN3_PICTURE: Final = Picture(16384, 65536, 1152, 4304)
GEMMA_PICTURE: Final = Picture(260, 4096, 1152, 4304)


class Tower(NamedTuple):
    """What surrounds a language model."""

    language_model: str
    parameters: float
    picture: Picture | None = None  # None: not known


_TOWERS: Final[tuple[tuple[str, str, float, Picture | None], ...]] = (
    (r"qwen2\.5-omni-(\d+b)", r"Qwen2.5-\1", QWEN_VISION + WHISPER, QWEN_PICTURE),
    (r"qwen(2|2\.5)-vl-(\d+b)", r"Qwen\1-\2", QWEN_VISION, QWEN_PICTURE),
    (r"qwen3-vl-(\d+b(?:-a\d+b)?)", r"Qwen3-\1", QWEN3_VISION, QWEN3_PICTURE),
    # vision_config as Qwen3-VL's: 27 layers of 1152 (config.json of Qwen3.5-35B-A3B).
    (r"qwen3\.[5-9]-(\d+b(?:-a\d+b)?)", r"Qwen3.5-\1", QWEN3_VISION, QWEN3_PICTURE),
    (r"gemma-3-(4|12|27)b", r"Gemma-3-\1B", SIGLIP, GEMMA_PICTURE),
    (r"llava-v1\.6-mistral-7b", "Mistral-7B-v0.2", CLIP, None),
    (r"llava-(?:v?1\.[56]-)?(?:vicuna-)?(7|13)b", r"LLaMA-\1B", CLIP, None),
    (r"pixtral-12b", "Mistral-Nemo-12B", PIXTRAL, None),
    (r"mistral-small-3\.[12]-24b", "Mistral-Small-24B", PIXTRAL, None),
)


def tower_of(name: str) -> Tower | None:
    """The parts of a multimodal checkpoint; None of a language model, and of one not known."""
    for pattern, inside, parameters, picture in _TOWERS:
        if found := re.search(pattern, name, re.IGNORECASE):
            return Tower(found.expand(inside), parameters, picture)
    return None
