"""Published speculative decoding: how many times faster than without drafts.

In: a table with the columns method, k, accept_len_mean, speedup and their kin. Out: Findings of
the speed-up. Acceptance is what the row gives, else what its source gives for all tasks together,
else what is known of the method and the task.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import ceil
from typing import Final, NamedTuple

from trueflops.catalog import Accelerator
from trueflops.errors import BadInput, TrueflopsError, shorten
from trueflops.model import Model
from trueflops.predict.serving.speculation import Acceptance, Speculation
from trueflops.profile.speculation import method_of, task_factor, task_of
from trueflops.records.chips import chip_of
from trueflops.records.tables import Row, Table
from trueflops.units import BITS_PER_BYTE
from trueflops.verify.cells import Missing, count, measured, noted, number, text
from trueflops.verify.findings import Finding, Findings, Refusal, SpeculativeRow
from trueflops.verify.profiles import Profiles
from trueflops.verify.serving.deployment import Bench, Deployment, Layout
from trueflops.verify.serving.format import cache_bits, framework_of, knows_engine, weight_format
from trueflops.verify.serving.served_model import model_of
from trueflops.workload import Serving

COLUMNS: Final = ("method", "k", "accept_len_mean", "speedup", "model")
USUAL_CHIP: Final = "H100"  # of a row that names none: a ratio of two steps depends little on it
USUAL_PAST: Final = 512.0  # tokens in the cache of a row without lengths: it hardly matters
ROOM: Final = 0.25  # of a device's memory: as much weights at most where nobody says how many
NODE: Final = 8
# What drafters are called, where the column `method` files them under a neighbour's name.
_CALLED: Final = (
    (re.compile(r"\bSAMD|\bEAGLE-?2\b", re.IGNORECASE), "eagle2"),
    (re.compile(r"\bDFlash|\bDomino|\bDSpark", re.IGNORECASE), "dflash"),
    (re.compile(r"\bsuffix", re.IGNORECASE), "suffix"),
    (re.compile(r"^\W*REST\b"), "rest"),
    (re.compile(r"^\W*Recycling\b"), "recycling"),
)
_DRAFTS: Final = {"vicuna": "vicuna-68m"}  # of Spec-Bench's own run of a draft model: its eval.sh
_LAYERS: Final = re.compile(r"\b(\d{1,2}) layers\b")
_SMALL: Final = re.compile(r"\b(\d{2,3})m\b", re.IGNORECASE)  # parameters of a draft model
FR_SPEC: Final = 32768  # tokens that FR-Spec (arXiv 2502.14856) leaves a drafter's head
# Drafted, passes, alternatives of EAGLE's own code, which Spec-Bench runs: a static tree of 26
# (mc_sim_7b_63), and EAGLE-3's total_token 60, depth 7, top_k 10.
_EAGLE_TREES: Final = {"eagle": (25, 5, 4), "eagle3": (59, 8, 10)}
_OTHER_BASE: Final = re.compile(
    r"not a pure|base here is|not like for like|base = dp-attention",
    re.IGNORECASE,
)
# People write there what went wrong, and leave out what they ran.
_TOLD: Final = re.compile(r"/(vllm|sglang|TensorRT-LLM|llama\.cpp)/issues/", re.IGNORECASE)
_BATCH: Final = re.compile(r"^(\d{1,7})\b(\s*per rank)?")


class _Run(NamedTuple):
    """One row: where it ran and how it drafted, how many requests at once after how many tokens."""

    deployment: Deployment
    batch: int
    past: float
    load: Serving | None  # where lengths are published and requests queue behind prompts


def speculative_findings(table: Table, profiles: Profiles) -> Findings:
    """Predict every row of the table, or say why it cannot be."""
    found, bench = Findings(), Bench(profiles)
    overall = _overall([row for _, row in table.rows])
    for line, row in table.rows:
        name = text(row, "id") or f"line {line}"
        try:
            found.rows.append(_answer(table.where, name, row, bench, overall))
        except TrueflopsError as error:
            found.refused.append(Refusal(table.where, name, str(error)))
    return found


def _answer(
    where: str, name: str, row: Row, bench: Bench, overall: Mapping[tuple[str, ...], float]
) -> Finding:
    seen = _speedup(row)
    run = _run(row, overall)
    e = (
        bench.speedup_under(run.deployment, run.load)
        if run.load
        else bench.speedup(run.deployment, run.batch, run.past)
    )
    engine = text(row, "engine")
    about = SpeculativeRow(
        source=_source(row),
        framework=run.deployment.framework,
        method=text(row, "method"),
        batch=run.batch,
        apart=_apart(row),
        unknown_software="" if _knows(engine) else engine or "(none named)",
    )
    return Finding(where, name, about, "speedup", seen, float(e.value), float(e.low), float(e.high))


def _speedup(row: Row) -> float:
    """As published, else of two rates or two times per token."""
    if seen := measured(row, "speedup"):
        return seen
    for base, with_drafts, falls in (
        ("tokens_per_s_base", "tokens_per_s_spec", False),
        ("tpot_base_ms", "tpot_spec_ms", True),
    ):
        before, after = measured(row, base), measured(row, with_drafts)
        if before and after:
            return before / after if falls else after / before
    raise BadInput("speedup is empty, and nothing without drafts was measured beside it")


def _run(row: Row, overall: Mapping[tuple[str, ...], float]) -> _Run:
    notes, drafter = text(row, "notes"), text(row, "draft_model")
    model = _model(text(row, "model"), notes)
    chip = chip_of(text(row, "accelerator") or USUAL_CHIP, None, notes)
    engine = _framework(text(row, "engine"))
    weights = weight_format(_dtype(row, model), "", model, chip)
    found = _BATCH.match(text(row, "batch_or_concurrency") or "1")
    if not found:
        raise Missing(
            f"batch_or_concurrency is not a number: {text(row, 'batch_or_concurrency')[:30]!r}"
        )
    batch, by_rank = int(found[1]), bool(found[2])
    layout = _layout(row, model, chip, weights, by_rank=by_rank)
    bits = cache_bits("", "", engine)
    speculation = _speculation(row, model, engine, f"{drafter} {notes.split(';')[0]}", overall)
    deployment = Deployment(model, chip, layout, weights, bits, engine, speculation)
    read, written = number(row, "input_len"), number(row, "output_len")
    past = (read or USUAL_PAST) + (written or 0.0) / 2.0
    load = None
    if read and written and batch > 1:
        load = Serving(round(read), round(written), batch * (layout.replicas if by_rank else 1))
    return _Run(deployment, max(batch, 1), past, load)


def _speculation(
    row: Row, model: Model, engine: str, called: str, overall: Mapping[tuple[str, ...], float]
) -> Speculation:
    method = text(row, "method").casefold()
    method = next((own for word, own in _CALLED if word.search(called)), method)
    known = method_of(method, model.name)
    k, steps = number(row, "k"), noted(row, r"\bsteps?[= ](\d{1,3})\b")
    branches = noted(row, r"\btopk[= ](\d{1,3})\b") or 0
    drafted = round(k) if k else 0
    if drafted > 1 and (engine == "sglang" or steps):
        drafted -= 1  # SGLang counts the last accepted token among those it verifies
    if not drafted and (length := measured(row, "accept_len_mean")):
        # Nobody says how many: twice what was accepted, where that is more than usual.
        drafted = max(known.drafted, ceil(2.0 * (length - 1.0)))
    if engine == "transformers" and method in _EAGLE_TREES and not k:
        drafted, steps, branches = _EAGLE_TREES[method]
    passes = min(steps, drafted) if steps and drafted and known.passes == 0 else 0
    draft = None
    if known.drafter == "model":
        name = text(row, "draft_model") or next(
            (own for family, own in _DRAFTS.items() if family in model_name(row)), ""
        )
        small = _SMALL.search(name)
        draft = model_of(name, float(small[1]) / 1000.0 if small else None)
    layers = _LAYERS.search(called)
    return Speculation.of(
        model,
        method,
        drafted=drafted,
        passes=passes,
        branches=branches,
        layers=int(layers[1]) if layers else 0,
        vocab=FR_SPEC if "fr-spec" in called.casefold() else 0,
        acceptance=_acceptance(row, known.copies, drafted or known.drafted, overall),
        draft=draft,
    )


def _acceptance(
    row: Row, copies: bool, drafted: int, overall: Mapping[tuple[str, ...], float]
) -> Acceptance:
    """As given; else of all tasks of the same run, times what this task is known to differ by."""
    task = task_of(text(row, "task"))
    length = measured(row, "accept_len_mean")
    rate = measured(row, "accept_rate")
    if length is None and rate is not None and rate <= 1.0:
        length = 1.0 + rate * drafted  # as engines log it: accepted of all drafted
    if length is None and (mean := overall.get(_key(row))):
        length = 1.0 + task_factor(task, copies) * (mean - 1.0)
    if length is None:
        return Acceptance(task=task)
    return Acceptance(length=min(max(length, 1.0), 1.0 + drafted))


def _overall(rows: list[Row]) -> dict[tuple[str, ...], float]:
    """Acceptance over all tasks, by run."""
    found = {}
    for row in rows:
        length = measured(row, "accept_len_mean")
        if length and text(row, "task").casefold() == "overall":
            found[_key(row)] = length
    return found


def _key(row: Row) -> tuple[str, ...]:
    columns = ("source", "engine", "model", "method", "draft_model", "k", "accelerator", "notes")
    return tuple(text(row, column) for column in columns)


def _layout(row: Row, model: Model, chip: Accelerator, weights: str, *, by_rank: bool) -> Layout:
    """As stated; else so many devices that weights take a quarter of each, up to a node."""
    devices = count(row, "n_devices", count(row, "tp", 0) or 0)
    if by_rank:  # attention is replicated and experts are spread
        return Layout(1, 1, devices, devices if model.is_moe else 1)
    if not devices:
        bits = 8.0 if weights.startswith("fp8") else 4.5 if "4" in weights else 16.0
        held = model.parameter_count * bits / BITS_PER_BYTE
        devices = 1
        while devices < NODE and held / devices > ROOM * (chip.get("memory.capacity") or 0.0):
            devices *= 2
    tp = count(row, "tp", devices)
    return Layout(tp, 1, max(devices // tp, 1), 1, tp if model.is_moe else 1)


def _model(name: str, notes: str) -> Model:
    """The model; of "owner/A/B", two that are served alike, the first."""
    first = "/".join(name.split("/")[:2])
    return model_of(first if name.count("/") > 1 else name, None, None, notes)


def _dtype(row: Row, model: Model) -> str:
    """As stated; else as the checkpoint's name or its release has it."""
    said = text(row, "dtype")
    return said or ("fp8" if "fp8" in model_name(row) else model.released.format or "")


def model_name(row: Row) -> str:
    """In lower case."""
    return text(row, "model").casefold()


def _framework(engine: str) -> str:
    return "transformers" if "transformers" in engine.casefold() else framework_of(engine)


def _knows(engine: str) -> bool:
    return "transformers" in engine.casefold() or knows_engine(engine)


def _apart(row: Row) -> str:
    """Why a row does not count: its base is another server, or somebody tells of a fault."""
    if " vs " in text(row, "engine") or _OTHER_BASE.search(text(row, "notes")):
        return "another base"
    told = _TOLD.search(text(row, "source")) or "user report" in text(row, "notes").casefold()
    return "told of a fault" if told else ""


def _source(row: Row) -> str:
    """Who published it: a repository or a site and the page's own name."""
    said = re.sub(r"https?://|(www\.)?github\.com/|\s*@.*$|\s*\(.*$", "", text(row, "source"))
    return shorten(said.strip() or "no source", 60)
