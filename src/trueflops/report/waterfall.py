"""The waterfall: what is left of the advertised rate after each thing that takes time.

Each rate is the model's flop divided by the time spent so far; the steps are the branches of the
step's own tree, so the last one is the prediction itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from trueflops.clock import Clock
from trueflops.predict import Term, TrainingStep
from trueflops.runtime.floor import achievable
from trueflops.units import TERA


@dataclass(frozen=True)
class Fall:
    """One step down: the rate that is left, and what took the rest."""

    name: str
    flop_per_second: float
    why: str


def training_waterfall(step: TrainingStep) -> list[Fall]:
    """Rates per accelerator, from the box to the run."""
    chip, dtype = step.cluster.accelerator, step.plan.compute
    peak = chip.peak_flop_per_second(dtype)
    tree, flop = step.step, float(step.work.model_flop)
    compute = tree["compute"]
    spent = sum(part(compute, name) for name in ("matmul", "expert matmul", "attention"))
    products = achievable(Clock(step.cluster, step.profile), dtype)
    # What this model's own products reach is achievable, whatever a square one does.
    reached = max(float(products.value), flop / spent)
    most = float(products.high)
    unmeasured = f"not measured; at most {most / TERA:,.0f}"
    factor = 1.0 if dtype in ("fp32", "fp64") else chip.sparse_factor  # only tensor formats
    box = [
        Fall("advertised", peak * factor, _sparsity(factor, dtype)),
        Fall("dense", peak, f"{dtype} without sparsity"),
    ]
    if chip.status == "measured":  # nobody advertised it
        box = [Fall("measured", peak, f"{dtype}: the fastest product seen")]
    falls = [
        *box,
        Fall(
            "achievable", reached, unmeasured if most > reached else "large matmuls, for a moment"
        ),
        Fall("these shapes", flop / spent, "this model's matmuls, attention"),
    ]
    for name, seconds, why in (
        ("+ memory-bound", part(compute, "memory-bound ops"), "norms, activations"),
        ("+ units shared", part(compute, "units shared"), "with the all-to-all beside"),
        ("+ untuned", part(compute, "untuned shapes"), "libraries tuned for few shapes"),
        ("+ power cap", part(compute, "power cap"), "a lower clock under load"),
        ("+ launch gaps", part(compute, "launch gaps"), "waiting for the host"),
        ("+ recomputation", part(compute, "recomputation"), "forward work done twice"),
        ("+ communication", float(tree["exposed communication"].value), _largest(tree)),
        ("+ busiest link", part(tree, "busiest link"), "it carries no more a second"),
        ("+ uneven stages", float(tree["uneven stages"].value), "the slowest sets the pace"),
        ("+ pipeline bubble", float(tree["pipeline bubble"].value), "stages that wait"),
        ("+ optimizer", float(tree["optimizer"].value), "updating the weights"),
        ("+ stragglers", part(tree, "stragglers"), "the slowest of all chips at its cap"),
        ("+ offload", float(tree["offload"].value), "updated on the host, there and back"),
    ):
        spent += seconds
        if seconds > 0.002 * spent:
            falls.append(Fall(name, flop / spent, why))
    falls.append(Fall("yours", flop / float(tree.value), "model flop/s, per accelerator"))
    return falls


def part(tree: Term, name: str) -> float:
    """A branch's value, zero where the tree has no such branch."""
    return next((float(p.value) for p in tree.parts if p.name == name), 0.0)


def _sparsity(factor: float, dtype: str) -> str:
    if factor == 1.0:
        return f"{dtype}, dense"
    return f"{dtype}, sparse: printed on the box"


def _largest(tree: Term) -> str:
    parts = sorted(tree["exposed communication"].parts, key=lambda p: -float(p.value))
    return f"exposed; mostly {parts[0].name}"
