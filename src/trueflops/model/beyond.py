"""What a checkpoint is beyond the language model that is priced of it: one that sees or hears, or
one that gives a vector or a score in the place of tokens.

In: the name that was asked for, or the whole config.json. Out: notes, as English texts to be said.
"""

from __future__ import annotations

import re
from typing import Final

from trueflops.language import mark
from trueflops.model.config import Config

SEES: Final = mark(
    "only the language model is priced: the part that sees or hears takes memory and time of its "
    "own, and each picture or sound is as many more tokens to read"
)
SCORES: Final = mark(
    "only the language model is priced, as one that writes tokens: for a vector or a score, "
    "reading alone is what takes time, and the head is another"
)
_NAMED_SEEING: Final = re.compile(
    r"(?<![a-z])(?:vlm?\d*|vision|omni|audio|qvq|ui-tars|llava|pixtral|multimodal)(?![a-z])"
    r"|internvl|ocr(?![a-z])|\d\.\dv(?![a-z0-9])"
)
_NAMED_SCORING: Final = re.compile(
    r"embed|rerank|reward|(?<![a-z0-9])(?:e5|gte|bge|p?rm)(?![a-z0-9])"
)
_PARTS: Final = ("vision_config", "audio_config", "vision_tower", "mm_vision_tower")
# Of transformers: what reads something beside text, and what has no head that writes.
_SEEING: Final = re.compile(r"ForConditionalGeneration$|VisionText|ImageText|Llava|VLChat|Omni")
_SCORING: Final = re.compile(
    r"For(?:Sequence|Token)Classification$|Reward|Embed|^(?:Llama|Mistral|Qwen\d*|Gemma\d*)Model$"
)


def told_by_name(name: str) -> tuple[str, ...]:
    """What a name such as Qwen2.5-VL-7B or Qwen3-Embedding-8B tells."""
    said = name.casefold()
    return _notes(_NAMED_SEEING.search(said), _NAMED_SCORING.search(said))


def told_by_config(config: Config) -> tuple[str, ...]:
    """What a config.json tells: its parts, and the classes that it is of."""
    named = config.fields.get("architectures")
    classes = [each for each in named if isinstance(each, str)] if isinstance(named, list) else []
    return _notes(
        any(config.fields.get(part) for part in _PARTS) or any(map(_SEEING.search, classes)),
        any(map(_SCORING.search, classes)),
    )


def _notes(sees: object, scores: object) -> tuple[str, ...]:
    return ((SEES,) if sees else ()) + ((SCORES,) if scores else ())
