"""How a server lays a model on its accelerators: the one place where such a Plan is made."""

from __future__ import annotations

from typing import Final

from trueflops.model import Model
from trueflops.plan.plan import Plan

DEGREES: Final = ("tp", "pp", "ep", "etp", "dcp")
"""What is said of a server's plan; replicas are what is left."""


def usual_etp(tp: int, ep: int) -> int:
    """Ranks that split each expert where a replica has all experts: what ep leaves of tp."""
    return max(tp // ep, 1)


def shares_experts(plan: Plan) -> bool:
    """Whether replicas, each with its own attention, share experts."""
    return bool(plan.ep * plan.etp > plan.tp)


def serving_plan(
    model: Model,
    compute: str,
    *,
    tp: int = 1,
    pp: int = 1,
    replicas: int = 1,
    ep: int = 1,
    etp: int | None = None,
    dcp: int = 1,
) -> Plan:
    """A plan of `replicas` that each have their own attention and cache.

    Experts are spread over `ep` ranks, of one replica or of several that share them, and each is
    split over `etp` ranks; without it over those that tp has beyond ep. Engines send a token once
    to each node and forward it there (DeepEP, pplx-kernels).
    """
    left = usual_etp(tp, ep) if model.is_moe else 1
    return Plan(
        tp=tp,
        pp=pp,
        dp_replicate=replicas,
        ep=ep,
        etp=left if etp is None else etp,
        compute=compute,
        dispatch="deduplicated",
        dcp=dcp,
    )
