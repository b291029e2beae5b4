"""How a row's norms, rotations, activations and scores were written: as PyTorch's functions one by
one, or as kernels that somebody fused by hand.

In: a row, its model, its framework and whether attention was fused. Out: the fields of the plan
that differ from the framework's habits.
"""

from __future__ import annotations

import re
from typing import Any, Final

from trueflops.model import Model
from trueflops.profile.frameworks import habits
from trueflops.records.tables import Row
from trueflops.verify.cells import text
from trueflops.verify.training.frameworks import PLAIN

TRITON: Final = re.compile(r"foak|liger|unsloth")
BY_HAND: Final = re.compile(r"\bfused[ -](?:rms|layer)[ -]?norm\b")
"""Kernels of flash-attn or apex in the place of a model's own norms; who has them says so."""
OWN_CODE: Final = re.compile(r"\bown code\b|\bfrom[- ]scratch\b")
NOT_FUSED: Final = re.compile(r"\bno (?:bias|dropout)[\w ,]{0,30} fusion\b")


def read_written(row: Row, model: Model, framework: str, *, flash: bool) -> dict[str, Any]:
    """Fields of the plan.

    A program in plain PyTorch that lays scores out writes them as functions, too: a product, a
    scale, a mask, a softmax and a dropout, each a kernel. Before PyTorch 2.0 there was no other way
    but torch.nn.MultiheadAttention's.
    """
    notes = text(row, "notes").casefold()
    named = text(row, "framework").casefold()
    usual = habits(framework)
    if usual.implementation == "eager" and _replaced(model, named, notes):
        return {"implementation": "library", "fused": False}
    if framework == PLAIN and (not flash or OWN_CODE.search(named)):
        return {"implementation": "eager"}
    return {"fused": False} if NOT_FUSED.search(notes) else {}


def _replaced(model: Model, named: str, notes: str) -> bool:
    """Whether Triton's kernels took the place of Hugging Face's functions, which has them for
    Llama's blocks: Liger (src/liger_kernel/transformers/monkey_patch.py), fused ops and kernels of
    fms-acceleration (plugins/fused-ops-and-kernels), Unsloth (unsloth/kernels); or those of
    flash-attn (flash_attn/ops/rms_norm.py, layers/rotary.py), where the notes name them.
    """
    if BY_HAND.search(notes):
        return True
    return model.blocks[-1].norm == "rms" and TRITON.search(named) is not None
