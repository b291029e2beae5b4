"""One runtime: a step that was captured and the same step planned agree in seconds and bytes.

Every part within 5 %, or within half a percent of the whole; what differs has a name and a reason.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import agreement
import trueflops as tf
from trueflops.clock.power import SLOWEST
from trueflops.predict.captured.program import predict_program
from trueflops.runtime import Stretch, Term, run_closed
from trueflops.runtime.replay import Issue, replay

CLOSE = 0.05  # of a part
SLIGHT = 0.005  # of the whole step, or of the whole peak

DIFFERS = {
    "launch gaps": "the program makes position ids, rotary tables and a mask in some twenty small "
    "calls before its first layer, for which the device waits; a plan has no such calls",
    "recomputation": "a compiler joins the end of what runs again to the backward that reads it; "
    "by which kernel the seconds are named is a convention",
    "memory-bound ops": "the other side of the same kernels, and what torch.compile joins across "
    "the boundary of two layers, which a plan compiles apart",
    "power cap": "a share of what draws less: it follows the parts above",
}
"""Parts that may differ by more, and why; never by more than TELLING of the step."""
TELLING = 0.02
TWO_PEAKS = ("gradients", "activations and temporaries")
"""A step peaks twice, as its backward begins and while the optimizer holds its temporaries, and
where little is kept about equally high: which is the higher one decides what is alive."""


@cache
def parts(case: agreement.Case) -> dict[str, agreement.Part]:
    return {part.name: part for part in agreement.compare(case)}


@pytest.mark.parametrize("case", agreement.CASES, ids=str)
def test_a_planned_step_is_the_captured_one_part_by_part(case: agreement.Case) -> None:
    found = parts(case)
    for name, part in found.items():
        off = abs(part.planned - part.captured)
        if off <= CLOSE * part.captured or off <= SLIGHT * part.whole or name in TWO_PEAKS:
            continue
        assert name in DIFFERS, f"{name}: {part}"
        assert off <= TELLING * part.whole, f"{name}: {part}"


@pytest.mark.parametrize("case", agreement.CASES, ids=str)
def test_the_whole_agrees_whatever_its_parts_are_called(case: agreement.Case) -> None:
    found = parts(case)
    assert abs(found["step"].error) < CLOSE
    assert abs(found["peak"].error) < CLOSE
    assert abs(found["weights"].error) < 1e-6
    assert abs(found["optimizer states"].error) < 1e-6
    assert abs(sum(found[n].captured - found[n].planned for n in TWO_PEAKS)) < (
        CLOSE * found["peak"].captured
    )


@pytest.mark.parametrize("case", agreement.CASES, ids=str)
def test_products_and_attention_are_the_same_kernels(case: agreement.Case) -> None:
    for name in ("matmul", "attention"):
        assert abs(parts(case)[name].error) < 1e-3, name


# ── the formula and the simulation ───────────────────────────────────────────────────────────────


def kernels(seconds: float, count: int, clocked: bool) -> list[Any]:
    return [SimpleNamespace(seconds=seconds, clocked=clocked)] * count


def both(
    seconds: float, host: float, count: int = 4000, joules: float = 0.0, clocked: bool = True
) -> tuple[float, float]:
    """The same kernels replayed and in closed form."""
    where = tf.cluster("1xH200")
    clock = tf.Clock(where, tf.profile_of(where.accelerator, "transformers"))
    issues = [Issue(host, [k]) for k in kernels(seconds, count, clocked)]
    played = replay(issues, clock.host.law, clock.power, joules, one_thread=False)
    whole = seconds * count
    work = Stretch(
        seconds={"forward": whole},
        clocked={"forward": whole if clocked else 0.0},
        kernels={"forward": float(count)},
        host={"forward": host * count},
        joules=joules,
    )
    formula = run_closed(work, clock.power, gap=clock.host.gap)
    return played.end, float(formula.total)


@pytest.mark.parametrize(
    ("seconds", "host"), [(1e-3, 30e-6), (60e-6, 30e-6), (10e-6, 30e-6), (1e-6, 30e-6)]
)
def test_closed_form_and_replay_agree_where_host_or_device_decides(
    seconds: float, host: float
) -> None:
    played, formula = both(seconds, host)
    assert formula == pytest.approx(played, rel=0.01)


def test_where_both_are_equally_fast_the_formula_is_the_cautious_one() -> None:
    played, formula = both(30e-6 - 5.2e-6, 30e-6)
    assert played <= formula <= played * 2.0 ** (1.0 / 8.0) * 1.01


@pytest.mark.parametrize("watts", [400.0, 800.0, 1200.0])
def test_both_slow_down_alike_at_the_power_cap(watts: float) -> None:
    played, formula = both(1e-3, 30e-6, joules=watts * 4.0)
    assert formula == pytest.approx(played, rel=0.005)
    capped = played > 1.01 * both(1e-3, 30e-6)[0]
    assert capped == (watts > 700.0)


def test_a_chip_at_its_cap_draws_just_that() -> None:
    where = tf.cluster("1xH200")
    power = tf.Clock(where, tf.profile_of(where.accelerator)).power
    assert power.cap is not None
    loads, shares = np.meshgrid(np.linspace(0.5, 5.0, 91), np.linspace(0.0, 1.0, 21))
    joules = loads * (power.cap - power.law["static_watts"])  # in one second at full clock
    held = power.throttle(joules, shares, 1.0)
    drawn = joules * held.ratio ** power.law["exponent"] / (1.0 + held.added)
    watts = power.law["static_watts"] + drawn
    free = loads <= 1.0
    assert (held.ratio[free] == 1.0).all()
    at_cap = ~free & (held.ratio > SLOWEST)
    assert np.count_nonzero(at_cap) > 1000
    np.testing.assert_allclose(watts[at_cap], power.cap, rtol=1e-6)
    assert (watts[~free & ~at_cap] > power.cap).all()  # it cannot go slower
    least = power.least_added(joules, shares, 1.0)
    assert (least <= held.added * (1.0 + 1e-12)).all()


def test_a_formula_over_many_plans_is_that_of_each() -> None:
    where = tf.cluster("1xH200")
    clock = tf.Clock(where, tf.profile_of(where.accelerator, "transformers"))

    def run(seconds: Any, host: Any) -> Any:
        work = Stretch(
            seconds={"forward": seconds},
            clocked={"forward": 0.5 * seconds},
            kernels={"forward": 100.0},
            host={"forward": host},
            joules=900.0 * seconds,
        )
        ran = run_closed(work, clock.power, gap=clock.host.gap)
        assert sum(ran.seconds().values()) == pytest.approx(ran.total)
        return ran.total

    seconds, host = np.array([1e-3, 1.0]), np.array([3e-3, 3e-3])
    each = [run(s, h) for s, h in zip(seconds, host, strict=True)]
    assert run(seconds, host) == pytest.approx(each)


def test_a_captured_step_is_a_tree_whose_parts_sum() -> None:
    where = tf.cluster("1xH200")
    case = agreement.CASES[1]
    clock = tf.Clock(where, tf.profile_of(where.accelerator, case.framework))
    found = predict_program(agreement.recorded(case), clock).step

    def check(term: Term) -> None:
        if term.parts:
            assert sum(float(p.value) for p in term.parts) == pytest.approx(float(term.value))
        for part in term.parts:
            check(part)

    check(found.step)
    assert float(found.step.value) == pytest.approx(float(found.seconds.value))
