"""What may be asked over the network: a list of what is let in, so that a new flag is not.

No file of the server is read or written for a client. A flag with a number or one of some words can
name none. Of flags that hold a text, and of switches, those below name none either. The few that
name a record (a model, a cluster, a profile) are held to the spelling of names: no path is one.
"""

from __future__ import annotations

import re
from typing import Final

from trueflops.errors import BadInput, printable
from trueflops.language import say
from trueflops.web.forms import Field

COMMANDS: Final = ("train", "infer", "compare", "catalog", "explain", "collective", "stragglers")
NAMES: Final = frozenset({"model", "on", "profile", "draft_model", "name", "chips"})
TEXTS: Final = frozenset({
    # where, and what it costs
    "network", "price", "power", "within", "budget", "mtbf", "restart", "storage",
    "checkpoint_every", "spot_lifetime", "buy", "electricity",
    # training
    "framework", "tokens", "seq", "global_batch", "optimizer", "lora_targets",
    "dispatch", "cp_kind", "schedule", "recompute", "compute", "cuda_graphs",
    # serving
    "input", "output", "concurrency", "ttft", "tpot", "users", "rate", "requests", "burstiness",
    "think", "lengths", "percentile", "prefix_hits", "rates", "prefill", "decode", "weights",
    "memory_share", "release", "speculate",
    # chips, kernels, collectives
    "vendor", "sort", "shape", "dtype", "bytes", "step",
})  # fmt: skip
SWITCHES: Final = frozenset({
    "spot", "search", "sp", "lora_fused", "flash", "fused", "launch_blocking", "overlap", "pareto",
    "update_in_backward", "paged_states", "overlap_dispatch",
    "pools", "two_batch_overlap", "enforce_eager", "all", "decode", "backward", "causal",
    # more of an answer
    "explain", "provenance", "what_helps", "timeline", "ops",
})  # fmt: skip
LONGEST_TEXT: Final = 300  # of a value, as cli/question.py has it for an answer's arguments

# Llama-3.1-8B, meta-llama/Llama-3.1-8B, 16x8xH100, H100,H200, 1g.10gb@A100: never a path. A worker
# runs in a folder that holds nothing but a client's own config, so that a word is no file there.
_PART: Final = r"[^\W_][\w .,:@×*+()-]*"
_NAME: Final = re.compile(rf"{_PART}(/{_PART})?")
_FILES: Final = (".json", ".toml")


def may_be_asked(field: Field) -> bool:
    """Whether the page may give this flag a value."""
    if field.name in NAMES:
        return True
    if field.name == "lang":  # an answer's JSON has one; the page says it in its reader's
        return False
    if field.flag.choices or field.number:
        return True
    return field.name in (TEXTS if field.flag.valued else SWITCHES)


def check_value(field: Field, text: str) -> None:
    """Refuse what no form could have sent: a path where a name belongs, an endless text."""
    check_text(field.name, text)
    if field.name in NAMES:
        check_name(field.name, text)


def check_text(where: str, text: str) -> None:
    """A text that one could type."""
    if len(text) > LONGEST_TEXT:
        raise BadInput(
            say("{where!r}: longer than {most} characters", where=where, most=LONGEST_TEXT)
        )
    if not text.isprintable():
        raise BadInput(say("{where!r}: holds characters that cannot be typed", where=where))


def check_name(where: str, text: str) -> None:
    """A name of the catalog's kind, whether or not it is in it."""
    if not _NAME.fullmatch(text) or text.casefold().endswith(_FILES):
        raise BadInput(
            say(
                "{where!r}: {text!r} is no name of the catalog; files are not read here: ask the "
                "command line, or send a config.json's content as the model",
                where=where,
                text=printable(text, 60),
            )
        )
