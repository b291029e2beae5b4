"""Published inference results: tokens per second, first-token and per-token times, memory.

In: a table with the columns model, accelerator, weight_dtype, phase, tokens_per_s and their kin.
Out: Findings. What `tokens_kind` says was counted (per user, per GPU, in total; prompt, output or
both) is what is predicted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from trueflops.catalog import Accelerator, accelerator
from trueflops.errors import BadInput, TrueflopsError, shorten
from trueflops.model import Model
from trueflops.predict.serving import Acceptance, Offload, Speculation
from trueflops.predict.serving.offloading import OF_A_DESKTOP
from trueflops.profile.speculation import method_of, task_of
from trueflops.records.chips import chip_of, how_many
from trueflops.records.tables import Row, Table
from trueflops.runtime.terms import Estimate
from trueflops.units import GIGA
from trueflops.verify.cells import count, measured, number, require, text
from trueflops.verify.findings import Finding, Findings, InferenceRow, Quantity, Refusal, Timed
from trueflops.verify.profiles import Profiles
from trueflops.verify.serving.deployment import Bench, Deployment, Layout
from trueflops.verify.serving.format import (
    cache_bits,
    framework_of,
    knows_engine,
    pcie_of,
    weight_format,
)
from trueflops.verify.serving.lengths import lengths_of
from trueflops.verify.serving.served_model import model_of
from trueflops.verify.serving.stand_in import is_stand_in
from trueflops.workload import Serving

COLUMNS: Final = ("model", "accelerator", "engine", "phase", "tokens_per_s", "tokens_kind")
MILLI: Final = 1e-3
SHORT_CONTEXT: Final = 512  # of a decode whose lengths were not published; it hardly matters
POOLS: Final = ("vllm", "trt-llm", "sglang")  # reserve a share of memory whatever the model needs
_UNTRUE: Final = re.compile(r"ANOMALY|REGRESSED")  # as the table itself marks a row
LAYER_SPLIT: Final = ("llama.cpp", "llama.cpp-2023")  # over several cards, unless told otherwise
_POWER_LIMIT: Final = re.compile(
    r"power[ -](?:limit|cap)(?:ped)?(?: (?:at|to|of))?[ :=]{1,3}(\d{2,4}) ?W", re.IGNORECASE
)
_FULL_LOAD: Final = re.compile(r"max(imum)? load|infinite|offline|mlperf", re.IGNORECASE)
_RESERVED: Final = re.compile(r"prealloc|reserve|pool|cache block", re.IGNORECASE)
_BOTH: Final = re.compile(r"\bin(put)?\s*(\+|and|&)\s*out(put)?\b", re.IGNORECASE)
_INPUT: Final = re.compile(r"\b(input|prompt|prefill)\b", re.IGNORECASE)
_LENGTH: Final = re.compile(
    r"accept\w*[ _-]len\w*\s*[=:]?\s*(\d{1,9}(?:\.\d{1,9})?)", re.IGNORECASE
)
_RATE: Final = re.compile(r"acceptance\s*[=:]\s*(0?\.\d{1,9}|1(?:\.0{1,9})?)", re.IGNORECASE)
# The median gap between two tokens is a step in which no prompt of another request was read.
_MEDIAN_GAP: Final = re.compile(r"tpot\s*=\s*p50|\bp50\b[^;]*\bITL\b|median ITL", re.IGNORECASE)
_DRAFTED: Final = re.compile(r"\bk\s*=\s*(\d{1,3})\b")
_DRAFT: Final = re.compile(r"\bdraft=([\w. -]+?)(?:\s+(?:int|fp|bf|q)\d[^;]*)?(?:;|$)")
_METHODS: Final = (
    ("eagle-3", "eagle3"),
    ("eagle3", "eagle3"),
    ("eagle-2", "eagle2"),
    ("eagle", "eagle"),
    ("dflash", "dflash"),
    ("mtp", "mtp"),
    ("medusa", "medusa"),
    ("lookahead", "lookahead"),
    ("suffix", "suffix"),
    ("ngram", "ngram"),
    ("n-gram", "ngram"),
    ("lookup", "ngram"),
)


_SHARES: Final = re.compile(r"\d{1,6}(?:\.\d{1,6})?(?:,\d{1,6}(?:\.\d{1,6})?)+")


def inference_findings(table: Table, profiles: Profiles) -> Findings:
    """Predict every row of the table, or say why it cannot be."""
    found, bench = Findings(), Bench(profiles)
    for line, row in table.rows:
        name = text(row, "id") or f"line {line}"
        try:
            answers = list(_answers(row, bench))
        except TrueflopsError as error:
            found.refused.append(Refusal(table.where, name, str(error)))
            continue
        about = _about(row)
        for answer in answers:
            seen, e = answer.measured, answer.predicted
            found.rows.append(Finding.beside(table.where, name, about, answer.of, seen, e))
    return found


@dataclass(frozen=True)
class _Answer:
    of: Quantity
    measured: float
    predicted: Estimate


def _about(row: Row) -> InferenceRow:
    """Its source, apart for rows that say themselves not to trust them, or that speculate."""
    engine = text(row, "engine")
    return InferenceRow(
        source=text(row, "source_group") or text(row, "source") or "no source",
        framework=_framework(row),
        timed=_timed(row),
        apart="anomaly"
        if _UNTRUE.search(text(row, "notes"))
        else "speculative" * bool(text(row, "speculative")),
        unknown_software="" if knows_engine(engine) else engine or "(none named)",
    )


def _timed(row: Row) -> Timed:
    """What was timed: a prompt, one request's tokens, those of several, or whole requests."""
    phase = _phase(row)
    if phase != "decode":
        return "prompt" if phase == "prefill" else "requests"
    return "one request's tokens" if count(row, "batch_or_concurrency", 1) == 1 else "tokens"


