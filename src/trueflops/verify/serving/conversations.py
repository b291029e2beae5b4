"""Lengths of ShareGPT's conversations, as serving benchmarks sample them.

In: how many, and the mean lengths that a benchmark printed. Out: tokens of prompts and outputs.
Benchmarks take the first two messages, whoever wrote them (vllm/benchmarks/datasets.py,
ShareGPTDataset; a long conversation was cut, and what follows a cut often begins with an answer).
So some requests are a user's message with an answer as output, and the others an answer with the
user's next message as output, which is short. With u and a the mean lengths of either:
    read = h · u + (1 − h) · a      written = h · a + (1 − h) · u
Both means are printed and u is known, so that a = read + written − u, and h follows.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from trueflops.serve.load import SEED
from trueflops.sizes import Array

# Of users' messages: the share of them that is no longer than so many tokens. Of 52,229 first
# messages that pass the filter (at least 4 tokens, at most 1024) the median is 28, one in ten has
# more than 336 and one in a hundred more than 928 (Kimi-K3's tokenizer, dataset at 192ab21; bench
# file k3_sharegpt_lengths.py, which pins these figures).
_SHARES: Final = (0.0, 0.5, 0.9, 0.99, 1.0)
_TOKENS: Final = (4.0, 28.0, 336.0, 928.0, 1024.0)
SPREAD: Final = 0.8  # of the logarithm of an answer's length: assumed
LEAST, LONGEST = 4.0, 1024.0
"""Tokens of a message that is sampled (is_valid_sequence there). The longest is a prompt's; answers
of ChatGPT in early 2023 stopped at about as many (assumed; this and SPREAD were chosen when the
bursts of serving_latency.csv lasted twice as long in the simulation as they did)."""


def conversations(count: int, read: float, written: float) -> tuple[Array, Array] | None:
    """Tokens of prompts and outputs of so many requests, with these means.

    None where the filter lets no such means pass: those are no conversations.
    """
    random = np.random.default_rng(SEED)
    user = np.exp(np.interp(random.uniform(size=count), _SHARES, np.log(_TOKENS)))
    mean = float(user.mean())
    longer = read + written - mean
    if longer <= max(mean, read, written) or longer > LONGEST:
        return None
    answer = _answers(count, longer, random)
    begins = random.uniform(size=count) < (longer - read) / (longer - mean)
    prompts, outputs = np.where(begins, user, answer), np.where(begins, answer, user)
    return _with_mean(prompts, read), _with_mean(outputs, written)


def ended_sooner(count: int, read: float, written: float) -> tuple[Array, Array] | None:
    """The same where a model ends its answers before those of the dataset do: as benchmarks that
    ask for these print it, what is asked for is about as long as what is read.
    """
    asked = conversations(count, read, read) if written < read else None
    return None if asked is None else (asked[0], _with_mean(asked[1], written))


def _answers(count: int, mean: float, random: np.random.Generator) -> Array:
    drawn = mean * np.exp(random.normal(0.0, SPREAD, count) - SPREAD**2 / 2.0)
    return _with_mean(np.minimum(drawn, max(LONGEST, mean)), mean)


def _with_mean(tokens: Array, mean: float) -> Array:
    return np.maximum(np.rint(tokens * (mean / tokens.mean())), min(LEAST, mean))
