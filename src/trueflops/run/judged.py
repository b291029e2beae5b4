"""Plans that ran, judged as `verify` judges published ones: measured beside predicted, by plan.

In: observed steps, and the profile that predicts them. Out: Findings. A step that the profile's own
correction was fitted to stands apart: it is shown, and does not count. Needs no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from trueflops.language import mark
from trueflops.predict import Estimate
from trueflops.profile import Profile
from trueflops.run.correction import Observed, predicted_under
from trueflops.verify.findings import Finding, Findings, Quantity, TrainingRow

FITTED: Final = mark("fitted")


def judge_runs(
    file: str,
    observed: Sequence[Observed],
    given: Profile | None,
    seen: Sequence[Mapping[str, Any]] = (),
) -> Findings:
    """Every plan's step, and what its allocator had reserved; `seen` are runs as files hold them.

    `given`: whose curves come first; None for what is shipped.
    """
    found = Findings()
    for number, each in enumerate(observed, 1):
        step = predicted_under(each, given)
        about = TrainingRow(
            source=each.name,
            hidden=each.model.hidden,
            layers=each.model.layers,
            framework=each.framework,
            apart=FITTED if each.said in seen else "",
        )
        pairs: list[tuple[Quantity, float | None, Estimate]] = [
            ("step_seconds", each.seconds, step.step.estimate),
            ("peak_bytes", each.reserved_bytes, step.peak("reserved").estimate),
        ]
        found.rows += [
            Finding.beside(file, f"run {number}", about, quantity, measured, predicted)
            for quantity, measured, predicted in pairs
            if measured is not None
        ]
    return found
