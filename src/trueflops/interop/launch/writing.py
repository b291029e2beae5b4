"""A plan as the files of a tool, by the tool's name.

In: a tool, a plan, a model, a workload, a cluster. Out: files by name and what reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType, ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trueflops.errors import BadInput, join_or
from trueflops.interop.launch import (
    accelerate,
    deepspeed,
    megatron,
    nemo,
    slurm,
    torchtitan,
    trainer,
)
from trueflops.interop.launch.settings import Asked, Written, canonical
from trueflops.language import say
from trueflops.model import Model
from trueflops.plan import Plan

TOOLS: Final[Mapping[str, ModuleType]] = MappingProxyType(
    {tool.NAME: tool for tool in (megatron, torchtitan, deepspeed, nemo, accelerate)}
)


def write_launch(tool: str, asked: Asked) -> Written:
    """The files with which a tool starts a plan; what it has no setting for is refused."""
    plain = replace(asked, plan=canonical(asked.plan))
    if tool == slurm.NAME:
        return slurm.write(plain, write_launch(tool_of(tool, asked.framework), plain))
    written: Written = TOOLS[tool].write(plain)
    return written


def tool_of(tool: str, framework: str | None) -> str:
    """The tool itself; of slurm, the one that it starts for a framework."""
    if tool != slurm.NAME:
        return tool
    for name, module in TOOLS.items():
        if framework in module.FRAMEWORKS:
            return name
    known = [module.FRAMEWORKS[0] for module in TOOLS.values()]
    raise BadInput(
        say(
            "--emit slurm starts another tool: name it with --framework {known}",
            known=join_or(known),
        )
    )


def framework_of(tool: str, framework: str | None) -> str:
    """The framework whose plans a tool runs: the one that was named, else the tool's own."""
    module = TOOLS[tool_of(tool, framework)]
    own: tuple[str, ...] = module.FRAMEWORKS
    if framework is not None and framework not in own:
        raise BadInput(
            say(
                "--emit {tool} writes nothing for --framework {framework}; leave "
                "--framework out, or write {own}",
                tool=tool,
                framework=framework,
                own=join_or(own),
            )
        )
    return framework or own[0]


def usual_of(tool: str, framework: str, *, packed: bool = False) -> Mapping[str, Any]:
    """Fields of a plan as the tool has them, where nobody says otherwise; `packed`: of QLoRA."""
    usual: Mapping[str, Any] = TOOLS[tool_of(tool, framework)].USUAL
    if tool_of(tool, framework) != accelerate.NAME:
        return usual
    if framework == "deepspeed":
        return deepspeed.USUAL
    return {**usual, **trainer.PACKED} if packed else usual


def writable(tool: str, framework: str, model: Model, plans: Plan) -> NDArray[np.bool_]:
    """Which of many plans a tool can be told, as far as their numbers decide it."""
    name = tool_of(tool, framework)
    told = _told(name, framework, plans)
    if name not in (megatron.NAME, nemo.NAME):  # these have a word for every piece
        pieces = np.asarray(plans.pp * plans.vpp)
        given = np.asarray(plans.first_stage_layers) + np.asarray(plans.last_stage_layers)
        told = told & ((np.asarray(plans.vpp) == 1) | ((model.layers % pieces == 0) & (given == 0)))
    return np.broadcast_to(told, plans.count)


def _told(name: str, framework: str, plans: Plan) -> NDArray[np.bool_]:
    whole = np.isinf(np.broadcast_to(plans.recompute_layers, plans.count))
    zero, copies = np.asarray(plans.zero), np.asarray(plans.dp_replicate)
    pp, inner = np.asarray(plans.pp), np.asarray(plans.tp * plans.cp)
    if name in (megatron.NAME, nemo.NAME):
        some = np.where(whole, 0.0, plans.recompute_layers)
        return np.asarray(some % plans.vpp == 0)
    if name == torchtitan.NAME:
        return whole & ((zero >= 2) | ((zero == 0) & (np.asarray(plans.cp) == 1)))
    alone = whole & (pp == 1) & (np.asarray(plans.ep) == 1)
    if framework == "deepspeed":
        no_cp = np.asarray(plans.cp) == 1
        return alone & no_cp & ((zero == 0) | (copies == 1)) & ((inner == 1) | (zero < 3))
    if framework == "trainer":
        return alone & (zero == 0) & (inner == 1)
    shared = (zero >= 2) | (np.asarray(plans.dp * plans.cp) == 1)
    return alone & shared & ((inner == 1) | (framework == "fsdp2"))
