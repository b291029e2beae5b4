"""Points of continuous-batching servers: median time to first token and per token at a load.

In: a table with the columns backend, model_path, system, isl, osl, batch_size, tp_size and their
kin, as aiconfigurator writes them. Out: Findings of TTFT and TPOT.
"""

from __future__ import annotations

from math import isqrt
from typing import Final

from trueflops.errors import BadInput, TrueflopsError
from trueflops.records.chips import chip_of
from trueflops.records.tables import Row, Table
from trueflops.verify.cells import count, measured, require, text
from trueflops.verify.deployment import Bench, Deployment, Layout
from trueflops.verify.findings import Finding, Findings, Quantity, Refusal, ServerRow
from trueflops.verify.profiles import Profiles
from trueflops.verify.run_format import cache_bits, framework_of, knows_engine, weight_format
from trueflops.verify.served_model import model_of
from trueflops.workload import Serving

COLUMNS: Final = ("model_path", "system", "isl", "osl", "batch_size", "tp_size")
MILLI: Final = 1e-3
NODE: Final = 8  # ranks that one server of an aggregated point spans at most
_COLUMNS: Final[tuple[tuple[Quantity, str], ...]] = (
    ("ttft_seconds", "silicon_ttft_ms"),
    ("tpot_seconds", "silicon_tpot_ms"),
)


def serving_findings(table: Table, profiles: Profiles) -> Findings:
    """Predict every point of the table, or say why it cannot be."""
    found, bench = Findings(), Bench(profiles)
    for line, row in table.rows:
        name = text(row, "id") or f"line {line}"
        try:
            found.rows += _answers(table.where, name, row, bench)
        except TrueflopsError as error:
            found.refused.append(Refusal(table.where, name, str(error)))
    return found


def _answers(where: str, name: str, row: Row, bench: Bench) -> list[Finding]:
    values = [(of, seen) for of, c in _COLUMNS if (seen := measured(row, c)) is not None]
    if not values:
        raise BadInput("silicon_ttft_ms and silicon_tpot_ms are both empty")
    if text(row, "mode").startswith("disagg"):
        raise BadInput("mode is disagg: prefill and decode on different servers are not predicted")
    run, load, doubtful = _run(row)
    point = bench.point(run, load)
    backend = text(row, "backend")
    about = ServerRow(
        backend=backend or "server",
        system=text(row, "system"),
        framework=run.framework,
        apart="ranks counted twice" if doubtful else "",
        unknown_software="" if knows_engine(backend) else backend or "(none named)",
    )
    answers = []
    for of, seen in values:
        e = point.ttft if of == "ttft_seconds" else point.tpot
        limits = float(e.value), float(e.low), float(e.high)
        answers.append(Finding(where, name, about, of, seen * MILLI, *limits))
    return answers


def _run(row: Row) -> tuple[Deployment, Serving, bool]:
    """The server, its load, and whether its layout had to be guessed."""
    model = model_of(text(row, "model_path"))
    chip = chip_of(text(row, "system").replace("_", " "))
    pp, moe_tp, moe_ep = (count(row, f"{c}_size", 1) for c in ("pp", "moe_tp", "moe_ep"))
    tp, dp = count(row, "tp_size", 1), count(row, "attention_dp_size", 1)
    streams = round(require(row, "batch_size")) * dp  # batch_size is that of one attention rank
    if not model.is_moe:
        moe_tp, moe_ep = tp, 1
    ranks = max(tp * dp, moe_tp * moe_ep)
    single = isqrt(ranks)
    doubtful = ranks > NODE and single**2 == ranks
    if doubtful:  # "tp 8, ep 8" are the same eight ranks; some tables multiply them
        ranks, tp = single, min(tp, single)
        moe_tp, moe_ep = (1, single) if moe_ep > 1 else (single, 1)
    layout = Layout(tp, pp, max(ranks // tp, 1), moe_ep, moe_tp if model.is_moe else 1)
    modes = [text(row, c) for c in ("moe_quant_mode", "gemm_quant_mode", "precision")]
    said = next(filter(None, modes if model.is_moe else modes[1:]), "")
    weights = weight_format(said or _tagged(row), "", model, chip)
    backend = framework_of(text(row, "backend"))
    quantised = weights in ("fp8", "fp8_block", "nvfp4")
    # NVIDIA's checkpoints of dense models ask every engine for an fp8 cache.
    narrow = "fp8" if quantised and (backend == "trt-llm" or not model.is_moe) else ""
    run = Deployment(model, chip, layout, weights, cache_bits("", narrow, backend), backend)
    read, written = (max(round(require(row, c)), 1) for c in ("isl", "osl"))
    return run, Serving(read, written, max(streams, 1)), doubtful


def _tagged(row: Row) -> str:
    """The format that a checkpoint's name ends with, such as -FP8 or -AWQ."""
    tag = text(row, "model_path").rpartition("-")[2].casefold()
    return tag if tag in ("fp8", "fp4", "nvfp4", "awq", "gptq", "int4", "int8") else ""
