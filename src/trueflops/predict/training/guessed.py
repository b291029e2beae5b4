"""An answer whose plan was partly guessed: as wide as the alternatives make it.

Each guess reaches to either side as far as its farthest alternative would have been; guesses do not
know of one another, so that they add up like errors do: in squares. The host is a guess like these:
of a step that hardly waits for it, its error shows only on the side where the step would wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import exp, hypot, log

import numpy as np

from trueflops.errors import TrueflopsError
from trueflops.plan.guesses import Changes, Guess
from trueflops.predict.training.step import TrainingStep
from trueflops.predict.training.trainer import Trainer
from trueflops.runtime.terms import Z90, Term


def widened(trainer: Trainer, step: TrainingStep, guesses: Iterable[Guess]) -> TrainingStep:
    """The same step, its intervals widened by what was guessed, and by how fast its host is.

    An alternative that surely does not fit, or that is no plan, was not what ran.
    """
    time, memory = Reach(step.step), Reach(step.memory)
    for guess in guesses:
        others = [other for change in guess.others if (other := _tried(trainer, step, change))]
        time.take_in(float(other.step.value) for other in others)
        memory.take_in(float(other.memory.value) for other in others)
    time.take_in(_on_other_hosts(trainer, step))
    return replace(step, step=time.widened(), memory=memory.widened())


def _tried(trainer: Trainer, step: TrainingStep, change: Changes) -> TrainingStep | None:
    plan = step.plan.but(**change)
    if plan.micro_batches(trainer.workload.global_batch) < 1:  # replicas without a sequence
        return None
    try:
        other = trainer.predict_one(plan)
    except TrueflopsError:
        return None
    return None if other.surely_too_full else other


def _on_other_hosts(trainer: Trainer, step: TrainingStep) -> Iterable[float]:
    """Seconds of the step on a host as slow, and as fast, as nine in ten are not beyond."""
    far = exp(Z90 * trainer.profile.curve("dispatch").error)
    both = trainer.on_host(np.array([far, 1.0 / far])).predict(step.plan).step
    return [float(seconds) for seconds in np.broadcast_to(both.value, 2)]


class Reach:
    """How far guesses reach from a prediction, as logarithms: below and above."""

    def __init__(self, term: Term) -> None:
        self.term = term
        self.below = self.above = 0.0

    def take_in(self, others: Iterable[float]) -> None:
        """One more guess: its farthest alternatives."""
        own = float(self.term.value)
        apart = [log(other / own) for other in others]
        self.below = hypot(self.below, -min([*apart, 0.0]))
        self.above = hypot(self.above, max([*apart, 0.0]))

    def widened(self) -> Term:
        """The prediction, reaching so far beside what it did."""
        below, above = self.term.unstated
        return replace(self.term, unstated=(hypot(below, self.below), hypot(above, self.above)))
