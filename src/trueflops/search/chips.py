"""How a model does on a chip: the fewest that train it, the fewest that serve it, and at what cost.

In: a Model and a chip. Out: two answers per chip that can stand side by side, per accelerator.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

from trueflops.catalog import Accelerator, Cluster, cluster
from trueflops.errors import TrueflopsError
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.predict import Server, ServingPoint, Trainer, TrainingStep
from trueflops.profile import profile_of
from trueflops.search.enumerate import Space, enumerate_plans
from trueflops.search.rank import search_plans
from trueflops.search.serving import Limits, search_serving
from trueflops.workload import Serving, Training

MOST: Final = 8192  # chips tried at most
BATCH_TOKENS: Final = 2**22
REQUESTS_PER_CHIP: Final = 16
STATE_BYTES: Final = 16.0  # of mixed-precision Adam, a parameter: no fewer chips can hold it


@dataclass(frozen=True)
class ChipAnswer:
    """One row of the fair table. None: it cannot, and `why` says so."""

    chip: Accelerator
    training: TrainingStep | None
    serving: ServingPoint | None
    why: str = ""


def try_chip(model: Model, chip: Accelerator, seq: int) -> ChipAnswer:
    """The smallest power of two of this chip that trains, and that serves, the model."""
    reasons: list[str] = []
    training = _smallest_training(model, chip, seq, reasons)
    serving = _smallest_serving(model, chip, reasons)
    return ChipAnswer(chip, training, serving, "; ".join(dict.fromkeys(reasons)))


def _sizes(needed_bytes: float, chip: Accelerator) -> list[int]:
    """Powers of two from the least that could hold so many bytes."""
    least = ceil(needed_bytes / chip.need("memory.capacity"))
    return [n for n in (2**i for i in range(20)) if least <= n <= MOST]


def _smallest_training(
    model: Model, chip: Accelerator, seq: int, reasons: list[str]
) -> TrainingStep | None:
    try:
        dtype = next((d for d in ("bf16", "fp16") if chip.computes(d)), "")
        if not dtype:
            raise TrueflopsError("no 16-bit matmul rate known")
        base = Plan(compute=dtype, parameter_dtype=dtype, gradient_dtype=dtype)
        space = Space(
            vpp=(1,), zero=(1, 3), micro_batch=(1, 2), recompute=("none", "full"), base=base
        )
        for count in _sizes(STATE_BYTES * model.parameter_count, chip):
            where = cluster(f"{count}x{chip.name}")
            batch = max(BATCH_TOKENS // seq, count)
            trainer = Trainer(
                model, Training(seq, batch, float(BATCH_TOKENS)), where, profile_of(chip)
            )
            plans = enumerate_plans(model, trainer.workload, where, space)
            found = search_plans(trainer, plans, most=1)
            if found.best:
                return found.best[0]
        raise TrueflopsError(f"does not fit {MOST} of them")
    except TrueflopsError as error:
        reasons.append(str(error))
        return None


def _smallest_serving(model: Model, chip: Accelerator, reasons: list[str]) -> ServingPoint | None:
    try:
        for count in _sizes(2.0 * model.parameter_count, chip):
            where: Cluster = cluster(f"{count}x{chip.name}")
            asked = Serving(1024, 256, REQUESTS_PER_CHIP * count)
            server = Server(model, asked, where, profile_of(chip, "serving"), weights="bf16")
            points = search_serving(server, Limits(), most=1)
            if points and points[0].fits:
                return points[0]
        raise TrueflopsError(f"does not fit {MOST} of them")
    except TrueflopsError as error:
        reasons.append(str(error))
        return None
