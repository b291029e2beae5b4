"""MODEL any: train and infer are asked for the largest models of the catalog that a cluster holds.

In: flags without a model. Out: an answer on stdout; exit 1 if there is no such model.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from trueflops.catalog import Cluster
from trueflops.catalog.models import has_weights, model_names
from trueflops.cli.arguments import wrapped
from trueflops.cli.arguments.several import ANY
from trueflops.cli.buying import asks_for_chips
from trueflops.cli.question import cluster_of, question_of
from trueflops.cli.replies import give
from trueflops.cli.unread import refuse_unread
from trueflops.errors import BadInput
from trueflops.graph.passes import format_named
from trueflops.language import mark, say
from trueflops.model import Model, read_model
from trueflops.predict import Server, ServingPoint, TrainingStep
from trueflops.report.models import (
    encode_models,
    print_served_models,
    print_trained_models,
    why_without,
)
from trueflops.report.progress import Waiting
from trueflops.report.tables import console
from trueflops.search import Limits
from trueflops.search.largest import Models, largest_models

UNREAD: Final = frozenset({
    "explain", "provenance", "ops", "plot", "plot_front", "trace", "timeline", "what_helps", "emit",
    "force", "from_file", "minimise", "within", "budget", "users", "pareto", "pools", "prefill",
    "decode", "tensor_split", "rate", "rates", "requests", "arrival", "burstiness", "think",
    "lengths", "requests_from", "percentile", "prefix_hits",
})  # fmt: skip
"""Flags that are about one model, about how one answer looks, or about a simulated load."""
_TOO_LARGE: Final = mark("too large")
_TOO_SLOW: Final = mark("too slow")
_LEAST_BITS: Final = 4.0  # of a weight, as it is released or as --weights any tries it


def asks_for_models(options: argparse.Namespace) -> bool:
    """Whether the model is what is sought."""
    if options.model != ANY:
        return False
    if options.on is None or asks_for_chips(options):
        raise BadInput(
            say("MODEL any asks what a cluster holds: name one, as --on RTX4090 or --on 8xH100")
        )
    instead = say("name a model")
    refuse_unread(options, say("a choice among models"), instead, UNREAD)
    return True


def trained_models(
    options: argparse.Namespace, ask: Callable[[argparse.Namespace], TrainingStep | None]
) -> int:
    """The largest that surely fit, each with its plan."""
    room = _room(cluster_of(options))
    packed = options.qlora is not None

    def answer(model: Model) -> TrainingStep | str:
        if model.parameter_count * (_LEAST_BITS if packed else 16.0) / 8.0 > room:
            return _TOO_LARGE
        step = ask(argparse.Namespace(**{**vars(options), "model": model.name}))
        return step if step is not None and step.fits_surely else _TOO_LARGE

    tuned = packed or options.lora is not None
    found = _largest(options, answer, _weighed() if tuned else model_names())
    return _give(options, found, print_trained_models)


def served_models(
    options: argparse.Namespace,
    serve: Callable[[argparse.Namespace], tuple[list[Server], dict[str, Any]]],
    cuts: Callable[[argparse.Namespace, Server, Limits], list[ServingPoint]],
    limits: Limits,
) -> int:
    """The largest that fit and answer in time, each in the widest format of those asked for.

    `cuts` are ways to lay a server out, the best first: as flags say, or all.
    """
    options.concurrency = options.concurrency or 1
    room = _room(cluster_of(options))
    if options.gpu_layers is not None or options.cpu_offload_gb is not None:
        room = float("inf")  # the host holds the rest

    named = options.weights not in (None, ANY)
    bits = format_named(options.weights).weight_bits if named else _LEAST_BITS

    def answer(model: Model) -> ServingPoint | str:
        if model.parameter_count * bits / 8.0 > room:
            return _TOO_LARGE
        why = _TOO_LARGE
        for server in serve(argparse.Namespace(**{**vars(options), "model": model.name}))[0]:
            if model.parameter_count * server.passes.weights.weight_bits / 8.0 > room:
                continue
            point = cuts(options, server, limits)[0]
            if point.fits and limits.met(point):
                return point
            why = _TOO_SLOW if point.fits else why
        return why

    found = _largest(options, answer, _weighed())
    return _give(options, found, print_served_models)


def _room(where: Cluster) -> float:
    cards = where.cards or (where.accelerator,) * where.count
    return sum(card.get("memory.capacity") or 0.0 for card in cards)


def _weighed() -> list[str]:
    """Models that someone can serve, or tune."""
    return [name for name in model_names() if has_weights(name)]


def _largest(
    options: argparse.Namespace, answer: Callable[[Model], Any], names: Sequence[str]
) -> Models[Any]:
    with Waiting(say("looking at models")) as wait:
        known = [read_model(name) for name in names]
        return largest_models(known, answer, options.top, wait.say)


def _give(options: argparse.Namespace, found: Models[Any], show: Callable[..., None]) -> int:
    if options.json:
        give({"question": question_of(options), **encode_models(found)}, found)
    elif found.found:
        show(console(), found, cluster_of(options))
    else:
        why = why_without(found)
        print(wrapped(say("trueflops: no model of the catalog: {why}", why=why)), file=sys.stderr)
    return 0 if found.found else 1
