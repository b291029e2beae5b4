"""Flags of speculative decoding as a Speculation."""

from __future__ import annotations

import argparse
from typing import Final

from trueflops import units
from trueflops.errors import BadInput, join_or
from trueflops.language import say
from trueflops.model import Model, read_model
from trueflops.predict.serving import Acceptance, Speculation
from trueflops.profile import Engine
from trueflops.profile.frameworks import SERVING
from trueflops.profile.speculation import OVERALL, carries_module, engine_costs, method_of

_FURTHER: Final = (
    "num_speculative_tokens", "speculative_steps", "speculative_topk", "draft_model",
    "acceptance_length", "acceptance_rate", "task",
)  # fmt: skip


def speculation_of(options: argparse.Namespace, model: Model, engine: Engine) -> Speculation | None:
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
    draft = read_model(options.draft_model) if options.draft_model else None
    _check_runs(name, model, draft, engine)
    return Speculation.of(
        model,
        name,
        drafted=options.num_speculative_tokens or 0,
        passes=options.speculative_steps or 0,
        branches=options.speculative_topk or 0,
        acceptance=Acceptance(length or 0.0, rate or 0.0, options.task or OVERALL),
        draft=draft,
    )


def _check_runs(name: str, model: Model, draft: Model | None, engine: Engine) -> None:
    """Refuse drafts that the engine would not start with; one that nobody named starts with all."""
    module = method_of(name).drafter == "module"
    if engine.name != SERVING and module and not carries_module(model.family):
        raise BadInput(
            say(
                "--speculate {method}: {model} has no module that predicts further tokens; write "
                "--speculate {others}",
                method=name,
                model=model.name,
                others=join_or(_WITHOUT_MODULE),
            )
        )
    if draft and engine.same_vocabulary and draft.vocab != model.vocab:
        raise BadInput(
            say(
                "--draft-model {draft}: it knows {its:,} tokens and {model} {own:,}, which "
                "{engine} refuses; name one with as many, or write --speculate {others}",
                draft=draft.name,
                its=draft.vocab,
                model=model.name,
                own=model.vocab,
                engine=engine.name,
                others=join_or(name for name in _WITHOUT_MODULE if name != "draft"),
            )
        )


_WITHOUT_MODULE: Final = ("eagle3", "ngram", "draft")
"""Methods for a model without a module of its own: a head, none, another model."""


def speculation_notes(speculation: Speculation | None, model: Model, engine: str) -> list[str]:
    """What nobody said of drafts, and where it comes from."""
    if speculation is None:
        return []
    notes = [say("acceptance: {why}", why=speculation.why)]
    if speculation.method.drafter == "module":
        notes.append(
            say("module: priced as one more layer like the last of {name}", name=model.name)
        )
    draft = speculation.drafter if speculation.method.drafter == "model" else None
    if draft and draft.vocab != model.vocab:
        notes.append(
            say(
                "{draft} knows {its:,} tokens and {model} {own:,}: some engines, as vllm, "
                "refuse that",
                draft=draft.name,
                its=draft.vocab,
                model=model.name,
                own=model.vocab,
            )
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
