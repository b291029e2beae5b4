"""What a serving benchmark sent, as a row of latencies says it: how many, how fast, how long.

In: the columns num_prompts or completed, request_rate, concurrency, dataset, input_len_mean,
output_len_mean and notes, where the benchmark's command says what these leave out. Out: Requests.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import numpy as np

from trueflops.errors import BadInput, shorten
from trueflops.records.tables import Row
from trueflops.serve.load import Lengths, Requests, draw_requests
from trueflops.units import read_number
from trueflops.verify.cells import Missing, text
from trueflops.verify.serving.bench_serving import drawn_lengths
from trueflops.verify.serving.command import printed_lengths, said_lengths, said_prompts
from trueflops.verify.serving.conversations import conversations, ended_sooner

STEADY: Final = 1e4  # shape of gamma gaps that are all alike: a constant rate
# As tables say that nothing is limited: all requests at once, or as many users as requests.
_UNLIMITED: Final = frozenset(
    ("", "-", "∞", "inf", "infinite", "infinity", "max", "n/a", "na", "none", "not set", "null",
     "unlimited", "all", "all at once", "at once", "burst")
)  # fmt: skip
_A_SECOND: Final = re.compile(
    r"\s*(?:(?:requests?|reqs?|r|queries|q)(?:\s*/\s*|\s*per\s*|p)|/\s*|per\s*)(?:s(?:ec(?:onds?)?)?)$"
)
_WHO: Final = re.compile(r"\s*(?:concurrent\s*)?(?:users?|clients?|requests?|reqs?|streams?|vus?)$")
# Pages of gpustack's performance lab print the command of their benchmark, which has
# `--backend openai-chat --endpoint /v1/chat/completions` on each of the eleven that were read.
_CHAT: Final = re.compile(r"openai-chat|chat/completions|gpustack docs/performance-lab")
# Of one length, or drawn around it: sonnets, too, are cut to it (vLLM's SonnetDataset).
_SYNTHETIC: Final = re.compile(r"random|shared_prefix|synthetic|sonnet", re.IGNORECASE)
_CONVERSATIONS: Final = re.compile(r"share[-_ ]?gpt", re.IGNORECASE)


def sent_requests(row: Row) -> Requests:
    """So many requests of these lengths at this rate."""
    users = _users(row)
    many = said_prompts(row, users)
    if not many:
        raise BadInput("num_prompts and completed are empty")
    read, written = said_lengths(row)
    if read is None or written is None:
        raise Missing(f"{'input' if read is None else 'output'}_len_mean is empty")
    requests = draw_requests(
        many,
        Lengths(read, 1.0, 1.0),
        Lengths(written, 1.0, 1.0),
        rate=_rate(row),
        burstiness=STEADY if "constant rate" in text(row, "notes") else 1.0,
        users=users,
    )
    requests = replace(requests, chat=_is_chat(row))
    if own := drawn_lengths(row, many, *printed_lengths(row)):
        return replace(requests, input=own[0], output=own[1])
    named = text(row, "dataset")
    drawn = None if _SYNTHETIC.search(named) else conversations(many, read, written)
    if drawn is None and _CONVERSATIONS.search(named):
        drawn = ended_sooner(many, read, written)
    return replace(requests, input=drawn[0], output=drawn[1]) if drawn else requests


def _is_chat(row: Row) -> bool:
    """Whether requests were sent as messages: the row says so, or the scripts of its source do."""
    said = " ".join(text(row, column) for column in ("source", "tool", "flags", "notes"))
    return bool(_CHAT.search(said))


def _rate(row: Row) -> float:
    """Requests a second; a rate that is not positive stands for all at once (EvalScope's -1)."""
    said = text(row, "request_rate").casefold()
    if said in _UNLIMITED:
        return np.inf
    rate = _plain(_A_SECOND.sub("", said), "request_rate", "write inf where all are sent at once")
    return rate if rate > 0.0 else np.inf


def _users(row: Row) -> int | None:
    """Requests that are under way at most; None: all of them."""
    said = text(row, "concurrency").casefold()
    if said in _UNLIMITED:
        return None
    users = _plain(_WHO.sub("", said), "concurrency", "leave it empty where nothing is limited")
    return max(round(users), 1) if users > 0.0 else None


def _plain(said: str, column: str, instead: str) -> float:
    try:
        return read_number(said.replace(",", ""))
    except BadInput:
        raise Missing(f"{column} is not a number: {shorten(said, 30)!r}; {instead}") from None
