"""Ranks that share the cores of one CPU: what each of them has.

In: a measured CPU, n ranks on it. Out: the CPU as one rank sees it. The rates of a profile are
those of all cores together, and n ranks that compute at once get a part each:
    flop/s, bytes/s   1/n of what all cores reach together
    one thread        its own core up to n = cores, then cores/n of it (starts of kernels, Python)
What gloo sends was measured between ranks that shared the machine, and stays.
"""

from __future__ import annotations

from dataclasses import replace

from trueflops.catalog import Accelerator, Cluster
from trueflops.clock.silicon import USUAL_CLOCK
from trueflops.profile import CurveKey, Profile, slower_host


def share_cores(where: Cluster, profile: Profile) -> tuple[Cluster, Profile]:
    """Of ranks on one CPU; any other cluster is as it was."""
    chip, ranks = where.accelerator, where.count
    if not chip.is_cpu:
        return where, profile
    profile = tensor_by_tensor(profile)
    if ranks == 1:
        return where, profile
    waits = _waits(chip, ranks)
    key = CurveKey("dispatch")
    told = f"× {waits:.2f}: {ranks} ranks on {chip.get('compute.units') or 1:.0f} cores"
    slower = slower_host(profile.curve(key), waits, told)
    return replace(where, accelerator=_part(chip, ranks)), profile.having({key: slower})


def tensor_by_tensor(profile: Profile) -> Profile:
    """torch.optim walks over lists on GPUs alone (torch/optim/optimizer.py,
    _default_to_fused_or_foreach).
    """
    key = CurveKey("framework")
    framework = profile.curve(key)
    return profile.having({key: replace(framework, values={**framework.values, "foreach": 0.0})})


def _waits(chip: Accelerator, ranks: int) -> float:
    """How much longer one thread of a rank takes."""
    return max(ranks / (chip.get("compute.units") or 1.0), 1.0)


def _part(chip: Accelerator, ranks: int) -> Accelerator:
    values = dict(chip.values)
    for path, value in chip.values.items():
        if value and (path.startswith("peak.") or path == "memory.bandwidth"):
            values[path] = value / ranks
    values["compute.clock"] = (chip.get("compute.clock") or USUAL_CLOCK) / _waits(chip, ranks)
    return replace(chip, values=values)
