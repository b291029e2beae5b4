"""`--on any`, or chips without a count: train and infer ask which to take, and how many."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from typing import Any, Final

from trueflops import units
from trueflops.catalog import Accelerator, Price, accelerator, accelerators, cluster_of, price
from trueflops.cli.arguments import wrapped
from trueflops.cli.counts import count_of
from trueflops.cli.operation import operation_of
from trueflops.cli.question import check_length, dollars, question_of, rent_of
from trueflops.cli.replies import give
from trueflops.cli.unread import refuse_unread
from trueflops.errors import BadInput, shorten
from trueflops.language import say
from trueflops.model import read_model
from trueflops.plan.serving import DEGREES
from trueflops.plan.usual import usual_batch, usual_seq, usual_tokens
from trueflops.predict import Server, TrainingStep, WholeBill, whole_bill
from trueflops.report.buying import encode_market, print_runs, print_served
from trueflops.report.progress import Waiting
from trueflops.report.tables import console
from trueflops.search import Limits
from trueflops.search.buying import Goal, Wish, chips_for_serving, chips_for_training
from trueflops.workload import Training

ANY: Final = "any"
READ_OF_TRAIN: Final = frozenset({
    "on", "minimise", "within", "budget", "tokens", "seq", "global_batch", "top", "json", "verbose",
    "lang", "price", "spot", "pue", "mtbf", "restart", "storage", "checkpoint", "checkpoint_every",
    "spot_lifetime", "buy", "years", "electricity",
})  # fmt: skip
"""Flags of train that `--on any` reads: chips are weighed with plans and software as usual."""
UNREAD_OF_INFER: Final = frozenset({
    "explain", "provenance", "ops", "pareto", "plot", *DEGREES, "prefill", "decode",
    "pools", "tensor_split", "emit", "force", "from_file",
})  # fmt: skip
"""Flags of infer that it does not read: they are of one cluster, or of what is shown of it."""
WISHES: Final = ("within", "budget", "minimise")
"""Flags that choose among chips where --on names no number of them."""
_COUNTED: Final = re.compile(r"\d+\s*x", re.IGNORECASE)


def asks_for_chips(options: argparse.Namespace) -> bool:
    """Whether chips and their number are what is sought: of any, of several, or with a wish."""
    on = options.on or ""
    wished = any(getattr(options, name, None) is not None for name in (*WISHES, "users"))
    sought = on == ANY or "," in on or (wished and bool(on) and not _COUNTED.match(on))
    if sought and getattr(options, "power", None) is not None:
        raise BadInput(
            say("--power limits one kind of chip: name it and its number, --on 4xRTX3090")
        )
    return sought


def check_wishes(options: argparse.Namespace) -> None:
    """What is to be least needs a choice of chips."""
    if options.minimise is not None:
        raise BadInput(
            say(
                "--minimise chooses among chips and counts: write --on any, or --on H100,H200 "
                "without a number"
            )
        )


def chips_of(text: str) -> list[Accelerator]:
    """All chips of the catalog but for hosts' own, or those that are named."""
    if text == ANY:
        return [chip for chip in accelerators() if not chip.is_cpu]
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if _COUNTED.match(name):
            raise BadInput(
                say("--on {text}: name chips without a number, as H100,H200", text=shorten(text))
            )
    return [accelerator(name) for name in names]


def wish_of(options: argparse.Namespace) -> Wish:
    """What must hold, and what is to be least."""
    within, budget = float("inf"), float("inf")
    if options.within is not None:
        within = units.parse(options.within, "seconds", what="--within", example="30days")
    if options.budget is not None:
        budget = dollars(options.budget, "--budget", "2M$")
    return Wish(within, budget, options.minimise or "usd")


def buy_training(options: argparse.Namespace) -> int:
    """Answer on stdout; exit 1 if no chip can."""
    refuse_unread(options, _choice(), _cluster(), read=READ_OF_TRAIN)
    model, wish = read_model(options.model), wish_of(options)
    seq = usual_seq(model)
    if options.seq is not None:
        seq = count_of(options.seq, "--seq")
        check_length(model, seq, "--seq")
    tokens = usual_tokens(model)
    if options.tokens is not None:
        tokens = float(count_of(options.tokens, "--tokens"))

    def training(count: int) -> Training:
        batch = usual_batch(seq, count)
        if options.global_batch is not None:
            batch = count_of(options.global_batch, "--global-batch")
        return Training(seq, batch, tokens)

    def bill(step: TrainingStep) -> WholeBill:
        return whole_bill(step, operation_of(options, step.cluster), rent_of(options, step.cluster))

    with Waiting(say("looking at chips")) as wait:
        market = chips_for_training(
            model, training, chips_of(options.on), wish, options.top, wait.say,
            rent_of=lambda chip: _rent(options, chip), bill_of=bill,
        )  # fmt: skip
    if options.json:
        give({"question": question_of(options), **encode_market(market)}, market)
    elif market.offers:
        print_runs(console(), model, tokens, wish, market, options.top)
    return _end(options, bool(market.offers), market.without, wish)


def buy_serving(
    options: argparse.Namespace,
    serve: Callable[[argparse.Namespace], tuple[list[Server], dict[str, Any]]],
    limits: Limits,
) -> int:
    """Likewise; `serve` gives the servers that flags ask for, on whichever cluster --on names."""
    refuse_unread(options, _choice(), _cluster(), UNREAD_OF_INFER)
    goal: Goal = options.minimise or "usd"
    asked: list[Server] = []

    def servers(chip: Accelerator, count: int) -> list[Server]:
        found = serve(argparse.Namespace(**{**vars(options), "on": f"{count}x{chip.typed}"}))[0]
        asked[:] = found[:1]
        return found

    with Waiting(say("looking at chips")) as wait:
        market = chips_for_serving(
            servers, limits, chips_of(options.on), goal, wait.say,
            rent_of=lambda chip: _rent(options, chip),
        )  # fmt: skip
    if options.json:
        give({"question": question_of(options), **encode_market(market)}, market)
    elif market.offers:
        print_served(console(), asked[0].model, asked[0].workload, limits, market, options.top)
    return _end(options, bool(market.offers), market.without, None)


def _choice() -> str:
    return say("a choice among chips")


def _cluster() -> str:
    return say("name a cluster, as --on 8xH100")


def _rent(options: argparse.Namespace, chip: Accelerator) -> Price | None:
    """What a chip is rented for by the flags, else by the catalog."""
    return rent_of(options, cluster_of(chip)) or price(chip)


def _end(
    options: argparse.Namespace, found: bool, without: dict[str, str], wish: Wish | None
) -> int:
    if found:
        return 0
    if not options.json:
        why: dict[str, Any] = {}
        for text in without.values():
            why[text] = why.get(text, 0) + 1
        said = "; ".join(
            say("{count} chips: {text}", count=count, text=text)
            for text, count in list(why.items())[:4]
        )
        more = say(" with more time (--within) or money (--budget) there may be") if wish else ""
        print(
            wrapped(say("trueflops: no chip can ({said});{more}", said=said, more=more)),
            file=sys.stderr,
        )
    return 1
