"""What a row measured, in seconds and bytes: times where printed, else from rates.

A rate in TFLOP/s becomes a time by the source's own count: 6 flop a parameter and token, with
attention over the whole square or the causal half of it, and the recomputed forward on top where
the rate is the hardware's (Narayanan et al. 2021: 96·B·s·l·h²·(1 + s/6h + V/16lh)).
"""

from __future__ import annotations

from typing import Final

from trueflops import units
from trueflops.model import Model
from trueflops.records.tables import Row
from trueflops.verify.cells import number, text, whole
from trueflops.workload import Training

TIMES: Final = (
    "step_time_s",
    "step_time_derived_s",
    "tokens_per_s_per_gpu",
    "tok_s_gpu_derived",
    "tflops_per_gpu",
)


def measures_time(row: Row) -> bool:
    """Whether a row says how fast it ran, in any of these columns."""
    return any(number(row, column) for column in TIMES)


def step_seconds(row: Row, model: Model, workload: Training, devices: int) -> float | None:
    """The step's time; None where the row measured none."""
    if seconds := number(row, "step_time_s"):
        return seconds
    as_printed = whole(row, "global_batch") == workload.global_batch
    if as_printed and (seconds := number(row, "step_time_derived_s")):
        return seconds
    for column in ("tokens_per_s_per_gpu", "tok_s_gpu_derived"):
        if rate := number(row, column):
            return workload.tokens_per_step / (rate * devices)
    if rate := number(row, "tflops_per_gpu"):
        causal = text(row, "attn_flops_convention").casefold() == "causal"
        hardware = text(row, "tflops_kind").casefold() == "hardware"
        again = hardware and text(row, "recompute").casefold() == "full"
        flop = counted_flop(model, workload, causal=causal, recomputed=again)
        return flop / (rate * units.TERA * devices)
    return None


def peak_bytes(row: Row) -> float | None:
    """The fullest accelerator's memory. Most tools call 2³⁰ bytes a GB; LitGPT divides
    by 10⁹ (litgpt/pretrain.py: memory_used), which a row that says GiB has converted.
    """
    measured = number(row, "peak_mem_gb_measured")
    decimal = "litgpt" in text(row, "framework").casefold() and "GiB" not in text(row, "notes")
    return measured * (units.GIGA if decimal else units.GIBI) if measured else None


def counted_flop(model: Model, workload: Training, *, causal: bool, recomputed: bool) -> float:
    """The flop of one step as sources count them: layers (again where recomputed), and the head."""
    seq = float(workload.seq)
    table = model.vocab * model.hidden
    ends = table + (0 if model.tied else table) + model.learned_positions * model.hidden
    weights = model.active_parameter_count - ends
    scores = 0.0
    for index in model.pattern:
        a = model.blocks[index].attention
        if a is None:
            continue
        scores += 2.0 * a.heads * (a.head_dim + a.value_dim) * seq * (0.5 if causal else 1.0)
    passes = 4.0 if recomputed else 3.0
    per_token = passes * (2.0 * weights + scores) + 3.0 * 2.0 * table
    return per_token * workload.tokens_per_step
