"""Points of continuous-batching servers: mean time to first token and per token at a load.

In: a table with the columns backend, model_path, system, isl, osl, batch_size, tp_size and their
kin, as aiconfigurator writes them. Out: Findings of TTFT and TPOT: the scheduler is simulated under
the benchmark that was run (harness.py); intervals are those of the closed form.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil, isqrt
from typing import Final

from trueflops.errors import BadInput, TrueflopsError
from trueflops.model import Model
from trueflops.predict import Point
from trueflops.predict.serving import Speculation
from trueflops.profile import engine_on
from trueflops.profile.engines import release_on
from trueflops.records.chips import chip_of
from trueflops.records.tables import Row, Table
from trueflops.runtime.terms import Estimate
from trueflops.verify.cells import count, measured, require, text
from trueflops.verify.findings import Finding, Findings, Quantity, Refusal, ServerRow
from trueflops.verify.profiles import Profiles
from trueflops.verify.serving.deployment import Bench, Deployment, Layout
from trueflops.verify.serving.format import (
    cache_bits,
    framework_of,
    knows_engine,
    tag_of,
    weight_format,
)
from trueflops.verify.serving.harness import harness_of
from trueflops.verify.serving.pools import is_pooled, pools_of, requests_of
from trueflops.verify.serving.served_model import model_of
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
    run, load, doubtful = _run(row)
    if is_pooled(row):
        prefill, decode = pools_of(row, run.model)
        doubtful, load = False, replace(load, concurrency=requests_of(row))
        predicted = _as_predicted(bench.pooled(run, prefill, decode, load))
    else:
        predicted = _simulated(run, load, bool(text(row, "measured_on")), bench)
    backend = text(row, "backend")
    about = ServerRow(
        backend=backend or "server",
        model=text(row, "model_path").rpartition("/")[2],
        system=text(row, "system"),
        framework=run.framework,
        apart="ranks counted twice" if doubtful else "mtp" if run.speculation else "",
        unknown_software="" if knows_engine(backend) else backend or "(none named)",
    )
    answers = []
    for of, seen in values:
        found = Finding.beside(where, name, about, of, seen * MILLI, predicted[of])
        answers.append(found)
    return answers


def _as_predicted(point: Point) -> dict[Quantity, Estimate]:
    """By the closed form."""
    return {"ttft_seconds": point.ttft, "tpot_seconds": point.tpot}


def _simulated(
    run: Deployment, load: Serving, dated: bool, bench: Bench
) -> dict[Quantity, Estimate]:
    """Means of a simulation, each with the interval that the closed form has."""
    point = bench.point(run, load)
    users = ceil(load.concurrency / run.layout.replicas)
    # Where not even one request has room by our count, the server ran all the same.
    room = float((point.most_requests or users) * load.context)
    harness = harness_of(load, users, point.engine, dated, room)
    seen = bench.outcome(run, harness.requests, harness.engine, room)
    first = seen.ttft.mean + harness.lag
    return {
        "ttft_seconds": point.ttft.times(first / float(point.ttft.value)),
        "tpot_seconds": point.tpot.times(seen.tpot.mean / float(point.tpot.value)),
    }


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
    weights = weight_format(said or tag_of(text(row, "model_path")), "", model, chip)
    backend = framework_of(text(row, "backend"))
    quantised = weights in ("fp8", "fp8_block", "nvfp4")
    # NVIDIA's checkpoints of dense models ask every engine for an fp8 cache.
    narrow = "fp8" if quantised and (backend == "trt-llm" or not model.is_moe) else ""
    bits = cache_bits("", narrow, backend)
    drafts = _speculation(row, model, replicated=layout.replicas > 1)
    engine = engine_on(backend, chip, _release(row, backend))
    run = Deployment(model, chip, layout, weights, bits, backend, drafts, engine=engine)
    read, written = (max(round(require(row, c)), 1) for c in ("isl", "osl"))
    return run, Serving(read, written, max(streams, 1)), doubtful


def _release(row: Row, backend: str) -> str:
    """The engine's release: as the row names it, else the one of its day."""
    named, day = text(row, "backend_version"), text(row, "measured_on")
    if named[:1].isdigit():
        return named
    return release_on(backend, day) if day else ""


def _speculation(row: Row, model: Model, *, replicated: bool) -> Speculation | None:
    """Where the label says so, the model's own modules predict further tokens.

    Three of them, and one where attention is replicated: what InferenceX runs, from which these
    points come (benchmarks/single_node/fixed_seq_len/dsr1_fp8_h200_trt_mtp.sh).
    """
    if text(row, "label").casefold() != "mtp":
        return None
    return Speculation.of(model, "mtp", drafted=1 if replicated else 3)
