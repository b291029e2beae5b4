"""The waterfall: what is left of the advertised rate after each thing that takes time.

Each rate is the model's flop divided by the time spent so far; the steps are the branches of the
step's own tree, so the last one is the prediction itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trueflops.clock import Clock
from trueflops.language import mark, say
from trueflops.predict import Estimate, Term, TrainingStep
from trueflops.runtime import achievable, total
from trueflops.units import TERA


@dataclass(frozen=True)
class Fall:
    """One step down: the rate that is left, and what took the rest."""

    name: str
    rate: Estimate
    why: str

    @property
    def flop_per_second(self) -> float:
        """That is left."""
        return float(self.rate.value)


def training_waterfall(step: TrainingStep) -> list[Fall]:
    """Rates per accelerator, from the box to the run."""
    chip, dtype = step.cluster.accelerator, step.plan.compute
    peak = chip.peak_flop_per_second(dtype)
    tree, flop = step.step, float(step.work.model_flop)
    compute = tree["compute"]

    def rate(*spent: Term) -> Estimate:
        """What is left after these, below what the chip can do."""
        return replace(total("so far", *spent).estimate.under(flop), most=peak)

    spent = [p for p in compute.parts if p.name in ("matmul", "expert matmul", "attention")]
    shapes = rate(*spent)
    products = achievable(Clock(step.cluster, step.profile), dtype)
    # What this model's own products reach is achievable, whatever a square one does.
    reached = products if products.value >= shapes.value else shapes
    most = float(products.high)
    unmeasured = say("not measured; at most {most:,.0f}", most=most / TERA)
    factor = 1.0 if dtype in ("fp32", "fp64") else chip.sparse_factor  # only tensor formats
    box = [
        Fall("advertised", _exact(peak * factor), _sparsity(factor, dtype)),
        Fall("dense", _exact(peak), say("{dtype} without sparsity", dtype=dtype)),
    ]
    if chip.status == "measured":  # nobody advertised it
        seen = say("{dtype}: the fastest product seen", dtype=dtype)
        box = [Fall(say("measured"), _exact(peak), seen)]
    beyond = most > float(reached.value)
    falls = [
        *box,
        Fall("achievable", reached, unmeasured if beyond else say("large matmuls, for a moment")),
        Fall("these shapes", shapes, say("this model's matmuls, attention")),
    ]
    for name, term, why in (
        ("+ memory-bound", part(compute, "memory-bound ops"), mark("norms, activations")),
        (mark("+ units shared"), part(compute, "units shared"), mark("with the all-to-all beside")),
        ("+ untuned", part(compute, "untuned shapes"), mark("libraries tuned for few shapes")),
        (mark("+ power cap"), part(compute, "power cap"), mark("a lower clock under load")),
        (mark("+ launch gaps"), part(compute, "launch gaps"), mark("waiting for the host")),
        ("+ recomputation", part(compute, "recomputation"), mark("forward work done twice")),
        ("+ communication", tree["exposed communication"], _largest(tree)),
        (mark("+ busiest link"), part(tree, "busiest link"), mark("it carries no more a second")),
        (mark("+ uneven stages"), tree["uneven stages"], mark("the slowest sets the pace")),
        (mark("+ pipeline bubble"), tree["pipeline bubble"], mark("stages that wait")),
        ("+ optimizer", tree["optimizer"], mark("updating the weights")),
        ("+ stragglers", part(tree, "stragglers"), mark("the slowest of all chips at its cap")),
        ("+ offload", tree["offload"], mark("updated on the host, there and back")),
    ):
        spent.append(term)
        if float(term.value) > 0.002 * sum(float(each.value) for each in spent):
            falls.append(Fall(name, rate(*spent), why))
    falls.append(Fall("yours", tree.estimate.under(flop), say("model flop/s, per accelerator")))
    return falls


def part(tree: Term, name: str) -> Term:
    """A branch, of nothing where the tree has no such branch."""
    return next((p for p in tree.parts if p.name == name), Term(name, 0.0))


def _exact(rate: float) -> Estimate:
    return Estimate(rate, {}, "datasheet")


def _sparsity(factor: float, dtype: str) -> str:
    if factor == 1.0:
        return say("{dtype}, dense", dtype=dtype)
    return say("{dtype}, sparse: printed on the box", dtype=dtype)


def _largest(tree: Term) -> str:
    parts = sorted(tree["exposed communication"].parts, key=lambda p: -float(p.value))
    return say("exposed; mostly {name}", name=parts[0].name)
