"""What is drafted for a model, by which network, and how much of it is accepted.

In: a method's name, and what is said of drafts and acceptance. Out: a Speculation, whose steps
speculator.py prices.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from trueflops.errors import BadInput
from trueflops.language import say
from trueflops.model import Model, drafting_head, prediction_module
from trueflops.profile.speculation import (
    OVERALL,
    Method,
    method_of,
    task_factor,
    tokens_by_rate,
)

MOST_DRAFTED: Final = 512  # tokens: beyond any method's window or tree


@dataclass(frozen=True)
class Acceptance:
    """How many tokens a step gives: said outright, by a rate, or by what is known of a task."""

    length: float = 0.0  # mean, the model's own token included
    rate: float = 0.0  # of each drafted token, where those before it were accepted
    task: str = OVERALL

    def tokens(self, method: Method, drafted: int, depth: int, *, tree: bool) -> float:
        """Tokens a step."""
        if self.length:
            return min(self.length, 1.0 + drafted)
        if self.rate:
            return tokens_by_rate(self.rate, depth)
        return method.accepted(depth, self.task, tree=tree)

    @property
    def is_given(self) -> bool:
        """Whether somebody measured it."""
        return bool(self.length or self.rate)

    def error(self, method: Method) -> float:
        """Of the tokens a step, relative: none where they are given."""
        return 0.0 if self.is_given else method.error

    def why(self, method: Method, *, tree: bool) -> str:
        """Where it comes from."""
        if self.length:
            return say("{length:g} tokens a step, as given", length=self.length)
        if self.rate:
            return say("each drafted token with {rate:g}, as given", rate=self.rate)
        first, later = method.chances(tree=tree)
        usual = say(
            "{first:.0%} of first drafted tokens, {later:.0%} of each after an accepted one",
            first=first,
            later=later,
        )
        factor = task_factor(self.task, method.copies)
        told = (
            say(", {factor:g} × of that on {task}", factor=factor, task=self.task)
            if self.task != OVERALL
            else ""
        )
        return say(
            "{usual}, as published of {name}{told}", usual=usual, name=method.name, told=told
        )


@dataclass(frozen=True)
class Speculation:
    """What is drafted, how, and how much of it is accepted."""

    method: Method
    drafted: int  # tokens verified beside the last one: of a chain, a tree or a window
    passes: int  # of the drafter, one after another
    branches: int  # alternatives that each of them extends; 1: a chain
    acceptance: Acceptance
    drafter: Model | None

    @classmethod
    def of(
        cls,
        model: Model,
        method: str,
        *,
        drafted: int = 0,
        passes: int = 0,
        branches: int = 0,
        layers: int = 0,
        vocab: int = 0,
        acceptance: Acceptance | None = None,
        draft: Model | None = None,
    ) -> Speculation:
        """A method for a model; what is not said is the method's own."""
        known = method_of(method, model.name)
        known = replace(known, layers=layers or known.layers, vocab=vocab or known.vocab)
        if known.drafter == "model" and draft is None:
            raise BadInput(
                say(
                    "speculative method {method!r} needs --draft-model: the smaller model",
                    method=method,
                )
            )
        tokens = drafted or known.drafted
        if not 0 < tokens <= MOST_DRAFTED:
            raise BadInput(
                say(
                    "{tokens} drafted tokens: use 1 to {most_drafted}",
                    tokens=tokens,
                    most_drafted=MOST_DRAFTED,
                )
            )
        given = acceptance or Acceptance()
        if given.length and not 1.0 <= given.length <= 1.0 + tokens:
            raise BadInput(
                say(
                    "an acceptance length of {length:g} is impossible with {tokens} drafted "
                    "tokens: it counts the model's own, so use 1 to {most}",
                    length=given.length,
                    tokens=tokens,
                    most=1 + tokens,
                )
            )
        if given.rate and not 0.0 < given.rate <= 1.0:
            raise BadInput(
                say("an acceptance rate of {rate:g} is no share: use 0.01 to 1", rate=given.rate)
            )
        if draft is not None and known.drafter != "model":
            raise BadInput(
                say(
                    "speculative method {method!r} has its own drafter, no --draft-model",
                    method=method,
                )
            )
        return cls(
            known,
            tokens,
            passes or known.passes or tokens,
            branches or (known.branches if not drafted else 1),
            given,
            _drafter(model, known, draft, passes or known.passes or tokens),
        )

    @property
    def tree(self) -> bool:
        """Whether drafted tokens have alternatives."""
        return self.branches > 1 or self.drafted > self.depth

    @property
    def why(self) -> str:
        """Where its acceptance comes from."""
        return self.acceptance.why(self.method, tree=self._wide)

    @property
    def _wide(self) -> bool:
        """Whether a tree has alternatives enough to be accepted more often than a chain."""
        return self.tree and self.drafted >= 2 * self.depth

    @property
    def depth(self) -> int:
        """The longest run of drafted tokens; a tree of few has half of them beside one another."""
        if self.method.drafter in ("none", "model"):
            return min(self.method.depth or self.drafted, self.drafted)
        if self.method.passes == 1:  # a block, drafted at once
            return self.drafted
        few = (self.drafted + 1) // 2 if self.branches > 1 else self.drafted
        return min(self.passes, few)

    def tokens(self, past: float = 0.0) -> float:
        """That a step gives on average behind so many tokens."""
        given = self.acceptance.tokens(self.method, self.drafted, self.depth, tree=self._wide)
        trained = self.method.trained
        if self.acceptance.is_given or past <= trained or not trained:
            return given
        return 1.0 + (given - 1.0) * trained / past

    @property
    def key(self) -> tuple[object, ...]:
        """What tells them apart, cheap to compare: drafters have names and sizes."""
        drafter = self.drafter and (self.drafter.name, self.drafter.parameter_count)
        own = (self.drafted, self.passes, self.branches, self.acceptance)
        return (self.method.name, *own, drafter)

    def drafting(self, drafted: int) -> Speculation:
        """The same with a chain of so many tokens."""
        passes = self.method.passes or drafted
        return replace(self, drafted=drafted, passes=passes, branches=1)


def _drafter(model: Model, method: Method, draft: Model | None, passes: int) -> Model | None:
    if method.drafter == "head":
        return drafting_head(model, method.layers, method.vocab)
    if method.drafter == "module":
        return prediction_module(model)
    if method.drafter == "heads":
        # Medusa (arXiv 2401.10774 §2.1): each head is a layer h → h and a table of its own.
        each = model.vocab + model.hidden
        return replace(drafting_head(model), vocab=passes * each)
    return draft
