"""How infer deals layers out to cards: --on RTX-4090+RTX-3090, --tensor-split."""

from __future__ import annotations

import argparse
from typing import Any, Final

from trueflops import units
from trueflops.catalog import Accelerator, Cluster
from trueflops.cli.question import profile_for, software_of
from trueflops.errors import BadInput, shorten
from trueflops.language import say
from trueflops.model import Model
from trueflops.predict import Server, ServingPoint
from trueflops.predict.serving import Offload, Stage
from trueflops.predict.serving.splitting import (
    asked_split,
    evenly,
    fastest_split,
    split_words,
    usual_split,
)
from trueflops.profile.frameworks import SERVING

BEST: Final = "best"
WORTH_TELLING: Final = 1.01  # as much faster is a split that the answer proposes
_NOT_WITH: Final = (
    "tp",
    "ep",
    "dcp",
    "speculate",
    "prefill",
    "decode",
    "pools",
    "provenance",
    "ops",
)
"""Flags that ask for what is known of equal accelerators alone."""


def stages_of(
    options: argparse.Namespace, model: Model, where: Cluster, offload: Offload | None
) -> list[Stage]:
    """A stage for every card, layers dealt out evenly for now; none where all cards are alike
    and nobody says how they share the layers.
    """
    if not where.cards and (options.tensor_split is None or _is_even(options)):
        return []
    cards = where.cards or (where.accelerator,) * where.count
    _check(options, cards, model, offload)
    engines = {card.name: software_of(options, card, SERVING).name for card in cards}
    profiles = {card.name: profile_for(options, card, engines[card.name]) for card in cards}
    return [
        Stage(card, profiles[card.name], layers)
        for card, layers in zip(cards, evenly(model.layers, len(cards)), strict=True)
    ]


def _is_even(options: argparse.Namespace) -> bool:
    """Whether a plan's stages are as even as the shares asked for."""
    shares = options.tensor_split.split(",")
    return len(set(shares)) == 1 and options.pp == len(shares)


def _check(
    options: argparse.Namespace,
    cards: tuple[Accelerator, ...],
    model: Model,
    offload: Offload | None,
) -> None:
    names = " + ".join(dict.fromkeys(card.name for card in cards))
    if len(cards) < 2:
        raise BadInput(
            say(
                "--tensor-split deals layers out to several cards, and --on has one; write "
                "--on 2x{name}, or leave it out",
                name=cards[0].typed,
            )
        )
    given = [name for name in _NOT_WITH if getattr(options, name, None) not in (None, False, 1)]
    if offload is not None:
        given.append("gpu_layers" if offload.cpu else "cpu_offload_gb")
    for name in given:
        raise BadInput(
            say(
                "--{flag}: not known where cards share the layers of a model ({names}); leave "
                "it out, or name cards of one kind without --tensor-split",
                flag=name.replace("_", "-"),
                names=names,
            )
        )
    if options.pp not in (None, 1, len(cards)):
        raise BadInput(
            say(
                "--pp {pp}: each of {count} cards holds one stage; write --pp {count}, or leave "
                "it out",
                pp=options.pp,
                count=len(cards),
            )
        )
    if len({card.vendor for card in cards}) > 1:
        raise BadInput(
            say("{names}: cards of several vendors run no engine together; name one's", names=names)
        )
    if len(cards) > model.layers:
        raise BadInput(
            say(
                "{model} has {layers} layers, and --on {count} cards; name fewer",
                model=model.name,
                layers=model.layers,
                count=len(cards),
            )
        )


def split_as_asked(options: argparse.Namespace, server: Server) -> Server:
    """With the layers on each card that the flag asks for; else as the engine deals them out."""
    said, cards = options.tensor_split, len(server.stages)
    usual = server.split(usual_split(server))
    if said is None:
        return usual
    if said == BEST:
        return fastest_split(usual)[0]
    layers = asked_split(server, _shares(said, cards))
    if min(layers) < 1:
        idle = server.stages[layers.index(min(layers))].chip
        raise BadInput(
            say(
                "--tensor-split {said}: no layer is left for {name}; write a larger share, or "
                "leave the card out of --on",
                said=said,
                name=idle.name,
            )
        )
    return server.split(layers)


def _shares(said: str, cards: int) -> list[float]:
    try:
        shares = [units.read_number(word) for word in said.split(",")]
    except BadInput:
        shares = []
    if len(shares) != cards or not all(0.0 <= share < units.MILLION for share in shares):
        raise BadInput(
            say(
                "--tensor-split {said!r}: write a share for each of {cards} cards, as {example}, "
                "or best",
                said=shorten(said),
                cards=cards,
                example=",".join(str(cards - card) for card in range(cards)),
            )
        )
    if not any(shares):
        shares = [1.0] * cards
    return shares


def split_notes(options: argparse.Namespace, server: Server) -> list[str]:
    """Which card holds which layers, and why."""
    if not server.stages:
        return []
    held = ", ".join(
        say("{layers} on {name}", layers=stage.layers, name=stage.chip.name)
        for stage in server.stages
    )
    return [say("layers: {held} ({why})", held=held, why=_why(options, server))]


def faster_split(
    options: argparse.Namespace, server: Server, point: ServingPoint
) -> dict[str, Any]:
    """The fastest split that fits, where it is faster than this one or this does not fit."""
    if not server.stages or options.tensor_split == BEST:
        return {}
    best = fastest_split(server)[1]
    rate = float(best.tokens_per_second.value)
    gain = rate / float(point.tokens_per_second.value)
    if not best.fits or (point.fits and gain < WORTH_TELLING):
        return {}
    layers = [stage.layers for stage in best.stages]
    return {
        "faster_split": {
            "layers": layers,
            "tensor_split": split_words(server.engine, layers),
            "tokens_per_second": rate,
            "spare": [stage.chip.name for stage in best.stages if stage.layers == 1],
        }
    }


def _why(options: argparse.Namespace, server: Server) -> str:
    if options.tensor_split == BEST:
        return say("the fastest split that fits")
    if options.tensor_split is not None:
        return say("as --tensor-split {said} asks", said=options.tensor_split)
    match server.engine.splits:
        case "by memory":
            return say("by free memory, as {name} does", name=server.engine.name)
        case "in order":
            return say("each card filled before the next, as {name} does", name=server.engine.name)
        case "evenly":
            return say("evenly, as {name} does", name=server.engine.name)
