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


class Tower(NamedTuple):
    """What surrounds a language model."""

    language_model: str
    parameters: float


_TOWERS: Final[tuple[tuple[str, str, float], ...]] = (
    (r"qwen2\.5-omni-(\d+b)", r"Qwen2.5-\1", QWEN_VISION + WHISPER),
    (r"qwen(2|2\.5)-vl-(\d+b)", r"Qwen\1-\2", QWEN_VISION),
    (r"qwen3-vl-(\d+b(?:-a\d+b)?)", r"Qwen3-\1", QWEN3_VISION),
    (r"gemma-3-(4|12|27)b", r"Gemma-3-\1B", SIGLIP),
    (r"llava-v1\.6-mistral-7b", "Mistral-7B", CLIP),
    (r"llava-(?:v?1\.[56]-)?(?:vicuna-)?(7|13)b", r"LLaMA-\1B", CLIP),
    (r"pixtral-12b", "Mistral-Nemo-12B", PIXTRAL),
    (r"mistral-small-3\.[12]-24b", "Mistral-Small-24B", PIXTRAL),
)


def tower_of(name: str) -> Tower | None:
    """The parts of a multimodal checkpoint; None of a language model, and of one not known."""
    for pattern, inside, parameters in _TOWERS:
        if found := re.search(pattern, name, re.IGNORECASE):
            return Tower(found.expand(inside), parameters)
    return None
