"""What accuracy is claimed, regime by regime: which rows, what was fitted, the figure to hold.

`docs/accuracy.md` prints them and the tests hold them: a change that makes one worse fails.
Figures are of rows that no fit has seen, unless a regime says that nothing was fitted to its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from trueflops.verify import regime_rows as of
from trueflops.verify.findings import Finding, Quantity

Measure = Literal["median and p90", "MAPE", "macro MAPE"]
Judged = Literal[
    "by all that is known", "without its source", "gathered afterwards", "gathered last"
]
"""How, and on which rows: those that were there when laws and settings were chosen, the same with
settings chosen without their source, or those of truth/unseen: its older editions, or the last."""


@dataclass(frozen=True)
class Regime:
    """One claim. `most` are the figures that it must not exceed, `aim` those that we want."""

    name: str
    quantity: Quantity
    rows: Callable[[Finding], bool]
    fitted: str
    measure: Measure
    aim: tuple[float, ...]
    most: tuple[float, ...]
    noise: str = ""
    judged: Judged = "by all that is known"


@dataclass(frozen=True)
class Reached:
    """What a regime reaches."""

    rows: int
    figures: tuple[float, ...]
    coverage: float

    def holds(self, regime: Regime) -> bool:
        """Whether the claim stands."""
        return all(own <= most for own, most in zip(self.figures, regime.most, strict=True))


def reach(regime: Regime, findings: Sequence[Finding]) -> Reached | None:
    """The regime's figures over its rows; None where there are none."""
    rows = [f for f in findings if f.quantity == regime.quantity and regime.rows(f)]
    if not rows:
        return None
    errors = np.array([abs(f.error) for f in rows])
    coverage = float(np.mean([f.covered for f in rows]))
    figures: tuple[float, ...]
    if regime.measure == "median and p90":
        figures = (float(np.median(errors)), float(np.quantile(errors, 0.9)))
    elif regime.measure == "MAPE":
        figures = (float(errors.mean()),)
    else:
        groups = sorted({f.group for f in rows})
        each = [np.mean([abs(f.error) for f in rows if f.group == g]) for g in groups]
        figures = (float(np.mean(each)),)
    return Reached(len(rows), figures, coverage)


SINCE: Final = "no prediction; causes were looked for since, and the widths of intervals"
LAST: Final = "nothing; words of chips and loads that were refused are read since"
ENGINES: Final = "settings of engines, on some chips and sources (frameworks.toml says which)"
TABLES: Final = "four in five rows of that chip's tables"
AITER: Final = "four in five rows of AITER's own tables of tuned kernels"
MINUTES: Final = "other shapes, in three minutes on the same chip (`trueflops measure`)"
RELEASES: Final = "the same job on nine releases of one framework spreads 3.6 %"
NEIGHBOURS: Final = "neighbouring shapes m and m+1 differ by −10…+14 % in the tables"

_GATHERED: Final[
    tuple[tuple[str, Quantity, Callable[[Finding], bool], Measure, tuple[float, ...]], ...]
] = (
    ("training runs", "step_seconds", of.every_source, "macro MAPE", (0.12,)),
    ("full fine-tunes", "step_seconds", of.tuned("full fine-tune", "sft"), "macro MAPE", (0.10,)),
    ("LoRA and QLoRA", "step_seconds", of.tuned("lora", "qlora"), "macro MAPE", (0.15,)),
    ("peak memory of training", "peak_bytes", of.trained, "macro MAPE", (0.06,)),
    ("KV cache of engines at start, tokens", "kv_tokens", of.started, "median and p90",
     (0.05, 0.15)),
    ("weights as engines load them", "weight_bytes", of.started, "median and p90", (0.02, 0.06)),
    ("latencies under a stated load, mean time to first token", "ttft_seconds", of.stated,
     "macro MAPE", (0.25,)),
    ("mean time per token", "tpot_seconds", of.stated, "macro MAPE", (0.25,)),
)  # fmt: skip


def _gathered(
    title: str, judged: Judged, fitted: str, most: Sequence[tuple[float, ...]]
) -> tuple[Regime, ...]:
    """The claims about editions of truth/unseen, each with the figure it must not exceed."""
    claims = zip(_GATHERED, most, strict=True)
    return tuple(
        Regime(
            f"… {name}" if at else f"{title}: {name}",
            quantity, rows, fitted, measure, aim, held, judged=judged,
        )
        for at, ((name, quantity, rows, measure, aim), held) in enumerate(claims)
    )  # fmt: skip


