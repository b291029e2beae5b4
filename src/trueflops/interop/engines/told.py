"""What an engine can be told: plans that it runs, and settings that a flag of it asks for.

In: a deployment that is to be written, or a setting of a question. Out: nothing, or an error that
names the flag. Which plans run is profile/runnable.py's; which flags there are is deployed.py's.
"""

from __future__ import annotations

from typing import Final

from trueflops.errors import BadInput, ImpossiblePlan, join_or
from trueflops.interop.engines.deployed import VOCABULARIES, Deployed
from trueflops.language import say
from trueflops.plan import Plan
from trueflops.plan.serving import usual_etp
from trueflops.profile.engines import engine_of
from trueflops.profile.frameworks import SERVING
from trueflops.profile.runnable import Deployment, why_not_run

_SWITCHES: Final = ("enforce_eager", "two_batch_overlap")
"""Of a Deployed and of infer alike; not every engine has them."""


def check_told(tool: str, deployed: Deployed, per_node: int) -> None:
    """Refuse to write what an engine could not start with."""
    for switch in _SWITCHES:
        if getattr(deployed, switch):
            check_switch(switch, deployed.engine)
    if (deployed.speculative_topk or 1) > 1 and not has_flag(deployed.engine, "speculative_topk"):
        raise BadInput(
            say(
                "--speculate {method}: each draft has {branches} alternatives, and no flag of "
                "{engine} asks for them; write for SGLang, or ask for --speculative-topk 1",
                method=deployed.speculate,
                branches=deployed.speculative_topk,
                engine=deployed.engine,
            )
        )
    engine = engine_of(deployed.engine, deployed.release or "")
    if refused := why_not_run(Deployment(_plan_of(deployed), engine, per_node)):
        said = say("--emit {tool}: {why}", tool=tool, why=refused)
        raise ImpossiblePlan(refused.code, said)


def check_switch(switch: str, engine: str) -> None:
    """Refuse what a named engine does not have; one that nobody named has it all."""
    if engine == SERVING or has_flag(engine, switch):
        return
    raise BadInput(
        say(
            "{flag}: no flag of {engine} for it is known; leave it out, or write --engine {others}",
            flag="--" + switch.replace("_", "-"),
            engine=engine,
            others=join_or(name for name in VOCABULARIES if has_flag(name, switch)),
        )
    )


def has_flag(engine: str, field: str) -> bool:
    """Whether a flag of an engine says a field of a Deployed."""
    spoken = VOCABULARIES.get(engine)
    return spoken is not None and field in spoken.flags


def _plan_of(deployed: Deployed) -> Plan:
    """The degrees of a deployment; what ep leaves of tp splits each expert."""
    tp, ep = deployed.tp or 1, deployed.ep or 1
    return Plan(
        tp=tp,
        pp=deployed.pp or 1,
        dp_replicate=deployed.dp or 1,
        ep=ep,
        etp=deployed.etp or usual_etp(tp, ep),
    )
