"""The lines of a run while it goes on, as torchtitan logs a step (components/metrics.py, log):

step:  4  loss:  4.7772  memory: 7.57 MB (7.49 MB)  tps: 148 (170)  tflops: 0.12 (0.14)  mfu: 9.12% (10.50%)

tps and tflops are of one rank. What is predicted stands behind in brackets, where a chip was named.
"""  # noqa: E501

from __future__ import annotations

from trueflops import units
from trueflops.language import say
from trueflops.run.expected import Expected
from trueflops.run.job import Job
from trueflops.run.peak import Peak
from trueflops.run.ran import StepRan


def log_notes(peak: Peak | None) -> list[str]:
    """What the numbers of the lines are."""
    notes = [say("in brackets: predicted")]
    if peak is not None:
        rate = units.show(peak.flop_per_second, "flop_per_second")
        notes.append(say("mfu: of {rate}, {said_by}", rate=rate, said_by=peak.said_by))
    else:
        notes.append(say("no mfu: no peak of this device is known; name it with --on or --profile"))
    return notes


def step_line(job: Job, step: StepRan, expected: Expected, peak: Peak | None) -> str:
    """One step, as rank 0 saw it."""
    said = [f"step: {step.step:>4}", f"loss: {step.loss:8.5f}"]
    predicted = None if expected.step is None else float(expected.step.step.value)
    if step.memory_bytes is not None:
        counted, wanted = (
            units.show(size, "bytes") for size in (step.memory_bytes, expected.ranks[0].peak_bytes)
        )
        said.append(f"memory: {counted} ({wanted})")
    tokens = job.workload.tokens_per_step / float(job.plan.world)
    said.append(f"tps: {_beside(tokens, step, predicted, '{:,.0f}')}")
    said.append(f"tflops: {_beside(expected.model_flop / units.TERA, step, predicted, '{:,.3g}')}")
    if peak is not None:
        share = expected.model_flop / peak.flop_per_second
        said.append(f"mfu: {_beside(share, step, predicted, '{:.2%}')}")
    if step.counted or step.traced:
        said.append(say("(counted: slower)") if step.counted else say("(traced: slower)"))
    return "  ".join(said)


def _beside(work: float, step: StepRan, predicted: float | None, shape: str) -> str:
    """A rate, and what it is predicted to be where nobody looks on."""
    measured = shape.format(work / step.seconds)
    return measured if predicted is None else f"{measured} ({shape.format(work / predicted)})"
