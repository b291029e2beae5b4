"""Flags of speculative decoding as a Speculation."""

from __future__ import annotations

import argparse
from typing import Final

from trueflops import units
from trueflops.errors import BadInput
from trueflops.language import say
from trueflops.model import Model, read_model
from trueflops.predict.serving import Acceptance, Speculation
from trueflops.profile.speculation import OVERALL, engine_costs, method_of

_FURTHER: Final = (
    "num_speculative_tokens", "speculative_steps", "speculative_topk", "draft_model",
    "acceptance_length", "acceptance_rate", "task",
)  # fmt: skip


def speculation_of(options: argparse.Namespace, model: Model) -> Speculation | None:
    """What the flags say of drafts; None where nothing is drafted."""
    if options.speculate is None:
        given = [name for name in _FURTHER if getattr(options, name) is not None]
        if given:
            flag = given[0].replace("_", "-")
            raise BadInput(
                say(
                    "--{flag} says how to draft: add --speculate METHOD, or leave it out", flag=flag
                )
            )
        return None
    length, rate = options.acceptance_length, options.acceptance_rate
    if length is not None and rate is not None:
        raise BadInput(
            say("--acceptance-length and --acceptance-rate say the same: give one of them")
        )
    for value, flag in ((length, "length"), (rate, "rate")):
        if value is not None and value <= 0.0:
            raise BadInput(
                say("--acceptance-{flag} {value:g} must be above 0", flag=flag, value=value)
            )
    name = options.speculate
    if options.draft_model is not None and method_of(name).drafter != "model":
        raise BadInput(
            say("--draft-model goes with --speculate draft; {name} has its own drafter", name=name)
        )
    return Speculation.of(
        model,
        name,
        drafted=options.num_speculative_tokens or 0,
        passes=options.speculative_steps or 0,
        branches=options.speculative_topk or 0,
        acceptance=Acceptance(length or 0.0, rate or 0.0, options.task or OVERALL),
        draft=read_model(options.draft_model) if options.draft_model else None,
    )


def speculation_notes(speculation: Speculation | None, model: Model, engine: str) -> list[str]:
    """What nobody said of drafts, and where it comes from."""
    if speculation is None:
        return []
    notes = [say("acceptance: {why}", why=speculation.why)]
    if speculation.method.drafter == "module":
        notes.append(
            say("module: priced as one more layer like the last of {name}", name=model.name)
        )
    if speculation.method.drafter == "model" and (layer := engine_costs(engine).layer):
        slow = units.show(layer, "seconds")
        notes.append(
            say(
                "drafts wait for the host: {slow} a layer of the draft model, measured on a "
                "host of 2019; newer ones may draft up to three times faster",
                slow=slow,
            )
        )
    return notes
