"""What engines print at start: tokens or blocks of the KV cache, its bytes, weights, activations.

In: a table with the columns engine, model, accelerator, gpu_memory_utilization, kv_blocks_printed,
kv_tokens_printed and their kin. Out: Findings. The share is what the engine calls so: vLLM's
gpu_memory_utilization, SGLang's mem_fraction_static, TensorRT-LLM's free_gpu_memory_fraction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, hypot
from typing import Final

from trueflops.catalog import Accelerator
from trueflops.errors import BadInput, TrueflopsError, UnknownName
from trueflops.graph.formats import format_named
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.plan.serving import usual_etp
from trueflops.predict.costs import Costs
from trueflops.predict.released import served_weights
from trueflops.predict.serving.memory import RELEASES, WHOLE, KvCache, ServerMemory
from trueflops.predict.serving.passes import Passes
from trueflops.profile import Engine, engine_of, engine_on
from trueflops.profile.engines import CHUNKED_FROM, is_before, release_on, sharing_experts
from trueflops.records.chips import chip_of, cluster_of_cut
from trueflops.records.tables import Row, Table
from trueflops.runtime.terms import Z90, Estimate
from trueflops.units import GIBI
from trueflops.verify.cells import Missing, count, number, share, text, whole
from trueflops.verify.findings import CacheRow, Finding, Findings, Quantity, Refusal
from trueflops.verify.profiles import Profiles
from trueflops.verify.serving.deployment import Layout, spread_over
from trueflops.verify.serving.format import cache_bits, framework_of, knows_engine, weight_format
from trueflops.verify.serving.served_model import model_of
from trueflops.verify.serving.stand_in import is_stand_in
from trueflops.verify.serving.towers import Tower, tower_of
from trueflops.workload import Serving

COLUMNS: Final = (
    "engine", "model", "accelerator", "gpu_memory_utilization", "kv_blocks_printed",
    "kv_tokens_printed",
)  # fmt: skip
# What names say beside the shape: remarks, drafters, tunes.
_ASIDE: Final = re.compile(
    r"\s*(?:\([^)]*\)|\+.*$)|[-_ ](?:NVFP4|resharded|class|full|LLaMAfied)\b", re.IGNORECASE
)
_TOTAL: Final = re.compile(r"total\w*\s*(?:of\s*)?(\d{1,4}\.\d{1,3})\s*GiB", re.IGNORECASE)
_FREE: Final = re.compile(r"avail (\d{1,4}\.\d{1,3})")  # of the chip, as SGLang finds it
_FREE_BEFORE: Final = re.compile(r"avail (\d{1,4}\.\d{1,3}) before load")
_DAY: Final = re.compile(r"\b(20\d{2}-\d{2}-\d{2})\b")
_SIZE: Final = re.compile(r"(\d{2,3})\s?GB")
UNDATED: Final = "0.11"
"""vLLM's release where a row gives neither one nor a day: of autumn 2025, between the oldest and
the newest of published logs."""
_UNNUMBERED: Final = "0.1.dev"  # what setuptools-scm calls a build that sees no tag
_EIGHT: Final = re.compile(r"int8|8bit", re.IGNORECASE)
_OF_META: Final = re.compile(r"meta-llama/.*-FP8$")  # Llama 3 whose attention stays wide
_OF_CONFIG: Final = ("fp8", "fp8_block")
"""What a config.json calls its weights (quant_method) whose experts are narrower still: engines
print that word (DeepSeek-V4: quant=fp8), and load experts as they are."""
EIGHT: Final = 8.0  # bits: checkpoints of so many narrow every product alike
# Rows whose notes say that something else than the engine's rule decided.
_APART: Final = re.compile(
    r"capped|\bfork\b|\bleaks?\b|offload|in doubt|inconsistent|unified memory|disagree|"
    r"does not cover|OOM",
    re.IGNORECASE,
)
_USUAL_BY_MEMORY: Final = {
    8: "RTX 3070", 12: "RTX 3060", 16: "RTX 4080", 22: "RTX 4090", 24: "RTX 4090", 32: "RTX 5090",
    40: "A100-40GB", 48: "L40S", 80: "H100", 96: "H20", 141: "H200", 192: "B200",
}  # fmt: skip
"""A chip that is not named, by its memory alone: it decides nothing else here."""
_USUAL_OF_AMD: Final = {
    16: "RX 7900 XT", 24: "RX 7900 XTX", 64: "MI210", 128: "MI250X", 192: "MI300X",
    256: "MI325X", 288: "MI355X",
}  # fmt: skip
_AMD: Final = re.compile(r"\b(?:AMD|ROCm|Radeon|Instinct)\b", re.IGNORECASE)
FIRST: Final = "0.7"  # the last release of vLLM whose first engine was the usual one
SECOND: Final = "0.8"  # the first with the other
_SECOND: Final = re.compile(r"\bV1 engine\b")
_PREFIXES: Final = re.compile(r"(no[- ])?enable[-_]prefix[-_]caching|mamba-cache-mode align")
_EAGER: Final = re.compile(r"\benforce[-_ ]eager\b", re.IGNORECASE)
CHUNK: Final = 2048
LENGTHS: Final = 64  # tokens that the longest length is told to
LOADING: Final = 0.1 * GIBI
"""What is printed as weights is the difference of free memory before and after loading: rounded up
to the allocator's segments, and with what libraries take meanwhile (assumed)."""
UNSTATED: Final = 0.8  # spread of a trial pass where max_num_seqs is not given