REGIMES: Final[tuple[Regime, ...]] = (
    Regime("bf16 matmul, chip with its own data, n, k ≥ 256", "op_seconds",
           of.kernel("matmul", "bf16", wide=True), TABLES, "median and p90",
           (0.04, 0.13), (0.04, 0.125), NEIGHBOURS),
    Regime("products with a side that 8 does not divide (H200)", "op_seconds", of.odd_product,
           "four in five of 3,399 rows", "median and p90", (0.07, 0.20), (0.085, 0.30)),
    Regime("calls of ATen ops, one by one (H200)", "op_seconds", of.kernel("eager"),
           "four in five of 5,300 rows", "median and p90", (0.05, 0.20), (0.08, 0.40)),
    Regime("convolutions and their gradients (H200)", "op_seconds", of.kernel("product"),
           "four in five of 5,400 rows", "median and p90", (0.08, 0.25), (0.21, 0.75)),
    Regime("fp8 matmul, same, activations quantised", "op_seconds",
           of.kernel("matmul", "fp8", "fp8_block", wide=True), TABLES, "median and p90",
           (0.05, 0.16), (0.042, 0.158), NEIGHBOURS),
    Regime("other formats (int8, int4, w8a16, nvfp4)", "op_seconds",
           of.kernel("matmul", "int8", "int4", "w8a16", "nvfp4", wide=True), TABLES,
           "median and p90", (0.05, 0.16), (0.046, 0.158), NEIGHBOURS),
    Regime("attention over a prompt", "op_seconds", of.kernel("attention"), TABLES,
           "median and p90", (0.05, 0.20), (0.041, 0.16)),
    Regime("attention, one token of decoding", "op_seconds", of.kernel("attention_decode"), TABLES,
           "median and p90", (0.08, 0.30), (0.053, 0.235)),
    Regime("fused experts, balanced and skewed", "op_seconds", of.kernel("experts"), TABLES,
           "median and p90", (0.08, 0.25), (0.033, 0.137)),
    Regime("collectives in a node, NCCL and engines' own", "op_seconds", of.kernel("collective"),
           TABLES, "median and p90", (0.06, 0.25), (0.039, 0.225)),
    Regime("products of engines on MI300X and MI355X", "op_seconds",
           of.kernel("matmul", wide=True, amd=True), AITER, "median and p90",
           (0.05, 0.16), (0.025, 0.12)),
    Regime("… fused experts", "op_seconds", of.kernel("experts", amd=True), AITER,
           "median and p90", (0.08, 0.25), (0.055, 0.19)),
    Regime("passes of decoding, in captured graphs (H200)", "pass_seconds", of.decoding_pass,
           "nothing: kernels of engines, on other rows", "median and p90",
           (0.05, 0.15), (0.05, 0.15), "attention by PyTorch's kernels, engines have their own"),
    Regime("bf16 matmul under a measured profile (H200)", "op_seconds", of.unseen("matmul", "bf16"),
           MINUTES, "median and p90", (0.035, 0.10), (0.035, 0.10)),
    Regime("… fp8 matmul", "op_seconds", of.unseen("matmul", "fp8"), MINUTES, "median and p90",
           (0.04, 0.12), (0.04, 0.12)),
    Regime("… attention, forward and backward", "op_seconds", of.unseen("attention"), MINUTES,
           "median and p90", (0.06, 0.20), (0.06, 0.16)),
    Regime("… memory-bound kernels", "op_seconds", of.unseen("memory"), MINUTES,
           "median and p90", (0.08, 0.40), (0.08, 0.40)),
    Regime("training runs, fitted and held out", "step_seconds",
           of.source(*of.SEEN),
           "a handful of settings a framework, on four in five of its runs; two sources on none",
           "macro MAPE", (0.09,), (0.09,), RELEASES),
    Regime("… held-out runs alone", "step_seconds",
           of.source(*of.SEEN, apart=True),
           "settings of frameworks on the other four in five", "macro MAPE", (0.09,), (0.10,),
           RELEASES),
    Regime("… Megatron SC21", "step_seconds", of.source("megatron-sc21"), "nothing", "MAPE",
           (0.06,), (0.06,)),
    Regime("… Korthikanti 2022", "step_seconds", of.source("korthikanti22"), "nothing", "MAPE",
           (0.036,), (0.036,)),
    Regime("… LLM Foundry", "step_seconds", of.source("llm-foundry", apart=True),
           "three settings on four in five of its rows", "MAPE", (0.07,), (0.07,), RELEASES),
    Regime("… sources that no number was fitted to", "step_seconds",
           of.never_seen, "nothing", "macro MAPE", (0.12,), (0.14,),
           "V100s of 2021, hosts of which nothing is known"),
    Regime("… each source by settings chosen without it", "step_seconds", of.every_source,
           "settings of frameworks on other sources", "macro MAPE", (0.12,), (0.12,), RELEASES,
           judged="without its source"),
    Regime("full fine-tunes", "step_seconds", of.tuned("full fine-tune", "sft"), "nothing",
           "macro MAPE", (0.10,), (0.105,), "ZeRO-3 on short sequences: the host's speed"),
    Regime("LoRA and QLoRA", "step_seconds", of.tuned("lora", "qlora"), "nothing",
           "macro MAPE", (0.15,), (0.15,)),
    Regime("vTrain, one node, models left out", "step_seconds", of.vtrain_apart,
           "two settings on the other half of the models", "MAPE", (0.09,), (0.09,),
           "vTrain itself reports 8.4 %"),
    Regime("our own steps on an H200, eager and compiled", "step_seconds",
           of.source("h200-steps-apart"), "three settings of PyTorch, on 34 other steps", "MAPE",
           (0.06,), (0.06,)),
    Regime("peak memory, our own steps", "peak_bytes",
           of.source("h200-steps", "h200-steps-apart"), "nothing", "MAPE", (0.06,), (0.05,)),
    Regime("peak memory, published", "peak_bytes", of.source(*of.SEEN), "nothing",
           "MAPE", (0.06,), (0.06,), "the same job reports 39.1 and 33.7 GiB on two chips"),
    Regime("… sources that no number was fitted to", "peak_bytes",
           of.never_seen, "nothing", "MAPE", (0.06,), (0.08,),
           "reserved or as the driver shows it, where the source does not say"),
    Regime("… full fine-tunes", "peak_bytes", of.tuned("full fine-tune"), "nothing", "macro MAPE",
           (0.08,), (0.08,)),
    Regime("… LoRA and QLoRA", "peak_bytes", of.tuned("lora", "qlora"), "nothing", "macro MAPE",
           (0.10,), (0.105,), "what was counted is not said of half of them"),
    Regime("loaded servers, time per token", "tpot_seconds", of.server,
           "two settings an engine, three of vLLM, on four in five points", "macro MAPE",
           (0.12,), (0.105,),
           "over model × engine; the same deployment at two dates differs by 11.5 %"),
    Regime("loaded servers, time to first token", "ttft_seconds", of.server,
           "a lag of each campaign's client, on four in five points", "macro MAPE", (0.25,),
           (0.28,), "over model × engine; bursts whose arrivals are not published"),
    Regime("loaded servers with multi-token prediction, time per token", "tpot_seconds",
           of.predicts_further,
           "nothing: three modules, one with replicated attention, as the benchmark starts them",
           "MAPE", (0.20,), (0.125,)),
    Regime("latencies under a stated load, mean time to first token", "ttft_seconds", of.stated,
           "what a server's front takes for a request, on three rows of three models", "macro MAPE",
           (0.25,), (0.285,), "most send all requests at once"),
    Regime("… mean time per token", "tpot_seconds", of.stated,
           "the same; how conversations are drawn, and how wide a crowd's interval is, was chosen "
           "with these rows in view",
           "macro MAPE", (0.25,), (0.29,), "most send all requests at once"),
    Regime("KV cache of engines at start, tokens", "kv_tokens", of.started,
           "what the decoder of TensorRT's engines holds, on one row",
           "median and p90", (0.05, 0.15), (0.035, 0.16),
           "most sequences, prompts' tokens and other processes are often not published"),
    Regime("… bytes", "kv_bytes", of.started, "the same", "median and p90", (0.05, 0.15),
           (0.02, 0.15)),
    Regime("weights as engines load them", "weight_bytes", of.started, "nothing",
           "median and p90", (0.02, 0.06), (0.015, 0.06)),
    Regime("published inference runs, tokens of one request", "tokens_per_second",
           of.inference("one request's tokens"), ENGINES, "macro MAPE", (0.15,), (0.135,),
           "releases of one engine differ by up to twice (ExLlamaV3 0.0.43 and 1.0.0)"),
    Regime("… prompts", "tokens_per_second", of.inference("prompt"), ENGINES,
           "macro MAPE", (0.25,), (0.17,)),
    Regime("… whole requests, but for one experiment", "tokens_per_second",
           of.inference("requests", without="InferenceX-experimental"), ENGINES,
           "macro MAPE", (0.25,), (0.19,)),
    Regime("… that experiment", "tokens_per_second",
           of.inference("requests", only="InferenceX-experimental"), "nothing",
           "MAPE", (0.25,), (2.5,), "prompts there run at a tenth of what the chips multiply"),
    Regime("… with drafts", "tokens_per_second", of.drafts,
           "the host of vLLM's drafts, on 18 of 56 rows; how acceptance falls with length, on 11",
           "macro MAPE", (0.25,), (0.24,), "llama.cpp, which runs several requests badly"),
    Regime("speed-up by drafts", "speedup", of.speeds_up,
           "what SGLang and transformers add, on one source each", "macro MAPE", (0.15,), (0.155,),
           "half of the sources do not say how much was accepted"),
    Regime("… sources on which no cost was fitted", "speedup",
           lambda f: of.speeds_up(f) and not f.group.startswith(of.FITTED_DRAFTS),
           "no cost; acceptance and how rows are read were chosen with them in view", "macro MAPE",
           (0.15,), (0.17,), "the same"),
    *_gathered("sources gathered afterwards", "gathered afterwards", SINCE,
               ((0.175,), (0.33,), (0.255,), (0.1,), (0.12, 0.42), (0.01, 0.02), (1.12,), (0.3,))),
    *_gathered("sources gathered last", "gathered last", LAST,
               ((0.165,), (0.14,), (0.13,), (0.26,), (0.17, 0.48), (0.01, 0.01), (0.52,), (0.42,))),
)  # fmt: skip
