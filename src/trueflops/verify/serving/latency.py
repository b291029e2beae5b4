"""Outputs of serving benchmarks: mean, median and p99 of TTFT and TPOT under a stated load.

In: a table with the columns engine, model, accelerator, dataset, request_rate, ttft_mean_ms and
their kin (and `flags`, the launch command). Out: Findings: each row is simulated as it was sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from trueflops.catalog import Accelerator
from trueflops.errors import TrueflopsError
from trueflops.interop.engines import Deployed as Launched
from trueflops.interop.engines import read_command
from trueflops.interop.engines.deployed import VOCABULARIES
from trueflops.model import Model
from trueflops.plan.serving import usual_etp
from trueflops.predict.released import served_weights
from trueflops.predict.serving import Speculation
from trueflops.profile import Engine
from trueflops.profile.engines import (
    CHUNKED_FROM,
    engine_on,
    is_before,
    release_on,
)
from trueflops.records.chips import chip_of, how_many
from trueflops.records.tables import Row, Table
from trueflops.serve.interval import each_token, first_token, queueing
from trueflops.serve.outcome import Outcome
from trueflops.verify.cells import measured, require, share, text, whole
from trueflops.verify.findings import Finding, Findings, Quantity, Refusal, ServerRow
from trueflops.verify.profiles import Profiles
from trueflops.verify.serving.bench_serving import SentBefore
from trueflops.verify.serving.deployment import Bench, Deployment, Layout, spread_over
from trueflops.verify.serving.format import (
    cache_bits,
    framework_of,
    knows_engine,
    tag_of,
    weight_format,
)
from trueflops.verify.serving.harness import repeated
from trueflops.verify.serving.sent import sent_requests
from trueflops.verify.serving.served_model import model_of
from trueflops.verify.serving.stand_in import is_stand_in
from trueflops.workload import Serving

COLUMNS: Final = ("engine", "model", "accelerator", "dataset", "request_rate", "ttft_mean_ms")
MILLI: Final = 1e-3
_COLUMNS: Final[tuple[tuple[Quantity, str], ...]] = (
    ("ttft_seconds", "ttft_mean_ms"),
    ("ttft_median_seconds", "ttft_median_ms"),
    ("ttft_p99_seconds", "ttft_p99_ms"),
    ("tpot_seconds", "tpot_mean_ms"),
    ("tpot_median_seconds", "tpot_median_ms"),
    ("tpot_p99_seconds", "tpot_p99_ms"),
)
_ALSO_FLAGS: Final = ("tp", "pp", "dp", "max_model_len", "max_num_seqs", "max_num_batched_tokens")
"""Columns that say what a flag of the launch command can say, too."""
_NUMBERED: Final = re.compile(r"\d\.\d")
_RUN_ON: Final = re.compile(r"\bdate (20\d\d)-?(\d\d)-?(\d\d)\b|/(20\d\d)-?(\d\d)-?(\d\d)-")
"""The day of a run: as the results say it, or in their path."""
_PUBLISHED: Final = re.compile(r"\((20\d\d)-(\d\d)-(\d\d)\)")  # the document, or its revision
HOPPER: Final = (9, 0)
TRITON_KERNELS: Final = "0.11.1"
_TWICE: Final = re.compile(r"two stream chunks per token", re.IGNORECASE)
_REPEATED: Final = re.compile(r"(\d{1,6}) prompts x (\d{1,6}) users")


def latency_findings(table: Table, profiles: Profiles) -> Findings:
    """Predict every row of the table, or say why it cannot be."""
    found, bench, before = Findings(), Bench(profiles), SentBefore()
    chips: dict[tuple[str, ...], set[str]] = {}
    for _, row in table.rows:
        chips.setdefault(_figures(row), set()).add(text(row, "accelerator"))
    for line, row in table.rows:
        name = text(row, "id") or f"line {line}"
        copied = len(chips[_figures(row)]) > 1
        try:
            found.rows += _answers(table.where, name, row, bench, before, copied)
        except TrueflopsError as error:
            found.refused.append(Refusal(table.where, name, str(error)))
    return found


def _figures(row: Row) -> tuple[str, ...]:
    """What was measured, as printed: two chips that agree in all of it are one, copied."""
    return tuple(text(row, column) for column in ("model", "engine", *(c for _, c in _COLUMNS)))


def _answers(
    where: str, name: str, row: Row, bench: Bench, before: SentBefore, copied: bool
) -> Iterator[Finding]:
    run, requests = _run(row), sent_requests(row)
    load = Serving(
        round(float(requests.input.mean())),
        round(float(requests.output.mean())),
        requests.most_at_once,
    )
    point = bench.point(run, load)
    together = requests.share(0, run.layout.replicas).most_at_once
    room = float((point.most_requests or together) * load.context)
    room = max(room, float(np.max(requests.input + requests.output)))
    requests = before.found(row, requests, room * run.layout.replicas)
    per_replica = requests.share(0, run.layout.replicas)
    if again := _REPEATED.search(text(row, "notes")):  # inference-perf sends the same prompts again
        distinct = int(again[1]) * int(again[2])
        per_replica = repeated(per_replica, distinct, distinct, point.engine.block, room)
    at_pace = partial(bench.outcome, run, per_replica, point.engine, room)
    seen = queueing(at_pace(), per_replica, point, at_pace)
    named = text(row, "engine")
    about = ServerRow(
        backend=named or "server",
        model=text(row, "model").rpartition("/")[2],
        system=run.chip.name,
        framework=run.framework,
        apart=_why_apart(row, run.model, copied, fits=point.most_requests > 0),
        unknown_software="" if knows_engine(named) else named or "(none named)",
        stated=True,
    )
    for of, column in _COLUMNS:
        value = measured(row, column)
        if of.startswith("tpot") and _TWICE.search(text(row, "notes")):
            value = _derived(row) if of == "tpot_seconds" else None
        if value is None:
            continue
        first, taken = of.startswith("ttft"), _seen(of, seen)
        found = first_token(taken, point, seen) if first else each_token(taken, point, seen.waited)
        yield Finding.beside(where, name, about, of, value * MILLI, found)


def _why_apart(row: Row, model: Model, copied: bool, fits: bool) -> str:
    """Why a row is shown but does not count; empty of one that does."""
    if not fits:
        return "weights that leave no room for a request as stated"
    if copied:
        return "same figures for another chip"
    if not knows_engine(text(row, "engine")):
        return "an engine whose scheduler is not described"
    if is_stand_in(model):  # a mixture whose active part is unknown may be twenty times as fast
        return "a model of which only the size is known"
    return "speculative" * ("speculative" in text(row, "flags"))


def _derived(row: Row) -> float | None:
    """Mean TPOT in ms from whole requests, of a tool that counts two chunks for every token."""
    whole_ms, first_ms = measured(row, "e2e_mean_ms"), measured(row, "ttft_mean_ms")
    if whole_ms is None or first_ms is None:
        return None
    return (whole_ms - first_ms) / (round(require(row, "output_len_mean")) - 1)


def _seen(of: Quantity, outcome: Outcome) -> float:
    spread = outcome.ttft if of.startswith("ttft") else outcome.tpot
    if "median" in of:
        return spread.at(50.0)
    return spread.at(99.0) if "p99" in of else spread.mean


def _run(row: Row) -> Deployment:
    """The deployment that the launch command and the columns describe."""
    devices, named = how_many(text(row, "accelerator"))
    chip, model = chip_of(named), model_of(text(row, "model"))
    framework = framework_of(text(row, "engine"))
    release = _release(row, framework)
    said = _launched(row, framework)
    layout = _layout(said, model, devices, text(row, "flags"))
    stated = said.weights or text(row, "dtype") or tag_of(text(row, "model"))
    weights = weight_format(stated, "", model, chip) if stated else served_weights(model, chip).name
    return Deployment(
        model,
        chip,
        layout,
        _as_run(weights, framework, release, chip),
        cache_bits(said.cache or ""),
        framework,
        _speculation(said, model),
        engine=_engine(row, said, engine_on(framework, chip, release)),
    )


def _launched(row: Row, engine: str) -> Launched:
    """What the launch command says, and then what the columns say, in the words of its flags.

    Of engines whose flags are not known columns alone count, and what vLLM has in common with them.
    """
    known = engine if engine in VOCABULARIES else "vllm"
    flags, words = VOCABULARIES[known].flags, []
    without: dict[str, Any] = {}  # columns for which there is no flag
    columns = {name: whole(row, name) for name in _ALSO_FLAGS}
    for name, value in {**columns, "memory_share": share(row, "gpu_memory_utilization")}.items():
        if value and name in flags:
            words.append(f"--{flags[name][0]} {value}")
        elif value:
            without[name] = value
    said = read_command(" ".join([text(row, "flags"), *words]), known)
    return replace(said, **without)


def _layout(said: Launched, model: Model, devices: int, flags: str) -> Layout:
    """How the model is cut, over as many accelerators as the row has where it says nothing."""
    pp, dp = said.pp or 1, said.dp or 1
    tp = said.tp or max(devices // (pp * dp), 1)
    dcp = spread_over(flags, model, tp)
    if not model.is_moe:
        return Layout(tp, pp, dp, dcp=dcp)
    ep = tp * dp if said.engine == "vllm" and said.ep else said.ep or 1
    return Layout(tp, pp, dp, ep, said.etp or usual_etp(tp, ep), dcp)


def _speculation(said: Launched, model: Model) -> Speculation | None:
    """How the launch command has tokens drafted."""
    if said.speculate is None:
        return None
    return Speculation.of(
        model,
        said.speculate,
        drafted=said.num_speculative_tokens or 0,
        passes=said.speculative_steps or 0,
        branches=said.speculative_topk or 0,
        draft=model_of(said.draft_model) if said.draft_model else None,
    )


def _release(row: Row, framework: str) -> str:
    """The engine's release: as printed, else the one of the day of the run, else the newest that
    its document can have known.
    """
    printed = text(row, "engine_version")
    if _NUMBERED.search(printed):
        return printed
    notes, source = text(row, "notes"), text(row, "source")
    day = _RUN_ON.search(notes) or _RUN_ON.search(source) or _PUBLISHED.search(source)
    return release_on(framework, "-".join(n for n in day.groups() if n)) if day else ""


def _as_run(weights: str, framework: str, release: str, chip: Accelerator) -> str:
    """The format by whose kernels an engine runs weights of this one.

    vLLM multiplies MXFP4 by Marlin, as it does int4, where it has no Triton kernels for it: before
    Hopper, and in releases without triton_kernels (its issue 26582; 0.11.1 brings its own).
    """
    if framework != "vllm" or weights != "mxfp4-experts":
        return weights
    capability = chip.architecture.compute_capability or HOPPER
    older = is_before(release, TRITON_KERNELS)
    return "int4-experts" if older or capability < HOPPER else weights


def _engine(row: Row, said: Launched, usual: Engine) -> Engine:
    """The engine as the row or its launch command sets it."""
    engine, flags, length = usual, text(row, "flags"), said.max_model_len or 0
    if said.max_num_batched_tokens:
        engine = engine.naming(step_tokens=said.max_num_batched_tokens)
    elif usual.name == "vllm" and not usual.chunked and length <= CHUNKED_FROM:
        # A step of the first engine has room for the longest request (engines.toml, step_tokens).
        engine = engine.but(step_tokens=max(length, usual.step_tokens))
    if said.max_num_seqs:
        engine = engine.told(said.max_num_seqs)
    if said.memory_share:
        engine = engine.naming(memory_share=said.memory_share)
    if said.enforce_eager:
        engine = engine.uncaptured()
    if "async-scheduling" in flags:
        engine = engine.but(ahead=1)
    return engine.but(policy="mixed") if "enable-mixed-chunk" in flags else engine