def kv_cache_findings(table: Table, profiles: Profiles) -> Findings:
    """Predict every row of the table, or say why it cannot be."""
    found = Findings()
    for line, row in table.rows:
        name = text(row, "id") or f"line {line}"
        try:
            printed = _all_printed(row)
            start = _Start.of(row, profiles)
            about = _about(row, start)
            for of, seen, e in _answers(row, printed, start):
                found.rows.append(Finding.beside(table.where, name, about, of, seen, e))
        except TrueflopsError as error:
            found.refused.append(Refusal(table.where, name, str(error)))
    return found


def _about(row: Row, start: _Start) -> CacheRow:
    engine, apart = text(row, "engine"), ""
    if _APART.search(text(row, "notes")):
        apart = "by its notes"
    elif not share(row, "gpu_memory_utilization") and start.exceeds(row):
        apart = "more than the default share holds: it was set, and is not said"
    return CacheRow(
        source=text(row, "source"),
        framework=framework_of(engine),
        apart=apart,
        unknown_software="" if knows_engine(engine) else engine or "(none named)",
    )


def _all_printed(row: Row) -> dict[str, float]:
    """Every quantity that was printed; at least one."""
    printed = {
        column: seen
        for column in ("weights_gib", "peak_activation_gib", "available_kv_gib", "kv_blocks",
                       "kv_tokens")
        if (seen := _printed(row, f"{column}_printed")) is not None
    }  # fmt: skip
    if not printed:
        raise BadInput("nothing that the engine printed about its memory is given")
    return printed


def _answers(
    row: Row, printed: dict[str, float], start: _Start
) -> Iterator[tuple[Quantity, float, Estimate]]:
    """What is predicted of each of them."""
    pool = start.pool
    tokens = printed.get("kv_tokens")
    if tokens is None and "kv_blocks" in printed:
        tokens = printed["kv_blocks"] * start.memory.engine.block
    if tokens is not None:
        yield "kv_tokens", tokens, pool.tokens
    if "available_kv_gib" in printed:
        yield "kv_bytes", printed["available_kv_gib"] * GIBI, pool.bytes
    parts = {part.name: part for part in start.memory.fixed(start.plan, start.reading)}
    if "weights_gib" in printed:
        known = parts["weights"].estimate
        spreads = {
            "padding": start.memory.spread("weights"),
            "loading": LOADING / float(known.value),
        }
        yield (
            "weight_bytes",
            printed["weights_gib"] * GIBI,
            Estimate(known.value, spreads, "derived"),
        )
    if "peak_activation_gib" in printed and "working tensors" in parts:
        held = float(parts["working tensors"].value)
        if "captured graphs" in parts:  # printed together since they are counted
            held += float(parts["captured graphs"].value)
        stated = start.memory.spread("working tensors")
        # Most logs do not say how many rows of logits were sampled: users set fewer.
        spreads = {"activations": stated if text(row, "max_num_seqs") else UNSTATED}
        seen = printed["peak_activation_gib"] * GIBI
        yield "working_bytes", seen, Estimate(held, spreads, "derived")


def _printed(row: Row, column: str) -> float | None:
    """A figure above zero; a start that failed prints a negative one."""
    return None if text(row, column).startswith("-") else number(row, column)


