"""How a model does on several chips, on equally many of each, so that rows can be compared.

In: a Model and chips. Out: for training and for serving the one count that all are compared at,
and each chip's answer there. More chips split the work finer, wait longer for each other and hold
larger batches: a rate per chip on 2 of one and on 16 of another says little. Unless a count is
given it is the fewest on which all of them can; beside it stands the fewest of each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any, Final, Generic, TypeVar

from trueflops.catalog import Accelerator, Cluster, cluster_of
from trueflops.errors import TrueflopsError
from trueflops.graph.passes import format_named
from trueflops.language import say
from trueflops.model import Model
from trueflops.plan import Plan
from trueflops.plan.usual import BATCH_TOKENS
from trueflops.predict import Server, ServingPoint, Trainer, TrainingStep
from trueflops.predict.released import Weights, served_weights
from trueflops.profile import Profile, profile_of
from trueflops.profile.frameworks import SERVING, USUAL
from trueflops.search.best import search_plans
from trueflops.search.hardware import Hardware
from trueflops.search.serving import Limits, search_serving
from trueflops.search.space import Space
from trueflops.units import BITS_PER_BYTE
from trueflops.workload import Serving, Training

MOST_CHIPS: Final = 8192  # chips tried at most
MANY: Final = 16  # from so many chips on, a quarter of them may be missing at the common count
REQUESTS_PER_CHIP: Final = 16
STATE_BYTES: Final = 16.0  # of mixed-precision Adam, a parameter: no fewer chips can hold it
PROMPT, OUTPUT = 1024, 256  # tokens of a request
LEANEST: Final = {"zero": (3,), "recompute": ("full",), "micro_batch": (1,), "cp": (1,)}

Result = TypeVar("Result")


@dataclass(frozen=True)
class Outcome(Generic[Result]):
    """What one chip does at the common count; None: it cannot, and `why` says so."""

    result: Result | None
    fewest: int | None  # smallest count of this chip that can; None: none, or a count was given
    why: str = ""


@dataclass(frozen=True)
class ChipAnswer:
    """One chip of a comparison."""

    chip: Accelerator
    weights: Weights  # that it serves
    training: Outcome[TrainingStep]
    serving: Outcome[ServingPoint]


@dataclass(frozen=True)
class Comparison:
    """Chips side by side; None: not one of them can."""

    answers: tuple[ChipAnswer, ...]
    training_count: int | None
    serving_count: int | None


def compare_chips(
    model: Model,
    chips: Sequence[Accelerator],
    seq: int,
    *,
    count: int | None = None,
    given: Profile | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Comparison:
    """Try every chip on its fewest, choose a count, then try all of them there."""
    attempts = [_Attempt(model, chip, seq, given) for chip in chips]
    state = STATE_BYTES * model.parameter_count
    trained, served = [], []
    for at, attempt in enumerate(attempts, 1):
        say(f"{attempt.chip.name}, {at} of {len(attempts)}: the fewest that can")
        trained.append(_fewest(attempt.chip, state, attempt.train, count))
        served.append(_fewest(attempt.chip, attempt.weight_bytes, attempt.serve, count))
    training, serving = _common(trained, count), _common(served, count)
    answers = []
    for at, (attempt, train, serve) in enumerate(zip(attempts, trained, served, strict=True), 1):
        say(f"{attempt.chip.name}, {at} of {len(attempts)}: on as many as the others")
        answers.append(
            ChipAnswer(
                attempt.chip,
                attempt.weights,
                _at(training, train, attempt.train, lambda step: step.cluster.count),
                _at(serving, serve, attempt.serve, lambda point: point.cluster.count),
            )
        )
    return Comparison(tuple(answers), training, serving)


class _Attempt:
    """A model on so many of one chip."""

    def __init__(self, model: Model, chip: Accelerator, seq: int, given: Profile | None) -> None:
        self.model, self.chip, self.seq = model, chip, seq
        self.given = given if given is not None and given.accelerator == chip.name else None
        self.weights = served_weights(model, chip)
        bits = format_named(self.weights.name).weight_bits
        self.weight_bytes = model.parameter_count * bits / BITS_PER_BYTE

    def train(self, count: int) -> TrainingStep | None:
        """The best plan that fits, or none."""
        profile = profile_of(self.chip, USUAL, self.given)
        return best_training(self.model, self.seq, Hardware(cluster_of(self.chip, count), profile))

    def serve(self, count: int) -> ServingPoint | None:
        """The best cut that fits, or none."""
        where: Cluster = cluster_of(self.chip, count)
        prompt = max(min(PROMPT, self.model.max_positions - OUTPUT), 1)
        asked = Serving(prompt, OUTPUT, REQUESTS_PER_CHIP * count)
        profile = profile_of(self.chip, SERVING, self.given)
        server = Server(self.model, asked, where, profile, weights=self.weights.name)
        points = search_serving(server, Limits(), most=1)
        return points[0] if points and points[0].fits else None


def fewest_that_train(model: Model, chip: Accelerator, seq: int) -> Outcome[TrainingStep]:
    """The smallest power of two of a chip on which a model can be trained at all: by the leanest
    plans, since any that fits will do.
    """
    profile = profile_of(chip, USUAL)

    def attempt(count: int) -> TrainingStep | None:
        asked = _usual_batch(seq, count)
        return best_plan(model, asked, Hardware(cluster_of(chip, count), profile), **LEANEST)

    return _fewest(chip, STATE_BYTES * model.parameter_count, attempt, None)


def best_training(model: Model, seq: int, on: Hardware) -> TrainingStep | None:
    """The best plan that fits some hardware, as chips are compared by; None: none does."""
    return best_plan(model, _usual_batch(seq, on.cluster.count), on)


def _usual_batch(seq: int, count: int) -> Training:
    batch = max(BATCH_TOKENS // seq // count, 1) * count
    return Training(seq, batch, float(BATCH_TOKENS))


def best_plan(model: Model, asked: Training, on: Hardware, **limits: Any) -> TrainingStep | None:
    """Of the plans that most runs are made by, which are few enough to try on many clusters;
    `limits` are fields of the Space that it is held to.
    """
    dtype = narrowest(on.cluster.accelerator)
    base = Plan(compute=dtype, parameter_dtype=dtype, gradient_dtype=dtype)
    zero = (1, 3) if on.cluster.count > 1 else (0,)  # one chip alone has nobody to share with
    space = Space(
        vpp=(1,), zero=zero, micro_batch=(1, 2), recompute=("none", "full"), base=base,
        recompute_layers=(inf,), first_stage_layers=(0,), schedule=("1f1b",), sp=(True,),
        cp_kind=("ring",), dispatch=("all-to-all",), etp=(1,),
    )  # fmt: skip
    space = replace(space, **limits)
    found = search_plans(Trainer(model, asked, *on), space, most=1, with_front=False)
    return found.best[0] if found.best else None


def narrowest(chip: Accelerator) -> str:
    """The 16-bit dtype that a chip trains in."""
    dtype = next((d for d in ("bf16", "fp16") if chip.computes(d)), "")
    if not dtype:
        raise TrueflopsError(say("no 16-bit matmul rate known"))
    return dtype


def _fewest(
    chip: Accelerator, needed: float, attempt: Callable[[int], Result | None], count: int | None
) -> Outcome[Result]:
    """The smallest power of two that can, from the least that could hold so many bytes."""
    try:
        least = ceil(needed / chip.need("memory.capacity"))
        for size in [count] if count else [2**i for i in range(20) if least <= 2**i <= MOST_CHIPS]:
            found = attempt(size)
            if found is not None:
                return Outcome(found, None if count else size)
    except TrueflopsError as error:
        return Outcome(None, None, str(error))
    return Outcome(None, None, say("does not fit {count:,} of them", count=count or MOST_CHIPS))


def _common(found: Sequence[Outcome[Result]], count: int | None) -> int | None:
    """The smallest count on which all chips that can at all do; of many, three in four of them."""
    if count:
        return count if any(each.result is not None for each in found) else None
    sizes = sorted(each.fewest for each in found if each.fewest)
    if not sizes:
        return None
    return sizes[-1] if len(sizes) < MANY else sizes[3 * len(sizes) // 4]


def _at(
    count: int | None,
    found: Outcome[Result],
    attempt: Callable[[int], Result | None],
    size: Callable[[Result], int],
) -> Outcome[Result]:
    """The same chip on the common count."""
    if count is None or found.result is None or found.fewest is None:
        return found
    if found.fewest > count:
        return Outcome(None, found.fewest, say("needs {fewest:,}", fewest=found.fewest))
    if size(found.result) == count:
        return found
    try:
        there = attempt(count)
    except TrueflopsError as error:
        return Outcome(None, found.fewest, str(error))
    return Outcome(
        there, found.fewest, "" if there else say("does not fit {count:,} of them", count=count)
    )
