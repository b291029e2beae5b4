"""Which measured rows a claim of accuracy is about: a Finding in, yes or no out.

Most choose rows that no fit has seen; a claim says so itself where nothing was fitted to its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trueflops.records.split import held_out
from trueflops.verify.findings import (
    CacheRow,
    Finding,
    InferenceRow,
    KernelRow,
    PassRow,
    ServerRow,
    SpeculativeRow,
    Timed,
    TrainingRow,
)

OF_AMD: Final = ("mi300x", "mi355x")  # as tables call them
NARROW: Final = 256  # products of fewer rows or columns of weights are another regime
NOT_RUNS: Final = ("vtrain", "h200-steps", "h200-steps-apart")
SEEN: Final = (
    "aws-neuron", "fms-fsdp", "internevo", "jax-toolbox-pax", "korthikanti22", "llm-foundry",
    "maxtext-readme", "megatron-bridge", "megatron-h100", "megatron-sc21", "nemo-perf-summary",
    "torchao",
)  # fmt: skip
"""Sources of training runs that were there when settings were chosen, of those in
truth/published."""


def kernel(
    kind: str, *forms: str, wide: bool = False, amd: bool = False
) -> Callable[[Finding], bool]:
    """Held-out kernels, on NVIDIA's chips or on AMD's; `wide` leaves out n or k below NARROW."""

    def chosen(found: Finding) -> bool:
        row = found.about
        if not isinstance(row, KernelRow) or row.under_measured_profile or row.kind != kind:
            return False
        if (forms and row.number_format not in forms) or not held_out(found.id):
            return False
        if (row.chip in OF_AMD) != amd:
            return False
        return not wide or ((row.n or 0) >= NARROW and (row.k or 0) >= NARROW)

    return chosen


def decoding_pass(found: Finding) -> bool:
    """Passes of a model or of its drafter, without an engine."""
    return isinstance(found.about, PassRow)


def odd_product(found: Finding) -> bool:
    """Held-out products of which 8 does not divide both sides of the weights."""
    row = found.about
    odd = isinstance(row, KernelRow) and any((side or 0) % 8 for side in (row.n, row.k))
    return odd and kernel("matmul", "bf16", "fp16", "tf32")(found)


def unseen(kind: str, form: str = "") -> Callable[[Finding], bool]:
    """Kernels judged under a profile measured on the same chip, none of them fitted to."""

    def chosen(found: Finding) -> bool:
        row = found.about
        if not isinstance(row, KernelRow) or not row.under_measured_profile:
            return False
        return row.kind == kind and form in ("", row.number_format)

    return chosen


def source(*names: str, apart: bool = False) -> Callable[[Finding], bool]:
    """Runs of these sources that count; `apart`: only those that are held out."""
    return lambda found: (
        found.scored and run_of(found) in names and (not apart or held_out(found.id))
    )


def every_source(found: Finding) -> bool:
    """Published pre-training runs that count."""
    return found.scored and bool(run_of(found)) and run_of(found) not in NOT_RUNS


def tuned(*tasks: str) -> Callable[[Finding], bool]:
    """Fine-tunes, which stand apart from pre-training."""

    def chosen(found: Finding) -> bool:
        row = found.about
        return isinstance(row, TrainingRow) and row.apart.casefold() in tasks

    return chosen


def trained(found: Finding) -> bool:
    """Training runs of all kinds but those that count nowhere."""
    return tuned("full fine-tune", "sft", "lora", "qlora")(found) or (
        found.scored and isinstance(found.about, TrainingRow)
    )


def never_seen(found: Finding) -> bool:
    """Runs of sources that were not there when settings were chosen."""
    source = run_of(found)
    return found.scored and bool(source) and source not in (*SEEN, *NOT_RUNS)


def run_of(found: Finding) -> str:
    """The source of a run; empty of a kernel or a server's point."""
    return found.about.source if isinstance(found.about, TrainingRow | InferenceRow) else ""


def vtrain_apart(found: Finding) -> bool:
    """Rows of the half of vTrain's models that no setting was fitted to."""
    row = found.about
    if not isinstance(row, TrainingRow) or row.source != "vtrain":
        return False
    return held_out_model(row.hidden, row.layers)


def held_out_model(hidden: int, layers: int) -> bool:
    """Every other depth of each width."""
    return (hidden // 1024 + layers // 4) % 2 == 0


def server(found: Finding) -> bool:
    """Held-out points of continuous-batching servers."""
    row = found.about
    return found.scored and isinstance(row, ServerRow) and not row.stated and held_out(found.id)


def stated(found: Finding) -> bool:
    """Outputs of serving benchmarks whose load is stated."""
    return found.scored and isinstance(found.about, ServerRow) and found.about.stated


def started(found: Finding) -> bool:
    """What engines print at start, where their own rule decided."""
    return found.scored and isinstance(found.about, CacheRow)


def predicts_further(found: Finding) -> bool:
    """Points of servers whose model predicts several tokens at once."""
    return isinstance(found.about, ServerRow) and found.about.apart == "mtp"


def drafts(found: Finding) -> bool:
    """Published inference results with speculative decoding."""
    return isinstance(found.about, InferenceRow) and found.about.apart == "speculative"


def speeds_up(found: Finding) -> bool:
    """Published speed-ups by speculative decoding that count."""
    return found.scored and isinstance(found.about, SpeculativeRow)


FITTED_DRAFTS: Final = ("sgl-project/SpecForge", "hemingkx/Spec-Bench")
"""Sources on which it was chosen what engines add to a step with drafts."""


def inference(timed: Timed, *, only: str = "", without: str = "") -> Callable[[Finding], bool]:
    """Held-out results of published inference in which this was timed."""

    def wanted(found: Finding) -> bool:
        about = found.about
        if not isinstance(about, InferenceRow) or about.timed != timed:
            return False
        here = about.source == only if only else about.source != without
        return here and found.scored and held_out(found.id)

    return wanted