def _phase(row: Row) -> str:
    kind, phase = text(row, "tokens_kind").casefold(), text(row, "phase").casefold()
    if phase:
        return phase
    starts = kind.startswith
    return "prefill" if starts("prefill") else "decode" if starts("decode") else "e2e"


def _answers(row: Row, bench: Bench) -> Iterator[_Answer]:
    """Every quantity that the row measured and that can be predicted; at least one."""
    rate, ttft, tpot = (measured(row, c) for c in ("tokens_per_s", "ttft_ms", "tpot_ms"))
    memory = measured(row, "mem_used_gb")
    if rate is None and ttft is None and tpot is None and memory is None:
        raise BadInput("tokens_per_s, ttft_ms, tpot_ms and mem_used_gb are all empty")
    run = _deployment(row)
    asked = _Asked.of(row, run, bench)
    answers = 0
    derived = ttft is not None and "derived" in asked.kind
    if rate is not None and not derived:
        yield _Answer("tokens_per_second", rate, asked.rate())
        answers += 1
    if ttft is not None and (asked.load or asked.phase == "prefill"):
        yield _Answer("ttft_seconds", ttft * MILLI, asked.first_token())
        answers += 1
    if tpot is not None and asked.load and not text(row, "speculative"):
        point = bench.point(run, asked.load)
        median = _MEDIAN_GAP.search(text(row, "notes"))
        predicted = point.decode.estimate if median else point.tpot
        yield _Answer("tpot_seconds", tpot * MILLI, predicted)
        answers += 1
    if memory is not None and asked.load and _is_need(row, memory, run):
        needed = bench.point(run, asked.load).memory.estimate.times(run.layout.devices)
        yield _Answer("peak_bytes", memory * GIGA, needed)
        answers += 1
    if not answers:
        raise BadInput("what was measured needs input_len and output_len, which are empty")


def _framework(row: Row) -> str:
    return framework_of(text(row, "engine"), text(row, "engine_version"), text(row, "year"))