@dataclass(frozen=True)
class _Start:
    """An engine that starts, as a row describes it."""

    memory: ServerMemory
    plan: Plan

    @classmethod
    def of(cls, row: Row, profiles: Profiles) -> _Start:
        """As the row says, of the model's own length where it says none.

        vLLM's first engine tried itself with a whole prompt, and refused to start where not even
        one has room (worker.py, raise_if_cache_size_invalid): then it is the longest that has.
        """
        start = cls.at(row, profiles)
        by_length = start.memory.engine.step_tokens == start.memory.length
        if whole(row, "max_model_len") or not by_length or start.has_room:
            return start
        fits, too_long = 1, start.memory.length
        while too_long - fits > LENGTHS:
            middle = (fits + too_long) // 2
            if cls.at(row, profiles, middle).has_room:
                fits = middle
            else:
                too_long = middle
        return cls.at(row, profiles, fits)

    @classmethod
    def at(cls, row: Row, profiles: Profiles, length: int = 0) -> _Start:
        """The same with a length; 0: the row's, or the model's own."""
        tower = tower_of(text(row, "model"))
        model, chip = _model(row, tower), _chip(row)
        name = framework_of(text(row, "engine"))
        layout = _layout(row, name, model)
        said = text(row, "weights_dtype")
        if _EIGHT.search(text(row, "model")):  # GPTQ and its kin have four bits or eight
            said = "int8"
        said = said.replace("bitsandbytes", "nf4")
        weights = weight_format(said, "", model, chip)
        if weights == "fp8" and _OF_META.match(text(row, "model")):
            weights = "fp8-ffn"
        if said in _OF_CONFIG and format_named(model.released.format or "bf16").dense:
            said = ""
        if not said or said == "auto":
            weights = served_weights(model, chip).name
        if model.recurrences and format_named(weights).weight_bits < EIGHT:
            raise BadInput("which layers a narrow checkpoint of a hybrid leaves wide is unknown")
        cluster = cluster_of_cut(chip, layout.devices)
        length = length or whole(row, "max_model_len") or model.max_positions or CHUNKED_FROM
        engine = _engine(row, name, chip, length, _in_chunks(model, tower, chip, length), tower)
        bits = cache_bits(_cache(row, engine))
        passes = Passes(model, cluster, profiles(chip, name), weights, bits)
        said_of_chip, notes = text(row, "accelerator"), text(row, "notes")
        total = _TOTAL.search(f"{said_of_chip}; {notes}")
        free = _FREE.search(said_of_chip) or _FREE_BEFORE.search(notes)
        plan = layout.plan(model, passes.dtype)
        memory = ServerMemory(
            passes,
            sharing_experts(engine, chip, plan),
            Serving(length, 1, 1),
            length=length,
            visible=float(total[1]) * GIBI if total else None,
            free=float(free[1]) * GIBI if free else None,
            towers=tower.parameters if tower else 0.0,
            encoding=_encoding(row, engine, tower, layout.tp),
        )
        return cls(memory, plan)

    @property
    def has_room(self) -> bool:
        """Whether a request of the whole length fits."""
        return float(self.pool.concurrency.value) >= 1.0

    @property
    def reading(self) -> Costs:
        """What the weights are known by: a pass over one token is enough."""
        return self.memory.passes.costs(self.plan, 1.0, 1.0, 0.0)

    @property
    def pool(self) -> KvCache:
        return self.memory.kv_cache(self.plan, self.reading)

    def exceeds(self, row: Row) -> bool:
        """Whether weights and the cache as printed are more than the share that is taken to be the
        default, by more than what is unsure of them.
        """
        memory, cache = self.memory, _printed(row, "available_kv_gib_printed")
        if cache is None:
            return False
        held = memory.weights(self.plan, self.reading) + cache * GIBI
        room = memory.engine.share(int(self.plan.tp * self.plan.pp)) * memory.visible
        doubts = (memory.spread(WHOLE), memory.spread("weights"), RELEASES)
        return held > room * exp(Z90 * hypot(*doubts))


def _model(row: Row, tower: Tower | None) -> Model:
    name = tower.language_model if tower else _ASIDE.sub("", text(row, "model")).strip()
    model = model_of(name)
    if is_stand_in(model):
        raise Missing(f"model {name!r} is not in the catalog: its KV heads are not known")
    return model


def _chip(row: Row) -> Accelerator:
    """The chip named; one of its memory where none is."""
    said = text(row, "accelerator")
    size = number(row, "memory_gb")
    if size is None and (printed := _SIZE.search(said)):
        size = float(printed[1])
    try:
        return chip_of(said, size, text(row, "notes"))
    except UnknownName:
        usual = _USUAL_BY_MEMORY | (_USUAL_OF_AMD if _AMD.search(said) else {})
        if size is None or round(size) not in usual:
            raise
        return chip_of(usual[round(size)], size)


