"""Flags of speculative decoding, in the words of vLLM and SGLang.

Names alone, so that --help needs no file; what each is stands in profile/data/speculation.toml.
"""

from __future__ import annotations

import argparse
from typing import Final

from trueflops.cli.arguments.shared import real, whole
from trueflops.language import say

METHODS: Final = (
    "draft", "eagle", "eagle2", "eagle3", "mtp", "dflash", "medusa", "ngram", "suffix",
    "lookahead", "rest", "recycling",
)  # fmt: skip
TASKS: Final = ("mixed", "code", "math", "chat", "qa", "summarization", "translation", "rag")


def speculation_flags(p: argparse.ArgumentParser) -> None:
    """Whether drafts are verified, whose they are, and how many are accepted."""
    drafts = p.add_argument_group("speculative decoding", "without --speculate: one token a step")
    drafts.add_argument(
        "--speculate",
        "--speculative-method",
        metavar="METHOD",
        default=None,
        help=say("verify drafted tokens: {names}", names=", ".join(METHODS)),
    )
    drafts.add_argument(
        "--num-speculative-tokens",
        type=whole,
        metavar="K",
        default=None,
        help="drafted tokens a step (default: the method's usual; the best is printed)",
    )
    drafts.add_argument(
        "--speculative-steps",
        type=whole,
        metavar="N",
        default=None,
        help="passes of the drafter where drafts are a tree (SGLang's num-steps)",
    )
    drafts.add_argument(
        "--speculative-topk",
        type=whole,
        metavar="N",
        default=None,
        help="alternatives that each pass extends (SGLang's eagle-topk; default 1, a chain)",
    )
    drafts.add_argument(
        "--draft-model", metavar="MODEL", default=None, help="the smaller model of method draft"
    )
    drafts.add_argument(
        "--acceptance-length",
        type=real,
        metavar="X",
        default=None,
        help="tokens a step as measured, the model's own included",
    )
    drafts.add_argument(
        "--acceptance-rate",
        type=real,
        metavar="X",
        default=None,
        help="chance that a drafted token is accepted where those before it were",
    )
    drafts.add_argument(
        "--task",
        choices=TASKS,
        default=None,
        help="what is written, where neither is given: acceptance as published (default: mixed)",
    )
