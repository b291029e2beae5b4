"""The model that a row of results names: the catalog's, else a stand-in of its size."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from trueflops.catalog.names import find
from trueflops.errors import BadInput, shorten
from trueflops.model import Model, read_model
from trueflops.model.checkpoints import FORMAT_WORDS
from trueflops.units import GIGA
from trueflops.verify.serving.stand_in import stand_in

_OWNER: Final = re.compile(r"^(?:.*/)?(?:Meta-)?(?=.)", re.IGNORECASE)
# Tags of number formats, tunes and dates that leave the shape as it is.
_TAG: Final = re.compile(
    rf"[-_. ]?(?:{FORMAT_WORDS}|instruct|chat|it|hf|base|thinking|preview|sft|dpo|v\d(?:\.\d)?"
    r"|\d{4})$",
    re.IGNORECASE,
)
_SIZE: Final = re.compile(
    r"(?<![\w.])(\d{1,9}(?:\.\d{1,9})?)B(?:[-.]?A(\d{1,9}(?:\.\d{1,9})?)B)?\b", re.IGNORECASE
)
_HYBRID: Final = re.compile(r"Qwen3[.]?[5-9]|Qwen3-Next", re.IGNORECASE)
_LEAST_SIZE: Final = 0.01 * GIGA


@cache
def model_of(
    name: str, parameters_b: float | None = None, active_b: float | None = None, notes: str = ""
) -> Model:
    """Find the model; sizes come from the row, else from the name, else from its notes."""
    bare = _OWNER.sub("", name.strip())
    if not bare:
        raise BadInput("model is empty")
    while True:
        if find("models", bare):
            return read_model(bare)
        shorter = _TAG.sub("", bare)
        if shorter == bare:
            break
        bare = shorter
    said = _SIZE.search(name.replace("_", "-")) or _SIZE.search(notes)
    whole = parameters_b or (float(said[1]) if said else None)
    active = active_b or (float(said[2]) if said and said[2] else None) or whole
    if not whole or not active or whole * GIGA < _LEAST_SIZE or active > whole:
        raise BadInput(
            f"model {shorten(name, 40)!r} is not in the catalog and params_b does not give its size"
        )
    return stand_in(bare, whole * GIGA, active * GIGA, bool(_HYBRID.match(bare)))
