"""Iteration times of GPTs on one node, as vTrain's authors measured them (VIA-Research/vTrain).

In: tables whose header is theirs. All rows ran Megatron-DeepSpeed on A100-SXM4-80GB: fp16, 1F1B,
every layer recomputed, GPT-2's vocabulary padded as Megatron does, no fused attention.
"""

from __future__ import annotations

from typing import Final

from trueflops.plan import Plan
from trueflops.plan.guesses import EVERY_FIELD
from trueflops.records.tables import Row, Table
from trueflops.verify.cells import Missing, needed, number, text
from trueflops.verify.findings import Findings, TrainingRow
from trueflops.verify.profiles import Profiles
from trueflops.verify.training.cluster import chips
from trueflops.verify.training.model import GPT_DROPOUT, USUAL_VOCAB, Shape, assemble
from trueflops.verify.training.runs import Case, judge_rows
from trueflops.workload import Training

SIZES: Final = (
    "# GPUs",
    "global batch",
    "micro batch",
    "hidden size",
    "attention heads",
    "# layers",
    "sequence length",
    "tensor parallelism",
    "data parallelism",
    "pipeline parallelism",
)
TIME: Final = "iteration time (ms)"
COLUMNS: Final = (*SIZES, TIME)
CHIP: Final = "A100-SXM4-80GB"
FRAMEWORK: Final = "megatron-deepspeed"
PER_SECOND: Final = 1000.0


def verify_vtrain(table: Table, profiles: Profiles) -> Findings:
    """Every row predicted, or refused with its reason."""
    return judge_rows(table, ((row_id(row), row) for _, row in table.rows), profiles, read_case)


def row_id(row: Row) -> str:
    """The row's inputs: it has no name of its own."""
    return "vtrain-" + "-".join(text(row, column) or "?" for column in SIZES)


def read_case(row: Row, name: str) -> Case:
    """A row as a case; BadInput says which input it lacks."""
    gpus, batch, micro, hidden, heads, layers, seq, tp, dp, pp = (needed(row, c) for c in SIZES)
    if tp * dp * pp != gpus:
        raise Missing(f"tensor × data × pipeline parallelism is not # GPUs {gpus}")
    if hidden % heads:
        raise Missing(f"hidden size {hidden} is not divisible by attention heads {heads}")
    milliseconds = number(row, TIME)
    if milliseconds is None:
        raise Missing(f"{TIME} is empty")
    shape = Shape(
        layers, hidden, heads, heads, hidden // heads, 4 * hidden, USUAL_VOCAB, dropout=GPT_DROPOUT
    )
    return Case(
        id=name,
        about=TrainingRow("vtrain", hidden, layers, FRAMEWORK),
        model=assemble("GPT", shape, gated=False, tied=True, dim=hidden // heads),
        plan=Plan(
            tp=tp,
            pp=pp,
            dp_replicate=dp,
            micro_batch=micro,
            recompute="full",
            flash=False,
            overlap=False,
            compute="fp16",
            parameter_dtype="fp16",
            gradient_dtype="fp16",
        ),
        workload=Training(seq, batch, float(seq * batch)),
        cluster=chips(gpus, CHIP),
        framework=FRAMEWORK,
        dtype="fp16",
        stated=EVERY_FIELD,
        step_seconds=milliseconds / PER_SECOND,
        peak_bytes=None,
    )
