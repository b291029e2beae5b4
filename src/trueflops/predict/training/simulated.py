"""The pipeline of one plan, event by event, beside what its closed form says.

In: a Trainer and a single Plan. Out: a SimulatedPipeline: the timeline of every rank, what the
closed form makes of the same stages, and the activations of every rank over time. Sends between
stages are part of the timeline, not of the comparison: the closed form counts them apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from trueflops.errors import BadInput
from trueflops.language import say
from trueflops.plan import Plan
from trueflops.predict.training.memory import hold
from trueflops.predict.training.pipeline import run_pieces
from trueflops.predict.training.schedule import dual_path
from trueflops.predict.training.stages import every_piece
from trueflops.predict.training.trainer import Laid, Trainer
from trueflops.runtime import Order, StageSeconds, Stepped, order_of, run_orders

SOON: Final = 12_000  # tasks that are simulated in well under a tenth of a second
MOST: Final = 400_000  # whose trace a browser still opens
TOLERANCE: Final = 0.01  # of the step, within which formula and simulation agree


@dataclass(frozen=True, kw_only=True)
class SimulatedPipeline:
    """A step's pipeline, simulated."""

    orders: list[Order]
    stages: list[StageSeconds]  # by piece
    send: float  # seconds of a message between ranks
    seconds: float  # without these, to be held against
    closed_seconds: float  # the closed form
    kept_bytes: tuple[float, ...]  # of one micro-batch, by piece

    @cached_property
    def stepped(self) -> Stepped:
        """As it runs, with sends."""
        return run_orders(self.orders, self.stages, self.send)

    @property
    def off(self) -> float:
        """By how much the simulation takes longer than the closed form, relative to it."""
        return self.seconds / self.closed_seconds - 1.0

    def held(self, rank: int) -> list[tuple[float, float]]:
        """Bytes of activations that a rank holds from each moment on."""
        return self.stepped.held(rank, self.kept_bytes)


def task_count(plan: Plan, global_batch: float) -> int:
    """How many tasks a simulation of a step runs."""
    return int(plan.pp * plan.pieces * plan.micro_batches(global_batch) * 3)


def simulate_pipeline(trainer: Trainer, plan: Plan) -> SimulatedPipeline:
    """Run the plan's schedule on the seconds of its own pieces."""
    tasks = task_count(plan, trainer.workload.global_batch)
    if tasks > MOST:
        raise BadInput(
            say(
                "a step of this plan has {tasks:,} tasks, too many to simulate one by one "
                "(at most {most:,}); try a smaller --global-batch",
                tasks=tasks,
                most=MOST,
            )
        )
    laid = trainer.lay_out(plan, trainer.keyed_costs(plan).spread())
    m = round(float(np.ravel(laid.micro_batches)[0]))
    pieces = every_piece(trainer.as_trained(plan), plan)
    stages = run_pieces(laid.costs, plan, pieces, trainer.clock, laid.upkeep.beside(m), m)
    orders = order_of(plan.schedule, int(plan.pp), int(plan.vpp), m)
    kept = hold(laid.costs, plan, pieces).kept_bytes * (1.0 - plan.offload_activations)
    return SimulatedPipeline(
        orders=orders,
        stages=stages,
        send=_number(laid.sent.stages.whole.seconds / (2.0 * plan.pieces * m)),
        seconds=run_orders(orders, stages).longest,
        closed_seconds=_closed_seconds(plan, laid),
        kept_bytes=tuple(float(size) for size in np.ravel(kept)),
    )


def _closed_seconds(plan: Plan, laid: Laid) -> float:
    """All micro-batches on the slowest stage, the bubble, and what shows of the experts'
    all-to-all where the schedule hides some of it.
    """
    pipeline, m = laid.pipeline, laid.micro_batches
    whole = m * np.maximum(pipeline.slow.total, pipeline.usual.total) + laid.bubble
    if plan.bidirectional:
        sent = pipeline.dispatched
        path = dual_path(plan, m, pipeline.slow, sent)
        whole = whole + path.forwards * sent.forward + path.backwards * sent.backward
        longer = np.maximum(sent.forward + sent.backward - pipeline.usual.total, 0.0)
        whole = whole + path.pairs * longer
    return _number(whole)


def _number(size: object) -> float:
    return float(np.ravel(np.asarray(size))[0])
