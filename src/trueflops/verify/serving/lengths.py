"""Lengths of prompts and outputs that a row leaves to the data set it names.

In: a row of results. Out: mean tokens read and written, None where nobody states them. What the
row says itself comes first, then what its totals imply, then what is public of its data set.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from trueflops.records.tables import Row
from trueflops.verify.cells import number, text


class DataSet(NamedTuple):
    """Mean tokens of its prompts and of what models answer; None: not stated by the source."""

    named: str  # a pattern that the row's source, notes or kind hold
    model: str  # and its model's name
    input: float | None
    output: float | None
    source: str


_MLPERF: Final = "mlperf|openorca|cnn.?daily"
DATA_SETS: Final = (
    DataSet(_MLPERF, r"llama-?2.*70b", 294.45, 294.45,
            "mlcommons/inference language/llama2-70b/README.md: 294.45 tokens a sample; "
            "prompts of OpenOrca, filtered to the same bounds, are taken to be as long"),
    DataSet(_MLPERF, r"mixtral.*8x7b", 294.45, 144.84,
            "mlcommons/inference tools/submission/submission_checker/constants.py: 144.84 tokens a "
            "sample; prompts as those of OpenOrca, a third of them"),
    DataSet(_MLPERF, r"llama-?3\.1.*405b", 9400.0, 684.68,
            "constants.py there: 684.68 tokens a sample; "
            "mlcommons.org/2025/04/llm-inference-v5: inputs of 9,400 on average"),
    DataSet(_MLPERF, r"llama-?3\.1.*8b", 778.0, 128.0,
            "mlcommons/inference language/llama3.1-8b/SUT_VLLM.py: max_tokens 128, which most "
            "summaries reach (issue 2256); articles of CNN-DailyMail, 778 tokens"),
    DataSet(_MLPERF, r"gpt-?j", 778.0, 69.0,
            "the same articles; mlcommons/inference loadgen/mlperf.conf: "
            "gptj.*.token_latency_scaling_factor = 69"),
    DataSet(_MLPERF, r"deepseek-?r1", 800.0, 3886.23,
            "mlcommons/inference language/deepseek-r1/README.md: mean-output-tok-len 3886.2274; "
            "mlcommons.org/2025/09/deepseek-inference-5-1: inputs of 800 on average"),
    DataSet(_MLPERF, r"gpt-?oss", None, 1278.2,
            "mlcommons/inference language/gpt-oss-120b/README.md: 1278.20 tokens in its TEST09"),
    DataSet("alpaca", "", 19.31, 58.45, "the vLLM paper, arXiv 2309.06180, figure 11"),
    DataSet("sharegpt", "", 161.31, 337.99, "the vLLM paper, arXiv 2309.06180, figure 11"),
    DataSet("fixed shakespeare prompt", "", 494.0, 1024.0,
            "XiongjieDai/GPU-Benchmarks-on-LLM-Inference, LLaMA 2 notebooks: "
            "llama_print_timings prints 494 tokens of prompt and 1023 runs"),
)  # fmt: skip
_REQUESTS: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?req/s")
_TOTAL: Final = re.compile(r"total tok(?:ens)?/s (\d{1,9}(?:\.\d{1,9})?)")


def lengths_of(row: Row) -> tuple[float | None, float | None]:
    """Tokens read and written by a request."""
    read, written = number(row, "input_len"), number(row, "output_len")
    if read is not None and written is not None:
        return read, written
    implied = _implied(row)
    known = implied if implied is not None else _known(row)
    return (
        known[0] if read is None else read,
        known[1] if written is None else written,
    )


def _implied(row: Row) -> tuple[float, float] | None:
    """What a rate of requests makes of the rates of written and of all tokens."""
    notes, rate = text(row, "notes"), number(row, "tokens_per_s")
    requests, total = _REQUESTS.search(notes), _TOTAL.search(notes)
    if not requests or not total or not rate:
        return None
    each = float(requests[1])
    return max((float(total[1]) - rate) / each, 1.0), max(rate / each, 1.0)


def _known(row: Row) -> tuple[float | None, float | None]:
    said = " ".join(text(row, c) for c in ("source", "notes", "tokens_kind", "source_ref"))
    for each in DATA_SETS:
        here = re.search(each.named, said, re.IGNORECASE)
        if here and re.search(each.model, text(row, "model"), re.IGNORECASE):
            return each.input, each.output
    return None, None