def _in_chunks(model: Model, tower: Tower | None, chip: Accelerator, length: int) -> bool:
    """Whether vLLM's first engine read prompts in chunks (0.7's EngineArgs and VllmConfig)."""
    plain = not any(a.latent or a.window for a in model.attentions)
    return length > CHUNKED_FROM and plain and tower is None and chip.vendor == "NVIDIA"


def _layout(row: Row, engine: str, model: Model) -> Layout:
    tp, pp, dp = count(row, "tp", 1), count(row, "pp", 1), count(row, "dp", 1)
    ep = count(row, "ep", 1) if model.is_moe else 1
    if engine == "sglang" and dp > 1:  # attention's ranks are tp / dp
        tp = max(tp // dp, 1)
    # Replicas share experts: each is split over the ranks that ep leaves of all.
    etp = usual_etp(tp * dp, ep) if model.is_moe else 1
    return Layout(tp, pp, dp, ep, etp, spread_over(text(row, "notes"), model, tp))


def _engine(
    row: Row, name: str, chip: Accelerator, length: int, chunks: bool, tower: Tower | None
) -> Engine:
    """The settings of the release, and what the row sets otherwise."""
    release = text(row, "engine_version")
    if not release[:1].isdigit() or release.startswith(_UNNUMBERED):
        day = _DAY.search(text(row, "source"))
        release = release_on(name, day[1]) if day else _undated(row, name)
    engine = engine_on(name, chip, release)
    first_engine = name == "vllm" and _is_first(row, release)
    if first_engine:
        # It read whole prompts; where it ran in newer releases, FIRST has the rest.
        reads = CHUNK if chunks else max(length, CHUNK)
        first = engine_on(name, chip, release if is_before(release, SECOND) else FIRST)
        engine = first.but(step_tokens=reads, latent_align=engine.latent_align)
    elif _SECOND.search(text(row, "notes")):
        engine = engine.but(eager=False)
    if prefixes := _PREFIXES.search(text(row, "notes")):
        engine = engine.but(states_kept=1 if prefixes[1] else 2)
    if _EAGER.search(text(row, "notes")):
        engine = engine.uncaptured()
    if stated := share(row, "gpu_memory_utilization"):
        engine = engine.naming(memory_share=stated)
    own = {
        "step_tokens": whole(row, "max_num_batched_tokens"),
        "most_sequences": whole(row, "max_num_seqs"),
        "block": whole(row, "block_size"),
    }
    engine = engine.naming(**{key: value for key, value in own.items() if value})
    if first_engine and tower and tower.picture:
        # Its trial pass took as many requests as images of the largest size fit into a step, each
        # with one (worker/model_runner.py, profile_run: max_num_batched_tokens // max_mm_tokens).
        images = max(engine.step_tokens // tower.picture.tokens, 1)
        engine = engine.but(most_sequences=min(engine.most_sequences, images))
    return engine


def _is_first(row: Row, release: str) -> bool:
    """Whether vLLM's first engine ran: it printed blocks, the second prints tokens."""
    if _SECOND.search(text(row, "notes")):
        return False
    blocks, tokens = (_printed(row, f"kv_{unit}_printed") for unit in ("blocks", "tokens"))
    return bool(blocks and not tokens) or (not tokens and is_before(release, SECOND))


def _encoding(row: Row, engine: Engine, tower: Tower | None, tp: int) -> float:
    """Bytes of the encoders' pass while vLLM's first engine tried itself."""
    if tower is None or tower.picture is None or _printed(row, "kv_tokens_printed"):
        return 0.0
    return tower.picture.bytes(engine.most_sequences, tp) if engine.name == "vllm" else 0.0


def _cache(row: Row, engine: Engine) -> str:
    """The dtype of the cache; NVIDIA's narrow checkpoints ask for fp8."""
    said = text(row, "kv_dtype").replace("auto", "")
    asks = text(row, "model").casefold().startswith("nvidia/") and "fp" in text(
        row, "weights_dtype"
    ).replace("fp16", "")
    return "fp8" if not said and asks and engine.checkpoint_cache else said


def _undated(row: Row, name: str) -> str:
    """A release by what else is said: a share of 0.92 is the default of newer ones."""
    newest = number(row, "gpu_memory_utilization") == engine_of(name).memory_share
    return UNDATED if name == "vllm" and not newest else ""
