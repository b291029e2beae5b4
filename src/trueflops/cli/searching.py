"""A search as flags describe it, with a line while it takes long, and what to say of its end."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from math import inf
from typing import Any

from trueflops import units
from trueflops.catalog import Accelerator
from trueflops.cli.arguments import wrapped
from trueflops.cli.arguments.several import Several
from trueflops.cli.question import question_of
from trueflops.cli.replies import give
from trueflops.language import say
from trueflops.plan import Plan
from trueflops.predict import Trainer
from trueflops.profile.frameworks import USUAL, habits, lacking, schedules, switches
from trueflops.report.progress import Waiting
from trueflops.search import OFFLOADS, Found, Progress, Space, search_plans
from trueflops.search.best import states_bytes
from trueflops.search.chips import MOST_CHIPS, fewest_that_train
from trueflops.search.space import KEPT_INSIDE, Offload

NUMBERS = (
    "tp", "pp", "cp", "ep", "etp", "vpp", "dp", "dp_replicate", "dp_shard", "micro_batch",
    "first_stage_layers", "last_stage_layers",
)  # fmt: skip
WORDS = ("schedule", "cp_kind", "dispatch", "compute")
MIXED = ("bf16", "fp8", "fp4")
"""Dtypes of products beside the same weights, gradients and states: a search may choose."""


def space_of(options: argparse.Namespace, base: Plan, chip: Accelerator) -> Space:
    """Every plan that keeps what the flags fix and the framework and the chip can run."""
    framework = options.framework or USUAL
    lacks, usual = lacking(framework), Space()
    given: dict[str, Any] = {name: _values(options, name) for name in (*NUMBERS, *WORDS)}
    given |= {name: given[name] or (1,) for name in NUMBERS if name in lacks}
    if len(given["compute"]) > 1:
        narrow = [d for d in given["compute"] if d in MIXED and chip.computes(d)]
        given["compute"] = tuple(narrow)
    given["schedule"] = given["schedule"] or schedules(framework) or usual.schedule
    for name in ("cp_kind", "dispatch"):
        given[name] = given[name] or getattr(usual, name)
    policies = _values(options, "recompute") or usual.recompute
    if options.framework is not None:  # a share of the layers in full is one of those of `full`
        own = habits(options.framework).recomputation(1.0)["recompute"]
        policies = tuple(dict.fromkeys(own if p == "selective" else p for p in policies))
    return Space(
        **given,
        zero=_values(options, "zero") or usual.zero,
        recompute=policies,
        sp=usual.sp if options.sp is None else (options.sp,),
        offload=_offloads(options, base),
        base=base,
    )


def switched_on(options: argparse.Namespace, base: Plan) -> tuple[Plan, list[str]]:
    """The plan with what its framework has a switch for and no flag decides: it only helps."""
    names = [n for n in switches(options.framework or USUAL) if getattr(options, n) is None]
    if base.optimizer == "muon":  # Megatron's sums its gradients when all are there
        names = []
    notes = [
        say(
            "{name} on, which {framework} has off: it costs nothing; --no-{name} leaves it so",
            name=name,
            framework=options.framework,
        )
        for name in names
    ]
    return base.but(**dict.fromkeys(names, True)), notes


def _values(options: argparse.Namespace, name: str) -> tuple[Any, ...]:
    value = getattr(options, name)
    if value is None:
        return ()
    return tuple(value) if isinstance(value, Several) else (value,)


def _offloads(options: argparse.Namespace, base: Plan) -> tuple[Offload, ...]:
    if options.offload is not None:
        return OFFLOADS
    fixed = (base.offload_optimizer, base.offload_parameters, base.offload_activations)
    return (Offload(*(float(share) for share in fixed)),)


def look(trainer: Trainer, space: Space, most: int) -> tuple[Found, list[str]]:
    """Search, with a line while it lasts; with offload where nothing fits without."""
    found = _watched(trainer, space, most)
    if found.best or not found.complete or space.offload != KEPT_INSIDE:
        return found, []
    wider = _watched(trainer, replace(space, offload=OFFLOADS[1:]), most)
    if not wider.best:
        return found, []
    return wider, [say("offload: no plan fits without it")]


def _watched(trainer: Trainer, space: Space, most: int) -> Found:
    began = time.monotonic()
    with Waiting(say("enumerating plans")) as wait:

        def tell(progress: Progress) -> None:
            spent = max(time.monotonic() - began, 1e-3)
            rate = progress.decided / spent
            left = (progress.legal - progress.decided) / max(rate, 1.0)
            best = say("none fits")
            if progress.best_seconds < inf:
                best = say(
                    "best so far {best_seconds}",
                    best_seconds=units.show(progress.best_seconds, "seconds"),
                )
            far = say(
                "{decided:,} of {legal:,} plans, {rate:,.0f} a second, {best}, {left} left",
                decided=progress.decided,
                legal=progress.legal,
                rate=rate,
                best=best,
                left=units.show(left, "seconds"),
            )
            wait.say(far + say("; Ctrl-C shows the best so far"), progress)

        return search_plans(trainer, space, most, say=tell)


def notes_of(found: Found) -> list[str]:
    """What the search did, in a line."""
    notes = [
        say(
            "best of {legal:,} legal plans: {too_large:,} need too much memory, "
            "{slower:,} are slower by a bound, {fitting:,} were predicted and fit",
            legal=found.legal,
            too_large=found.too_large,
            slower=found.slower,
            fitting=found.fitting,
        )
    ]
    if not found.complete:
        notes.append(say("interrupted: the best so far, not of all"))
    return notes


def why_none_fits(trainer: Trainer, space: Space, found: Found) -> str:
    """Why a search came back empty, and the smallest cluster that would do."""
    chip, count = trainer.cluster.accelerator, trainer.cluster.count
    have = units.show(trainer.capacity, "memory")
    if found.nearest is None:
        least = units.show(states_bytes(trainer, space), "memory")
        why = say(
            "weights and optimizer states alone are {least}, and each holds {have}",
            least=least,
            have=have,
        )
    else:
        least = units.show(float(found.nearest.memory.value), "memory")
        why = say(
            "of {legal:,} legal plans the leanest needs {least} of {have}",
            legal=found.legal,
            least=least,
            have=have,
        )
    with Waiting(say("looking for the smallest cluster that would do")):
        fewest = fewest_that_train(trainer.model, chip, trainer.workload.seq).fewest
    if fewest is None:
        advice = say(
            "not even {most_chips:,} of them would do: take a smaller model or --seq",
            most_chips=MOST_CHIPS,
        )
    elif fewest <= count:
        advice = say(
            "{fewest:,} of them would do with fewer flags or the usual batch", fewest=fewest
        )
    else:
        advice = say(
            "the smallest cluster of them that would do has {fewest:,}: --on {fewest}x{name}",
            fewest=fewest,
            name=chip.typed,
        )
    return say(
        "no plan surely fits {count:,} × {name}: {why}; {advice}",
        count=count,
        name=chip.name,
        why=why,
        advice=advice,
    )


def say_none_fits(reason: str, options: argparse.Namespace) -> int:
    """Print why a search came back empty."""
    if options.json:
        give({"question": question_of(options), "fits": False, "why": reason}, None)
    else:
        print(wrapped(f"trueflops: {reason}"), file=sys.stderr)
    return 1