def _deployment(row: Row) -> Deployment:
    notes = text(row, "notes")
    model = model_of(
        text(row, "model"), number(row, "params_b"), number(row, "active_params_b"), notes
    )
    chip, cards = _cards(row)
    many, _ = how_many(text(row, "accelerator"))
    devices = len(cards) or count(row, "n_devices", many)
    pp, ep = count(row, "pp", 1), count(row, "ep", 1)
    # Experts spread with nothing else split: attention is replicated (the layout "dep").
    tp = count(row, "tp", 1 if ep > 1 else max(devices // pp, 1))
    engine = _framework(row)
    if engine == "llama.cpp-2023" and not chip.computes("fp16"):
        engine = "llama.cpp"  # int8 products were there before: tensor cores alone got fp16 ones
    if engine in LAYER_SPLIT or cards:
        tp, pp = 1, devices  # several cards hold a share of the layers each, whatever is said
    replicas = max(devices // (tp * pp), 1)
    moe = model.is_moe
    layout = Layout(
        tp, pp, replicas, ep if moe else 1, max(tp // ep, 1) if moe and replicas == 1 else 1
    )
    narrow = text(row, "activation_dtype")
    weights = weight_format(text(row, "weight_dtype"), narrow, model, chip)
    bits = cache_bits(text(row, "kv_dtype"), narrow, engine)
    limit = _POWER_LIMIT.search(notes)
    watts = float(limit[1]) if limit else None
    drafts = _speculation(row, model)
    link = pcie_of(notes)
    host = _on_host(row, model)
    return Deployment(
        model, chip, layout, weights, bits, engine, drafts, watts, link, offload=host,
        cards=cards, shares=_shares(row),
    )  # fmt: skip


def _cards(row: Row) -> tuple[Accelerator, tuple[Accelerator, ...]]:
    """The chip, and every card of 'RTX 3090 + 2 x RTX 3060', or of those that take unequal shares.

    Of several kinds llama.cpp counts the fastest first unless told otherwise
    (CUDA_DEVICE_ORDER); rows name them in the order in which they hold layers.
    """
    notes, memory = text(row, "notes"), number(row, "memory_gb")
    kinds = [
        (many, chip_of(name, memory, notes))
        for many, name in map(how_many, text(row, "accelerator").split(" + "))
    ]
    if len(kinds) > 1:
        return kinds[0][1], tuple(chip for many, chip in kinds for _ in range(many))
    chip = kinds[0][1]
    return chip, (chip,) * len(_shares(row))


def _shares(row: Row) -> tuple[float, ...]:
    """What each card takes, where a row says it."""
    said = text(row, "tensor_split")
    if said and not _SHARES.fullmatch(said):
        raise BadInput(f"tensor_split {shorten(said)!r}: write a share for each card, as 3,1")
    return tuple(float(share) for share in said.split(",")) if said else ()


def _on_host(row: Row, model: Model) -> Offload | None:
    """Layers that the host computes, where a row says how many accelerators have."""
    on_accelerators = count(row, "gpu_layers", model.layers + 1)
    if on_accelerators > model.layers:
        return None
    cpu = accelerator(text(row, "host_cpu") or OF_A_DESKTOP)
    return Offload(model.layers - on_accelerators, cpu=cpu)


@dataclass(frozen=True)
class _Asked:
    """What was measured at which load. `load` is None where lengths were not published."""

    run: Deployment
    bench: Bench
    phase: str
    kind: str
    read: int
    depth: int  # tokens that were in the cache before
    load: Serving | None

    @classmethod
    def of(cls, row: Row, run: Deployment, bench: Bench) -> _Asked:
        kind, phase = text(row, "tokens_kind").casefold(), _phase(row)
        read, written = lengths_of(row)
        depth = round(number(row, "context_depth") or 0)
        streams = number(row, "batch_or_concurrency")
        load: Serving | None = None
        if phase == "prefill":
            if read is None:
                require(row, "input_len")
        elif phase == "decode":
            before = max(round(read or 0), depth) if read is not None or depth else SHORT_CONTEXT
            load = Serving(
                max(before, 1), max(round(written or SHORT_CONTEXT), 1), round(streams or 1)
            )
        else:
            if read is None and written and not counts_prompts(kind):
                read = SHORT_CONTEXT  # beside the time of so many outputs it hardly matters
            lengths = {"input_len": read, "output_len": written}
            inside, outside = (
                max(round(require(row, c) if n is None else n), 1) for c, n in lengths.items()
            )
            if streams:
                load = Serving(inside, outside, max(round(streams), 1))
            elif _FULL_LOAD.search(kind) or _FULL_LOAD.search(text(row, "notes")):
                load = bench.full_load(run, inside, outside)
            elif "per user" in kind:
                load = Serving(inside, outside, 1)
            else:
                raise BadInput("batch_or_concurrency is empty")
        return cls(run, bench, phase, kind, round(read or 0), depth, load)

    def rate(self) -> Estimate:
        """Tokens per second, of those tokens and for those users that were counted."""
        devices = self.run.layout.devices
        if self.phase == "prefill":
            total = self._prefill().under(self.read)
            return total.times(1.0 / devices) if self._per_device else total
        assert self.load is not None
        load = self.load
        if self.phase == "decode":
            total = self.bench.decode(self.run, load).under(load.concurrency)
        else:
            total = self.bench.point(self.run, load).tokens_per_second
            if _BOTH.search(self.kind):
                total = total.times((load.input + load.output) / load.output)
            elif counts_prompts(self.kind):
                total = total.times(load.input / load.output)
        if "per user" in self.kind or (self.phase == "decode" and "total" not in self.kind):
            return total.times(1.0 / load.concurrency)
        return total.times(1.0 / devices) if self._per_device else total

    def first_token(self) -> Estimate:
        """Time to first token."""
        if self.phase == "prefill" or self.load is None:
            return self._prefill()
        return self.bench.point(self.run, self.load).ttft

    @property
    def _per_device(self) -> bool:
        return any(word in self.kind for word in ("per gpu", "per device", "per chip", "/gpu"))

    def _prefill(self) -> Estimate:
        """The prompt alone; behind a filled cache it is what the longer prompt adds."""
        whole = self._reading(self.depth + max(self.read, 1))
        if not self.depth:
            return whole
        before = float(self._reading(self.depth).value)
        return whole.times(max(1.0 - before / float(whole.value), MILLI))

    def _reading(self, tokens: int) -> Estimate:
        return self.bench.prefill(self.run, tokens)


def counts_prompts(kind: str) -> bool:
    """Whether a rate counts tokens that were read, alone or beside those that were written."""
    return bool(_BOTH.search(kind)) or ("output" not in kind and bool(_INPUT.search(kind)))


def _is_need(row: Row, memory_gb: float, run: Deployment) -> bool:
    """Whether the memory is what a known model needed, and not a pool or several servers."""
    if run.framework in POOLS or _RESERVED.search(text(row, "notes")) or is_stand_in(run.model):
        return False
    there = (run.chip.get("memory.capacity") or 0.0) * run.layout.devices
    return count(row, "batch_or_concurrency", 1) == 1 and memory_gb * GIGA <= there


def _speculation(row: Row, model: Model) -> Speculation | None:
    """What the row says of drafts: "ngram; draft=None; k=4; acceptance=0.45"."""
    said = text(row, "speculative")
    if not said:
        return None
    drafter = _DRAFT.search(said)
    draft = model_of(drafter[1].strip()) if drafter and drafter[1].casefold() != "none" else None
    method = "draft" if draft else next((m for w, m in _METHODS if w in said.casefold()), "draft")
    drafted = _DRAFTED.search(said)
    tokens = int(drafted[1]) if drafted else method_of(method).drafted
    acceptance = Acceptance(task=task_of(text(row, "tokens_kind")))
    if length := _LENGTH.search(said):
        acceptance = Acceptance(length=min(max(float(length[1]), 1.0), 1.0 + tokens))
    elif rate := _RATE.search(said):
        # As engines log it: of all drafted tokens, those that were accepted.
        acceptance = Acceptance(length=1.0 + float(rate[1]) * tokens)
    return Speculation.of(
        model, method, drafted=tokens if drafted else 0, acceptance=acceptance, draft=draft
    )
