"""The dtypes of a row: products, weights, gradients, moments, from texts as 'amp_bf16'."""

from __future__ import annotations

import re
from typing import Any, Final

from trueflops.catalog import Accelerator
from trueflops.profile.frameworks import habits
from trueflops.records.tables import Row
from trueflops.verify.cells import text
from trueflops.verify.training.words import dtype_of

ALL_NARROW: Final = re.compile(r"adam states all bf16|bf16 master and optimizer states|pure bf16")
BLOCKS: Final = re.compile(r"mx|block|subchannel|rowwise|fp4")  # a scale for every few numbers
TRUE: Final = re.compile(r"\+sr|stochastic|pure|16-true")
"""Weights, gradients and moments of 16 bits: 'bf16-true' is Lightning's name of it
(lightning/fabric/plugins/precision/half.py)."""
MIXED: Final = re.compile(r"amp|mixed|autocast|(?:fp32|float32)(?! acc)")
"""Beside a narrow dtype: the weights are fp32, and products narrow."""
WIDE: Final = re.compile(r"over fp32 weights|\bnanogpt\b")
"""Weights that stay fp32: karpathy/nanoGPT's train.py trains them under torch.autocast."""
EIGHT_BIT: Final = re.compile(
    r"adamw?(?:_torch|_bnb)?[ _-]?8[ _-]?bit|8[ _-]?bit (?:paged )?adam|bnb_8bit"
)
"""As bitsandbytes, torchao and transformers name it (training_args.py: OptimizerNames)."""
OTHERS: Final = (
    (re.compile(r"lion[ _-]?8[ _-]?bit|8[ _-]?bit (?:paged )?lion\b"), "lion-8bit"),
    (re.compile(r"(?<![a-z])lion(?![a-z])"), "lion"),
    (re.compile(r"(?<!galore_)(?<![a-z])adafactor"), "adafactor"),
)
"""Of which there are two: beside fp32 weights, and of narrow ones alone."""
AUTOCASTING: Final = (
    "plain", "compiled", "transformers", "transformers-compiled", "trainer", "fsdp2",
    "fsdp2-compiled",
)  # fmt: skip


def read_dtypes(row: Row, chip: Accelerator, framework: str, *, moe: bool) -> dict[str, Any]:
    """Fields of the plan."""
    said, notes = text(row, "dtype").casefold(), text(row, "notes").casefold()
    compute, wide = _computed(said, chip)
    all_narrow = bool(TRUE.search(said) or ALL_NARROW.search(notes))
    kept, mixed = _kept(row, said, wide, framework, all_narrow=all_narrow)
    usual = habits(framework).gradient_dtype if wide == "bf16" else ""
    # Autocast, sharded or not, adds gradients up in fp32, as wide as the weights are.
    wider = "fp32" if "amp" in said or kept == "fp32" else usual or wide
    # torch.optim's moments are as wide as the weights; it has no wider copy of these.
    alone = kept in ("bf16", "fp16") and not habits(framework).master and not text(row, "peft")
    narrow = all_narrow or alone
    whole = not BLOCKS.search(said) and not moe and not text(row, "peft")
    if compute == "fp8" and whole and habits(framework).fp8_weights:
        kept = "fp8"
    return {
        "compute": compute,
        "parameter_dtype": kept,
        "gradient_dtype": dtype_of(text(row, "grad_dtype").casefold()) or wider,
        "mixed": mixed,
        "optimizer": _optimizer(notes, narrow=narrow),
    }


def _optimizer(notes: str, *, narrow: bool) -> str:
    """AdamW unless the notes name another; narrow weights alone have no wide copy."""
    if other := next((name for words, name in OTHERS if words.search(notes)), ""):
        return f"{other}-bf16" if narrow else other
    if EIGHT_BIT.search(notes):
        return "adamw-8bit-bf16" if narrow else "adamw-8bit"
    if narrow:
        return "adamw-bf16"
    return "muon" if "muon" in notes else "adamw"


def _computed(said: str, chip: Accelerator) -> tuple[str, str]:
    """The dtype of products, and of what they are narrowed from."""
    wide = "bf16" if chip.computes("bf16") or not chip.computes("fp16") else "fp16"
    if "fp4" in said and chip.computes("fp4"):
        return "fp4", wide
    if re.search(r"fp8|float8|e4m3|fp4|int8|aqt", said):
        # The graph narrows training matmuls to fp8 and fp4; int8 is taken for fp8.
        return ("fp8" if chip.computes("fp8") else wide), wide
    if re.search(r"fp16|(?<!b)float16|half|^16(?!\d)|^o[12]$", said):
        half = "fp16" if chip.computes("fp16") else wide
        return half, half
    if "tf32" in said and "bf16" not in said:
        return ("tf32" if chip.computes("tf32") else "fp32"), "fp32"
    if re.fullmatch(r"fp32|float32|single|f32|32(?:-true)?", said):
        return "fp32", "fp32"
    return wide, wide


def _kept(row: Row, said: str, wide: str, framework: str, *, all_narrow: bool) -> tuple[str, str]:
    """The dtype of the weights, and who narrows them.

    PyTorch's scaler refuses to unscale fp16 gradients (torch/amp/grad_scaler.py): whoever trains in
    fp16 without a framework's own optimizer keeps fp32 weights. Accelerate lifts what FSDP shards
    to fp32 where mixed precision is on (accelerate/accelerator.py, prepare_model).
    """
    usual, stored = habits(framework).mixed, habits(framework).stored
    if stored and wide == "bf16" and not all_narrow:
        return stored, usual
    if framework not in AUTOCASTING or text(row, "peft") or all_narrow:
        return wide, usual
    shards = f"{framework} {text(row, 'zero_or_fsdp')}".casefold()
    if "fsdp" in shards and wide == "bf16":
        return "fp32", "engine"
    beside = f"{text(row, 'framework')} {text(row, 'notes')}".casefold()
    stated = MIXED.search(said) or WIDE.search(beside)
    return ("fp32" if stated or wide == "fp16" else wide), usual
